//! NRI messages → the policy's plain values.

use nri::api::{Container, PodSandbox};

use crate::allocation::Subject;
use crate::gpu::Node;
use crate::policy::{ContainerView, ViewMount};

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

/// What the container asks for.
pub(super) fn view(container: &Container) -> ContainerView {
    let devices = &container.linux.devices;
    ContainerView {
        env: container.env.clone(),
        devices: devices
            .iter()
            .filter(|device| matches!(device.type_.as_str(), "c" | "u"))
            .map(node)
            .collect(),
        mounts: container
            .mounts
            .iter()
            .map(|mount| ViewMount {
                destination: mount.destination.clone(),
                source: mount.source.clone(),
            })
            .collect(),
        annotations: container
            .annotations
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
        cdi_devices: container
            .CDI_devices
            .iter()
            .map(|device| device.name.clone())
            .collect(),
        all_devices_allowed: container.linux.resources.devices.iter().any(|rule| {
            rule.allow
                && matches!(rule.type_.as_str(), "" | "a")
                && rule.major.is_none()
                && rule.minor.is_none()
        }),
    }
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
