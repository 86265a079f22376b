//! What to write to a v1 `devices` cgroup. Pure.
//!
//! The list of a cgroup has one of two behaviours (kernel documentation, cgroup-v1/devices):
//! - *allow-all*: everything but exceptions that can't be read back; `devices.deny` adds one,
//!   `devices.allow` removes one that is exactly the same.
//! - *whitelist*: nothing but the entries; `devices.deny` removes the entry that is exactly the same,
//!   and does nothing, successfully, where a wildcard covers the number.
//!
//! Invariants: only reading and writing are denied, never `mknod` by itself: an exception that has
//! `m` in it would make the kernel refuse `c *:* m`, which every runtime allows to the containers
//! below (a second container of the pod, or those of a runtime within a privileged container). On a
//! whitelist nothing is allowed that an entry of it did not allow before.

use std::fmt;
use std::str::FromStr;

use super::filter::{Denied, Filter};
use crate::host::NVIDIA_MAJOR;

/// v1 can only enumerate. NVIDIA's driver registers these minors of its major, and DRM and vfio
/// give out the lowest first.
const MINORS: std::ops::RangeInclusive<u32> = 0..=255;
/// A minor of NVIDIA's major that its driver has not registered, so that opening it never reaches the
/// driver: whether it is denied shows whether a fence is up, where exceptions can't be read back.
pub(super) const WITNESS: u32 = 4095;
/// What the fence denies on an allow-all list.
const OPEN: Access = Access {
    read: true,
    write: true,
    mknod: false,
};

/// Which uses of a device a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    read: bool,
    write: bool,
    mknod: bool,
}

/// Block or character devices, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `a`
    All,
    /// `b`
    Block,
    /// `c`
    Character,
}

/// One line of `devices.list`, and the text written to `devices.allow` or `devices.deny`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    kind: Kind,
    /// None for `*`.
    major: Option<u32>,
    /// None for `*`.
    minor: Option<u32>,
    access: Access,
}

/// A line of `devices.list` has another form than the kernel's documentation gives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unreadable device rule `{0}`")]
pub struct MalformedRule(String);

/// One write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    /// To `devices.allow`.
    Allow(Rule),
    /// To `devices.deny`.
    Deny(Rule),
}

/// Reads `devices.list`.
pub(super) fn parse(text: &str) -> Result<Vec<Rule>, MalformedRule> {
    text.lines().map(str::parse).collect()
}

/// Whether the list has the allow-all behaviour.
pub(super) fn allows_all(list: &[Rule]) -> bool {
    list.iter().any(|rule| rule.kind == Kind::All)
}

/// The exceptions that an allow-all list needs.
pub(super) fn exceptions(filter: &Filter) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (major, denied) in filter.majors() {
        match denied {
            Denied::AllBut(minors) if minors.is_empty() => rules.push(exception(major, None)),
            _ => rules.extend(
                MINORS
                    .filter(|minor| denied.denies(*minor))
                    .chain(beyond(major, denied))
                    .map(|minor| exception(major, Some(minor))),
            ),
        }
    }
    rules
}

/// The exceptions that a *narrower* fence may have put on an allow-all list, and which `filter` does
/// not have; `nothing` is the filter of a container without a GPU.
pub(super) fn lifted(filter: &Filter, nothing: &Filter) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (major, narrow) in nothing.majors() {
        let now = filter.major(major);
        if now != Some(narrow) && matches!(narrow, Denied::AllBut(_)) {
            rules.push(exception(major, None));
        }
        let candidates: Vec<u32> = match (narrow, now) {
            (_, Some(Denied::AllBut(minors))) | (Denied::Only(minors), _) => {
                minors.iter().copied().collect()
            }
            (Denied::AllBut(_), _) => Vec::new(),
        };
        let open = candidates
            .into_iter()
            .filter(|minor| now.is_none_or(|denied| !denied.denies(*minor)));
        rules.extend(open.map(|minor| exception(major, Some(minor))));
    }
    rules
}

/// What to write so that a whitelist allows nothing that `filter` denies, in this order: what stays
/// allowed is allowed by itself before the wildcard that covered it goes.
///
/// The second value is an entry that can't be narrowed, as it has no major: it would take every
/// other device with it.
pub(super) fn narrowed(list: &[Rule], filter: &Filter) -> (Vec<Write>, Option<Rule>) {
    let (mut writes, mut wide) = (Vec::new(), None);
    for rule in list {
        if rule.kind == Kind::Block || !(rule.access.read || rule.access.write) {
            continue;
        }
        let Some(major) = rule.major else {
            let touched = filter.majors().next().is_some();
            wide = wide.or(touched.then_some(*rule));
            continue;
        };
        let Some(denied) = filter.major(major) else {
            continue;
        };
        match (rule.minor, denied) {
            (Some(minor), _) if denied.denies(minor) => writes.push(Write::Deny(*rule)),
            (Some(_), _) => {}
            (None, Denied::Only(minors)) if minors.is_empty() => {}
            (None, _) => {
                let one = |minor| {
                    Write::Allow(Rule {
                        minor: Some(minor),
                        ..*rule
                    })
                };
                let left: Vec<u32> = match denied {
                    Denied::AllBut(minors) => minors.iter().copied().collect(),
                    Denied::Only(_) => MINORS.filter(|minor| !denied.denies(*minor)).collect(),
                };
                writes.extend(left.into_iter().map(one));
                writes.push(Write::Deny(*rule));
            }
        }
    }
    (writes, wide)
}

fn exception(major: u32, minor: Option<u32>) -> Rule {
    Rule {
        kind: Kind::Character,
        major: Some(major),
        minor,
        access: OPEN,
    }
}

/// Denied numbers above those that are enumerated, as far as they have a name.
fn beyond(major: u32, denied: &Denied) -> impl Iterator<Item = u32> {
    let (minors, witness) = match denied {
        Denied::Only(minors) => (Some(minors), None),
        Denied::AllBut(_) => (None, (major == NVIDIA_MAJOR).then_some(WITNESS)),
    };
    let above = minors.into_iter().flatten().copied();
    above.filter(|minor| !MINORS.contains(minor)).chain(witness)
}

impl FromStr for Rule {
    type Err = MalformedRule;

    fn from_str(text: &str) -> Result<Self, MalformedRule> {
        let malformed = || MalformedRule(text.chars().take(80).collect());
        let number = |text: &str| match text {
            "*" => Ok(None),
            _ => text.parse().map(Some).map_err(|_| malformed()),
        };
        let mut words = text.split_whitespace();
        let (Some(kind), Some(numbers), Some(access), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(malformed());
        };
        let kind = match kind {
            "a" => Kind::All,
            "b" => Kind::Block,
            "c" => Kind::Character,
            _ => return Err(malformed()),
        };
        let (major, minor) = numbers.split_once(':').ok_or_else(malformed)?;
        if !access.bytes().all(|byte| b"rwm".contains(&byte)) {
            return Err(malformed());
        }
        Ok(Self {
            kind,
            major: number(major)?,
            minor: number(minor)?,
            access: Access {
                read: access.contains('r'),
                write: access.contains('w'),
                mknod: access.contains('m'),
            },
        })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::All => 'a',
            Kind::Block => 'b',
            Kind::Character => 'c',
        };
        let number = |n: Option<u32>| n.map_or("*".to_owned(), |n| n.to_string());
        write!(f, "{kind} {}:{} ", number(self.major), number(self.minor))?;
        for (letter, set) in [
            ("r", self.access.read),
            ("w", self.access.write),
            ("m", self.access.mknod),
        ] {
            f.write_str(if set { letter } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
