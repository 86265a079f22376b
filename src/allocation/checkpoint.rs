//! The device manager's checkpoint: which ids the kubelet recorded for a container, by pod UID.
//!
//! Owns the file's format and the caching read of it. Doesn't own what an id means, nor whether an
//! entry is still current: entries of deleted pods stay until the kubelet's next allocation.
//! Invariants: any bytes give a value or an error, never a panic; an id is only ever returned for
//! the pod UID and container name that it was recorded for.

mod checksum;
mod file;
mod model;

use std::collections::{BTreeMap, BTreeSet};

use protobuf::Message as _;

use super::api::deviceplugin::ContainerAllocateResponse;

pub use file::{CheckpointError, CheckpointFile};

/// The largest checkpoint that is read, in bytes. A full node (110 pods, 16 devices each, device
/// nodes passed by the plugin) stays below 1 MiB.
pub const MAX_BYTES: u64 = 16 << 20;

/// The bytes are no device-manager checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

/// What is recorded for one container and one resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Assigned {
    /// Ids over all NUMA nodes and entries, as the kubelet writes them (replicas unfolded).
    pub ids: BTreeSet<String>,
    /// How the device plugin asked for them to be injected, one answer per entry; or why one of
    /// these can't be decoded.
    pub responses: Result<Vec<ContainerAllocateResponse>, String>,
}

/// A parsed checkpoint.
pub struct Checkpoint {
    entries: Vec<model::Entry>,
    recorded: Option<u64>,
    computed: Option<u32>,
}

impl Checkpoint {
    /// Parses the file's bytes.
    ///
    /// # Errors
    /// Not the kubelet's JSON: torn, of another type, or with ids or AllocResp that are not text.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let document: model::Document =
            serde_json::from_slice(bytes).map_err(|e| Malformed(e.to_string()))?;
        let computed = checksum::checksum(&document.data);
        Ok(Self {
            entries: document.data.pod_device_entries.unwrap_or_default(),
            recorded: document.checksum,
            computed,
        })
    }

    /// Whether the recorded checksum is the one that this layout gives. `false` is no proof of
    /// damage: the checksum depends on the Go type names of the kubelet that wrote it.
    pub fn verified(&self) -> bool {
        self.recorded.is_some() && self.recorded == self.computed.map(u64::from)
    }

    /// The checksum computed from the contents; `None` for the layout before Kubernetes 1.20.
    pub fn computed_checksum(&self) -> Option<u32> {
        self.computed
    }

    /// What is recorded for a container, by resource name. Several entries for one resource are
    /// united. Empty when there is none.
    pub fn lookup(&self, pod_uid: &str, container: &str) -> BTreeMap<String, Assigned> {
        let mut found: BTreeMap<String, Assigned> = BTreeMap::new();
        let own = |e: &&model::Entry| e.pod_uid == pod_uid && e.container_name == container;
        for entry in self.entries.iter().filter(own) {
            let assigned = found
                .entry(entry.resource_name.clone())
                .or_insert_with(|| Assigned {
                    ids: BTreeSet::new(),
                    responses: Ok(Vec::new()),
                });
            assigned
                .ids
                .extend(entry.device_ids.iter().map(str::to_owned));
            let Ok(responses) = &mut assigned.responses else {
                continue;
            };
            let bytes = entry.alloc_resp.as_ref().map_or(&[][..], |r| &r.0);
            match ContainerAllocateResponse::parse_from_bytes(bytes) {
                Ok(response) => responses.push(response),
                Err(e) => assigned.responses = Err(e.to_string()),
            }
        }
        found
    }

    /// The (pod UID, container name) pairs that have entries.
    pub fn containers(&self) -> BTreeSet<(&str, &str)> {
        self.entries
            .iter()
            .map(|e| (e.pod_uid.as_str(), e.container_name.as_str()))
            .collect()
    }
}

impl std::fmt::Debug for Checkpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Checkpoint")
            .field("entries", &self.entries.len())
            .field("verified", &self.verified())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
