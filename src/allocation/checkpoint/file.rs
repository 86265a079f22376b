//! Reads the checkpoint file, and remembers it as long as it is the same file.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{Checkpoint, MAX_BYTES};

/// A file younger than this isn't remembered: within one tick of the file system's clock the
/// kubelet may write again, with equal size, time and a recycled inode number.
const SETTLED_AFTER: Duration = Duration::from_millis(50);

/// The checkpoint can't be read. That the file doesn't exist is no error: the kubelet writes it
/// with its first allocation.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Not even the kubelet's directory is there, so nothing can be concluded.
    #[error(
        "the directory {} does not exist; is the kubelet's root right (--kubelet-root), and mounted into this container?",
        .0.display()
    )]
    NoDirectory(PathBuf),
    /// Opening or reading failed.
    #[error("can't read the device-manager checkpoint {}: {source}", .path.display())]
    Read {
        /// The checkpoint.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A symbolic link, directory, pipe or the like stands in its place.
    #[error("{} is not a regular file; the kubelet writes it as one, so find out who replaced it", .0.display())]
    NotAFile(PathBuf),
    /// Larger than [`MAX_BYTES`].
    #[error("the checkpoint {} is larger than {MAX_BYTES} bytes, which no kubelet writes", .0.display())]
    TooLarge(PathBuf),
    /// Not what a kubelet writes.
    #[error(
        "{} is no device-manager checkpoint: {reason}; drain the node, delete the file and restart the kubelet if this stays so",
        .path.display()
    )]
    Malformed {
        /// The checkpoint.
        path: PathBuf,
        /// Where and why the parser stopped.
        reason: super::Malformed,
    },
    /// The read took longer than the caller can wait.
    #[error("reading the device-manager checkpoint {} took too long", .0.display())]
    TimedOut(PathBuf),
}

/// `device-plugins/kubelet_internal_checkpoint` below a kubelet root.
#[derive(Debug)]
pub struct CheckpointFile {
    path: PathBuf,
    cache: Mutex<Option<(Identity, Arc<Checkpoint>)>>,
    warned: AtomicBool,
}

impl CheckpointFile {
    /// Of the kubelet whose root is given. Nothing is opened yet.
    pub fn new(kubelet_root: &Path) -> Self {
        Self {
            path: kubelet_root.join("device-plugins/kubelet_internal_checkpoint"),
            cache: Mutex::new(None),
            warned: AtomicBool::new(false),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The current contents, `None` when the kubelet has never written any. Blocking.
    ///
    /// # Errors
    /// Everything but a parsed checkpoint or a file that isn't there.
    pub fn read(&self) -> Result<Option<Arc<Checkpoint>>, CheckpointError> {
        match std::fs::symlink_metadata(&self.path) {
            Ok(meta) => {
                if let Some(known) = self.cached(Identity::of(&meta)) {
                    return Ok(Some(known));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => return self.missing(),
            Err(source) => return Err(self.failed(source)),
        }
        self.load()
    }

    fn load(&self) -> Result<Option<Arc<Checkpoint>>, CheckpointError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(&self.path, flags, Mode::empty()) {
            Ok(fd) => File::from(fd),
            Err(Errno::NOENT) => return self.missing(),
            Err(Errno::LOOP | Errno::NXIO) => {
                return Err(CheckpointError::NotAFile(self.path.clone()));
            }
            Err(e) => return Err(self.failed(e.into())),
        };
        let meta = file.metadata().map_err(|e| self.failed(e))?;
        if !meta.is_file() {
            return Err(CheckpointError::NotAFile(self.path.clone()));
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| self.failed(e))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(CheckpointError::TooLarge(self.path.clone()));
        }
        let parsed = Checkpoint::parse(&bytes).map_err(|reason| CheckpointError::Malformed {
            path: self.path.clone(),
            reason,
        })?;
        let parsed = Arc::new(parsed);
        if !parsed.verified() && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                path = %self.path.display(),
                "can't verify the checkpoint's checksum: another kubelet version wrote it, or it was changed; the PodResources API is still asked to confirm it"
            );
        }
        self.remember(&meta, &parsed);
        Ok(Some(parsed))
    }

    fn missing(&self) -> Result<Option<Arc<Checkpoint>>, CheckpointError> {
        match self.path.parent() {
            Some(dir) if !dir.is_dir() => Err(CheckpointError::NoDirectory(dir.to_owned())),
            _ => Ok(None),
        }
    }

    fn failed(&self, source: io::Error) -> CheckpointError {
        CheckpointError::Read {
            path: self.path.clone(),
            source,
        }
    }

    fn cached(&self, now: Identity) -> Option<Arc<Checkpoint>> {
        let cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cache {
            Some((identity, parsed)) if *identity == now => Some(Arc::clone(parsed)),
            _ => None,
        }
    }

    fn remember(&self, meta: &Metadata, parsed: &Arc<Checkpoint>) {
        let age = meta
            .modified()
            .ok()
            .and_then(|at| SystemTime::now().duration_since(at).ok());
        if age.is_some_and(|age| age >= SETTLED_AFTER) {
            *self.cache.lock().unwrap_or_else(PoisonError::into_inner) =
                Some((Identity::of(meta), Arc::clone(parsed)));
        }
    }
}

/// The kubelet replaces the file by rename, so these name one state of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Identity {
    fn of(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        }
    }
}
