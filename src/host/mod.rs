//! The only room that touches procfs, cgroupfs and device numbers. Every path starts below an
//! explicit root, so that tests, containers and driver containers can move it.

pub mod devices;
pub mod drm;
mod roots;

pub use devices::{Class, DeviceNumbers, NumbersError};
pub use roots::Roots;
