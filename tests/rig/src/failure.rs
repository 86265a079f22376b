//! What can go wrong in the rig. One enum for the crate: every caller is a test or the demo, which
//! prints it and gives up.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A step of the rig that did not work.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A file operation.
    #[error("can't {verb} {}: {source}", path.display())]
    File {
        /// `read`, `write`, `create`, …
        verb: &'static str,
        /// The object.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program could not be started.
    #[error("can't start `{program}`: {source}")]
    Spawn {
        /// As it was called.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program ended with a failure.
    #[error("`{program}` failed ({status}): {output}")]
    Command {
        /// As it was called.
        program: String,
        /// Exit status in words.
        status: String,
        /// The end of what it wrote.
        output: String,
    },
    /// Something that the rig needs is not there.
    #[error("{what} is missing: {remedy}")]
    Missing {
        /// The object.
        what: String,
        /// What to do about it.
        remedy: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {} s: {detail}", within.as_secs_f32())]
    Timeout {
        /// What was waited for.
        what: String,
        /// For how long.
        within: Duration,
        /// The end of the log that should have shown it, or the last error.
        detail: String,
    },
    /// containerd refused or failed a CRI call.
    #[error("{call} of {object}: {status}")]
    Cri {
        /// Name of the RPC.
        call: &'static str,
        /// The pod or container.
        object: String,
        /// The status with its message, which carries the NRI plugin's sentence.
        status: Box<tonic::Status>,
    },
    /// The CRI socket does not answer.
    #[error("can't connect to {}: {source}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What tonic said.
        source: tonic::transport::Error,
    },
    /// What was read is not what was expected.
    #[error("{what}: {detail}")]
    Unexpected {
        /// The object.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A world is gone, but not everything of it.
    #[error("left behind: {}", .0.join("; "))]
    Leftovers(Vec<String>),
}

impl Failure {
    pub(crate) fn file(
        verb: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_owned();
        move |source| Self::File { verb, path, source }
    }

    pub(crate) fn unexpected(what: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::Unexpected {
            what: what.into(),
            detail: format!("{detail}"),
        }
    }

    /// The message of the RPC status, where this is a refused CRI call.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Cri { status, .. } => Some(status.message()),
            _ => None,
        }
    }
}
