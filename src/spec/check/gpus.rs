//! Devices against the driver's inventory: the right GPU, its own nodes, and every GPU by UUID.

use std::collections::BTreeSet;

use cdi::{QualifiedName, ResolveError, Resolved};

use super::facts::{Driver, Facts};
use super::{CheckId, Found, Question};
use crate::gpu::{DeviceId, Gpu, Inventory, Node, Source};
use crate::host::devices::{Class, DRM_MAJOR, NVIDIA_MAJOR};

/// Whether the driver works, and what it says of itself.
pub(super) fn driver(facts: &Facts, question: &Question, found: &mut Found) {
    match &facts.driver {
        Driver::Works { inventory, files } => {
            for fault in &inventory.faults {
                found.add(
                    CheckId::GpuFault,
                    format!("GPU {}", fault.gpu),
                    fault.reason.clone(),
                );
            }
            if let Some(reason) = files {
                found.add(
                    CheckId::DriverFiles,
                    format!("driver {}", inventory.driver_version),
                    reason.clone(),
                );
            }
        }
        Driver::Absent(reason) => {
            for file in super::files::live(facts) {
                if file.devices.iter().any(|device| concerns(device, question)) {
                    found.add_file(CheckId::DriverAbsent, file.path, reason.clone());
                }
            }
        }
        Driver::Unlisted(_) => {}
        Driver::Broken(reason) => {
            found.add(CheckId::DriverBroken, "driver", reason.clone());
        }
    }
    for node in &facts.without_char_link {
        found.add(CheckId::DevCharLink, "/dev/char", node.clone());
    }
}

/// Whether each device is the GPU that its name says, with nothing of another.
pub(super) fn devices(facts: &Facts, question: &Question, found: &mut Found) {
    for file in super::files::live(facts) {
        let shared: BTreeSet<u32> = file
            .edits
            .device_nodes
            .iter()
            .filter_map(|node| gpu_minor(facts, node))
            .collect();
        if file.devices.len() > 1 {
            for minor in shared {
                found.add_file(
                    CheckId::WrongGpu,
                    file.path,
                    format!("the edits of the whole file give /dev/nvidia{minor} to every device"),
                );
            }
        }
        for device in &file.devices {
            if !is_gpu(device, question) {
                continue;
            }
            if device.name.device() == "all" {
                found.add(
                    CheckId::AllDevice,
                    device.name.to_string(),
                    format!("in {}", file.path.display()),
                );
            } else if let Some(inventory) = facts.inventory() {
                one(facts, inventory, device, found);
            }
        }
    }
}

fn one(facts: &Facts, inventory: &Inventory, device: &Resolved<'_>, found: &mut Found) {
    let name = device.name.to_string();
    let nodes = &device.device.container_edits.device_nodes;
    let gpu = match named(inventory, device.name.device()) {
        Named::Gpu(gpu) => gpu,
        Named::Gone => {
            let mut evidence = format!(
                "{} gives it, and the driver lists no such GPU",
                device.path.display()
            );
            if !inventory.faults.is_empty() {
                evidence.push_str(" that can be used");
            }
            found.add(CheckId::GpuGone, name, evidence);
            return;
        }
        Named::Other => return,
    };
    let minors: BTreeSet<u32> = nodes
        .iter()
        .filter_map(|node| gpu_minor(facts, node))
        .collect();
    if !minors.contains(&gpu.minor) {
        found.add(
            CheckId::OwnNodeMissing,
            &name,
            format!(
                "GPU {} is /dev/nvidia{}; {} lacks that node",
                gpu.id,
                gpu.minor,
                device.path.display()
            ),
        );
    }
    for minor in minors.iter().filter(|minor| **minor != gpu.minor) {
        found.add(
            CheckId::WrongGpu,
            &name,
            format!(
                "GPU {} is /dev/nvidia{}; {} gives /dev/nvidia{minor}",
                gpu.id,
                gpu.minor,
                device.path.display()
            ),
        );
    }
    capabilities(facts, gpu, device, found);
    for node in nodes {
        let path = facts.inventory_path(node);
        let is_drm = path.starts_with("/dev/dri")
            || facts
                .numbers_of(node)
                .is_some_and(|(major, _)| major == DRM_MAJOR);
        if is_drm && !drm(inventory, gpu).any(|own| own.path == path) {
            let now: Vec<_> = drm(inventory, gpu)
                .map(|own| own.path.display().to_string())
                .collect();
            found.add(
                CheckId::DrmRenumbered,
                &name,
                format!(
                    "{} is not a node of GPU {}; it has {}",
                    node.host_path(),
                    gpu.id,
                    if now.is_empty() {
                        "none".to_owned()
                    } else {
                        now.join(", ")
                    }
                ),
            );
        }
    }
}

/// A GPU's DRM nodes; of a MIG device, its parent's, which it may have.
fn drm<'a>(inventory: &'a Inventory, gpu: &'a Gpu) -> impl Iterator<Item = &'a Node> {
    let mut mig = inventory.mig.iter();
    let parent = mig.find(|mig| mig.gpu.id == gpu.id).map(|mig| &mig.drm);
    let nodes = gpu.nodes.iter().chain(parent.into_iter().flatten());
    nodes.filter(|node| node.major == DRM_MAJOR)
}

/// A MIG device is its two capabilities: with one less it does not work, with one more it reaches
/// another instance.
fn capabilities(facts: &Facts, gpu: &Gpu, device: &Resolved<'_>, found: &mut Found) {
    let name = device.name.to_string();
    let nodes = &device.device.container_edits.device_nodes;
    let written: BTreeSet<u32> = nodes
        .iter()
        .filter_map(|node| capability(facts, node))
        .collect();
    let own: BTreeSet<u32> = gpu.capability_minors().collect();
    for minor in own.difference(&written) {
        found.add(
            CheckId::OwnNodeMissing,
            &name,
            format!(
                "{} needs the capability nvidia-cap{minor}; {} lacks that node",
                gpu.id,
                device.path.display()
            ),
        );
    }
    for minor in written.difference(&own) {
        found.add(
            CheckId::WrongGpu,
            &name,
            format!(
                "{} gives the capability nvidia-cap{minor}, which is not {}'s",
                device.path.display(),
                gpu.id
            ),
        );
    }
}

/// The minor of a MIG capability node. One that is written with an old major is still meant.
fn capability(facts: &Facts, node: &cdi::DeviceNode) -> Option<u32> {
    let (major, minor) = facts.numbers_of(node)?;
    let class = facts.numbers.as_ref().ok()?.classify(major, minor);
    let is_named = node.path.starts_with("/dev/nvidia-caps/");
    match class {
        Some(Class::Capability(minor)) => Some(minor),
        _ => is_named.then_some(minor),
    }
}

/// The minor of a whole GPU's node; numbers decide, not names.
fn gpu_minor(facts: &Facts, node: &cdi::DeviceNode) -> Option<u32> {
    let (major, minor) = facts.numbers_of(node)?;
    let class = match &facts.numbers {
        Ok(numbers) => numbers.classify(major, minor),
        Err(_) if major == NVIDIA_MAJOR && minor < 254 => Some(Class::Gpu(minor)),
        Err(_) => None,
    };
    match class {
        Some(Class::Gpu(minor)) => Some(minor),
        _ => None,
    }
}

enum Named<'a> {
    Gpu(&'a Gpu),
    Gone,
    /// Not the name of one GPU or MIG device.
    Other,
}

/// What a device name promises: `GPU-<uuid>`, `0` or `gpu0`; `MIG-<uuid>`, `0:1` or `mig0:1`.
fn named<'a>(inventory: &'a Inventory, name: &str) -> Named<'a> {
    // The kernel module lists no MIG devices, so that NVML alone can tell that one is gone.
    let knows_mig = inventory.source == Source::Nvml;
    let found = |gpu: Option<&'a Gpu>, is_known: bool| match gpu {
        Some(gpu) => Named::Gpu(gpu),
        None if is_known => Named::Gone,
        None => Named::Other,
    };
    if let Ok(id) = DeviceId::parse(name) {
        return found(inventory.gpu(&id), knows_mig || !id.is_mig());
    }
    if let Some((index, slot)) = name.strip_prefix("mig").unwrap_or(name).split_once(':') {
        let (Ok(index), Ok(slot)) = (index.parse::<u32>(), slot.parse::<u32>()) else {
            return Named::Other;
        };
        let mut mig = inventory.mig.iter();
        let device = mig.find(|mig| (mig.gpu.index, mig.slot) == (index, slot));
        return found(device.map(|mig| &mig.gpu), knows_mig);
    }
    let Ok(index) = name.strip_prefix("gpu").unwrap_or(name).parse::<u32>() else {
        return Named::Other;
    };
    let mut gpus = inventory.gpus.iter();
    found(gpus.find(|gpu| gpu.index == index), true)
}

/// A device `0` of another vendor is none of ours, and one of `nvidia.com/imex-channel` no GPU.
fn is_gpu(device: &Resolved<'_>, question: &Question) -> bool {
    let kind = device.name.kind();
    kind == &question.kind || (kind.class() == "gpu" && concerns(device, question))
}

fn concerns(device: &Resolved<'_>, question: &Question) -> bool {
    device.name.kind() == &question.kind
        || device.name.vendor() == "nvidia.com"
        || device.name.vendor().ends_with(".nvidia.com")
}

/// Whether a consumer that asks for a GPU by its UUID gets it.
pub(super) fn names(facts: &Facts, question: &Question, found: &mut Found) {
    let Some(inventory) = facts.inventory() else {
        return;
    };
    let kind = question.kind.to_string();
    let mut of_kind = facts.registry.files().iter();
    if !of_kind.any(|file| file.spec.kind == kind) {
        if inventory.devices().next().is_some() {
            let dirs: Vec<_> = facts
                .dirs
                .iter()
                .map(|dir| dir.display().to_string())
                .collect();
            found.add(
                CheckId::NoSpec,
                kind,
                format!("no file of this kind in {}", dirs.join(", ")),
            );
        }
        return;
    }
    for gpu in inventory.devices() {
        let Ok(name) = question.kind.device(gpu.id.as_str()) else {
            continue;
        };
        if !matches!(
            facts.registry.resolve(&name),
            Err(ResolveError::Unknown { .. })
        ) {
            continue;
        }
        let others = aliases(facts, question, gpu);
        if others.is_empty() {
            found.add(
                CheckId::GpuUnlisted,
                name.to_string(),
                format!(
                    "no file of {kind} gives {}",
                    own_nodes(gpu).collect::<Vec<_>>().join(", ")
                ),
            );
        } else {
            let others: Vec<_> = others.iter().map(ToString::to_string).collect();
            found.add(
                CheckId::UuidNameMissing,
                name.to_string(),
                format!("it is there only as {}", others.join(", ")),
            );
        }
    }
}

/// What makes a container reach it: the GPU's node, or a MIG device's capabilities.
fn own_nodes(gpu: &Gpu) -> impl Iterator<Item = String> {
    let required = gpu.required_nodes();
    required.map(|node| node.path.display().to_string())
}

/// Devices of the kind with that GPU's nodes.
fn aliases<'a>(facts: &'a Facts, question: &Question, gpu: &Gpu) -> Vec<&'a QualifiedName> {
    let own: BTreeSet<u32> = gpu.capability_minors().collect();
    facts
        .registry
        .devices()
        .filter(|device| device.name.kind() == &question.kind)
        .filter(|device| {
            let nodes = &device.device.container_edits.device_nodes;
            let has_gpu = nodes
                .iter()
                .any(|node| gpu_minor(facts, node) == Some(gpu.minor));
            let written: BTreeSet<u32> = nodes
                .iter()
                .filter_map(|node| capability(facts, node))
                .collect();
            has_gpu && own.is_subset(&written)
        })
        .map(|device| device.name)
        .collect()
}
