//! The pure part: values in, spec out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cdi::{ContainerEdits, Device, DeviceNode, Kind, Mount, Spec};

use super::hooks::{self, HookMode};
use super::select::DeviceSelection;
use crate::driver::{Capability, DriverFiles, Extra, FileKind, Manifest, Targets};
use crate::gpu::capability::NodeWide;
use crate::gpu::{Gpu, Inventory, MigDevice, Node};
use crate::host::devices::{DRM_MAJOR, NVIDIA_MAJOR};

/// Of files: nothing in a container may change or execute with privilege what the host runs.
const MOUNT_OPTIONS: [&str; 5] = ["ro", "nosuid", "nodev", "rbind", "rprivate"];

/// Of sockets and directories that a container has to write to.
const WRITABLE_OPTIONS: [&str; 5] = ["nosuid", "nodev", "rbind", "rprivate", "noexec"];

/// A legacy NVIDIA runtime or hook that sees this value does nothing.
pub(super) const VOID: &str = "NVIDIA_VISIBLE_DEVICES=void";

/// How devices are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NameStrategy {
    /// `GPU-<uuid>` or `MIG-<uuid>`, the name in the kubelet's records. Stable.
    Uuid,
    /// `0`: the NVML index, which changes when a GPU is lost; `0:1` for a MIG device.
    Index,
    /// `gpu0`, `mig0:1`: the same with a letter first.
    TypeIndex,
}

impl NameStrategy {
    fn of_gpu(self, gpu: &Gpu) -> String {
        match self {
            Self::Uuid => gpu.id.to_string(),
            Self::Index => gpu.index.to_string(),
            Self::TypeIndex => format!("gpu{}", gpu.index),
        }
    }

    fn of_mig(self, mig: &MigDevice) -> String {
        match self {
            Self::Uuid => mig.gpu.id.to_string(),
            Self::Index => format!("{}:{}", mig.gpu.index, mig.slot),
            Self::TypeIndex => format!("mig{}:{}", mig.gpu.index, mig.slot),
        }
    }
}

/// What is the caller's choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildOptions {
    /// Usually `nvidia.com/gpu`.
    pub kind: Kind,
    /// One device per GPU and strategy; repetitions count once.
    pub names: Vec<NameStrategy>,
    /// Whether there is a device `all` with every GPU.
    pub all_device: bool,
    /// Where the runtime *on the host* sees the driver root (`/` when the driver is installed
    /// there); no trailing slash otherwise.
    pub host_driver_root: String,
    /// Where the runtime on the host sees the directory that contains `dev`.
    pub host_dev_root: String,
    /// Which of the manifest's sets.
    pub capabilities: BTreeSet<Capability>,
    /// Instead of the built-in one.
    pub manifest: Option<Manifest>,
    /// Directories of settings instead of the manifest's; absolute, inside the driver root.
    pub config_search: Vec<PathBuf>,
    /// Where files go in the container.
    pub targets: Targets,
    /// Which GPUs.
    pub devices: DeviceSelection,
    /// Whether DRM nodes come with a whole GPU.
    pub drm: bool,
    /// Whether the parent's DRM nodes come with a MIG device (profiles with graphics).
    pub mig_drm: bool,
    /// Node-wide MIG capabilities that become devices of their own, `mig-config` and `mig-monitor`.
    pub node_wide: BTreeSet<NodeWide>,
    /// Whether a hook makes the libraries known in containers.
    pub hooks: HookMode,
}

impl BuildOptions {
    /// UUID names only, the default sets, for a driver and nodes at `/`; libraries where the host
    /// has them, without a hook.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            names: vec![NameStrategy::Uuid],
            all_device: false,
            host_driver_root: "/".into(),
            host_dev_root: "/".into(),
            capabilities: Capability::defaults(),
            manifest: None,
            config_search: Vec::new(),
            targets: Targets::default(),
            devices: DeviceSelection::All,
            drm: true,
            mig_drm: false,
            node_wide: BTreeSet::new(),
            hooks: HookMode::None {
                loader_dirs: Vec::new(),
            },
        }
    }

    /// Graphics need the DRM nodes to be open to the container's user.
    fn wants_groups(&self) -> bool {
        [Capability::Graphics, Capability::Video, Capability::Display]
            .iter()
            .any(|capability| self.capabilities.contains(capability))
    }
}

/// A device before it has a name.
struct Part<'i> {
    nodes: Vec<&'i Node>,
    modes: Option<&'i BTreeMap<PathBuf, u32>>,
}

/// Builds the spec, in the lowest CDI version that its content allows.
///
/// Devices come in the order of the strategies, then of the GPUs, then of the MIG devices. A GPU
/// without its own node, and a MIG device without both capability nodes, is left out, whatever else
/// the inventory says of it.
pub fn build(inventory: &Inventory, files: &DriverFiles, options: &BuildOptions) -> Spec {
    let gpus: Vec<_> = inventory
        .gpus
        .iter()
        .filter(|gpu| has_own_node(gpu))
        .map(|gpu| {
            let keep = |node: &&Node| options.drm || node.major != DRM_MAJOR;
            let part = Part {
                nodes: gpu.nodes.iter().filter(keep).collect(),
                modes: None,
            };
            (gpu, part)
        })
        .collect();
    let mig: Vec<_> = inventory
        .mig
        .iter()
        .filter(|mig| has_own_node(&mig.gpu) && mig.gpu.capability_minors().count() == 2)
        .map(|mig| {
            let drm = mig.drm.iter().filter(|_| options.drm && options.mig_drm);
            let part = Part {
                nodes: mig.gpu.nodes.iter().chain(drm).collect(),
                modes: Some(&mig.modes),
            };
            (mig, part)
        })
        .collect();
    let mut devices: Vec<Device> = Vec::new();
    let mut names = BTreeSet::new();
    for strategy in &options.names {
        let whole = gpus.iter().map(|(gpu, part)| (strategy.of_gpu(gpu), part));
        let parts = mig.iter().map(|(mig, part)| (strategy.of_mig(mig), part));
        for (name, part) in whole.chain(parts) {
            if names.insert(name.clone()) {
                devices.push(Device {
                    name,
                    container_edits: edits(&[part], inventory, options),
                    ..Device::default()
                });
            }
        }
    }
    let all: Vec<_> = gpus
        .iter()
        .map(|(_, part)| part)
        .chain(mig.iter().map(|(_, part)| part))
        .collect();
    if options.all_device && !all.is_empty() {
        devices.push(Device {
            name: "all".into(),
            container_edits: edits(&all, inventory, options),
            ..Device::default()
        });
    }
    if options.devices == DeviceSelection::None {
        devices.push(Device {
            name: "none".into(),
            container_edits: ContainerEdits {
                env: vec![VOID.into()],
                ..ContainerEdits::default()
            },
            ..Device::default()
        });
    }
    let mut spec = Spec {
        kind: options.kind.to_string(),
        devices,
        container_edits: ContainerEdits {
            env: vec![VOID.into()],
            device_nodes: inventory
                .control
                .iter()
                .filter(|_| options.devices != DeviceSelection::None)
                .map(|node| device_node(node, options))
                .collect(),
            mounts: mounts(files, &options.host_driver_root),
            ..ContainerEdits::default()
        },
        ..Spec::default()
    };
    let links = inventory.links.iter().filter(|_| options.drm);
    hooks::apply(&mut spec, links, &options.hooks);
    spec.set_lowest_version();
    spec
}

/// Adds a device for a node-wide MIG capability. Its number is written, as its node need not exist.
pub fn add_node_wide(spec: &mut Spec, which: NodeWide, node: &Node, mode: Option<u32>) {
    spec.devices.push(Device {
        name: format!("mig-{which}"),
        container_edits: ContainerEdits {
            device_nodes: vec![self_contained(node, mode)],
            ..ContainerEdits::default()
        },
        ..Device::default()
    });
    spec.set_lowest_version();
}

fn edits(parts: &[&Part<'_>], inventory: &Inventory, options: &BuildOptions) -> ContainerEdits {
    let mut seen = BTreeSet::new();
    let mut edits = ContainerEdits::default();
    let mut gids = BTreeSet::new();
    for part in parts {
        for node in &part.nodes {
            if !seen.insert(&node.path) {
                continue;
            }
            let mut written = match part.modes {
                Some(modes) if !matches!(node.major, NVIDIA_MAJOR | DRM_MAJOR) => {
                    self_contained(node, modes.get(&node.path).copied())
                }
                _ => device_node(node, options),
            };
            let group = inventory.groups.get(&node.path).copied();
            if let Some(gid) = group.filter(|_| options.wants_groups()) {
                written.gid = Some(gid);
                gids.insert(gid);
            }
            edits.device_nodes.push(written);
        }
    }
    edits.additional_gids = gids.into_iter().collect();
    edits
}

fn has_own_node(gpu: &Gpu) -> bool {
    gpu.nodes
        .iter()
        .any(|node| (node.major, node.minor) == (NVIDIA_MAJOR, gpu.minor))
}

/// Numbers are written where they can't go stale. On a dynamic major they do, at each reload of
/// the module, and readers prefer a written number to the host's (CDI reference, section 8).
pub(super) fn device_node(node: &Node, options: &BuildOptions) -> DeviceNode {
    let path = node.path.display().to_string();
    let host = on_host(&options.host_dev_root, &node.path);
    let is_static = matches!(node.major, NVIDIA_MAJOR | DRM_MAJOR);
    DeviceNode {
        host_path: (host != path).then_some(host),
        path,
        kind: is_static.then(|| "c".into()),
        major: is_static.then(|| node.major.into()),
        minor: is_static.then(|| node.minor.into()),
        ..DeviceNode::default()
    }
}

/// A node that the runtime makes by number, whether the host has it or not: capability nodes appear
/// only when somebody asks `nvidia-modprobe` for them. The number goes stale with the module, which
/// `check` finds.
fn self_contained(node: &Node, mode: Option<u32>) -> DeviceNode {
    DeviceNode {
        path: node.path.display().to_string(),
        kind: Some("c".into()),
        major: Some(node.major.into()),
        minor: Some(node.minor.into()),
        file_mode: mode,
        ..DeviceNode::default()
    }
}

/// Each library at its own path and again under each further name: the container's loader finds
/// SONAMEs without a hook that runs ldconfig or makes links in its root.
pub(super) fn mounts(files: &DriverFiles, host_root: &str) -> Vec<Mount> {
    let mount = |file: &Path, path: &Path, options: [&str; 5]| Mount {
        host_path: on_host(host_root, file),
        container_path: path.display().to_string(),
        options: options.map(Into::into).to_vec(),
        kind: None,
    };
    let libraries = files.libraries.iter().flat_map(|library| {
        std::iter::once(&library.path)
            .chain(&library.names)
            .map(move |path| mount(&library.file, path, MOUNT_OPTIONS))
    });
    let programs = files
        .programs
        .iter()
        .map(|program| mount(&program.file, &program.path, MOUNT_OPTIONS));
    let extras = files.extras.iter().map(|extra| {
        let options = if is_writable(extra) {
            WRITABLE_OPTIONS
        } else {
            MOUNT_OPTIONS
        };
        mount(&extra.file, &extra.path, options)
    });
    libraries.chain(programs).chain(extras).collect()
}

fn is_writable(extra: &Extra) -> bool {
    extra.writable && matches!(extra.kind, FileKind::Socket | FileKind::Dir)
}

fn on_host(root: &str, path: &Path) -> String {
    format!("{}{}", root.trim_end_matches('/'), path.display())
}

#[cfg(test)]
mod tests;
