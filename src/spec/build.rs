//! The pure part: values in, spec out.

use std::collections::BTreeSet;
use std::path::Path;

use cdi::{ContainerEdits, Device, DeviceNode, Kind, Mount, Spec};

use super::hooks::{self, HookMode};
use crate::driver::DriverFiles;
use crate::gpu::{Gpu, Inventory, Node};
use crate::host::devices::{DRM_MAJOR, NVIDIA_MAJOR};

/// Of files: nothing in a container may change or execute with privilege what the host runs.
const MOUNT_OPTIONS: [&str; 5] = ["ro", "nosuid", "nodev", "rbind", "rprivate"];

/// A legacy NVIDIA runtime or hook that sees this value does nothing.
const VOID: &str = "NVIDIA_VISIBLE_DEVICES=void";

/// How devices are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NameStrategy {
    /// `GPU-<uuid>`, the name in the kubelet's records. Stable.
    Uuid,
    /// `0`: the NVML index, which changes when a GPU is lost.
    Index,
    /// `gpu0`: the same with a letter first.
    TypeIndex,
}

impl NameStrategy {
    fn name(self, gpu: &Gpu) -> String {
        match self {
            Self::Uuid => gpu.id.to_string(),
            Self::Index => gpu.index.to_string(),
            Self::TypeIndex => format!("gpu{}", gpu.index),
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
    /// Whether a hook makes the libraries known in containers.
    pub hooks: HookMode,
}

impl BuildOptions {
    /// UUID names only, for a driver and nodes at `/`; libraries where the host has them, without a
    /// hook.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            names: vec![NameStrategy::Uuid],
            all_device: false,
            host_driver_root: "/".into(),
            host_dev_root: "/".into(),
            hooks: HookMode::None {
                loader_dirs: Vec::new(),
            },
        }
    }
}

/// Builds the spec, in the lowest CDI version that its content allows.
///
/// Devices come in the order of the strategies, then of the GPUs. A GPU without its own node is
/// left out, whatever else the inventory says of it.
pub fn build(inventory: &Inventory, files: &DriverFiles, options: &BuildOptions) -> Spec {
    let gpus: Vec<_> = inventory
        .gpus
        .iter()
        .filter(|gpu| has_own_node(gpu))
        .collect();
    let edits = |gpus: &[&Gpu]| {
        let mut seen = BTreeSet::new();
        ContainerEdits {
            device_nodes: gpus
                .iter()
                .flat_map(|gpu| &gpu.nodes)
                .filter(|node| seen.insert(&node.path))
                .map(|node| device_node(node, options))
                .collect(),
            ..ContainerEdits::default()
        }
    };
    let mut devices: Vec<Device> = Vec::new();
    let mut names = BTreeSet::new();
    for strategy in &options.names {
        for gpu in &gpus {
            let name = strategy.name(gpu);
            if names.insert(name.clone()) {
                devices.push(Device {
                    name,
                    container_edits: edits(&[gpu]),
                    ..Device::default()
                });
            }
        }
    }
    if options.all_device && !gpus.is_empty() {
        devices.push(Device {
            name: "all".into(),
            container_edits: edits(&gpus),
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
                .map(|node| device_node(node, options))
                .collect(),
            mounts: mounts(files, &options.host_driver_root),
            ..ContainerEdits::default()
        },
        ..Spec::default()
    };
    hooks::apply(&mut spec, inventory, &options.hooks);
    spec.set_lowest_version();
    spec
}

fn has_own_node(gpu: &Gpu) -> bool {
    gpu.nodes
        .iter()
        .any(|node| (node.major, node.minor) == (NVIDIA_MAJOR, gpu.minor))
}

/// Numbers are written where they can't go stale. On a dynamic major they do, at each reload of
/// the module, and readers prefer a written number to the host's (CDI reference, section 8).
fn device_node(node: &Node, options: &BuildOptions) -> DeviceNode {
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

/// Each library at its own path and again under each further name: the container's loader finds
/// SONAMEs without a hook that runs ldconfig or makes links in its root.
fn mounts(files: &DriverFiles, host_root: &str) -> Vec<Mount> {
    let libraries = files.libraries.iter().flat_map(|library| {
        std::iter::once(&library.path)
            .chain(&library.names)
            .map(|path| (&library.file, path))
    });
    let programs = files
        .programs
        .iter()
        .map(|program| (&program.file, &program.path));
    libraries
        .chain(programs)
        .map(|(file, path)| Mount {
            host_path: on_host(host_root, file),
            container_path: path.display().to_string(),
            options: MOUNT_OPTIONS.map(Into::into).to_vec(),
            kind: None,
        })
        .collect()
}

fn on_host(root: &str, path: &Path) -> String {
    format!("{}{}", root.trim_end_matches('/'), path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Library, Program};
    use crate::gpu::{DeviceId, Source};

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
            source: Source::Nvml,
            driver_version: "570.1".into(),
            gpus: vec![gpu(0, 1), gpu(1, 0)],
            control: vec![
                node("/dev/nvidiactl", 195, 255),
                node("/dev/nvidia-uvm", 511, 0),
            ],
            faults: Vec::new(),
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
}
