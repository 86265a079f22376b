//! The pure part: values in, spec out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cdi::{ContainerEdits, Device, DeviceNode, Hook, Kind, Mount, Spec};

use super::HookStep;
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
    /// Path, on the host, of the program that serves as the one hook; none for a spec without.
    pub hook: Option<String>,
}

impl BuildOptions {
    /// UUID names only, the default sets, for a driver and nodes at `/`, without a hook.
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
            hook: None,
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
            hooks: hook(inventory, files, options),
            ..ContainerEdits::default()
        },
        ..Spec::default()
    };
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

/// One hook for the whole spec, whichever of its devices a container gets: a link is made only
/// where the node that it leads to is.
fn hook(inventory: &Inventory, files: &DriverFiles, options: &BuildOptions) -> Vec<Hook> {
    let Some(program) = options.hook.as_deref() else {
        return Vec::new();
    };
    let links = inventory.links.iter().filter(|_| options.drm);
    let steps: Vec<_> = links
        .map(|link| HookStep::Link {
            target: link.target.clone(),
            path: link.path.clone(),
        })
        .chain([HookStep::libraries(files)])
        .collect();
    HookStep::hook(program, &steps).into_iter().collect()
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
mod tests {
    use super::*;
    use crate::driver::{Library, Program};
    use crate::gpu::{DeviceId, NodeLink, Source};

    fn node(path: &str, major: u32, minor: u32) -> Node {
        Node {
            path: path.into(),
            major,
            minor,
        }
    }

    fn gpu(index: u32, minor: u32) -> Gpu {
        Gpu {
            id: DeviceId::parse(&format!("GPU-{index}{index}")).unwrap(),
            index,
            minor,
            name: "T".into(),
            pci: "0000:01:00.0".into(),
            nodes: vec![
                node(&format!("/dev/nvidia{minor}"), 195, minor),
                node(
                    &format!("/dev/dri/renderD{}", 128 + minor),
                    226,
                    128 + minor,
                ),
            ],
        }
    }

    fn inventory() -> Inventory {
        Inventory {
            gpus: vec![gpu(0, 1), gpu(1, 0)],
            control: vec![
                node("/dev/nvidiactl", 195, 255),
                node("/dev/nvidia-uvm", 511, 0),
            ],
            ..Inventory::empty(Source::Nvml, "570.1")
        }
    }

    fn mig_inventory() -> Inventory {
        let cap = |minor: u32| node(&format!("/dev/nvidia-caps/nvidia-cap{minor}"), 238, minor);
        let mig = MigDevice {
            gpu: Gpu {
                id: DeviceId::parse("MIG-1").unwrap(),
                nodes: vec![node("/dev/nvidia1", 195, 1), cap(30), cap(31)],
                ..gpu(2, 1)
            },
            parent: DeviceId::parse("GPU-22").unwrap(),
            slot: 3,
            gpu_instance: 7,
            compute_instance: 0,
            modes: [("/dev/nvidia-caps/nvidia-cap30".into(), 0o444)].into(),
            drm: vec![node("/dev/dri/renderD129", 226, 129)],
        };
        Inventory {
            gpus: vec![gpu(0, 0)],
            mig: vec![mig],
            ..inventory()
        }
    }

    fn files() -> DriverFiles {
        DriverFiles {
            version: "570.1".into(),
            libraries: vec![Library {
                file: "/opt/real.so".into(),
                path: "/usr/lib64/libcuda.so.570.1".into(),
                names: vec![
                    "/usr/lib64/libcuda.so.1".into(),
                    "/usr/lib64/libcuda.so".into(),
                ],
            }],
            programs: vec![Program {
                file: "/usr/bin/nvidia-smi".into(),
                path: "/usr/bin/nvidia-smi".into(),
            }],
            ..DriverFiles::default()
        }
    }

    fn options() -> BuildOptions {
        BuildOptions::new("nvidia.com/gpu".parse().unwrap())
    }

    fn names(spec: &Spec) -> Vec<&str> {
        spec.devices
            .iter()
            .map(|device| device.name.as_str())
            .collect()
    }

    #[test]
    fn each_gpu_is_one_device_by_uuid_with_its_own_nodes_in_the_oldest_version() {
        let spec = build(&inventory(), &files(), &options());
        assert_eq!(names(&spec), ["GPU-00", "GPU-11"]);
        assert_eq!(spec.cdi_version, "0.3.0");
        let nodes = &spec.devices[0].container_edits.device_nodes;
        assert_eq!(nodes[0].path, "/dev/nvidia1");
        assert_eq!(nodes[1].path, "/dev/dri/renderD129");
        assert_eq!(nodes.len(), 2);
        spec.validate_for_writing().unwrap();
    }

    #[test]
    fn static_majors_are_written_and_dynamic_ones_left_to_the_host() {
        let spec = build(&inventory(), &files(), &options());
        let [ctl, uvm] = spec.container_edits.device_nodes.as_slice() else {
            panic!("two control nodes");
        };
        assert!(ctl.is_self_contained());
        assert_eq!((ctl.major, ctl.minor), (Some(195), Some(255)));
        assert_eq!(
            (uvm.kind.as_ref(), uvm.major, uvm.minor),
            (None, None, None)
        );
    }

    #[test]
    fn a_library_is_mounted_at_each_of_its_names() {
        let spec = build(&inventory(), &files(), &options());
        let mounts: Vec<_> = spec
            .container_edits
            .mounts
            .iter()
            .map(|mount| (mount.host_path.as_str(), mount.container_path.as_str()))
            .collect();
        assert_eq!(
            mounts,
            [
                ("/opt/real.so", "/usr/lib64/libcuda.so.570.1"),
                ("/opt/real.so", "/usr/lib64/libcuda.so.1"),
                ("/opt/real.so", "/usr/lib64/libcuda.so"),
                ("/usr/bin/nvidia-smi", "/usr/bin/nvidia-smi"),
            ]
        );
    }

    #[test]
    fn moved_roots_change_host_paths_only() {
        let moved = BuildOptions {
            host_driver_root: "/run/nvidia/driver/".into(),
            host_dev_root: "/run/nvidia/driver".into(),
            ..options()
        };
        let spec = build(&inventory(), &files(), &moved);
        assert_eq!(spec.cdi_version, "0.5.0");
        let mount = &spec.container_edits.mounts[1];
        assert_eq!(mount.host_path, "/run/nvidia/driver/opt/real.so");
        assert_eq!(mount.container_path, "/usr/lib64/libcuda.so.1");
        let node = &spec.devices[0].container_edits.device_nodes[0];
        assert_eq!(node.path, "/dev/nvidia1");
        assert_eq!(
            node.host_path.as_deref(),
            Some("/run/nvidia/driver/dev/nvidia1")
        );
    }

    #[test]
    fn further_names_and_all_come_on_request_only() {
        let asked = BuildOptions {
            names: vec![
                NameStrategy::Index,
                NameStrategy::TypeIndex,
                NameStrategy::Index,
            ],
            all_device: true,
            ..options()
        };
        let spec = build(&inventory(), &files(), &asked);
        assert_eq!(names(&spec), ["0", "1", "gpu0", "gpu1", "all"]);
        assert_eq!(spec.cdi_version, "0.5.0");
        assert_eq!(spec.devices[4].container_edits.device_nodes.len(), 4);
        spec.validate_for_writing().unwrap();
    }

    #[test]
    fn a_gpu_without_its_own_node_is_never_a_device() {
        let mut inventory = inventory();
        inventory.gpus[0].nodes.remove(0);
        let all = BuildOptions {
            all_device: true,
            ..options()
        };
        let spec = build(&inventory, &files(), &all);
        assert_eq!(names(&spec), ["GPU-11", "all"]);
        assert_eq!(spec.devices[1].container_edits.device_nodes.len(), 2);
    }

    #[test]
    fn a_mig_device_needs_no_host_node_for_its_capabilities() {
        let spec = build(&mig_inventory(), &files(), &options());
        assert_eq!(names(&spec), ["GPU-00", "MIG-1"]);
        let nodes = &spec.devices[1].container_edits.device_nodes;
        let numbers: Vec<_> = nodes
            .iter()
            .map(|n| (n.major, n.minor, n.file_mode, n.is_self_contained()))
            .collect();
        assert_eq!(
            numbers,
            [
                (Some(195), Some(1), None, true),
                (Some(238), Some(30), Some(0o444), true),
                (Some(238), Some(31), None, true)
            ]
        );
        let moved = BuildOptions {
            host_dev_root: "/h".into(),
            names: vec![NameStrategy::Index, NameStrategy::TypeIndex],
            mig_drm: true,
            ..options()
        };
        let spec = build(&mig_inventory(), &files(), &moved);
        assert_eq!(names(&spec), ["0", "2:3", "gpu0", "mig2:3"]);
        let nodes = &spec.devices[1].container_edits.device_nodes;
        assert_eq!(nodes[1].host_path, None);
        assert_eq!(nodes[3].path, "/dev/dri/renderD129");
        spec.validate_for_writing().unwrap();
    }

    #[test]
    fn a_mig_device_without_both_capabilities_is_never_a_device() {
        let mut inventory = mig_inventory();
        inventory.mig[0].gpu.nodes.pop();
        let spec = build(&inventory, &files(), &options());
        assert_eq!(names(&spec), ["GPU-00"]);
    }

    #[test]
    fn node_wide_capabilities_are_devices_of_their_own() {
        let mut spec = build(&mig_inventory(), &files(), &options());
        let cap = node("/dev/nvidia-caps/nvidia-cap1", 238, 1);
        add_node_wide(&mut spec, NodeWide::Config, &cap, Some(0o400));
        let device = spec.devices.last().unwrap();
        assert_eq!(device.name, "mig-config");
        assert_eq!(
            device.container_edits.device_nodes[0].file_mode,
            Some(0o400)
        );
        spec.validate_for_writing().unwrap();
    }

    #[test]
    fn drm_nodes_can_be_left_out() {
        let without = BuildOptions {
            drm: false,
            ..options()
        };
        let spec = build(&inventory(), &files(), &without);
        assert_eq!(spec.devices[0].container_edits.device_nodes.len(), 1);
    }

    #[test]
    fn the_group_of_a_closed_drm_node_comes_with_graphics_only() {
        let mut inventory = inventory();
        inventory.groups = [("/dev/dri/renderD129".into(), 44)].into();
        let compute = build(&inventory, &files(), &options());
        assert_eq!(compute.cdi_version, "0.3.0");
        let graphics = BuildOptions {
            capabilities: [Capability::Graphics].into(),
            ..options()
        };
        let spec = build(&inventory, &files(), &graphics);
        assert_eq!(spec.cdi_version, "0.7.0");
        let edits = &spec.devices[0].container_edits;
        assert_eq!(edits.additional_gids, [44]);
        assert_eq!(edits.device_nodes[1].gid, Some(44));
        assert!(spec.devices[1].container_edits.additional_gids.is_empty());
    }

    #[test]
    fn links_by_path_come_with_the_hook_only() {
        let mut inventory = inventory();
        inventory.links = vec![NodeLink {
            node: "/dev/dri/renderD129".into(),
            path: "/dev/dri/by-path/pci-0000:01:00.0-render".into(),
            target: "../renderD129".into(),
        }];
        let bare = build(&inventory, &files(), &options());
        assert!(bare.container_edits.hooks.is_empty());
        let hooked = BuildOptions {
            hook: Some("/usr/bin/cdi-gen".into()),
            ..options()
        };
        let spec = build(&inventory, &files(), &hooked);
        let [hook] = spec.container_edits.hooks.as_slice() else {
            panic!("one hook")
        };
        assert!(
            hook.args
                .contains(&"--link=../renderD129::/dev/dri/by-path/pci-0000:01:00.0-render".into())
        );
        assert!(
            spec.devices
                .iter()
                .all(|device| device.container_edits.hooks.is_empty())
        );
        spec.validate_for_writing().unwrap();
    }

    #[test]
    fn a_device_none_brings_the_libraries_and_no_node() {
        let none = BuildOptions {
            devices: DeviceSelection::None,
            ..options()
        };
        let spec = build(&Inventory::empty(Source::Nvml, "570.1"), &files(), &none);
        assert_eq!(names(&spec), ["none"]);
        assert!(spec.container_edits.device_nodes.is_empty());
        assert_eq!(spec.container_edits.mounts.len(), 4);
        spec.validate_for_writing().unwrap();
    }
}
