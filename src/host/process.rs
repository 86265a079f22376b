//! One process of the host's pid namespace, held by its `/proc/PID` directory.
//!
//! Everything is read through one directory descriptor: when the process dies and its pid is used
//! again, reads fail instead of answering for the stranger.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::mountinfo::{self, MalformedMountinfo, MountEntry};

/// More than any real mountinfo: 100 000 mounts is the kernel's default limit of a namespace.
const PROC_FILE_LIMIT: u64 = 64 << 20;

/// Reading about a process failed.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// It has gone, or procfs is not the host's.
    #[error("cannot {verb} {path}: {source}")]
    Io {
        /// `open` or `read`.
        verb: &'static str,
        /// The procfs path.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// `mountinfo` has a form that proc(5) does not give.
    #[error("{path}: {source}")]
    Mountinfo {
        /// The procfs path.
        path: PathBuf,
        /// The line.
        source: MalformedMountinfo,
    },
}

/// A process.
#[derive(Debug)]
pub struct Process {
    dir: OwnedFd,
    path: PathBuf,
}

impl ProcessError {
    /// Whether it says that there is no such process, or no longer.
    pub fn is_absence(&self) -> bool {
        let Self::Io { source, .. } = self else {
            return false;
        };
        let gone = [rustix::io::Errno::NOENT, rustix::io::Errno::SRCH];
        gone.iter()
            .any(|errno| source.raw_os_error() == Some(errno.raw_os_error()))
    }
}

impl Process {
    /// Takes hold of process `pid` below `proc_root`.
    pub fn open(proc_root: &Path, pid: u32) -> Result<Self, ProcessError> {
        Self::open_dir(proc_root.join(pid.to_string()))
    }

    /// This process itself.
    pub fn own(proc_root: &Path) -> Result<Self, ProcessError> {
        Self::open_dir(proc_root.join("self"))
    }

    fn open_dir(path: PathBuf) -> Result<Self, ProcessError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(CWD, &path, flags, Mode::empty()) {
            Ok(dir) => Ok(Self { dir, path }),
            Err(errno) => Err(ProcessError::Io {
                verb: "open",
                path,
                source: errno.into(),
            }),
        }
    }

    /// Its root directory as a path-only descriptor: the base for `RESOLVE_IN_ROOT`.
    pub fn root(&self) -> Result<OwnedFd, ProcessError> {
        openat(
            &self.dir,
            "root",
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|errno| self.io("open", "root", errno.into()))
    }

    /// The mounts it sees.
    pub fn mounts(&self) -> Result<Vec<MountEntry>, ProcessError> {
        let text = self.read("mountinfo")?;
        mountinfo::parse(&text).map_err(|source| ProcessError::Mountinfo {
            path: self.path.join("mountinfo"),
            source,
        })
    }

    /// Whether one of its cgroups is named after the container: the last component of every layout
    /// that the kubelet and containerd use holds the container's id
    /// (`…/<id>`, `…/cri-containerd-<id>.scope`, `…/crio-<id>`).
    pub fn is_in_container(&self, container_id: &str) -> Result<bool, ProcessError> {
        let text = self.read("cgroup")?;
        let text = String::from_utf8_lossy(&text);
        Ok(!container_id.is_empty()
            && text
                .lines()
                .filter_map(|line| line.splitn(3, ':').nth(2))
                .any(|path| path.contains(container_id)))
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, ProcessError> {
        let file = openat(
            self.dir.as_fd(),
            name,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|errno| self.io("open", name, errno.into()))?;
        let mut text = Vec::new();
        File::from(file)
            .take(PROC_FILE_LIMIT)
            .read_to_end(&mut text)
            .map_err(|source| self.io("read", name, source))?;
        Ok(text)
    }

    fn io(&self, verb: &'static str, name: &str, source: std::io::Error) -> ProcessError {
        ProcessError::Io {
            verb,
            path: self.path.join(name),
            source,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_readable_and_in_no_container_of_that_name() {
        let own = Process::own(Path::new("/proc")).unwrap();
        assert!(
            own.mounts()
                .unwrap()
                .iter()
                .any(|mount| mount.point == Path::new("/"))
        );
        assert!(!own.is_in_container("0123456789abcdef").unwrap());
        assert!(
            !own.is_in_container("").unwrap(),
            "an empty id would match every cgroup"
        );
        own.root().unwrap();
    }

    #[test]
    fn a_dead_process_fails_even_after_it_was_opened() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let process = Process::open(Path::new("/proc"), child.id()).unwrap();
        assert!(process.mounts().is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(process.mounts().unwrap_err().is_absence());
        assert!(process.is_in_container("x").unwrap_err().is_absence());
        let again = Process::open(Path::new("/proc"), child.id());
        assert!(again.unwrap_err().is_absence());
    }
}
