//! Device cgroup rules for runtimes that take them (NRI ≥ 0.10): one deny for each foreign GPU node
//! that the container could open otherwise.
//!
//! Never a wildcard: runc can't make an exception in one, and the container would not start.

use std::collections::BTreeSet;

use super::{ContainerView, NodeFacts};
use crate::gpu::Grant;
use crate::host::{DRM_MAJOR, NVIDIA_MAJOR};

/// GPUs that are plugged in later get one of these minors.
const LATER: std::ops::Range<u32> = 0..64;

/// The numbers to deny. Empty for a container whose cgroup lets no GPU node through by itself: a
/// rule more would change nothing.
pub(super) fn numbers(
    view: &ContainerView,
    grant: &Grant,
    node: NodeFacts<'_>,
) -> BTreeSet<(u32, u32)> {
    let present = node.inventory.into_iter().flat_map(|inventory| {
        let gpus = inventory.devices().flat_map(|gpu| &gpu.nodes);
        gpus.chain(&inventory.control)
    });
    let carried = view.devices.iter();
    let ruled = view
        .rules
        .iter()
        .filter_map(|rule| Some((rule.major?, rule.minor?)));
    let drm = node
        .numbers
        .drm_minors()
        .iter()
        .map(|minor| (DRM_MAJOR, *minor));
    present
        .chain(carried)
        .map(|node| (node.major, node.minor))
        .chain(ruled)
        .chain(drm)
        .chain(LATER.map(|minor| (NVIDIA_MAJOR, minor)))
        .filter(|&(major, minor)| {
            let class = node.numbers.classify(major, minor);
            class.is_some_and(|class| !grant.permits(class)) && view.opens(major, minor)
        })
        .collect()
}
