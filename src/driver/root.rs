//! Path resolution below a root, by the kernel: `openat2(2)` with `RESOLVE_IN_ROOT`.
//!
//! Owns the one way in which files of a driver root are opened. An absolute link inside the root
//! means a place inside the root, and `..` never leaves it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

/// An open root directory.
#[derive(Debug)]
pub struct InRoot {
    fd: OwnedFd,
    path: PathBuf,
    real: PathBuf,
}

/// A file or directory below a root, with all links resolved.
#[derive(Debug)]
pub struct Resolved {
    /// The open object.
    pub file: File,
    /// Where it really is: absolute inside the root, without a link.
    pub path: PathBuf,
}

impl InRoot {
    /// Opens the root itself; links in `path` are followed as usual.
    pub fn open(path: &Path) -> io::Result<Self> {
        let fd = rustix::fs::open(
            path,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let real = path_of(&fd)?;
        Ok(Self {
            fd,
            path: path.to_owned(),
            real,
        })
    }

    /// The root, as it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a regular file for reading; `NotFound` when there is none.
    ///
    /// Anything else than a regular file is `InvalidInput`: opening a FIFO or a device would block
    /// or act.
    pub fn file(&self, path: &Path) -> io::Result<Resolved> {
        let found = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        if !found.file.metadata()?.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        Ok(found)
    }

    /// Opens a directory.
    pub fn dir(&self, path: &Path) -> io::Result<Resolved> {
        self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)
    }

    /// Where a path really is, whatever lies there (a socket can't be opened); `NotFound` when
    /// nothing does.
    pub fn locate(&self, path: &Path) -> io::Result<(PathBuf, FileType)> {
        let fd = self.openat2(path, OFlags::PATH)?;
        let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
        Ok((self.inside(&path_of(&fd)?)?, kind))
    }

    /// The names in a directory that `dir` opened, sorted.
    pub fn names(dir: &Resolved) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir.file)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn open_at(&self, path: &Path, flags: OFlags) -> io::Result<Resolved> {
        // First as a mere path: a device node must not be opened to find out that it is one.
        let probe = self.openat2(path, OFlags::PATH)?;
        let stat = rustix::fs::fstat(&probe)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::Directory) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "neither a regular file nor a directory",
            ));
        }
        let fd = self.openat2(path, flags)?;
        Ok(Resolved {
            path: self.inside(&path_of(&fd)?)?,
            file: File::from(fd),
        })
    }

    fn inside(&self, real: &Path) -> io::Result<PathBuf> {
        let inside = real.strip_prefix(&self.real).map_err(|_| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} is not below the root", real.display()),
            )
        })?;
        Ok(Path::new("/").join(inside))
    }

    fn openat2(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        rustix::fs::openat2(
            self.fd.as_fd(),
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        )
        .or_else(|errno| match errno {
            rustix::io::Errno::NOSYS => self.openat(path, flags),
            other => Err(other.into()),
        })
    }

    /// For kernels without `openat2`: below `/`, ordinary resolution is the same thing. Below any
    /// other root it is not, and nothing is opened.
    fn openat(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        if self.real != Path::new("/") {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel has no openat2 (Linux 5.6), so links can't be kept inside a driver root other than /",
            ));
        }
        Ok(rustix::fs::open(
            Path::new("/").join(path),
            flags | OFlags::CLOEXEC,
            Mode::empty(),
        )?)
    }
}

/// The kernel's own word for where a descriptor points. Always this process's `/proc`, never a
/// moved proc root.
fn path_of(fd: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_openat2_only_the_host_s_own_root_is_opened() {
        let host = InRoot::open(Path::new("/")).unwrap();
        assert!(host.openat(Path::new("/proc/self"), OFlags::PATH).is_ok());
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "").unwrap();
        let moved = InRoot::open(dir.path()).unwrap();
        assert!(moved.file(Path::new("/a")).is_ok());
        let error = moved.openat(Path::new("/a"), OFlags::PATH).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
}
