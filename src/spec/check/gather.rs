//! The look at the host: everything that the checks need, taken once.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cdi::{ContainerEdits, Registry};

use super::facts::{Driver, Facts, NodeState, PathState};
use super::view::{HostView, Place};
use crate::driver::{DriverFiles, InRoot};
use crate::gpu::{DiscoverError, Inventory, NvmlLibrary, discover};
use crate::host::DeviceNumbers;
use crate::spec::{is_tegra, is_wsl};

impl Facts {
    /// Looks at the directories and the host. Never fails: what can't be seen is a fact too.
    /// Blocks for as long as the driver does.
    pub fn gather(dirs: &[PathBuf], view: &HostView, nvml: &NvmlLibrary) -> Self {
        let registry = Registry::load(dirs);
        let driver = driver(view, nvml);
        let mut modes = BTreeMap::new();
        let files = registry.files().iter().map(|file| &file.path);
        let broken = registry.broken().iter().map(|file| &file.path);
        for path in dirs.iter().chain(files).chain(broken) {
            if let Ok(meta) = fs::metadata(path) {
                modes.insert(path.clone(), meta.permissions().mode() & 0o777);
            }
        }
        let (nodes, paths) = named(&registry, view);
        let inventory = match &driver {
            Driver::Works { inventory, .. } => Some(inventory),
            _ => None,
        };
        Self {
            dirs: dirs.to_vec(),
            modes,
            ignored: dirs.iter().flat_map(|dir| ignored(dir)).collect(),
            nodes,
            paths,
            numbers: DeviceNumbers::read(&view.roots).map_err(|error| chain(&error)),
            without_char_link: without_char_link(view, inventory),
            driver,
            registry,
            host_dev_root: view.host_dev_root.clone(),
        }
    }
}

/// An error with its causes, in one sentence.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

fn driver(view: &HostView, nvml: &NvmlLibrary) -> Driver {
    match discover(&view.roots, nvml) {
        Ok(inventory) => Driver::Works {
            files: DriverFiles::find(&view.roots.driver, &inventory.driver_version, &nvml.search)
                .err()
                .map(|error| chain(&error)),
            inventory,
        },
        Err(_) if is_wsl(&view.roots) => Driver::Unlisted("WSL2".into()),
        Err(_) if is_tegra(&view.roots, nvml) => Driver::Unlisted("Tegra".into()),
        Err(error @ DiscoverError::NoDriver { .. }) => Driver::Absent(error.to_string()),
        Err(error) => Driver::Broken(chain(&error)),
    }
}

type Named = (BTreeMap<String, NodeState>, BTreeMap<String, PathState>);

/// Looks at everything that a valid file names.
fn named(registry: &Registry, view: &HostView) -> Named {
    let edits: Vec<&ContainerEdits> = registry
        .files()
        .iter()
        .flat_map(|file| {
            let devices = file.spec.devices.iter().map(|d| &d.container_edits);
            devices.chain([&file.spec.container_edits])
        })
        .collect();
    let nodes: BTreeSet<&str> = edits
        .iter()
        .flat_map(|edits| edits.device_nodes.iter().map(cdi::DeviceNode::host_path))
        .collect();
    let paths: BTreeSet<&str> = edits
        .iter()
        .flat_map(|edits| {
            let mounts = edits.mounts.iter().filter(|mount| is_bind(mount));
            let hooks = edits.hooks.iter().map(|hook| hook.path.as_str());
            mounts.map(|mount| mount.host_path.as_str()).chain(hooks)
        })
        .collect();
    (
        nodes
            .into_iter()
            .map(|path| (path.to_owned(), node(&view.node(path))))
            .collect(),
        paths
            .into_iter()
            .map(|path| (path.to_owned(), file(&view.file(path))))
            .collect(),
    )
}

/// A mount of another type (`tmpfs`) has no source that could be missing.
pub(super) fn is_bind(mount: &cdi::Mount) -> bool {
    let kind = mount.kind.as_deref().unwrap_or_default();
    matches!(kind, "" | "bind" | "none") && mount.host_path.starts_with('/')
}

fn node(place: &Place) -> NodeState {
    let path = match place {
        Place::Here(path) => path.clone(),
        Place::InRoot(root, path) => root.join(path),
        Place::Nowhere => return NodeState::Unknown("outside of the roots".into()),
    };
    let meta = match fs::symlink_metadata(&path) {
        Ok(meta) => meta,
        Err(error) if is_absent(&error) => return NodeState::Absent,
        Err(error) => return NodeState::Unknown(error.to_string()),
    };
    let kind = meta.file_type();
    let letter = if kind.is_char_device() {
        'c'
    } else if kind.is_block_device() {
        'b'
    } else if kind.is_fifo() {
        'p'
    } else if kind.is_symlink() {
        return NodeState::Other("a symbolic link".into());
    } else if kind.is_dir() {
        return NodeState::Other("a directory".into());
    } else {
        return NodeState::Other("a file".into());
    };
    NodeState::Device {
        kind: letter,
        major: rustix::fs::major(meta.rdev()),
        minor: rustix::fs::minor(meta.rdev()),
    }
}

fn file(place: &Place) -> PathState {
    let meta = match place {
        Place::Here(path) => fs::metadata(path),
        Place::InRoot(root, path) => in_root(root, path),
        Place::Nowhere => return PathState::Unknown("outside of the roots".into()),
    };
    match meta {
        Ok(meta) => PathState::Present {
            mode: meta.permissions().mode() & 0o777,
        },
        Err(error) if is_absent(&error) => PathState::Absent,
        Err(error) => PathState::Unknown(error.to_string()),
    }
}

/// Regular files and directories with their links kept inside the root; of a socket, the socket.
fn in_root(root: &Path, path: &Path) -> io::Result<fs::Metadata> {
    let opened = InRoot::open(root)?;
    match opened.file(path).or_else(|_| opened.dir(path)) {
        Ok(found) => found.file.metadata(),
        Err(error) => match fs::symlink_metadata(root.join(path)) {
            Ok(meta) if !meta.is_symlink() => Ok(meta),
            _ => Err(error),
        },
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Names that a person takes for specs and a reader does not.
fn ignored(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
            let is_spec = extension == "yml" || extension == "yaml" || extension == "json";
            is_spec && cdi::Format::from_path(path).is_none() && path.is_file()
        })
        .collect();
    found.sort();
    found
}

fn without_char_link(view: &HostView, inventory: Option<&Inventory>) -> Vec<String> {
    let dir = view.roots.dev.join("dev/char");
    let Some(inventory) = inventory.filter(|_| dir.is_dir()) else {
        return Vec::new();
    };
    let gpus = inventory.gpus.iter().flat_map(|gpu| &gpu.nodes);
    let parts = inventory.mig.iter().flat_map(|mig| &mig.gpu.nodes);
    let mut seen = BTreeSet::new();
    gpus.chain(parts)
        .chain(&inventory.control)
        .filter(|node| seen.insert(&node.path))
        .filter(|node| {
            let link = dir.join(format!("{}:{}", node.major, node.minor));
            fs::symlink_metadata(link).is_err()
        })
        .map(|node| format!("{} ({}:{})", node.path.display(), node.major, node.minor))
        .collect()
}
