//! What is known of the node, as one value that readers share and only the watcher replaces.

use std::collections::BTreeSet;

use cdi::Spec;

use crate::gpu::{DeviceId, Inventory};
use crate::host::DeviceNumbers;

/// The node at one moment.
#[derive(Debug, Clone)]
pub struct NodeState {
    inventory: Result<Inventory, String>,
    spec: Option<Spec>,
    numbers: DeviceNumbers,
    by_name: BTreeSet<DeviceId>,
}

impl NodeState {
    /// Before the first look, or when one failed: no GPU is known, so none is granted.
    pub fn unknown(why: impl Into<String>, numbers: DeviceNumbers) -> Self {
        Self {
            inventory: Err(why.into()),
            spec: None,
            numbers,
            by_name: BTreeSet::new(),
        }
    }

    /// After a look. `by_name` holds the devices whose CDI name leads a runtime to `spec`.
    pub fn known(
        inventory: Inventory,
        spec: Spec,
        numbers: DeviceNumbers,
        by_name: BTreeSet<DeviceId>,
    ) -> Self {
        Self {
            inventory: Ok(inventory),
            spec: Some(spec),
            numbers,
            by_name,
        }
    }

    /// The GPUs, or why they are not known.
    pub fn inventory(&self) -> Result<&Inventory, &str> {
        self.inventory.as_ref().map_err(String::as_str)
    }

    /// The spec built from the inventory; none without a GPU.
    pub fn spec(&self) -> Option<&Spec> {
        self.spec.as_ref()
    }

    /// How to tell GPU nodes.
    pub fn numbers(&self) -> &DeviceNumbers {
        &self.numbers
    }

    /// Whether a runtime that is told the CDI names of all `ids` ends at our spec: another file
    /// which names the same device makes readers drop both, or wins over ours.
    pub fn resolves(&self, ids: &BTreeSet<DeviceId>) -> bool {
        ids.is_subset(&self.by_name)
    }
}
