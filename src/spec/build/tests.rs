//! What a spec is made of, value by value.

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
        hooks: HookMode::One {
            program: "/usr/bin/cdi-gen".into(),
        },
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
