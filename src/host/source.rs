//! What the host has at the source of a mount: a device node, or one of the places that the runtime
//! and the kubelet obey.
//!
//! Owns the look, through the root of the host's init process, which is the host's view also where
//! gpu-warden itself sees another. Decides nothing. A place is recognised by its identity (device and
//! inode), so that no symbolic link or bind mount of the host hides it; what can't be looked at is told
//! as [`Found::Unknown`].
//!
//! The look is at CreateContainer and the mount is made later: what is found is a reason to refuse,
//! never a proof. The proof is the gate's.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat2, statx,
};

use super::{Class, DeviceNumbers, Place, Process, ProcessError};

/// Deeper than any real path; the kernel's own limit of a path is 4096 bytes.
const DEPTH_LIMIT: usize = 64;
/// Entries of directories that are looked at for one mount.
const ENTRY_LIMIT: usize = 2000;

/// How a mount's source relates to a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Relation {
    /// It is the place, or lies in it.
    Within(Place),
    /// It is a directory above the place.
    Contains(Place),
}

/// What kind of file a source is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Found {
    /// It could not be looked at.
    #[default]
    Unknown,
    /// A character device.
    Device {
        /// Device major number.
        major: u32,
        /// Device minor number.
        minor: u32,
    },
    /// A directory, and the GPU nodes that were found in it, where that was asked for.
    Directory(Vec<(PathBuf, Class)>),
    /// Anything else.
    Other,
}

/// What is known of a mount's source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// Its kind.
    pub found: Found,
    /// The place that it is in or above, if any.
    pub relation: Option<Relation>,
}

type Identity = (u32, u32, u64);

/// Looks at sources for one container.
#[derive(Debug)]
pub struct HostView {
    root: OwnedFd,
    within: HashMap<Identity, Place>,
    contains: HashMap<Identity, Place>,
    own: BTreeSet<Identity>,
    sandbox: String,
}

impl HostView {
    /// Through the root of process 1 below `proc_root`. `own` are directories inside places that are
    /// the pod's own, and `sandbox` its id: the runtime keeps `resolv.conf` and the like in a directory
    /// of that name.
    pub fn open(
        proc_root: &Path,
        places: &[Place],
        own: &[PathBuf],
        sandbox: &str,
    ) -> Result<Self, ProcessError> {
        let mut view = Self {
            root: Process::open(proc_root, 1)?.root()?,
            within: HashMap::new(),
            contains: HashMap::new(),
            own: BTreeSet::new(),
            sandbox: sandbox.to_owned(),
        };
        for place in places {
            if let Some(identity) = view.identity(&place.path) {
                view.within.entry(identity).or_insert(place.clone());
            }
            for above in place.path.ancestors().skip(1) {
                if let Some(identity) = view.identity(above) {
                    view.contains.entry(identity).or_insert(place.clone());
                }
            }
        }
        view.own = own.iter().filter_map(|path| view.identity(path)).collect();
        Ok(view)
    }

    /// Looks at one source; `numbers` is given where directories are to be searched for GPU nodes.
    pub fn look(&self, source: &Path, numbers: Option<&DeviceNumbers>) -> Source {
        let Some((file, stat)) = self.open_path(source) else {
            return Source::default();
        };
        let kind = FileType::from_raw_mode(stat.stx_mode.into());
        let found = match kind {
            FileType::CharacterDevice => Found::Device {
                major: stat.stx_rdev_major,
                minor: stat.stx_rdev_minor,
            },
            FileType::Directory => {
                Found::Directory(numbers.map_or(Vec::new(), |numbers| self.nodes(source, numbers)))
            }
            _ => Found::Other,
        };
        let relation = match self.relation(&file, &stat, kind == FileType::Directory) {
            Some(Relation::Within(_)) if self.is_own(&file) => None,
            relation => relation,
        };
        Source { found, relation }
    }

    fn relation(&self, file: &OwnedFd, stat: &Statx, directory: bool) -> Option<Relation> {
        if let Some(place) = self.within.get(&identity(stat)) {
            return Some(Relation::Within(place.clone()));
        }
        if let Some(place) = self.contains.get(&identity(stat)) {
            return Some(Relation::Contains(place.clone()));
        }
        let lowest = if directory {
            (file.try_clone().ok()?, *stat)
        } else {
            let path = host_path(file)?;
            self.open_path(path.parent()?)?
        };
        self.place_above(lowest).map(Relation::Within)
    }

    /// The nearest place among a directory and those above it, unless the pod's own comes first.
    fn place_above(&self, (mut directory, mut stat): (OwnedFd, Statx)) -> Option<Place> {
        for _ in 0..DEPTH_LIMIT {
            let here = identity(&stat);
            if self.own.contains(&here) {
                return None;
            }
            if let Some(place) = self.within.get(&here) {
                return Some(place.clone());
            }
            let above = climb(directory.as_fd())?;
            if identity(&above.1) == here {
                return None;
            }
            (directory, stat) = above;
        }
        None
    }

    /// Whether it lies in the directory that the runtime keeps for this very sandbox.
    fn is_own(&self, file: &OwnedFd) -> bool {
        let Some(path) = host_path(file) else {
            return false;
        };
        let names: Vec<_> = path.components().map(Component::as_os_str).collect();
        !self.sandbox.is_empty()
            && names
                .windows(2)
                .any(|pair| pair[0] == "sandboxes" && pair[1] == self.sandbox.as_str())
    }

    /// GPU nodes where a `/dev`, or a root directory with one, has them.
    fn nodes(&self, source: &Path, numbers: &DeviceNumbers) -> Vec<(PathBuf, Class)> {
        let mut nodes = Vec::new();
        let mut budget = ENTRY_LIMIT;
        for below in [
            "",
            "dri",
            "nvidia-caps",
            "dev",
            "dev/dri",
            "dev/nvidia-caps",
        ] {
            let path = source.join(below);
            let Some(directory) = self.resolve(&path, OFlags::RDONLY | OFlags::DIRECTORY) else {
                continue;
            };
            let Ok(entries) = Dir::read_from(&directory) else {
                continue;
            };
            for entry in entries.flatten() {
                let Some(left) = budget.checked_sub(1) else {
                    return nodes;
                };
                budget = left;
                let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
                let Ok(stat) = statx(&directory, entry.file_name(), flags, StatxFlags::TYPE) else {
                    continue;
                };
                let class = (FileType::from_raw_mode(stat.stx_mode.into())
                    == FileType::CharacterDevice)
                    .then(|| numbers.classify(stat.stx_rdev_major, stat.stx_rdev_minor));
                if let Some(class) = class.flatten() {
                    let name = entry.file_name().to_string_lossy();
                    nodes.push((path.join(name.as_ref()), class));
                }
            }
        }
        nodes
    }

    fn identity(&self, path: &Path) -> Option<Identity> {
        self.open_path(path).map(|(_, stat)| identity(&stat))
    }

    fn open_path(&self, path: &Path) -> Option<(OwnedFd, Statx)> {
        let file = self.resolve(path, OFlags::PATH)?;
        let stat = stat(file.as_fd())?;
        Some((file, stat))
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> Option<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(
            &self.root,
            path,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        )
        .ok()
    }
}

fn climb(directory: BorrowedFd<'_>) -> Option<(OwnedFd, Statx)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = openat2(directory, "..", flags, Mode::empty(), ResolveFlags::empty()).ok()?;
    let stat = stat(above.as_fd())?;
    Some((above, stat))
}

fn stat(file: BorrowedFd<'_>) -> Option<Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(file, "", flags, StatxFlags::TYPE | StatxFlags::INO).ok()
}

fn identity(stat: &Statx) -> Identity {
    (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino)
}

/// Where a file is, links resolved, as the mount namespace that it was opened in sees it.
fn host_path(file: &OwnedFd) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn place(path: &Path, sockets: bool) -> Place {
        Place {
            path: path.to_owned(),
            sockets,
        }
    }

    struct Tree {
        dir: tempfile::TempDir,
        kubelet: Place,
        runtime: Place,
    }

    impl Tree {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let base = dir.path().canonicalize().unwrap();
            for path in [
                "kubelet/pods/me/volumes/v",
                "kubelet/pods/other/v",
                "run/rt/sandboxes/s1/shm",
                "run/rt/sandboxes/s2",
                "srv",
            ] {
                fs::create_dir_all(base.join(path)).unwrap();
            }
            fs::write(base.join("run/rt/rt.sock"), "").unwrap();
            fs::write(base.join("kubelet/pods/me/etc-hosts"), "").unwrap();
            symlink(base.join("kubelet"), base.join("srv/link")).unwrap();
            symlink(base.join("run/rt/rt.sock"), base.join("srv/sock")).unwrap();
            Self {
                kubelet: place(&base.join("kubelet"), false),
                runtime: place(&base.join("run/rt"), true),
                dir,
            }
        }

        fn relation(&self, below: &str) -> Option<Relation> {
            let base = self.dir.path().canonicalize().unwrap();
            // The tests' own process is one of the host's as good as pid 1, which they may not look through.
            let proc = tempfile::tempdir().unwrap();
            symlink("/proc/self", proc.path().join("1")).unwrap();
            let places = [self.kubelet.clone(), self.runtime.clone()];
            let own = [base.join("kubelet/pods/me")];
            let view = HostView::open(proc.path(), &places, &own, "s1").unwrap();
            view.look(&base.join(below), None).relation
        }
    }

    #[test]
    fn what_lies_in_a_place_is_found_through_links_and_dots() {
        let tree = Tree::new();
        let kubelet = Some(Relation::Within(tree.kubelet.clone()));
        let runtime = Some(Relation::Within(tree.runtime.clone()));
        for (source, expected) in [
            ("kubelet", &kubelet),
            ("srv/../kubelet/./pods", &kubelet),
            ("srv/link", &kubelet),
            ("srv/link/pods/other/v", &kubelet),
            ("kubelet/pods/other/v", &kubelet),
            ("run/rt/rt.sock", &runtime),
            ("srv/sock", &runtime),
            ("run/rt/sandboxes/s2", &runtime),
            ("", &Some(Relation::Contains(tree.kubelet.clone()))),
            ("run", &Some(Relation::Contains(tree.runtime.clone()))),
        ] {
            assert_eq!(&tree.relation(source), expected, "{source}");
        }
    }

    #[test]
    fn the_pods_own_volumes_and_its_sandboxs_files_are_no_ones_place() {
        let tree = Tree::new();
        for source in [
            "kubelet/pods/me",
            "kubelet/pods/me/volumes/v",
            "kubelet/pods/me/etc-hosts",
            "srv/link/pods/me/volumes/v",
            "run/rt/sandboxes/s1/shm",
            "srv",
            "nonexistent",
        ] {
            assert_eq!(tree.relation(source), None, "{source}");
        }
    }

    #[test]
    fn a_node_is_known_by_its_number_and_directories_are_searched_on_demand() {
        let proc = tempfile::tempdir().unwrap();
        symlink("/proc/self", proc.path().join("1")).unwrap();
        let view = HostView::open(proc.path(), &[], &[], "").unwrap();
        assert_eq!(
            view.look(Path::new("/dev/null"), None).found,
            Found::Device { major: 1, minor: 3 }
        );
        // Any major will do for the search; 1:3 is on every machine.
        let numbers = DeviceNumbers::parse(
            "Character devices:\n1 nvidia-caps\n",
            std::collections::BTreeSet::new(),
        )
        .unwrap();
        for directory in ["/dev", "/"] {
            let Found::Directory(nodes) = view.look(Path::new(directory), Some(&numbers)).found
            else {
                panic!("{directory}");
            };
            assert!(
                nodes.contains(&("/dev/null".into(), Class::Capability(3))),
                "{nodes:?}"
            );
        }
        assert_eq!(
            view.look(Path::new("/dev"), None).found,
            Found::Directory(Vec::new())
        );
        assert_eq!(
            view.look(Path::new("/nonexistent"), None),
            Source::default()
        );
    }
}
