//! What the registry answers when there is no answer, in words that name every file concerned.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::name::QualifiedName;

/// A directory that exists and could not be listed.
#[derive(Debug, Error)]
#[error("list {}: {source}", path.display())]
pub struct DirError {
    /// The directory.
    pub path: PathBuf,
    /// From the system.
    pub source: io::Error,
}

/// Why a name gives no device.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResolveError {
    /// No file defines it.
    #[error("no CDI file defines `{name}`{}", unreadable_note(unreadable))]
    Unknown {
        /// The device.
        name: QualifiedName,
        /// Files that could not even be parsed, so that any of them may have been meant to.
        unreadable: Vec<PathBuf>,
    },
    /// Files of one directory both define it, so readers drop it.
    #[error("`{name}` is defined by {}; remove all but one", join(files))]
    Conflict {
        /// The device.
        name: QualifiedName,
        /// The files.
        files: Vec<PathBuf>,
    },
    /// The only files which define it are invalid.
    #[error("the file that defines `{name}` is invalid: {reason}")]
    Broken {
        /// The device.
        name: QualifiedName,
        /// The file.
        path: PathBuf,
        /// Its error, which names the file.
        reason: String,
    },
}

/// Some of the asked devices have no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct UnresolvedDevices {
    /// One for each.
    pub errors: Vec<ResolveError>,
}

fn join(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    paths.join(" and ")
}

fn unreadable_note(paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        String::new()
    } else {
        format!("; unreadable: {}", join(paths))
    }
}
