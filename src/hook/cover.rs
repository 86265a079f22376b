//! A file of ours mounted over one of the container's, in its mount namespace alone.
//!
//! For files that can't be written: those of procfs, and those of a root file system which the
//! runtime has made read-only already. Nothing may run in the container yet.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};

use super::HookError;
use super::rootfs::regular;

/// Why a file is not covered.
#[derive(Debug)]
pub(super) enum CoverError {
    /// The container is as before.
    Unchanged(io::Error),
    /// The temporary mount is still there.
    Stuck(io::Error),
}

impl CoverError {
    /// What an unchanged container allows; the other case must keep it from starting.
    pub(super) fn or_skip(
        self,
        skip: impl FnOnce(&io::Error) -> Result<(), HookError>,
    ) -> Result<(), HookError> {
        match self {
            Self::Unchanged(error) => skip(&error),
            Self::Stuck(source) => Err(HookError::Detach { source }),
        }
    }
}

impl From<io::Error> for CoverError {
    fn from(error: io::Error) -> Self {
        Self::Unchanged(error)
    }
}

impl From<Errno> for CoverError {
    fn from(errno: Errno) -> Self {
        Self::Unchanged(errno.into())
    }
}

/// Covers the regular file `name` in `directory` with a read-only one. Changes the working
/// directory of the process.
///
/// Before Linux 6.15 a file can be mounted only from a mount that is attached somewhere. So a file
/// system in memory lies over the directory for a moment: nothing else of the container is touched,
/// and the image need not have a place for it.
pub(super) fn cover(directory: &OwnedFd, name: &OsStr, content: &[u8]) -> Result<(), CoverError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let covered = rustix::fs::openat(directory, name, flags, Mode::empty())?;
    regular(&covered)?;
    let memory = in_memory()?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o444);
    let file = rustix::fs::openat(&memory, name, flags, mode)?;
    // The runtime's mask must not keep the container's user from reading it.
    rustix::fs::fchmod(&file, mode)?;
    File::from(file).write_all(content)?;
    read_only(&memory)?;
    attach(&memory, directory)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let copy = rustix::mount::open_tree(&memory, name, flags);
    // By way of the working directory: a path could be bent by the image's links.
    rustix::process::fchdir(memory.as_fd())
        .and_then(|()| rustix::mount::unmount(".", UnmountFlags::DETACH))
        .map_err(|errno| CoverError::Stuck(errno.into()))?;
    attach(&copy?, &covered)?;
    Ok(())
}

fn attach(mount: &OwnedFd, place: &OwnedFd) -> Result<(), Errno> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(mount, "", place, "", flags)
}

/// A detached, empty file system for one file.
fn in_memory() -> Result<OwnedFd, Errno> {
    let config = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    // Twice the largest cache; memory is taken for what is written only.
    rustix::mount::fsconfig_set_string(config.as_fd(), "size", "32m")?;
    rustix::mount::fsconfig_set_string(config.as_fd(), "mode", "0555")?;
    rustix::mount::fsconfig_create(config.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    rustix::mount::fsmount(config.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// The container's root user could write to it otherwise.
fn read_only(mount: &OwnedFd) -> Result<(), Errno> {
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    let config = rustix::mount::fspick(mount, "", flags)?;
    rustix::mount::fsconfig_set_flag(config.as_fd(), "ro")?;
    rustix::mount::fsconfig_reconfigure(config.as_fd())
}
