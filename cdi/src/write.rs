//! The writer: a reader sees the old file or the new one, whole, and only when something changed.
//!
//! The temporary file lies in the target's own directory, because the caches in the runtimes notice only a
//! rename from there, and its suffix is one that they ignore. Mode 0644 is set before the rename, the file
//! is synced before and the directory after it. A temporary file is locked while its writer lives; one that
//! is unlocked and old was left by a crash and is removed by the next writer of the same target.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};
use tempfile::NamedTempFile;
use thiserror::Error;

use crate::emit::Format;
use crate::model::Spec;
use crate::parse::MAX_BYTES;
use crate::validate::Violations;

mod leftovers;

/// Rootless users must be able to read.
const FILE_MODE: u32 = 0o644;
const DIR_MODE: u32 = 0o755;

/// What [`write_spec`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The file had this content. Only a mode other than 0644 was mended, which wakes no runtime.
    Unchanged,
    /// The file is new or was replaced.
    Written,
}

/// What [`remove_spec`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoveOutcome {
    /// There was none.
    Absent,
    /// It is gone.
    Removed,
}

/// Why nothing was written or removed. The target is what it was before, except after a failed
/// `sync the directory`, when it is new but may not survive a power cut.
#[derive(Debug, Error)]
pub enum WriteError {
    /// Readers ignore other names, or would take it for the other format.
    #[error("{}: a CDI file must end in .{} here", path.display(), format.extension())]
    Name {
        /// The target.
        path: PathBuf,
        /// The wanted format.
        format: Format,
    },
    /// The spec breaks rules; see [`Spec::validate_for_writing`].
    #[error("{}: not written, the spec is invalid: {violations}", path.display())]
    Invalid {
        /// The target.
        path: PathBuf,
        /// All of them.
        violations: Violations,
    },
    /// Larger than what [`Spec::from_file`] accepts.
    #[error("{}: not written, {size} bytes are more than the accepted {MAX_BYTES}", path.display())]
    TooLarge {
        /// The target.
        path: PathBuf,
        /// Of the output, in bytes.
        size: usize,
    },
    /// Replacing the link would surprise its owner, and following it would write elsewhere.
    #[error("{}: is a symbolic link; remove it or name its target", path.display())]
    Symlink {
        /// The target.
        path: PathBuf,
    },
    /// A directory, FIFO, socket or device.
    #[error("{}: exists and is not a regular file", path.display())]
    NotAFile {
        /// The target.
        path: PathBuf,
    },
    /// A step failed.
    #[error("{step} {}: {source}", path.display())]
    Io {
        /// In words, such as `rename to`.
        step: &'static str,
        /// What the step was about.
        path: PathBuf,
        /// From the system.
        source: io::Error,
    },
}

/// Turns an I/O error of a step into [`WriteError::Io`].
fn failed(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> WriteError {
    let path = path.to_owned();
    move |source| WriteError::Io { step, path, source }
}

/// Writes a spec atomically; a missing directory is created with mode 0755.
///
/// The name must end in the extension of the format. Nothing is touched unless the spec passes
/// [`Spec::validate_for_writing`].
pub fn write_spec(path: &Path, spec: &Spec, format: Format) -> Result<Outcome, WriteError> {
    if Format::from_path(path) != Some(format) {
        let path = path.to_owned();
        return Err(WriteError::Name { path, format });
    }
    spec.validate_for_writing()
        .map_err(|violations| WriteError::Invalid {
            path: path.to_owned(),
            violations,
        })?;
    let text = spec.emit(format);
    if text.len() > MAX_BYTES {
        return Err(WriteError::TooLarge {
            path: path.to_owned(),
            size: text.len(),
        });
    }
    let dir = directory_of(path);
    ensure_directory(dir)?;
    let current = open_target(path)?;
    leftovers::remove(dir, path);
    if let Some(file) = current
        && holds(&file, &text).map_err(failed("read", path))?
    {
        mend_mode(&file).map_err(failed("set the mode of", path))?;
        return Ok(Outcome::Unchanged);
    }
    replace(dir, path, text.as_bytes())?;
    Ok(Outcome::Written)
}

/// Removes a spec file, and makes the removal durable. Refuses everything that [`write_spec`] would
/// refuse as a target.
pub fn remove_spec(path: &Path) -> Result<RemoveOutcome, WriteError> {
    if Format::from_path(path).is_none() {
        return Err(WriteError::Name {
            path: path.to_owned(),
            format: Format::default(),
        });
    }
    let dir = directory_of(path);
    leftovers::remove(dir, path);
    if !is_regular(path)? {
        return Ok(RemoveOutcome::Absent);
    }
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(RemoveOutcome::Absent),
        Err(error) => return Err(failed("remove", path)(error)),
    }
    sync_directory(dir)?;
    Ok(RemoveOutcome::Removed)
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// Creates what is missing, mode 0755 whatever the umask; existing directories keep their mode.
fn ensure_directory(dir: &Path) -> Result<(), WriteError> {
    match fs::metadata(dir) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => {
            return Err(failed("use as a directory", dir)(
                io::ErrorKind::NotADirectory.into(),
            ));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("look at", dir)(error)),
    }
    let parent = directory_of(dir);
    ensure_directory(parent)?;
    match DirBuilder::new().mode(DIR_MODE).create(dir) {
        Ok(()) => {
            fs::set_permissions(dir, Permissions::from_mode(DIR_MODE))
                .map_err(failed("set the mode of", dir))?;
            sync_directory(parent)
        }
        // Another writer was faster; a dangling link is not a directory.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(error) => Err(failed("create the directory", dir)(error)),
    }
}

/// Whether there is a regular file; anything else under the name is an error.
fn is_regular(path: &Path) -> Result<bool, WriteError> {
    let kind = match fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(failed("look at", path)(error)),
    };
    let path = path.to_owned();
    if kind.is_symlink() {
        Err(WriteError::Symlink { path })
    } else if kind.is_file() {
        Ok(true)
    } else {
        Err(WriteError::NotAFile { path })
    }
}

fn open_target(path: &Path) -> Result<Option<File>, WriteError> {
    if !is_regular(path)? {
        return Ok(None);
    }
    // The name may have changed hands since; neither follow a link nor wait for a FIFO.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => Ok(Some(File::from(fd))),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(errno) => Err(failed("open", path)(errno.into())),
    }
}

fn holds(file: &File, text: &str) -> io::Result<bool> {
    if file.metadata()?.len() != text.len() as u64 {
        return Ok(false);
    }
    let mut bytes = Vec::with_capacity(text.len());
    file.take(text.len() as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes == text.as_bytes())
}

fn mend_mode(file: &File) -> io::Result<()> {
    if file.metadata()?.mode() & 0o7777 == FILE_MODE {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(FILE_MODE))
}

fn replace(dir: &Path, path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let mut temporary = create_temporary(dir, path)?;
    let at = temporary.path().to_owned();
    temporary.write_all(bytes).map_err(failed("write", &at))?;
    temporary
        .as_file()
        .set_permissions(Permissions::from_mode(FILE_MODE))
        .map_err(failed("set the mode of", &at))?;
    temporary
        .as_file()
        .sync_all()
        .map_err(failed("sync", &at))?;
    temporary
        .persist(path)
        .map_err(|fault| failed("rename to", path)(fault.error))?;
    sync_directory(dir)
}

fn create_temporary(dir: &Path, path: &Path) -> Result<NamedTempFile, WriteError> {
    let temporary = tempfile::Builder::new()
        .prefix(&leftovers::prefix(path))
        .suffix(leftovers::SUFFIX)
        .tempfile_in(dir)
        .map_err(failed("create a temporary file in", dir))?;
    rustix::fs::flock(
        temporary.as_file(),
        FlockOperation::NonBlockingLockExclusive,
    )
    .map_err(|errno| failed("lock", temporary.path())(errno.into()))?;
    Ok(temporary)
}

fn sync_directory(dir: &Path) -> Result<(), WriteError> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(failed("sync the directory", dir))
}

#[cfg(test)]
mod tests;
