//! The container's root file system: every path resolved in it by the kernel, and nothing written
//! anywhere else.
//!
//! The image is hostile: any name may be a link to anywhere, a FIFO, a directory. So reading goes
//! through `openat2` with `RESOLVE_IN_ROOT`, and writing besides with `RESOLVE_NO_XDEV`, since a
//! mount below the root may be the host's own `/etc`. The last component of what is written is never
//! resolved: it is made beside, and renamed over.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::cover::{CoverError, cover};

/// Made beside a file or link, and renamed over it. A left one is removed.
const TEMPORARY: &str = ".cdi-gen-hook.tmp";

/// The kernel asks for another try when something was renamed while it resolved a path.
const TRIES: usize = 8;

/// An open root file system.
#[derive(Debug)]
pub(super) struct Rootfs {
    fd: OwnedFd,
}

impl Rootfs {
    /// Opens it; links in the host's `path` are followed as usual.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { fd })
    }

    /// Whether it is this process's own root directory, where nothing may be changed.
    pub(super) fn is_the_host_s(&self) -> bool {
        let id = |stat: Stat| (stat.st_dev, stat.st_ino);
        match (rustix::fs::fstat(&self.fd), rustix::fs::stat("/")) {
            (Ok(root), Ok(host)) => id(root) == id(host),
            _ => true,
        }
    }

    /// Whether something is there, all links followed.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.resolve(path, OFlags::PATH).is_ok()
    }

    /// A directory, opened as a mere path, on whatever mount it is.
    pub(super) fn directory(&self, path: &Path) -> io::Result<OwnedFd> {
        self.resolve(path, OFlags::PATH | OFlags::DIRECTORY)
    }

    /// A regular file to read.
    pub(super) fn file(&self, path: &Path) -> io::Result<File> {
        let probe = self.resolve(path, OFlags::PATH)?;
        regular(&probe)?;
        // What is there now may be another file than the one before, so it must not block either.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = self.resolve(path, flags)?;
        regular(&fd)?;
        Ok(File::from(fd))
    }

    /// The content of a regular file of at most `limit` bytes.
    pub(super) fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let limit = limit as u64;
        self.file(path)?.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            let text = format!("it is longer than {limit} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(bytes)
    }

    /// Makes or replaces a file in whole. Not synced: after a crash the container is made anew.
    pub(super) fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        Self::replace(&dir, name, |dir| {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            let mode = Mode::from_raw_mode(0o644);
            let fd = rustix::fs::openat(dir, TEMPORARY, flags | OFlags::CLOEXEC, mode)?;
            // The runtime's mask must not keep the container's user from reading it.
            rustix::fs::fchmod(&fd, mode)?;
            File::from(fd).write_all(bytes)
        })
    }

    /// Covers a file of a file system which can't be written. Not through a mount either: it could
    /// be one that hands new mounts on to the host.
    pub(super) fn cover(&self, path: &Path, bytes: &[u8]) -> Result<(), CoverError> {
        let (dir, name) = self.parent(path)?;
        cover(&dir, name, bytes)
    }

    /// Makes or replaces a symbolic link, with the directories to it.
    pub(super) fn link(&self, target: &str, path: &Path) -> io::Result<()> {
        let (dir, name) = self.parent(path)?;
        let present = rustix::fs::readlinkat(&dir, name, Vec::new());
        if present.is_ok_and(|present| present.as_bytes() == target.as_bytes()) {
            return Ok(());
        }
        Self::replace(&dir, name, |dir| {
            Ok(rustix::fs::symlinkat(target, dir, TEMPORARY)?)
        })
    }

    fn replace(
        dir: &OwnedFd,
        name: &OsStr,
        make: impl FnOnce(BorrowedFd<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        match rustix::fs::unlinkat(dir, TEMPORARY, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let result =
            make(dir.as_fd()).and_then(|()| Ok(rustix::fs::renameat(dir, TEMPORARY, dir, name)?));
        if result.is_err() {
            // The first error is the one to tell.
            let _ = rustix::fs::unlinkat(dir, TEMPORARY, AtFlags::empty());
        }
        result
    }

    /// The directory in which the last component of `path` may be written, made where it is absent.
    fn parent<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let parent = path.parent().ok_or(Errno::INVAL)?;
        let inside = parent.strip_prefix("/").map_err(|_| Errno::INVAL)?;
        let dir = match inside.strip_prefix("dev") {
            Ok(below) => within(&self.container_dev()?, below),
            Err(_) => within(&self.fd, inside),
        };
        match dir {
            Err(Errno::XDEV) => Err(io::Error::new(
                io::ErrorKind::CrossesDevices,
                "a mount lies there, so it is not the container's own",
            )),
            other => Ok((other?, name)),
        }
    }

    /// The container's `/dev`, a mount of its own unless someone mounted the host's there. Never by
    /// way of a link, which could lead to another mount.
    fn container_dev(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let dev = openat2(&self.fd, Path::new("dev"), flags, ResolveFlags::NO_SYMLINKS)?;
        let own = rustix::fs::fstat(&dev)?.st_dev;
        let host = rustix::fs::statat(CWD, "/dev", AtFlags::empty())?.st_dev;
        if own == host {
            return Err(io::Error::new(
                io::ErrorKind::CrossesDevices,
                "/dev is the host's, not the container's own",
            ));
        }
        Ok(dev)
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(openat2(&self.fd, path, flags, ResolveFlags::empty())?)
    }
}

/// Opens a directory for writing into it, below `root` and on the same mount; makes what is absent.
fn within(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let open = |path: &Path| openat2(root, path, flags, ResolveFlags::NO_XDEV);
    let mut dir = open(Path::new("."))?;
    let mut so_far = PathBuf::new();
    for component in path.components() {
        so_far.push(component);
        dir = match open(&so_far) {
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(&dir, component.as_os_str(), Mode::from_raw_mode(0o755))?;
                open(&so_far)?
            }
            other => other?,
        };
    }
    Ok(dir)
}

fn openat2(
    root: &OwnedFd,
    path: &Path,
    flags: OFlags,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let resolve = resolve | ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OFlags::CLOEXEC;
    let mut result = Err(Errno::AGAIN);
    for _ in 0..TRIES {
        result = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve);
        if !matches!(result, Err(Errno::AGAIN | Errno::INTR)) {
            break;
        }
    }
    result
}

/// An error for anything but a regular file.
pub(super) fn regular(fd: &OwnedFd) -> io::Result<()> {
    let mode = rustix::fs::fstat(fd)?.st_mode;
    if FileType::from_raw_mode(mode) == FileType::RegularFile {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        ))
    }
}
