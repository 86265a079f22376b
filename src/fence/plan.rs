//! Which nodes must go, and whether what remains is exactly the grant. Pure.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::FoundNode;
use crate::gpu::{DeviceId, Grant};
use crate::host::{Class, DeviceNumbers};

/// The number of `/dev/null`, to which foreign nodes are re-pointed at CreateContainer.
pub const PLACEHOLDER: (u32, u32) = (1, 3);

/// What a container's `/dev` has to look like when its first instruction runs.
#[derive(Debug, Clone)]
pub struct Expectation<'a> {
    /// What it may have, and must have.
    pub grant: &'a Grant,
    /// Paths that were re-pointed at CreateContainer: a null device there is a leftover.
    pub placeholders: &'a BTreeSet<PathBuf>,
    /// How to tell GPU nodes.
    pub numbers: &'a DeviceNumbers,
}

/// A container's `/dev` is not what was granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// A foreign node that must not be unlinked, since it is not the container's own.
    #[error("{} ({major}:{minor}) is a GPU node outside its allocation, on a mount that is not the container's own", path.display())]
    Shared {
        /// Path in the container.
        path: PathBuf,
        /// Device major number.
        major: u32,
        /// Device minor number.
        minor: u32,
    },
    /// A foreign node is still there.
    #[error("{} ({major}:{minor}) is a GPU node outside its allocation and could not be removed", path.display())]
    Remains {
        /// Path in the container.
        path: PathBuf,
        /// Device major number.
        major: u32,
        /// Device minor number.
        minor: u32,
    },
    /// A node that a granted GPU needs is not in the container.
    #[error("{gpu} was granted, but its node {major}:{minor} is not in the container")]
    Missing {
        /// The GPU or MIG device.
        gpu: DeviceId,
        /// Device major number.
        major: u32,
        /// Device minor number.
        minor: u32,
    },
}

impl Expectation<'_> {
    /// The nodes to unlink, or the first one that ought to go and must not be touched.
    pub fn to_remove<'n>(&self, nodes: &'n [FoundNode]) -> Result<Vec<&'n FoundNode>, Breach> {
        let mut remove = Vec::new();
        for node in nodes {
            if self.is_foreign(node) {
                if !node.own {
                    return Err(Breach::Shared {
                        path: node.path.clone(),
                        major: node.major,
                        minor: node.minor,
                    });
                }
                remove.push(node);
            } else if node.own && self.is_placeholder(node) {
                remove.push(node);
            }
        }
        Ok(remove)
    }

    /// Whether exactly the granted GPUs are there.
    pub fn verify(&self, nodes: &[FoundNode]) -> Result<(), Breach> {
        if let Some(node) = nodes.iter().find(|node| self.is_foreign(node)) {
            return Err(Breach::Remains {
                path: node.path.clone(),
                major: node.major,
                minor: node.minor,
            });
        }
        for gpu in self.grant.gpus() {
            for needed in gpu.required_nodes() {
                let numbers = (needed.major, needed.minor);
                if !nodes.iter().any(|node| (node.major, node.minor) == numbers) {
                    return Err(Breach::Missing {
                        gpu: gpu.id.clone(),
                        major: needed.major,
                        minor: needed.minor,
                    });
                }
            }
        }
        Ok(())
    }

    fn class(&self, node: &FoundNode) -> Option<Class> {
        self.numbers.classify(node.major, node.minor)
    }

    fn is_foreign(&self, node: &FoundNode) -> bool {
        self.class(node)
            .is_some_and(|class| !self.grant.permits(class))
    }

    fn is_placeholder(&self, node: &FoundNode) -> bool {
        (node.major, node.minor) == PLACEHOLDER
            && node.path != Path::new("/dev/null")
            && self.placeholders.contains(&node.path)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::gpu::{Gpu, Node};

    fn numbers() -> DeviceNumbers {
        DeviceNumbers::parse(
            "Character devices:\n195 nvidia\n510 nvidia-uvm\n",
            BTreeSet::from([128]),
        )
        .unwrap()
    }

    fn gpu(minor: u32) -> Gpu {
        Gpu {
            id: DeviceId::parse(&format!("GPU-{minor}")).unwrap(),
            index: minor,
            minor,
            name: String::new(),
            pci: String::new(),
            nodes: vec![Node {
                path: format!("/dev/nvidia{minor}").into(),
                major: 195,
                minor,
            }],
        }
    }

    fn node(path: &str, major: u32, minor: u32, own: bool) -> FoundNode {
        FoundNode {
            path: path.into(),
            major,
            minor,
            own,
        }
    }

    fn granted(minors: &[u32]) -> Grant {
        Grant::new(
            minors.iter().map(|&minor| gpu(minor)).collect(),
            BTreeSet::new(),
        )
    }

    fn check(
        grant: &Grant,
        placeholders: &[&str],
        nodes: &[FoundNode],
    ) -> Result<Vec<PathBuf>, Breach> {
        let (numbers, placeholders) = (numbers(), placeholders.iter().map(PathBuf::from).collect());
        let expectation = Expectation {
            grant,
            placeholders: &placeholders,
            numbers: &numbers,
        };
        expectation
            .to_remove(nodes)
            .map(|nodes| nodes.into_iter().map(|node| node.path.clone()).collect())
    }

    #[test]
    fn a_foreign_node_goes_whatever_it_is_called() {
        let nodes = [
            node("/dev/nvidia0", 195, 0, true),
            node("/dev/printer", 195, 1, true),
            node("/dev/null", 1, 3, true),
        ];
        assert_eq!(
            check(&granted(&[0]), &[], &nodes).unwrap(),
            [PathBuf::from("/dev/printer")]
        );
    }

    #[test]
    fn control_nodes_stay_only_beside_a_gpu() {
        let nodes = [
            node("/dev/nvidiactl", 195, 255, true),
            node("/dev/nvidia-uvm", 510, 0, true),
        ];
        assert_eq!(check(&granted(&[]), &[], &nodes).unwrap().len(), 2);
        assert!(check(&granted(&[0]), &[], &nodes).unwrap().is_empty());
    }

    #[test]
    fn a_foreign_node_on_a_shared_mount_is_refused_and_never_unlinked() {
        let nodes = [node("/dev/nvidia1", 195, 1, false)];
        assert!(matches!(
            check(&granted(&[0]), &[], &nodes),
            Err(Breach::Shared { .. })
        ));
    }

    #[test]
    fn a_placeholder_goes_but_dev_null_stays() {
        let nodes = [
            node("/dev/nvidia1", 1, 3, true),
            node("/dev/null", 1, 3, true),
            node("/dev/other", 1, 3, true),
        ];
        let gone = check(&granted(&[]), &["/dev/nvidia1", "/dev/null"], &nodes).unwrap();
        assert_eq!(gone, [PathBuf::from("/dev/nvidia1")]);
    }

    #[test]
    fn a_granted_gpu_without_its_node_is_a_breach() {
        let (grant, numbers) = (granted(&[0, 2]), numbers());
        let expectation = Expectation {
            grant: &grant,
            placeholders: &BTreeSet::new(),
            numbers: &numbers,
        };
        let nodes = [node("/dev/nvidia0", 195, 0, true)];
        assert!(matches!(
            expectation.verify(&nodes),
            Err(Breach::Missing { minor: 2, .. })
        ));
    }

    proptest! {
        /// Whatever stands in /dev: once the removals are done and verified, no GPU minor outside the grant is left.
        #[test]
        fn nothing_foreign_survives(
            grant in proptest::collection::btree_set(0u32..6, 0..4),
            nodes in proptest::collection::vec((0u32..300, prop_oneof![Just(195u32), Just(226), Just(510), Just(1)], any::<bool>()), 0..30),
        ) {
            let minors: Vec<u32> = grant.iter().copied().collect();
            let (grant, numbers) = (granted(&minors), numbers());
            let expectation = Expectation { grant: &grant, placeholders: &BTreeSet::new(), numbers: &numbers };
            let nodes: Vec<_> = nodes.iter().enumerate()
                .map(|(i, &(minor, major, own))| node(&format!("/dev/n{i}"), major, minor, own)).collect();
            if let Ok(remove) = expectation.to_remove(&nodes) {
                prop_assert!(remove.iter().all(|node| node.own));
                let left: Vec<_> = nodes.iter().filter(|node| !remove.contains(node)).cloned().collect();
                for node in &left {
                    if node.major == 195 && node.minor < 254 {
                        prop_assert!(minors.contains(&node.minor));
                    }
                    if node.major == 226 && node.minor == 128 {
                        prop_assert!(false, "a DRM node of no granted GPU is left");
                    }
                }
            }
        }
    }
}
