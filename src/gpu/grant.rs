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
    /// Control nodes and companions (`nvidia-fs`, `gdrdrv`) come with any GPU and never without one. A
    /// MIG device comes with its parent's node and exactly its own two capability nodes, without
    /// which the parent's node opens nothing of another. The node-wide capabilities `config` and
    /// `monitor`, channels and fabric nodes are part of no grant.
    pub fn permits(&self, class: Class) -> bool {
        match class {
            Class::Gpu(minor) => self.gpus.iter().any(|gpu| gpu.minor == minor),
            Class::Drm(minor) => self
                .gpus
                .iter()
                .flat_map(|gpu| &gpu.nodes)
                .any(|node| node.major == DRM_MAJOR && node.minor == minor),
            Class::Control | Class::Companion => !self.is_empty(),
            Class::Capability(minor) => self
                .gpus
                .iter()
                .flat_map(Gpu::capability_minors)
                .any(|own| own == minor),
            Class::Channel | Class::Switch | Class::Link => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Node;

    const CAPS: u32 = 238;

    fn device(id: &str, minor: u32, nodes: &[(&str, u32, u32)]) -> Gpu {
        Gpu {
            id: DeviceId::parse(id).unwrap(),
            index: 0,
            minor,
            name: String::new(),
            pci: String::new(),
            nodes: nodes
                .iter()
                .map(|(path, major, minor)| Node {
                    path: path.into(),
                    major: *major,
                    minor: *minor,
                })
                .collect(),
        }
    }

    fn mig() -> Gpu {
        device(
            "MIG-1",
            2,
            &[
                ("/dev/nvidia2", 195, 2),
                ("/dev/nvidia-caps/nvidia-cap30", CAPS, 30),
                ("/dev/nvidia-caps/nvidia-cap31", CAPS, 31),
            ],
        )
    }

    #[test]
    fn a_mig_device_permits_its_parent_s_node_and_exactly_its_two_capabilities() {
        let grant = Grant::new(vec![mig()], BTreeSet::new());
        for class in [
            Class::Gpu(2),
            Class::Capability(30),
            Class::Capability(31),
            Class::Control,
        ] {
            assert!(grant.permits(class), "{class:?}");
        }
        for class in [
            Class::Gpu(0),
            Class::Gpu(30),
            Class::Capability(1),
            Class::Capability(2),
            Class::Capability(32),
            Class::Drm(128),
            Class::Channel,
        ] {
            assert!(!grant.permits(class), "{class:?}");
        }
    }

    #[test]
    fn a_whole_gpu_permits_no_capability_not_even_one_numbered_like_its_nodes() {
        let gpu = device(
            "GPU-1",
            2,
            &[("/dev/nvidia2", 195, 2), ("/dev/dri/renderD130", 226, 130)],
        );
        let grant = Grant::new(vec![gpu], BTreeSet::new());
        assert!(grant.permits(Class::Gpu(2)) && grant.permits(Class::Drm(130)));
        for minor in [2, 130] {
            assert!(!grant.permits(Class::Capability(minor)), "{minor}");
        }
        assert!(!grant.permits(Class::Drm(2)));
    }
}
