//! The inventory: one value that says what the node has.

use std::fmt;
use std::path::PathBuf;

use super::DeviceId;

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

/// One whole GPU.
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
    /// Usable GPUs, by index.
    pub gpus: Vec<Gpu>,
    /// Control nodes that exist (`nvidiactl`, `nvidia-uvm`, …), shared by all GPUs.
    pub control: Vec<Node>,
    /// One entry per GPU that could not be taken in.
    pub faults: Vec<Fault>,
}

impl Inventory {
    /// The GPU of that id.
    pub fn gpu(&self, id: &DeviceId) -> Option<&Gpu> {
        self.gpus.iter().find(|gpu| gpu.id == *id)
    }
}
