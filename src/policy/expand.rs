//! Our own expansion of a CDI spec, for runtimes that ignore CDI names in NRI replies
//! (containerd before 1.7.30, all of 2.0): nri-protocol facts in `docs/architecture.md`.

use std::collections::BTreeSet;
use std::path::Path;

use cdi::{ContainerEdits, DeviceNode, Spec};

use crate::gpu::{DeviceId, Inventory, Node};

/// The spec can't be expanded for these devices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// The spec has no such device.
    #[error("the CDI spec of this node has no device {0}")]
    NoDevice(DeviceId),
    /// A node has no number in the spec, and the inventory does not know it either.
    #[error("the number of the device node {0} is not known")]
    NoNumber(String),
}

/// The edits for `ids`: the spec's own once, then each device's, with every node numbered and
/// no path twice.
pub(super) fn expand(
    spec: &Spec,
    ids: &BTreeSet<DeviceId>,
    inventory: &Inventory,
) -> Result<ContainerEdits, ExpandError> {
    let mut edits = spec.container_edits.clone();
    for id in ids {
        let device = spec
            .devices
            .iter()
            .find(|device| device.name == id.as_str());
        let more = &device
            .ok_or_else(|| ExpandError::NoDevice(id.clone()))?
            .container_edits;
        edits.env.extend(more.env.iter().cloned());
        edits.device_nodes.extend(more.device_nodes.iter().cloned());
        edits.hooks.extend(more.hooks.iter().cloned());
        edits.mounts.extend(more.mounts.iter().cloned());
        edits
            .additional_gids
            .extend(more.additional_gids.iter().copied());
    }
    let mut paths = BTreeSet::new();
    edits
        .device_nodes
        .retain(|node| paths.insert(node.path.clone()));
    let mut destinations = BTreeSet::new();
    edits
        .mounts
        .retain(|mount| destinations.insert(mount.container_path.clone()));
    for node in &mut edits.device_nodes {
        number(node, inventory)?;
    }
    Ok(edits)
}

/// Readers take absent numbers from the host's node; the inventory has looked at the same node.
fn number(node: &mut DeviceNode, inventory: &Inventory) -> Result<(), ExpandError> {
    if node.major.is_some_and(|major| major != 0) {
        return Ok(());
    }
    let known: Option<&Node> = inventory
        .control
        .iter()
        .chain(inventory.devices().flat_map(|gpu| &gpu.nodes))
        .find(|known| known.path == Path::new(&node.path));
    let known = known.ok_or_else(|| ExpandError::NoNumber(node.path.clone()))?;
    node.kind = Some("c".to_owned());
    node.major = Some(known.major.into());
    node.minor = Some(known.minor.into());
    Ok(())
}
