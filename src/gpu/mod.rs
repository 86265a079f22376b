//! The GPUs of the node: what they are called and which device nodes are theirs.
//!
//! Owns the identity types and the inventory, and the two ways to take it: NVML and
//! `/proc/driver/nvidia`. Knows nothing of containers.
//!
//! Invariants: a GPU is in the inventory only with its own node, checked by number; what is wrong
//! with one GPU never hides another.

mod assemble;
pub mod capability;
mod discover;
mod grant;
mod id;
mod instance;
mod inventory;
mod nodes;
mod nvml;
mod pci;
mod procfs;
mod survey;

pub use discover::{DiscoverError, discover, discover_with, node_wide};
pub use grant::Grant;
pub use id::{DeviceId, InvalidDeviceId};
pub use inventory::{ControlFault, Fault, Gpu, Inventory, MigDevice, Node, NodeLink, Source};
pub use nodes::{CONTROL_NODES, character_devices, group_of};
pub use nvml::NvmlLibrary;
pub use pci::PciAddress;
pub use procfs::contradiction;
