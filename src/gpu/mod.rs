//! The GPUs of the node: what they are called and which device nodes are theirs.
//!
//! Owns the identity types and the inventory, and the two ways to take it: NVML and
//! `/proc/driver/nvidia`. Knows nothing of containers.

mod grant;
mod id;
mod inventory;

pub use grant::Grant;
pub use id::{DeviceId, InvalidDeviceId};
pub use inventory::{Fault, Gpu, Inventory, Node, Source};
