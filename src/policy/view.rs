//! What a container asks for, as plain values.

use std::collections::BTreeMap;

use crate::gpu::Node;

/// The parts of an NRI `Container` and its pod that have to do with GPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerView {
    /// `NAME=VALUE`, final order: image, pod and CDI merged.
    pub env: Vec<String>,
    /// Character device nodes of the OCI spec.
    pub devices: Vec<Node>,
    /// Mounts of the OCI spec.
    pub mounts: Vec<ViewMount>,
    /// Annotations of the container (not the pod's).
    pub annotations: BTreeMap<String, String>,
    /// Qualified CDI names of the CRI request; only runtimes with NRI ≥ 0.12 show them.
    pub cdi_devices: Vec<String>,
    /// Whether the device cgroup lets everything through, as for `privileged: true`.
    pub all_devices_allowed: bool,
}

/// A mount, by its two ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ViewMount {
    /// Path in the container, as written.
    pub destination: String,
    /// Path on the host.
    pub source: String,
}

impl ContainerView {
    /// All values that `key` has in the environment, in order.
    pub fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.env.iter().filter_map(move |entry| {
            let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
            (name == key).then_some(value)
        })
    }
}
