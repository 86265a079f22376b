//! `ModifyDeviceFiles: 0`: the driver's user space does not make device nodes by itself.
//!
//! In a container, libraries that find a node absent may make it, with the host's numbers. The
//! driver asks its own parameter file in procfs whether it may; so a copy that says no is mounted
//! over it. What a container can *open* is the device cgroup's business, with or without this.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};

use super::rootfs::Rootfs;
use super::{Container, HookError, Skipped};

const DIRECTORY: &str = "/proc/driver/nvidia";
const NAME: &str = "params";
const PARAMETER: &str = "ModifyDeviceFiles:";

/// The real one has some forty lines.
const MAX_BYTES: usize = 64 << 10;

/// Mounts the changed copy, where the driver has such a file and says yes in it.
pub(super) fn freeze(
    root: &Rootfs,
    container: &Container,
    skipped: &mut Vec<Skipped>,
) -> Result<(), HookError> {
    let path = Path::new(DIRECTORY).join(NAME);
    let mut skip = |reason: &dyn ToString| {
        let step = format!("ModifyDeviceFiles: 0 in {}", path.display());
        skipped.push(Skipped::new(step, &reason.to_string()));
        Ok(())
    };
    let content = match root.read(&path, MAX_BYTES) {
        Ok(content) => content,
        Err(error) => return skip(&error),
    };
    let frozen = match frozen(&content) {
        Change::Needed(frozen) => frozen,
        Change::None => return Ok(()),
        Change::Unknown => return skip(&"the driver has no such parameter"),
    };
    if !container.procfs_masked {
        // The kernel lets nobody mount a second procfs who sees a covered part of the first.
        return skip(
            &"the container's procfs is unmasked, and with a mount in it, containers inside could not mount their own",
        );
    }
    match mount_over(root, &frozen) {
        Ok(()) => Ok(()),
        Err(MountError::Before(error)) => skip(&error),
        Err(MountError::Stuck(source)) => Err(HookError::Detach { source }),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Change {
    Needed(Vec<u8>),
    None,
    Unknown,
}

fn frozen(content: &[u8]) -> Change {
    let mut before = 0;
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        let (head, rest) = content.split_at(before);
        before += line.len();
        match line.strip_prefix(PARAMETER.as_bytes()) {
            Some(value) if value.trim_ascii() == b"0" => return Change::None,
            Some(_) => {
                let tail = rest.get(line.len()..).unwrap_or_default();
                return Change::Needed([head, PARAMETER.as_bytes(), b" 0\n", tail].concat());
            }
            None => {}
        }
    }
    Change::Unknown
}

enum MountError {
    /// Nothing has changed.
    Before(io::Error),
    /// The temporary mount is still there.
    Stuck(io::Error),
}

impl From<rustix::io::Errno> for MountError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Before(errno.into())
    }
}

/// A file can be mounted only from a mount that is attached somewhere. So a file system in memory
/// lies over the driver's own directory for a moment: nothing else of the container is touched,
/// and the image need not have a place for it.
fn mount_over(root: &Rootfs, content: &[u8]) -> Result<(), MountError> {
    let place = root
        .directory(Path::new(DIRECTORY))
        .map_err(MountError::Before)?;
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let params = rustix::fs::openat(&place, NAME, flags, Mode::empty())?;
    let memory = in_memory()?;
    let onto = |from: &OwnedFd, to: &OwnedFd| {
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(from, "", to, "", flags)
    };
    let write = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&memory, NAME, write, Mode::from_raw_mode(0o444))?;
    io::Write::write_all(&mut std::fs::File::from(file), content).map_err(MountError::Before)?;
    read_only(&memory)?;
    onto(&memory, &place)?;
    let copy = rustix::mount::open_tree(
        &memory,
        NAME,
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC,
    );
    // By way of the working directory: a path could be bent by the image's links.
    rustix::process::fchdir(memory.as_fd())
        .and_then(|()| rustix::mount::unmount(".", UnmountFlags::DETACH))
        .map_err(|errno| MountError::Stuck(errno.into()))?;
    onto(&copy?, &params)?;
    Ok(())
}

/// A detached, empty file system that holds one small file.
fn in_memory() -> Result<OwnedFd, rustix::io::Errno> {
    let config = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(config.as_fd(), "size", "128k")?;
    rustix::mount::fsconfig_set_string(config.as_fd(), "mode", "0555")?;
    rustix::mount::fsconfig_create(config.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    rustix::mount::fsmount(config.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// The container's root user could write to it otherwise.
fn read_only(mount: &OwnedFd) -> Result<(), rustix::io::Errno> {
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    let config = rustix::mount::fspick(mount, "", flags)?;
    rustix::mount::fsconfig_set_flag(config.as_fd(), "ro")?;
    rustix::mount::fsconfig_reconfigure(config.as_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_one_parameter_changes() {
        let content = b"ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\n";
        let Change::Needed(changed) = frozen(content) else {
            panic!("a change is needed");
        };
        assert_eq!(
            String::from_utf8(changed).unwrap(),
            "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 0\nDeviceFileUID: 0\n"
        );
        assert_eq!(frozen(b"ModifyDeviceFiles: 0\nA: 1\n"), Change::None);
        assert_eq!(frozen(b"A: 1\n"), Change::Unknown);
        assert_eq!(frozen(b""), Change::Unknown);
        assert_eq!(
            frozen(b"ModifyDeviceFiles:junk"),
            Change::Needed(b"ModifyDeviceFiles: 0\n".to_vec())
        );
    }
}
