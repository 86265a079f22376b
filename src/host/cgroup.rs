//! Where a container's cgroup is, and its pod's above it, in both generations of the hierarchy.
//!
//! Owns the reading of `/proc/PID/cgroup` and the opening of directories below the cgroup root.
//! Changes nothing there.
//!
//! Invariants: a directory counts only if it lies on a real cgroup file system, and if the path names
//! the container's id, so that what is done to it concerns this container and no other; a pod's
//! directory counts only if its name has the pod's UID, so that nothing is done to a shared parent.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstatfs, openat, openat2};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{Process, ProcessError, Roots};

/// `CGROUP_SUPER_MAGIC` and `CGROUP2_SUPER_MAGIC` of `linux/magic.h`.
const V1_MAGIC: u64 = 0x0027_e0eb;
const V2_MAGIC: u64 = 0x6367_7270;
/// A pod UID is a UUID, or the 32 digits of a static pod's hash. Less could match by chance.
const UID_MINIMUM: usize = 8;

/// A cgroup could not be found or opened.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The process's own view could not be read.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A call failed.
    #[error("cannot {verb} {}: {source}", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// The directory.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// No device filter of the kernel can be reached for it.
    #[error(
        "no cgroup of {id} was found below {} that has a device filter (v1 `devices`, or v2)", root.display()
    )]
    NotFound {
        /// The container's id.
        id: String,
        /// The cgroup root.
        root: PathBuf,
    },
    /// The helper thread could not be started.
    #[error("cannot start a thread to look at cgroups: {0}")]
    Thread(std::io::Error),
}

/// An open cgroup directory.
#[derive(Debug)]
pub struct Group {
    dir: OwnedFd,
    path: PathBuf,
}

impl Group {
    /// The directory.
    pub fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// Where it lies, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The cgroup of a pod, or why it has none that may be touched.
#[derive(Debug)]
pub enum PodGroup {
    /// Named after the pod.
    Own(Group),
    /// The parent is not the pod's alone.
    Shared(PathBuf),
}

/// A container's cgroup in one hierarchy.
#[derive(Debug)]
pub struct Place {
    /// Its own.
    pub group: Group,
    /// The one above it.
    pub pod: PodGroup,
}

/// A container's cgroups with a device filter; at least one.
#[derive(Debug)]
pub struct Placement {
    /// The v1 `devices` hierarchy.
    pub v1: Option<Place>,
    /// The unified hierarchy.
    pub v2: Option<Place>,
}

impl Placement {
    /// Finds the cgroups of the container `id` (or sandbox) of which `process` is one process.
    pub fn of(
        process: &Process,
        id: &str,
        pod_uid: &str,
        roots: &Roots,
    ) -> Result<Self, CgroupError> {
        let text = host_view(process, roots)?;
        let find = |version| -> Result<Option<Place>, CgroupError> {
            let Some(path) = path_of(&text, version).and_then(|path| own_part(path, id)) else {
                return Ok(None);
            };
            let Some((root, at)) = hierarchy(&roots.cgroup, version)? else {
                return Ok(None);
            };
            place(&root, &at, path, pod_uid)
        };
        let placement = Self {
            v1: find(Version::V1)?,
            v2: find(Version::V2)?,
        };
        if placement.v1.is_none() && placement.v2.is_none() {
            return Err(CgroupError::NotFound {
                id: id.to_owned(),
                root: roots.cgroup.clone(),
            });
        }
        Ok(placement)
    }
}

/// The `devices` directory (v1) of the calling thread itself; none where v1 is not mounted.
pub fn own_devices_group(roots: &Roots) -> Result<Option<Group>, CgroupError> {
    let text = host_view(&Process::own(Path::new("/proc"))?, roots)?;
    let (Some(path), Some((root, at))) = (
        path_of(&text, Version::V1),
        hierarchy(&roots.cgroup, Version::V1)?,
    ) else {
        return Ok(None);
    };
    open_below(&root, &at, Path::new(path))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The process's `cgroup` file, with paths from the hierarchies' real roots: from within a cgroup
/// namespace the kernel writes `/../…`, which is then read anew from the namespace of the host's init.
fn host_view(process: &Process, roots: &Roots) -> Result<String, CgroupError> {
    let text = process.cgroups()?;
    if !text.lines().any(|line| line.contains(":/..")) {
        return Ok(text);
    }
    let namespace = roots.proc.join("1/ns/cgroup");
    let read = || -> Result<String, CgroupError> {
        let io = |verb| {
            let path = namespace.clone();
            move |errno: Errno| CgroupError::Io {
                verb,
                path,
                source: errno.into(),
            }
        };
        let host = openat(
            CWD,
            &namespace,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(io("open"))?;
        move_into_link_name_space(host.as_fd(), Some(LinkNameSpaceType::ControlGroup))
            .map_err(io("enter the cgroup namespace"))?;
        Ok(process.cgroups()?)
    };
    // The namespace belongs to the thread, which ends with it.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, read);
        let thread = thread.map_err(CgroupError::Thread)?;
        thread
            .join()
            .unwrap_or_else(|_| Err(CgroupError::Thread(std::io::Error::other("it panicked"))))
    })
}

fn path_of(text: &str, version: Version) -> Option<&str> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let wanted = match version {
            Version::V1 => controllers.split(',').any(|name| name == "devices"),
            Version::V2 => number == "0" && controllers.is_empty(),
        };
        wanted.then_some(path)
    })
}

/// Up to the component with the container's id: its processes may have made cgroups of their own below.
fn own_part<'a>(path: &'a str, id: &str) -> Option<&'a Path> {
    let start = path.find(id).filter(|_| !id.is_empty())?;
    let end = path[start..].find('/').map_or(path.len(), |at| start + at);
    Some(Path::new(&path[..end]))
}

/// The mount point of a hierarchy below the root, opened.
fn hierarchy(root: &Path, version: Version) -> Result<Option<(OwnedFd, PathBuf)>, CgroupError> {
    let (candidates, magic) = match version {
        Version::V1 => (vec![root.join("devices")], V1_MAGIC),
        Version::V2 => (vec![root.to_owned(), root.join("unified")], V2_MAGIC),
    };
    for path in candidates {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let io = |verb, errno: Errno| CgroupError::Io {
            verb,
            path: path.clone(),
            source: errno.into(),
        };
        let dir = match openat(CWD, &path, flags, Mode::empty()) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(io("open", errno)),
        };
        let found = fstatfs(&dir).map_err(|errno| io("look at", errno))?;
        if u64::try_from(found.f_type).is_ok_and(|kind| kind == magic) {
            return Ok(Some((dir, path)));
        }
    }
    Ok(None)
}

fn place(
    root: &OwnedFd,
    at: &Path,
    path: &Path,
    pod_uid: &str,
) -> Result<Option<Place>, CgroupError> {
    let Some(group) = open_below(root, at, path)? else {
        return Ok(None);
    };
    let parent = path.parent().unwrap_or(Path::new("/"));
    let shared = || PodGroup::Shared(parent.to_owned());
    let pod = if is_of_pod(parent, pod_uid) {
        open_below(root, at, parent)?.map_or_else(shared, PodGroup::Own)
    } else {
        shared()
    };
    Ok(Some(Place { group, pod }))
}

/// `…/pod<uid>` of the cgroupfs driver, or `…-pod<uid with _>.slice` of systemd's.
fn is_of_pod(path: &Path, pod_uid: &str) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
        return false;
    };
    pod_uid.len() >= UID_MINIMUM
        && (name.contains(pod_uid) || name.contains(&pod_uid.replace('-', "_")))
}

/// None when it does not exist (any more).
fn open_below(root: &OwnedFd, at: &Path, path: &Path) -> Result<Option<Group>, CgroupError> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    let full = at.join(relative);
    let name = if relative.as_os_str().is_empty() {
        Path::new(".")
    } else {
        relative
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match openat2(root, name, flags, Mode::empty(), resolve) {
        Ok(dir) => Ok(Some(Group { dir, path: full })),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(CgroupError::Io {
            verb: "open",
            path: full,
            source: errno.into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4f0c2f6d8a1b";
    const UID: &str = "1f2e3d4c-0000-4000-8000-00000000abcd";

    #[test]
    fn each_hierarchy_is_told_from_the_others() {
        let text = "9:name=systemd:/s\n5:devices:/kubepods/podx/a\n4:memory:/m\n0::/u\n";
        assert_eq!(path_of(text, Version::V1), Some("/kubepods/podx/a"));
        assert_eq!(path_of(text, Version::V2), Some("/u"));
        assert_eq!(path_of("7:cpu,devices:/both\n", Version::V1), Some("/both"));
        assert_eq!(path_of("7:mydevices:/x\n", Version::V1), None);
        assert_eq!(path_of("1::/x\n", Version::V2), None);
    }

    #[test]
    fn a_path_counts_up_to_the_container_s_own_component() {
        let table = [
            (format!("/pod/{ID}"), Some(format!("/pod/{ID}"))),
            (
                format!("/a.slice/cri-containerd-{ID}.scope/init.scope"),
                Some(format!("/a.slice/cri-containerd-{ID}.scope")),
            ),
            ("/".to_owned(), None),
            ("/pod/other".to_owned(), None),
        ];
        for (path, own) in table {
            assert_eq!(own_part(&path, ID), own.as_deref().map(Path::new), "{path}");
        }
        assert_eq!(own_part("/x", ""), None, "an empty id is in every path");
    }

    #[test]
    fn only_a_directory_named_after_the_pod_is_the_pod_s() {
        let underscores = UID.replace('-', "_");
        for (path, own) in [
            (format!("/kubepods/besteffort/pod{UID}"), true),
            (format!("/k.slice/k-pod{underscores}.slice"), true),
            ("/k8s.io".to_owned(), false),
            ("/".to_owned(), false),
            (format!("/pod{UID}/inner"), false),
        ] {
            assert_eq!(is_of_pod(Path::new(&path), UID), own, "{path}");
        }
        assert!(!is_of_pod(Path::new("/kubepods"), ""), "no UID");
        assert!(
            !is_of_pod(Path::new("/kubepods"), "pods"),
            "a UID that is too short"
        );
    }

    #[test]
    fn an_ordinary_directory_is_no_cgroup_hierarchy() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("devices/pod/x")).unwrap();
        assert!(hierarchy(dir.path(), Version::V1).unwrap().is_none());
        assert!(hierarchy(dir.path(), Version::V2).unwrap().is_none());
        let roots = Roots {
            cgroup: dir.path().into(),
            ..Roots::default()
        };
        let own = Process::own(Path::new("/proc")).unwrap();
        let error = Placement::of(&own, ID, UID, &roots)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(ID) && error.contains("device filter"),
            "{error}"
        );
    }
}
