//! What a check tells: one fact with an id that scripts may rely on.
//!
//! Owns the form only. Which findings there are is each check's own business.

use std::fmt;

use serde::Serialize;

/// How bad it is. The order is from bad to harmless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A container that asks for the device fails, or gets something else.
    Error,
    /// Works now, and breaks with the next change or for some consumers.
    Warning,
    /// Worth knowing; no command fails because of it.
    Info,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        })
    }
}

/// One fact, told so that a person can act on it and a script can match it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable, in lower case with hyphens.
    pub id: &'static str,
    /// See [`Severity`].
    pub severity: Severity,
    /// What it is about: a file, a directory, a device.
    pub subject: String,
    /// What was seen, one sentence each; never empty.
    pub evidence: Vec<String>,
    /// What to do.
    pub remedy: String,
}

/// Whether a command that reports these has a negative answer.
pub fn is_negative(findings: &[Finding]) -> bool {
    findings
        .iter()
        .any(|finding| finding.severity != Severity::Info)
}
