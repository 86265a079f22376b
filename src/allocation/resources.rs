//! Which of a container's resources are GPUs, and which devices they stand for. Pure.
//!
//! Both sources pass through the same rules here, so that a difference between them is one of
//! content. Knows nothing of how a difference is judged.

use std::collections::{BTreeMap, BTreeSet};

use super::api::podresources::{ContainerResources, DynamicResource, PodResources};
use super::checkpoint::Assigned;
use super::{AllocationError, Subject};
use crate::gpu::DeviceId;

const DRA_DRIVER: &str = "gpu.nvidia.com";
/// CDI names that NVIDIA's DRA driver gives its claims start so.
const DRA_CDI_PREFIX: &str = "k8s.gpu.nvidia.com/";
/// Annotation keys by which a device plugin asks for CDI injection: the plugin's default, and the
/// GPU Operator's.
const CDI_ANNOTATIONS: [&str; 2] = ["cdi.k8s.io/", "nvidia.cdi.k8s.io/"];

/// Resources of NVIDIA's GPU device plugin. Others under its name are none: the Network Operator
/// hands out network functions as `nvidia.com/hostdev`, with PCI addresses for ids.
fn is_gpu_resource(name: &str) -> bool {
    name.strip_prefix("nvidia.com/")
        .is_some_and(|name| name == "gpu" || name.starts_with("gpu.") || name.starts_with("mig-"))
}

/// Devices, replicas folded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Gpus {
    pub(super) devices: BTreeSet<DeviceId>,
    /// Those handed out as replicas.
    pub(super) shared: BTreeSet<DeviceId>,
}

/// Devices, and the resource names that they came under.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) gpus: Gpus,
    pub(super) resources: BTreeSet<String>,
}

/// The GPUs among the checkpoint's entries for a container.
pub(super) fn held(
    subject: &Subject,
    entries: &BTreeMap<String, Assigned>,
) -> Result<Held, AllocationError> {
    let mut held = Held::default();
    for (resource, assigned) in entries {
        let ids: BTreeSet<&str> = assigned.ids.iter().map(String::as_str).collect();
        if add(&mut held.gpus, subject, resource, &ids)? {
            held.resources.insert(resource.clone());
        }
    }
    Ok(held)
}

/// The GPUs that a pod's report gives the container; `None` when it doesn't list the container.
pub(super) fn seen(subject: &Subject, pod: &PodResources) -> Result<Option<Gpus>, AllocationError> {
    let mut gpus = None;
    for container in own(subject, pod) {
        let gpus = gpus.get_or_insert_with(Gpus::default);
        // A resource has one entry per NUMA node, and often one per device.
        let mut by_resource: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for devices in &container.devices {
            by_resource
                .entry(&devices.resource_name)
                .or_default()
                .extend(devices.device_ids.iter().map(String::as_str));
        }
        for (resource, ids) in &by_resource {
            add(gpus, subject, resource, ids)?;
        }
    }
    Ok(gpus)
}

/// An error if the container holds a GPU by a DRA claim, which the device manager doesn't know of.
pub(super) fn refuse_claims(subject: &Subject, pod: &PodResources) -> Result<(), AllocationError> {
    let mut claims = own(subject, pod).flat_map(|c| &c.dynamic_resources);
    match claims.find(|claim| is_gpu_claim(claim)) {
        None => Ok(()),
        Some(claim) => Err(AllocationError::Unsupported(format!(
            "container {subject} gets a GPU by the resource claim `{}/{}` (Dynamic Resource Allocation), which gpu-warden does not support yet; request the GPU as a device plugin resource instead",
            claim.claim_namespace, claim.claim_name
        ))),
    }
}

/// Whether the device plugin asked the runtime to inject the named resources by CDI.
pub(super) fn injected_by_runtime(
    entries: &BTreeMap<String, Assigned>,
    resources: &BTreeSet<String>,
) -> Result<bool, String> {
    let mut injected = false;
    for assigned in resources.iter().filter_map(|name| entries.get(name)) {
        for response in assigned.responses.as_ref().map_err(Clone::clone)? {
            injected |= !response.cdi_devices.is_empty()
                || response
                    .annotations
                    .keys()
                    .any(|key| CDI_ANNOTATIONS.iter().any(|p| key.starts_with(p)));
        }
    }
    Ok(injected)
}

fn own<'a>(
    subject: &'a Subject,
    pod: &'a PodResources,
) -> impl Iterator<Item = &'a ContainerResources> {
    pod.containers
        .iter()
        .filter(|c| c.name == subject.container)
}

fn is_gpu_claim(claim: &DynamicResource) -> bool {
    claim.claim_resources.iter().any(|resource| {
        resource.driver_name == DRA_DRIVER
            || resource
                .cdi_devices
                .iter()
                .any(|device| device.name.starts_with(DRA_CDI_PREFIX))
    })
}

/// Adds a resource's ids if it is one of GPUs, and says whether it is.
///
/// One under the name that NVIDIA's device plugin gives always is. Another is when its ids look so
/// (operators may rename resources): all of them, as a mixture is nothing that can be granted.
fn add(
    gpus: &mut Gpus,
    subject: &Subject,
    resource: &str,
    ids: &BTreeSet<&str>,
) -> Result<bool, AllocationError> {
    let mut parsed = Vec::with_capacity(ids.len());
    let mut foreign = None;
    for id in ids {
        match DeviceId::parse(id) {
            Ok(device) => parsed.push((device, DeviceId::is_replica(id))),
            Err(_) => foreign = foreign.or(Some(*id)),
        }
    }
    let ours = is_gpu_resource(resource) || !parsed.is_empty();
    match foreign {
        Some(id) if ours => {
            let id: String = id.chars().take(160).collect();
            Err(AllocationError::Unsupported(format!(
                "container {subject} was given `{id}` as `{resource}`, which is no GPU or MIG id; gpu-warden grants only devices with ids such as GPU-<uuid> and MIG-<uuid>"
            )))
        }
        Some(_) => Ok(false),
        None => {
            for (device, replica) in parsed {
                if replica {
                    gpus.shared.insert(device.clone());
                }
                gpus.devices.insert(device);
            }
            Ok(ours)
        }
    }
}
