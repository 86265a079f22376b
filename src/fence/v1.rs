//! The fence on cgroup v1: writes to `devices.deny` and `devices.allow`.
//!
//! Owns the files of a `devices` cgroup. What to write is in [`super::rules`]; whether it had an
//! effect can't be read back, and is for [`super::trial`] to find out.

use std::fs::File;
use std::io::{self, Read as _};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, write};

use super::filter::Filter;
use super::rules::{self, MalformedRule, Rule, Write};
use crate::host::Group;

/// More than any real list.
const LIST_LIMIT: u64 = 1 << 20;

/// The fence could not be put up on cgroup v1.
#[derive(Debug, thiserror::Error)]
pub enum V1Error {
    /// A file could not be used.
    #[error("cannot {verb} {cgroup}/{file}: {source}")]
    File {
        /// What was tried.
        verb: String,
        /// The cgroup.
        cgroup: String,
        /// The file in it.
        file: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The list can't be understood.
    #[error("{cgroup}/devices.list: {source}")]
    List {
        /// The cgroup.
        cgroup: String,
        /// The line.
        source: MalformedRule,
    },
}

/// How far v1 could be brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Narrowed {
    /// All of the filter is in place.
    Wholly,
    /// An entry of a whitelist allows devices of every major at once, and can't be taken apart.
    AllBut(Rule),
}

/// Narrows the list of a container.
pub(super) fn narrow(group: &Group, filter: &Filter) -> Result<Narrowed, V1Error> {
    let list = list(group)?;
    if rules::allows_all(&list) {
        deny(group, rules::exceptions(filter))?;
        return Ok(Narrowed::Wholly);
    }
    let (writes, wide) = rules::narrowed(&list, filter);
    let (allow, deny) = (
        Control::open(group, "devices.allow")?,
        Control::open(group, "devices.deny")?,
    );
    for write in writes {
        match write {
            Write::Allow(rule) => allow.write(&rule),
            Write::Deny(rule) => deny.write(&rule),
        }
        .map_err(|(rule, errno)| refused(group, &rule, errno))?;
    }
    Ok(wide.map_or(Narrowed::Wholly, Narrowed::AllBut))
}

/// Brings the list of a pod to the union of its grants. False where it is a whitelist, which can't be
/// widened again without knowing what it allowed at first.
pub(super) fn set_pod(group: &Group, filter: &Filter, nothing: &Filter) -> Result<bool, V1Error> {
    if !rules::allows_all(&list(group)?) {
        return Ok(false);
    }
    deny(group, rules::exceptions(filter))?;
    let allow = Control::open(group, "devices.allow")?;
    for rule in rules::lifted(filter, nothing) {
        match allow.write(&rule) {
            // A cgroup further up denies it: not ours to lift.
            Ok(()) | Err((_, Errno::PERM)) => {}
            Err((rule, errno)) => return Err(refused(group, &rule, errno)),
        }
    }
    Ok(true)
}

fn deny(group: &Group, rules: Vec<Rule>) -> Result<(), V1Error> {
    let deny = Control::open(group, "devices.deny")?;
    for rule in rules {
        deny.write(&rule)
            .map_err(|(rule, errno)| refused(group, &rule, errno))?;
    }
    Ok(())
}

fn list(group: &Group) -> Result<Vec<Rule>, V1Error> {
    let failed = |source| V1Error::File {
        verb: "read".to_owned(),
        cgroup: group.path().display().to_string(),
        file: "devices.list",
        source,
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = openat(group.dir(), "devices.list", flags, Mode::empty())
        .map_err(|errno| failed(errno.into()))?;
    let mut text = String::new();
    File::from(file)
        .take(LIST_LIMIT)
        .read_to_string(&mut text)
        .map_err(failed)?;
    rules::parse(&text).map_err(|source| V1Error::List {
        cgroup: group.path().display().to_string(),
        source,
    })
}

/// An open control file: the kernel takes one rule a write.
struct Control(std::os::fd::OwnedFd);

impl Control {
    fn open(group: &Group, file: &'static str) -> Result<Self, V1Error> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match openat(group.dir(), file, flags, Mode::empty()) {
            Ok(fd) => Ok(Self(fd)),
            Err(errno) => Err(V1Error::File {
                verb: "open".to_owned(),
                cgroup: group.path().display().to_string(),
                file,
                source: errno.into(),
            }),
        }
    }

    fn write(&self, rule: &Rule) -> Result<(), (Rule, Errno)> {
        match write(&self.0, rule.to_string().as_bytes()) {
            Ok(_) => Ok(()),
            Err(errno) => Err((*rule, errno)),
        }
    }
}

fn refused(group: &Group, rule: &Rule, errno: Errno) -> V1Error {
    V1Error::File {
        verb: format!("write `{rule}` to a control file beside"),
        cgroup: group.path().display().to_string(),
        file: "devices.list",
        source: errno.into(),
    }
}
