//! What a container asks for, as plain values.

use std::collections::BTreeMap;

use crate::gpu::Node;
use crate::host::Source;

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
    /// Annotations of the pod, which its author writes.
    pub pod_annotations: BTreeMap<String, String>,
    /// Qualified CDI names of the CRI request; only runtimes with NRI ≥ 0.12 show them.
    pub cdi_devices: Vec<String>,
    /// Whether the device cgroup lets everything through, as for `privileged: true`.
    pub all_devices_allowed: bool,
    /// Device cgroup rules for character devices to be opened; the last one that matches counts.
    pub rules: Vec<DeviceRule>,
    /// Whether it is privileged, as far as the message shows it: everything allowed in the device
    /// cgroup, or a writable `/sys`.
    pub privileged: bool,
    /// Whether it has no pid namespace of its own or of its pod's.
    pub host_pid: bool,
}

/// A mount, by its two ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ViewMount {
    /// Path in the container, as written.
    pub destination: String,
    /// Path on the host.
    pub source: String,
    /// Whether the container may write through it.
    pub writable: bool,
    /// What the host has at the source.
    pub found: Source,
}

/// A rule of the device cgroup about opening character devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRule {
    /// Or deny.
    pub allow: bool,
    /// None is every major.
    pub major: Option<u32>,
    /// None is every minor.
    pub minor: Option<u32>,
}

impl DeviceRule {
    fn matches(self, major: u32, minor: u32) -> bool {
        self.major.is_none_or(|own| own == major) && self.minor.is_none_or(|own| own == minor)
    }
}

impl ContainerView {
    /// All values that `key` has in the environment, in order.
    pub fn values<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.env.iter().filter_map(move |entry| {
            let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
            (name == key).then_some(value)
        })
    }

    /// The names of all variables, with repetitions.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.env.iter().map(|entry| {
            entry
                .split_once('=')
                .map_or(entry.as_str(), |(name, _)| name)
        })
    }

    /// Whether the device cgroup that the message describes lets such a character device be opened.
    pub fn opens(&self, major: u32, minor: u32) -> bool {
        let rule = self
            .rules
            .iter()
            .rev()
            .find(|rule| rule.matches(major, minor));
        rule.map_or(self.all_devices_allowed, |rule| rule.allow)
    }
}
