//! The device nodes that one container really has, and taking away those that it must not have.
//!
//! Owns the walk over a container's `/dev` and the unlink in it. Does not decide which nodes are
//! foreign (that is [`super::plan`]).
//!
//! Invariants: no symbolic link is ever followed; every path is resolved inside the container's
//! root; nothing is unlinked but a character device on the one file system which was proven to be
//! the container's own.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, StatxFlags, openat2, statx, unlinkat,
};
use rustix::io::Errno;

use crate::host::{MountEntry, Process, ProcessError};

/// Deeper than any real `/dev`.
const DEPTH_LIMIT: usize = 8;
/// A host's `/dev` with hundreds of disks stays far below.
const ENTRY_LIMIT: usize = 20_000;

/// A character device node in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundNode {
    /// Path as the container sees it.
    pub path: PathBuf,
    /// Device major number.
    pub major: u32,
    /// Device minor number.
    pub minor: u32,
    /// Whether it lies on the container's own `/dev`, so that an unlink touches nobody else.
    pub own: bool,
}

/// Why a container's `/dev` could not be examined or changed.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// The process's own view could not be read.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A call failed.
    #[error("cannot {verb} {path} of the container: {source}")]
    Io {
        /// What was tried.
        verb: &'static str,
        /// Path as the container sees it.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The image has put a symbolic link where a directory belongs.
    #[error("{0} of the container is a symbolic link, which is never followed")]
    Link(PathBuf),
    /// There is more than can be verified in time.
    #[error("{0} of the container holds more directories or entries than can be verified")]
    TooMuch(PathBuf),
    /// The kernel does not report mount ids (before Linux 5.8).
    #[error(
        "this kernel does not report mount ids (statx STATX_MNT_ID, Linux 5.8), so that /dev can't be verified"
    )]
    NoMountIds,
    /// What should be unlinked is no longer what was found.
    #[error("{0} of the container changed while it was examined")]
    Changed(PathBuf),
}

/// A container's `/dev`.
#[derive(Debug)]
pub struct ContainerDev {
    root: OwnedFd,
    mounts: HashMap<u64, MountEntry>,
    /// Mount id of `/dev`, if that is the container's own file system.
    own: Option<u64>,
}

impl ContainerDev {
    /// Opens the `/dev` that `process` sees. `host_filesystems` are the superblocks (major, minor)
    /// mounted anywhere on the host side: a `/dev` on one of those is shared with the host.
    pub fn open(
        process: &Process,
        host_filesystems: &BTreeSet<(u32, u32)>,
    ) -> Result<Self, DevError> {
        let root = process.root()?;
        let mounts: HashMap<_, _> = process
            .mounts()?
            .into_iter()
            .map(|mount| (mount.id, mount))
            .collect();
        let mut dev = Self {
            root,
            mounts,
            own: None,
        };
        if let Some(directory) = dev.open_dir(Path::new("/dev"))? {
            let id = mount_id(directory.as_fd(), Path::new("/dev"))?;
            dev.own = dev
                .mounts
                .get(&id)
                .filter(|mount| is_own(mount, host_filesystems))
                .map(|mount| mount.id);
        }
        Ok(dev)
    }

    /// Whether `/dev` is the container's own file system.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// All character device nodes below `/dev` that could be opened there: mounts with `nodev` and
    /// devpts instances are passed over, everything else is searched, nested mounts included.
    pub fn nodes(&self) -> Result<Vec<FoundNode>, DevError> {
        let mut found = Vec::new();
        let mut budget = ENTRY_LIMIT;
        if let Some(directory) = self.open_dir(Path::new("/dev"))? {
            self.walk(&directory, Path::new("/dev"), 0, &mut budget, &mut found)?;
        }
        Ok(found)
    }

    /// Unlinks a node that [`Self::nodes`] reported as the container's own; checked again here.
    pub fn unlink(&self, node: &FoundNode) -> Result<(), DevError> {
        let changed = || DevError::Changed(node.path.clone());
        let (Some(parent), Some(name)) = (node.path.parent(), node.path.file_name()) else {
            return Err(changed());
        };
        let parent = self.open_dir(parent)?.ok_or_else(changed)?;
        let now = self.examine(parent.as_fd(), name, &node.path)?;
        if now.is_none_or(|now| now != Entry::Node(node.clone()) || !node.own) {
            return Err(changed());
        }
        unlinkat(&parent, name, AtFlags::empty()).map_err(|errno| io("unlink", &node.path, errno))
    }

    fn walk(
        &self,
        directory: &OwnedFd,
        path: &Path,
        depth: usize,
        budget: &mut usize,
        found: &mut Vec<FoundNode>,
    ) -> Result<(), DevError> {
        for entry in Dir::read_from(directory).map_err(|errno| io("list", path, errno))? {
            let entry = entry.map_err(|errno| io("list", path, errno))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            *budget = budget
                .checked_sub(1)
                .ok_or_else(|| DevError::TooMuch("/dev".into()))?;
            let child = path.join(name);
            match self.examine(directory.as_fd(), name, &child)? {
                Some(Entry::Node(node)) => found.push(node),
                Some(Entry::Directory) => {
                    if depth == DEPTH_LIMIT {
                        return Err(DevError::TooMuch(child));
                    }
                    if let Some(directory) = self.open_dir(&child)? {
                        self.walk(&directory, &child, depth + 1, budget, found)?;
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    /// What stands at `name`: a node, a directory to search, or nothing of interest.
    fn examine(
        &self,
        parent: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
    ) -> Result<Option<Entry>, DevError> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = match statx(parent, name, flags, StatxFlags::TYPE | StatxFlags::MNT_ID) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(io("stat", path, errno)),
        };
        if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
            return Err(DevError::NoMountIds);
        }
        Ok(match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::CharacterDevice if !self.cannot_open_devices(stat.stx_mnt_id) => {
                Some(Entry::Node(FoundNode {
                    path: path.to_owned(),
                    major: stat.stx_rdev_major,
                    minor: stat.stx_rdev_minor,
                    own: self.own == Some(stat.stx_mnt_id),
                }))
            }
            FileType::Directory if !self.cannot_open_devices(stat.stx_mnt_id) => {
                Some(Entry::Directory)
            }
            _ => None,
        })
    }

    fn cannot_open_devices(&self, mount: u64) -> bool {
        self.mounts
            .get(&mount)
            .is_some_and(|mount| mount.nodev || mount.fs_type == "devpts")
    }

    /// Opens a directory of the container; `None` when it does not exist.
    fn open_dir(&self, path: &Path) -> Result<Option<OwnedFd>, DevError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let resolve =
            ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match openat2(&self.root, path, flags, Mode::empty(), resolve) {
            Ok(directory) => Ok(Some(directory)),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::LOOP) => Err(DevError::Link(path.to_owned())),
            Err(errno) => Err(io("open", path, errno)),
        }
    }
}

#[derive(PartialEq, Eq)]
enum Entry {
    Node(FoundNode),
    Directory,
}

/// The runtime gives a container a fresh tmpfs as `/dev`: whole (not a part of one), at `/dev`, and
/// known to nobody on the host. A hostPath volume, devtmpfs, or a memory-backed emptyDir fails one of these.
fn is_own(mount: &MountEntry, host_filesystems: &BTreeSet<(u32, u32)>) -> bool {
    mount.fs_type == "tmpfs"
        && mount.root == Path::new("/")
        && mount.point == Path::new("/dev")
        && !host_filesystems.contains(&mount.device)
}

fn mount_id(directory: BorrowedFd<'_>, path: &Path) -> Result<u64, DevError> {
    let stat = statx(directory, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)
        .map_err(|errno| io("stat", path, errno))?;
    if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(DevError::NoMountIds);
    }
    Ok(stat.stx_mnt_id)
}

fn io(verb: &'static str, path: &Path, errno: Errno) -> DevError {
    DevError::Io {
        verb,
        path: path.to_owned(),
        source: errno.into(),
    }
}
