//! The only room that touches procfs, cgroupfs and device numbers. Every path starts below an
//! explicit root, so that tests, containers and driver containers can move it.

pub mod cgroup;
pub mod devices;
pub mod drm;
mod mountinfo;
mod process;
mod roots;
pub mod vfio;

pub use cgroup::{CgroupError, Group, Placement, PodGroup};
pub use devices::{Class, DRM_MAJOR, DeviceNumbers, NVIDIA_MAJOR, NumbersError};
pub use mountinfo::{MalformedMountinfo, MountEntry};
pub use process::{Process, ProcessError};
pub use roots::Roots;
pub use vfio::{VfioError, VfioNodes};
