//! NRI messages → the policy's plain values.

use std::collections::{BTreeMap, HashMap};

use nri::api::{Container, ContainerAdjustment, LinuxDeviceCgroup, Mount, PodSandbox};

use crate::allocation::Subject;
use crate::gpu::Node;
use crate::host::Source;
use crate::policy::{ContainerView, DeviceRule, ViewMount};

/// Who the container is, from the sandbox's metadata and the container's name; labels and
/// annotations, which a pod's author writes, take no part.
pub(super) fn subject(pod: &PodSandbox, container: &Container) -> Subject {
    Subject {
        pod_uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        container: container.name.clone(),
    }
}

/// What was found on the host, by mount source as written.
pub(super) type Sources = HashMap<String, Source>;

/// What the container asks for.
pub(super) fn view(pod: &PodSandbox, container: &Container, sources: &Sources) -> ContainerView {
    let rules = &container.linux.resources.devices;
    let all_devices_allowed = rules.iter().any(allows_all);
    let mounts = mounts(&container.mounts, sources);
    let writable_sys = mounts
        .iter()
        .any(|mount| mount.destination == "/sys" && mount.source == "sysfs" && mount.writable);
    let namespaces = &container.linux.namespaces;
    ContainerView {
        env: container.env.clone(),
        devices: nodes(&container.linux.devices),
        mounts,
        annotations: collect(&container.annotations),
        pod_annotations: collect(&pod.annotations),
        cdi_devices: container
            .CDI_devices
            .iter()
            .map(|device| device.name.clone())
            .collect(),
        all_devices_allowed,
        rules: rules.iter().filter_map(rule).collect(),
        privileged: all_devices_allowed || writable_sys,
        host_pid: !namespaces.iter().any(|namespace| namespace.type_ == "pid"),
    }
}

/// What an adjustment adds to a container. Removals (`-NAME`) add nothing.
pub(super) fn added(adjust: &ContainerAdjustment, sources: &Sources) -> ContainerView {
    let rules = &adjust.linux.resources.devices;
    let env = adjust
        .env
        .iter()
        .filter(|variable| !variable.key.starts_with('-'));
    let mut annotations = collect(&adjust.annotations);
    annotations.retain(|key, _| !key.starts_with('-'));
    let mut mounts = mounts(&adjust.mounts, sources);
    mounts.retain(|mount| !mount.destination.starts_with('-'));
    let mut devices = nodes(&adjust.linux.devices);
    devices.retain(|node| !node.path.as_os_str().as_encoded_bytes().starts_with(b"-"));
    ContainerView {
        env: env
            .map(|variable| format!("{}={}", variable.key, variable.value))
            .collect(),
        devices,
        mounts,
        annotations,
        cdi_devices: adjust
            .CDI_devices
            .iter()
            .map(|device| device.name.clone())
            .collect(),
        all_devices_allowed: rules.iter().any(allows_all),
        rules: rules.iter().filter_map(rule).collect(),
        ..ContainerView::default()
    }
}

fn collect(map: &HashMap<String, String>) -> BTreeMap<String, String> {
    map.iter().map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn nodes(devices: &[nri::api::LinuxDevice]) -> Vec<Node> {
    devices
        .iter()
        .filter(|device| matches!(device.type_.as_str(), "c" | "u"))
        .map(node)
        .collect()
}

fn mounts(mounts: &[Mount], sources: &Sources) -> Vec<ViewMount> {
    mounts
        .iter()
        .map(|mount| ViewMount {
            destination: mount.destination.clone(),
            source: mount.source.clone(),
            writable: !mount.options.iter().any(|option| option == "ro"),
            found: sources.get(&mount.source).cloned().unwrap_or_default(),
        })
        .collect()
}

fn allows_all(rule: &LinuxDeviceCgroup) -> bool {
    rule.allow
        && matches!(rule.type_.as_str(), "" | "a")
        && rule.major.is_none()
        && rule.minor.is_none()
}

/// A rule that says something about opening character devices; a number that the kernel could not have
/// is none that a node has.
fn rule(rule: &LinuxDeviceCgroup) -> Option<DeviceRule> {
    let concerns = matches!(rule.type_.as_str(), "" | "a" | "c")
        && (rule.access.is_empty() || rule.access.contains(['r', 'w']));
    // Both -1 and absence mean any.
    let part = |value: Option<i64>| match value {
        None | Some(-1) => None,
        Some(value) => Some(u32::try_from(value).unwrap_or(u32::MAX)),
    };
    concerns.then(|| DeviceRule {
        allow: rule.allow,
        major: part(rule.major.as_ref().map(|major| major.value)),
        minor: part(rule.minor.as_ref().map(|minor| minor.value)),
    })
}

/// A number that the kernel could not have either is kept out of every known range.
fn node(device: &nri::api::LinuxDevice) -> Node {
    let number = |n: i64| u32::try_from(n).unwrap_or(u32::MAX);
    Node {
        path: device.path.clone().into(),
        major: number(device.major),
        minor: number(device.minor),
    }
}
