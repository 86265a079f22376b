//! A grant: the GPUs that one container may have, and the device numbers that follow from them.

use std::collections::BTreeSet;

use super::{DeviceId, Gpu};
use crate::host::{Class, DRM_MAJOR};

/// The GPUs of one container; never more than its allocation, and empty for most containers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    gpus: Vec<Gpu>,
    shared: BTreeSet<DeviceId>,
}

impl Grant {
    /// Grants `gpus`; those also in `shared` were handed out as replicas, so others may hold them too.
    pub fn new(gpus: Vec<Gpu>, shared: BTreeSet<DeviceId>) -> Self {
        Self { gpus, shared }
    }

    /// What several containers may have together.
    #[must_use]
    pub fn union<'a>(grants: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut union = Self::default();
        for grant in grants {
            union.shared.extend(grant.shared.iter().cloned());
            for gpu in &grant.gpus {
                if !union.gpus.contains(gpu) {
                    union.gpus.push(gpu.clone());
                }
            }
        }
        union
    }

    /// Whether it grants nothing.
    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }

    /// The granted GPUs.
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// The ids of the granted GPUs.
    pub fn ids(&self) -> BTreeSet<DeviceId> {
        self.gpus.iter().map(|gpu| gpu.id.clone()).collect()
    }

    /// Ids that no other pod may hold at the same time.
    pub fn exclusive(&self) -> impl Iterator<Item = &DeviceId> {
        self.gpus
            .iter()
            .map(|gpu| &gpu.id)
            .filter(|id| !self.shared.contains(id))
    }

    /// Whether a node of this class may be in the container.
    ///
    /// Control nodes and companions (`nvidia-fs`, `gdrdrv`) come with any GPU and never without one;
    /// capabilities, channels and fabric nodes are not part of a whole-GPU grant.
    pub fn permits(&self, class: Class) -> bool {
        match class {
            Class::Gpu(minor) => self.gpus.iter().any(|gpu| gpu.minor == minor),
            Class::Drm(minor) => self
                .gpus
                .iter()
                .flat_map(|gpu| &gpu.nodes)
                .any(|node| node.major == DRM_MAJOR && node.minor == minor),
            Class::Control | Class::Companion => !self.is_empty(),
            Class::Capability | Class::Channel | Class::Switch | Class::Link => false,
        }
    }
}
