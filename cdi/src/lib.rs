//! The Container Device Interface: model, strict parser, validation, resolution, canonical writer.

pub mod model;

pub use model::{ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec};
