//! The node as values: 8 GPUs with their DRM nodes, and a driver of 30 libraries.

use std::collections::BTreeSet;

use gpu_warden::driver::{DriverFiles, Library, Program};
use gpu_warden::gpu::{DeviceId, Gpu, Inventory, Node, Source};
use gpu_warden::host::DeviceNumbers;
use gpu_warden::spec::{BuildOptions, build};
use gpu_warden::watch::NodeState;

/// GPUs of the node.
pub(crate) const GPUS: usize = 8;
/// Version of its driver.
pub(crate) const VERSION: &str = "570.133.20";
/// Major of `nvidia-uvm`, a dynamic one.
pub(crate) const UVM: u32 = 511;
/// Where the libraries are.
pub(crate) const LIBRARY_DIR: &str = "/usr/lib/x86_64-linux-gnu";
/// How many libraries a driver of this generation gives to a container, about.
pub(crate) const LIBRARIES: usize = 30;
/// `/proc/devices`.
pub(crate) const PROC_DEVICES: &str = "Character devices:\n  1 mem\n 10 misc\n195 nvidia\n226 drm\n511 nvidia-uvm\n\nBlock devices:\n  7 loop\n";

/// UUID of a GPU.
pub(crate) fn uuid(gpu: usize) -> String {
    format!("GPU-5ef0c0de-4a11-4c0f-9d3e-{gpu:012x}")
}

/// A library's name without version: the two that tell the driver, and others.
pub(crate) fn library(n: usize) -> String {
    match n {
        0 => "libcuda.so".into(),
        1 => "libnvidia-ml.so".into(),
        _ => format!("libnvidia-part{n}.so"),
    }
}

/// PCI bus of a GPU.
pub(crate) fn bus(gpu: usize) -> usize {
    0x10 + gpu
}

/// The numbers of this node's drivers.
pub(crate) fn numbers() -> DeviceNumbers {
    let first = 0..u32::try_from(GPUS).unwrap_or_default();
    let drm: BTreeSet<u32> = first.flat_map(|gpu| [gpu, 128 + gpu]).collect();
    DeviceNumbers::parse(PROC_DEVICES, drm).unwrap_or_else(DeviceNumbers::fixed)
}

/// The GPUs.
pub(crate) fn inventory() -> Inventory {
    let node = |path: String, major, minor| Node {
        path: path.into(),
        major,
        minor,
    };
    let gpus = (0_u32..).zip(0..GPUS).map(|(minor, gpu)| Gpu {
        id: DeviceId::parse(&uuid(gpu)).unwrap_or_else(|e| panic!("{e}")),
        index: minor,
        minor,
        name: "NVIDIA A100-SXM4-40GB".into(),
        pci: format!("0000:{:02x}:00.0", bus(gpu)),
        nodes: vec![
            node(format!("/dev/nvidia{minor}"), 195, minor),
            node(format!("/dev/dri/card{minor}"), 226, minor),
            node(format!("/dev/dri/renderD{}", 128 + minor), 226, 128 + minor),
        ],
    });
    Inventory {
        gpus: gpus.collect(),
        control: vec![
            node("/dev/nvidiactl".into(), 195, 255),
            node("/dev/nvidia-uvm".into(), UVM, 0),
            node("/dev/nvidia-uvm-tools".into(), UVM, 1),
        ],
        ..Inventory::empty(Source::Nvml, VERSION)
    }
}

/// Its CDI spec.
pub(crate) fn spec() -> cdi::Spec {
    let libraries = (0..LIBRARIES).map(|n| {
        let path = format!("{LIBRARY_DIR}/{}.{VERSION}", library(n));
        Library {
            file: path.clone().into(),
            path: path.into(),
            names: vec![format!("{LIBRARY_DIR}/{}.1", library(n)).into()],
        }
    });
    let files = DriverFiles {
        version: VERSION.into(),
        libraries: libraries.collect(),
        programs: vec![Program {
            file: "/usr/bin/nvidia-smi".into(),
            path: "/usr/bin/nvidia-smi".into(),
        }],
        ..DriverFiles::default()
    };
    let kind = "nvidia.com/gpu".parse().unwrap_or_else(|e| panic!("{e}"));
    build(&inventory(), &files, &BuildOptions::new(kind))
}

/// What the watcher would publish: every GPU found by its CDI name.
pub(crate) fn state() -> NodeState {
    let inventory = inventory();
    let by_name = inventory.gpus.iter().map(|gpu| gpu.id.clone()).collect();
    NodeState::known(inventory, spec(), numbers(), by_name)
}
