//! From bytes to a [`Spec`]: strict, bounded, never a panic.
//!
//! Unknown and repeated fields, YAML tags and a second document are refused. Whether the values make
//! sense is the business of [`Spec::validate`].

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeSeed;
use thiserror::Error;

use crate::de::Budget;
use crate::emit::Format;
use crate::model::Spec;
use crate::validate::Violations;

/// The largest accepted file. A node with 64 GPUs needs about a quarter of a megabyte.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// What a document may expand to through YAML aliases.
const MAX_EXPANDED: usize = 4 * MAX_BYTES;

/// Why a text is no CDI document. The source of a syntax error names line and column.
#[derive(Debug, Error)]
pub enum ParseError {
    /// Larger than [`MAX_BYTES`].
    #[error("{0} bytes are more than the accepted {MAX_BYTES}")]
    TooLarge(usize),
    /// No YAML, or not of this shape.
    #[error("{0}")]
    Yaml(#[source] serde_yaml::Error),
    /// No JSON, or not of this shape.
    #[error("{0}")]
    Json(#[source] serde_json::Error),
}

/// Why a file gives no spec. Every variant names the file.
#[derive(Debug, Error)]
pub enum LoadError {
    /// Readers take the format from the extension and ignore every other file.
    #[error("{}: neither .json nor .yaml", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// Could not be opened or read.
    #[error("read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// From the system.
        source: io::Error,
    },
    /// A directory, FIFO, socket or device.
    #[error("{}: not a regular file", path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// Not UTF-8.
    #[error("{}: not UTF-8 after byte {valid}", path.display())]
    Encoding {
        /// The file.
        path: PathBuf,
        /// How many bytes are UTF-8.
        valid: usize,
    },
    /// Not a CDI document.
    #[error("{}: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What and where.
        source: ParseError,
    },
    /// A CDI document that breaks the rules.
    #[error("{}: {violations}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// All of them.
        violations: Violations,
    },
}

impl LoadError {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Extension { path }
            | Self::Read { path, .. }
            | Self::NotAFile { path }
            | Self::Encoding { path, .. }
            | Self::Parse { path, .. }
            | Self::Invalid { path, .. } => path,
        }
    }
}

impl Spec {
    /// Parses one YAML document. Does not validate.
    pub fn from_yaml(text: &str) -> Result<Self, ParseError> {
        bounded(text)?;
        let mut left = MAX_EXPANDED;
        Budget { left: &mut left }
            .deserialize(serde_yaml::Deserializer::from_str(text))
            .map_err(ParseError::Yaml)?;
        serde_yaml::from_str(text).map_err(ParseError::Yaml)
    }

    /// Parses one JSON document. Does not validate.
    pub fn from_json(text: &str) -> Result<Self, ParseError> {
        bounded(text)?;
        serde_json::from_str(text).map_err(ParseError::Json)
    }

    /// Parses in the given format. Does not validate.
    pub fn parse(text: &str, format: Format) -> Result<Self, ParseError> {
        match format {
            Format::Yaml => Self::from_yaml(text),
            Format::Json => Self::from_json(text),
        }
    }

    /// Parses a file, the format by its extension. Does not validate; [`Spec::load`] does.
    ///
    /// A symbolic link is followed, as readers do; only a regular file is read, so that a FIFO in the
    /// directory cannot block the caller.
    pub fn from_file(path: &Path) -> Result<Self, LoadError> {
        let format = Format::from_path(path).ok_or_else(|| LoadError::Extension {
            path: path.to_owned(),
        })?;
        let text = read_bounded(path)?;
        Self::parse(&text, format).map_err(|source| LoadError::Parse {
            path: path.to_owned(),
            source,
        })
    }

    /// Parses and validates a file by the readers' rules.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let spec = Self::from_file(path)?;
        match spec.validate() {
            Ok(()) => Ok(spec),
            Err(violations) => Err(LoadError::Invalid {
                path: path.to_owned(),
                violations,
            }),
        }
    }
}

fn bounded(text: &str) -> Result<(), ParseError> {
    if text.len() > MAX_BYTES {
        return Err(ParseError::TooLarge(text.len()));
    }
    Ok(())
}

fn read_bounded(path: &Path) -> Result<String, LoadError> {
    let failed = |source| LoadError::Read {
        path: path.to_owned(),
        source,
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map(File::from)
        .map_err(|errno| failed(errno.into()))?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(LoadError::NotAFile {
            path: path.to_owned(),
        });
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() > MAX_BYTES {
        return Err(LoadError::Parse {
            path: path.to_owned(),
            source: ParseError::TooLarge(bytes.len()),
        });
    }
    String::from_utf8(bytes).map_err(|fault| LoadError::Encoding {
        path: path.to_owned(),
        valid: fault.utf8_error().valid_up_to(),
    })
}
