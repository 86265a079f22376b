//! The rig: real containerd, real runc and real cgroups on a machine without a GPU.
//!
//! Owns the private [`World`] (mount and pid namespace with fake GPU nodes), the containerd
//! instances in it, the CRI calls of a kubelet, the stand-in for the legacy NVIDIA runtime, and the
//! [`probe`] which asks the kernel, from inside a container, what that container can open.
//! Knows nothing of policy: what *should* be open is for the tests to say.
//!
//! Invariants: the host's `/dev`, `/run` and mount table are never changed; everything that a world
//! started dies with it, at the latest when the process that made it dies; a check for what was left
//! behind is part of [`World::teardown`].
//!
//! The oracle: `mknod c 195 N` works without a driver, and opening such a node answers `ENXIO` where
//! the device cgroup allows it and `EPERM` where it does not. So "can it open that GPU" is a real,
//! kernel-given answer on any machine.

pub mod artifacts;
pub mod containerd;
pub mod cri;
pub mod failure;
pub mod images;
pub mod kubelet;
pub mod oci;
pub mod probe;
pub mod process;
pub mod table;
pub mod under_test;
pub mod world;

mod command;

pub use artifacts::{Artifacts, ContainerdFiles};
pub use containerd::Containerd;
pub use failure::Failure;
pub use images::Image;
pub use probe::{Open, View};
pub use process::Process;
pub use world::{CgroupView, Gpu, World};
