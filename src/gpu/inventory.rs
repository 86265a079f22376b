//! The inventory: one value that says what the node has.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::DeviceId;
use crate::host::devices::{DRM_MAJOR, NVIDIA_MAJOR};

/// A character device node, by its path as a container or the host names it (no root prefix).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Node {
    /// Absolute, such as `/dev/nvidia0`.
    pub path: PathBuf,
    /// Device major number.
    pub major: u32,
    /// Device minor number.
    pub minor: u32,
}

/// One whole GPU, or a MIG device in the same form ([`MigDevice::gpu`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// NVML UUID, the name that the kubelet and the CDI spec use.
    pub id: DeviceId,
    /// NVML index; **not** the minor of its node.
    pub index: u32,
    /// Minor of `/dev/nvidia<minor>`.
    pub minor: u32,
    /// Product name, for people.
    pub name: String,
    /// PCI address as sysfs spells it, such as `0000:3b:00.0`.
    pub pci: String,
    /// Its own nodes: `/dev/nvidia<minor>` first, then its DRM nodes by path.
    pub nodes: Vec<Node>,
}

impl Gpu {
    /// The nodes without which it can't be used: its own, and a MIG device's two capability nodes.
    /// DRM nodes are not among them.
    pub fn required_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.major != DRM_MAJOR)
    }

    /// The minors of a MIG device's capability nodes, on the major of `nvidia-caps`; a whole GPU has
    /// none.
    pub fn capability_minors(&self) -> impl Iterator<Item = u32> {
        self.nodes
            .iter()
            .filter(|node| !matches!(node.major, DRM_MAJOR | NVIDIA_MAJOR))
            .map(|node| node.minor)
    }
}

/// A part of a GPU that MIG has cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigDevice {
    /// Its identity in the form that grants and specs take: `id` is its own UUID; `index`, `minor`
    /// and `pci` are its parent's; `nodes` are its parent's own node and then the capability nodes
    /// of the GPU instance and of the compute instance.
    pub gpu: Gpu,
    /// UUID of the parent.
    pub parent: DeviceId,
    /// Position among the parent's MIG devices, the `1` of `0:1`.
    pub slot: u32,
    /// Id of the GPU instance.
    pub gpu_instance: u32,
    /// Id of the compute instance.
    pub compute_instance: u32,
    /// Permission bits that the kernel module wants its capability nodes to have, by path.
    pub modes: BTreeMap<PathBuf, u32>,
    /// The parent's DRM nodes, of use to MIG profiles with graphics only.
    pub drm: Vec<Node>,
}

/// Why a GPU is not in the inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// NVML index or PCI address, whichever is known.
    pub gpu: String,
    /// What failed, in words.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {} is left out: {}", self.gpu, self.reason)
    }
}

/// Why a control node is not in the inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlFault {
    /// The node.
    pub path: PathBuf,
    /// What is wrong with it, in words.
    pub reason: String,
}

/// A link to a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeLink {
    /// The node that it leads to.
    pub node: PathBuf,
    /// Where it lies, such as `/dev/dri/by-path/pci-0000:3b:00.0-render`.
    pub path: PathBuf,
    /// Its text, such as `../renderD128`.
    pub target: String,
}

/// Where an inventory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The driver's library.
    Nvml,
    /// `/proc/driver/nvidia/gpus`, when NVML did not answer.
    Procfs,
}

/// What the node has, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    /// Who said so.
    pub source: Source,
    /// Such as `570.133.20`.
    pub driver_version: String,
    /// Usable whole GPUs, by index. One with MIG enabled is not among them.
    pub gpus: Vec<Gpu>,
    /// Usable MIG devices, by index of the parent and slot.
    pub mig: Vec<MigDevice>,
    /// Control nodes that exist (`nvidiactl`, `nvidia-uvm`, …), shared by all GPUs.
    pub control: Vec<Node>,
    /// Those that were looked for and can't be used.
    pub control_faults: Vec<ControlFault>,
    /// Links in `/dev/dri/by-path` that lead to DRM nodes of the GPUs.
    pub links: Vec<NodeLink>,
    /// Groups that own DRM nodes which are not open to all.
    pub groups: BTreeMap<PathBuf, u32>,
    /// One entry per GPU that could not be taken in.
    pub faults: Vec<Fault>,
}

impl Inventory {
    /// One that has nothing.
    pub fn empty(source: Source, driver_version: impl Into<String>) -> Self {
        Self {
            source,
            driver_version: driver_version.into(),
            gpus: Vec::new(),
            mig: Vec::new(),
            control: Vec::new(),
            control_faults: Vec::new(),
            links: Vec::new(),
            groups: BTreeMap::new(),
            faults: Vec::new(),
        }
    }

    /// The whole GPU or MIG device of that id.
    pub fn gpu(&self, id: &DeviceId) -> Option<&Gpu> {
        self.devices().find(|gpu| gpu.id == *id)
    }

    /// Everything that a container can be given: whole GPUs, then MIG devices.
    pub fn devices(&self) -> impl Iterator<Item = &Gpu> {
        self.gpus.iter().chain(self.mig.iter().map(|mig| &mig.gpu))
    }
}
