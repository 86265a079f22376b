//! The rules that a document has to keep, all violations at once.
//!
//! Two levels. [`Spec::validate`] is what readers in the field enforce when they load a file, plus the one
//! name form that makes some of them crash. [`Spec::validate_for_writing`] adds what a careful writer keeps
//! although no reader would complain. Neither looks at the host.

use std::fmt;

use thiserror::Error;

use crate::model::Spec;
use crate::name::{Grammar, NameError};
use crate::version::{UnknownVersion, Version};

mod readers;
mod writers;

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Rule {
    /// `cdiVersion` is none of the released ones.
    #[error("{0}")]
    UnknownVersion(UnknownVersion),
    /// The content uses more than the declared version has.
    #[error("declares {declared}, its content needs {minimum} or later")]
    VersionTooLow {
        /// As declared.
        declared: Version,
        /// By [`Spec::minimum_version`].
        minimum: Version,
    },
    /// `kind` is no `vendor/class`.
    #[error("{0}")]
    Kind(NameError),
    /// A file needs a device.
    #[error("has no device")]
    NoDevice,
    /// A device name breaks the grammar.
    #[error("device name {name:?} {fault}")]
    DeviceName {
        /// As written.
        name: String,
        /// What is wrong.
        fault: Grammar,
    },
    /// Two devices of one file have one name.
    #[error("repeats the name {name:?} of devices[{first}]")]
    DuplicateDevice {
        /// The name.
        name: String,
        /// Index of the earlier device.
        first: usize,
    },
    /// A device needs an edit of its own; those of the file do not count.
    #[error("has no edit of its own")]
    NoEdit,
    /// Not `NAME=VALUE` with a name.
    #[error("{0:?} is not `NAME=VALUE`")]
    Env(String),
    /// A required text is empty.
    #[error("is empty")]
    Empty,
    /// None of b, c, u, p.
    #[error("{0:?} is not one of b, c, u, p")]
    NodeType(String),
    /// Neither letters of `rwm` nor `none`.
    #[error("{0:?} is neither made of r, w, m nor `none`")]
    Permissions(String),
    /// No hook phase of OCI.
    #[error("{0:?} is no OCI hook")]
    HookName(String),
    /// Not usable as the name of a resctrl directory.
    #[error("is no legal closID: at most 4095 bytes, not `.` or `..`, no slash or newline")]
    ClosId,
    /// Writing: the Rust port refuses the root group.
    #[error("`/` is refused by some readers; leave closID out")]
    RootClosId,
    /// A network device is named twice in one edits object.
    #[error("repeats {0:?}")]
    DuplicateNetDevice(String),
    /// Writing: the key is no qualified name of Kubernetes.
    #[error("the key {0:?} is no qualified name (`[dns.prefix/]name`, 63 characters)")]
    AnnotationKey(String),
    /// Writing: more than 256 KiB of keys and values.
    #[error("{0} bytes are more than the 262144 that annotations may have")]
    AnnotationSize(usize),
    /// Writing: not an absolute path in its shortest form.
    #[error("{0:?} is not absolute, or has a `.`, `..` or empty component")]
    Path(String),
    /// Writing: no kernel interface takes a NUL.
    #[error("contains a NUL")]
    Nul,
    /// Writing: an empty text where absence is meant.
    #[error("is present but empty; leave it out")]
    EmptyOptional,
    /// Writing: outside of what the kernel or a reader's schema takes.
    #[error("{value} is not within 0..={max}")]
    Range {
        /// As written.
        value: i64,
        /// The largest.
        max: i64,
    },
    /// Writing: readers built on CDI v1.1.0 refuse the word.
    #[error("`none` is unknown to readers built on CDI v1.1.0")]
    NonePermissions,
}

impl Rule {
    /// Which rule, for scripts: stable words with hyphens, without the values at hand.
    pub const fn id(&self) -> &'static str {
        match self {
            Self::UnknownVersion(_) => "unknown-version",
            Self::VersionTooLow { .. } => "version-too-low",
            Self::Kind(_) => "kind",
            Self::NoDevice => "no-device",
            Self::DeviceName { .. } => "device-name",
            Self::DuplicateDevice { .. } => "duplicate-device",
            Self::NoEdit => "no-edit",
            Self::Env(_) => "env",
            Self::Empty => "empty",
            Self::NodeType(_) => "type",
            Self::Permissions(_) => "permissions",
            Self::HookName(_) => "hook-name",
            Self::ClosId => "clos-id",
            Self::RootClosId => "root-clos-id",
            Self::DuplicateNetDevice(_) => "duplicate-net-device",
            Self::AnnotationKey(_) => "annotation-key",
            Self::AnnotationSize(_) => "annotation-size",
            Self::Path(_) => "path",
            Self::Nul => "nul",
            Self::EmptyOptional => "empty-optional",
            Self::Range { .. } => "range",
            Self::NonePermissions => "none-permissions",
        }
    }
}

/// A broken rule and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{place}: {rule}")]
pub struct Violation {
    /// Such as `devices[0]("GPU-…").containerEdits.deviceNodes[1].type`.
    pub place: String,
    /// What.
    pub rule: Rule,
}

/// At least one violation, in document order.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub struct Violations(Vec<Violation>);

impl Violations {
    /// All of them.
    pub fn as_slice(&self) -> &[Violation] {
        &self.0
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<Violation> {
        self.0
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, violation) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{violation}")?;
        }
        Ok(())
    }
}

impl Spec {
    /// What readers refuse at load (CDI reference: versions, names, validation at load).
    ///
    /// Stricter than containerd's head in one point: a vendor or class of one character, on which readers
    /// built on the Go library v1.1.0 crash while they scan the directory.
    pub fn validate(&self) -> Result<(), Violations> {
        let mut report = Report::default();
        readers::check(self, &mut report);
        report.finish()
    }

    /// [`Spec::validate`], and: absolute paths without `.` or `..`, legal annotation keys and size, no NUL,
    /// no empty optional member, numbers in range, no `none` permission. [`crate::write_spec`] asks for this.
    pub fn validate_for_writing(&self) -> Result<(), Violations> {
        let mut report = Report::default();
        readers::check(self, &mut report);
        writers::check(self, &mut report);
        report.finish()
    }
}

/// Collects violations; knows where in the document the check is.
#[derive(Default)]
struct Report {
    place: String,
    found: Vec<Violation>,
}

impl Report {
    fn finish(self) -> Result<(), Violations> {
        if self.found.is_empty() {
            Ok(())
        } else {
            Err(Violations(self.found))
        }
    }

    fn add(&mut self, rule: Rule) {
        let place = match self.place.strip_prefix('.') {
            Some(place) => place.to_owned(),
            None if self.place.is_empty() => "the document".to_owned(),
            None => self.place.clone(),
        };
        self.found.push(Violation { place, rule });
    }

    /// Adds the rule when the check fails.
    fn require(&mut self, kept: bool, rule: impl FnOnce() -> Rule) {
        if !kept {
            self.add(rule());
        }
    }

    /// Runs a check one level deeper.
    fn at(&mut self, step: fmt::Arguments<'_>, check: impl FnOnce(&mut Self)) {
        let outer = self.place.len();
        // Writing to a String cannot fail.
        let _ = fmt::Write::write_fmt(&mut self.place, step);
        check(self);
        self.place.truncate(outer);
    }

    /// [`Report::at`] for a member.
    fn field(&mut self, name: &str, check: impl FnOnce(&mut Self)) {
        self.at(format_args!(".{name}"), check);
    }

    /// [`Report::at`] for every element of a list member.
    fn each<T>(&mut self, name: &str, items: &[T], mut check: impl FnMut(&mut Self, &T)) {
        for (i, item) in items.iter().enumerate() {
            self.at(format_args!(".{name}[{i}]"), |report| check(report, item));
        }
    }
}

#[cfg(test)]
mod tests;
