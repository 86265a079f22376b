//! The proof on cgroup v1, where exceptions can't be read back: trying.
//!
//! Owns device nodes on a tmpfs that is mounted nowhere, and a thread that enters a `devices` cgroup,
//! tries to open what must be denied, and leaves it again. A thread and no child process: the v1
//! `tasks` file takes single threads, so nothing is forked or executed, nothing is charged to the
//! container's memory or pids (those are other hierarchies), and nothing appears in its pid namespace.
//!
//! Invariants: only numbers that must be denied are opened, as opening another would touch the
//! driver; when [`Trial::run`] returns, the thread has left the cgroup.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, makedev, mknodat, openat};
use rustix::io::{Errno, write};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::filter::{Denied, Filter};
use crate::host::{CgroupError, Group, Roots, cgroup::own_devices_group};

/// Minors tried of a major that is denied wholly, or of which few are left: its lower end, where real
/// nodes are, and numbers that no driver has given out yet.
const SAMPLE: [u32; 5] = [0, 1, 2, 31, 255];
/// Of NVIDIA's own major each minor is tried.
const GPU_MINORS: std::ops::RangeInclusive<u32> = 0..=255;

/// The kernel did not deny, or could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The fence has a hole.
    #[error(
        "the kernel still opens device {major}:{minor} in {cgroup} although it was denied there"
    )]
    Open {
        /// Device major number.
        major: u32,
        /// Device minor number.
        minor: u32,
        /// The cgroup.
        cgroup: String,
    },
    /// A node could not be tried.
    #[error("cannot {verb} for the trial of the device filter: {source}")]
    Io {
        /// What failed.
        verb: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// This thread's own cgroup could not be found.
    #[error(transparent)]
    Home(#[from] CgroupError),
    /// The `devices` hierarchy that the container is in has no place for this process.
    #[error("this process is in no cgroup of the v1 devices hierarchy below {0}")]
    NoHome(String),
}

/// Device nodes to try.
#[derive(Debug)]
pub(super) struct Trial {
    nodes: OwnedFd,
}

/// A cgroup, and what must be denied in it.
pub(super) type Case<'a> = (&'a Group, &'a Filter);
type Numbered<'a> = (&'a Group, Vec<(u32, u32)>);

impl Trial {
    /// Makes the file system, empty yet.
    pub(super) fn new() -> Result<Self, TrialError> {
        let failed = io("make a private file system");
        let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).map_err(&failed)?;
        fsconfig_create(&context).map_err(&failed)?;
        let nodes = fsmount(
            &context,
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC,
        )
        .map_err(&failed)?;
        Ok(Self { nodes })
    }

    /// Whether the kernel denies that number in a cgroup.
    pub(super) fn is_denied(
        &self,
        group: &Group,
        (major, minor): (u32, u32),
        roots: &Roots,
    ) -> Result<bool, TrialError> {
        match self.go(&[(group, vec![(major, minor)])], roots) {
            Ok(()) => Ok(true),
            Err(TrialError::Open { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Enters each cgroup in turn and tries what its filter denies.
    pub(super) fn run(&self, cases: &[Case<'_>], roots: &Roots) -> Result<(), TrialError> {
        let cases: Vec<_> = cases
            .iter()
            .map(|(group, filter)| (*group, numbers(filter)))
            .collect();
        self.go(&cases, roots)
    }

    fn go(&self, cases: &[Numbered<'_>], roots: &Roots) -> Result<(), TrialError> {
        // Made out here: within, mknod may be denied as well.
        for (major, minor) in cases.iter().flat_map(|(_, numbers)| numbers) {
            self.make(*major, *minor)?;
        }
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("trial".to_owned())
                .spawn_scoped(scope, || self.visit(cases, roots));
            match thread
                .map_err(|source| failed("start a thread", source))?
                .join()
            {
                Ok(result) => result,
                Err(_) => Err(failed("finish", std::io::Error::other("it panicked"))),
            }
        })
    }

    fn visit(&self, cases: &[Numbered<'_>], roots: &Roots) -> Result<(), TrialError> {
        let home = own_devices_group(roots)?
            .ok_or_else(|| TrialError::NoHome(roots.cgroup.display().to_string()))?;
        let home = tasks(&home)?;
        let tried = cases.iter().try_for_each(|(group, numbers)| {
            enter(&tasks(group)?, group.path())?;
            numbers
                .iter()
                .try_for_each(|number| self.attempt(*number, group))
        });
        // Also after a failure, so that nothing of us is left behind.
        let left = enter(&home, Path::new("its own cgroup"));
        tried.and(left)
    }

    fn make(&self, major: u32, minor: u32) -> Result<(), TrialError> {
        let mode = Mode::RUSR | Mode::WUSR;
        let device = makedev(major, minor);
        match mknodat(
            &self.nodes,
            name(major, minor),
            FileType::CharacterDevice,
            mode,
            device,
        ) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(failed(
                &format!("make a node {major}:{minor} (CAP_MKNOD)"),
                errno.into(),
            )),
        }
    }

    /// Reading and writing apart, since a rule may allow one of them alone.
    fn attempt(&self, (major, minor): (u32, u32), group: &Group) -> Result<(), TrialError> {
        for access in [OFlags::RDONLY, OFlags::WRONLY] {
            let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            match openat(&self.nodes, name(major, minor), flags, Mode::empty()) {
                Err(Errno::PERM) => {}
                // Any other answer comes from behind the filter.
                Ok(_) | Err(_) => {
                    return Err(TrialError::Open {
                        major,
                        minor,
                        cgroup: group.path().display().to_string(),
                    });
                }
            }
        }
        Ok(())
    }
}

/// The numbers to try: all that are denied of NVIDIA's major, those that are named of others, and a
/// sample where a whole major is denied.
fn numbers(filter: &Filter) -> Vec<(u32, u32)> {
    let mut numbers = Vec::new();
    for (major, denied) in filter.majors() {
        let minors: Vec<u32> = match denied {
            Denied::AllBut(minors) if minors.is_empty() => SAMPLE.to_vec(),
            Denied::AllBut(_) => GPU_MINORS.filter(|minor| denied.denies(*minor)).collect(),
            Denied::Only(minors) => minors.iter().copied().collect(),
        };
        numbers.extend(minors.into_iter().map(|minor| (major, minor)));
    }
    numbers
}

fn name(major: u32, minor: u32) -> String {
    format!("{major}-{minor}")
}

fn tasks(group: &Group) -> Result<OwnedFd, TrialError> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(group.dir(), "tasks", flags, Mode::empty())
        .map_err(io(&format!("open {}/tasks", group.path().display())))
}

/// `0` is the writing thread itself, for which the kernel needs no lock on other processes.
fn enter(tasks: &OwnedFd, path: &Path) -> Result<(), TrialError> {
    write(tasks, b"0")
        .map(drop)
        .map_err(io(&format!("enter {}", path.display())))
}

fn io(verb: &str) -> impl Fn(Errno) -> TrialError + '_ {
    move |errno| failed(verb, errno.into())
}

fn failed(verb: &str, source: std::io::Error) -> TrialError {
    TrialError::Io {
        verb: verb.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::super::filter::tests::{granted, numbers as devices, vfio};
    use super::*;

    #[test]
    fn only_denied_numbers_are_tried_and_every_gpu_among_them() {
        for gpus in [&[][..], &[1], &[0, 3]] {
            let filter = Filter::of(&granted(gpus.iter().copied()), &devices(), &vfio());
            let tried = numbers(&filter);
            assert!(
                tried
                    .iter()
                    .all(|(major, minor)| filter.denies(*major, *minor))
            );
            for minor in [0, 1, 2].into_iter().filter(|minor| !gpus.contains(minor)) {
                assert!(tried.contains(&(195, minor)), "{minor} of {gpus:?}");
            }
            assert!(tried.contains(&(511, 3)) && tried.contains(&(238, 1)));
        }
    }
}
