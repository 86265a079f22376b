//! What the kernel is to deny to a container: the grant, turned round, as numbers. Pure.
//!
//! Invariants: only character devices are ever denied; what is denied is exactly what
//! [`Grant::permits`] refuses to a node that [`DeviceNumbers::classify`] knows, and vfio nodes of
//! NVIDIA devices; everything else is left to the filters that the runtime put up.

use std::collections::{BTreeMap, BTreeSet};

use crate::gpu::{Gpu, Grant};
use crate::host::devices::{CTL_MINOR, Family, MODESET_MINOR};
use crate::host::{Class, DRM_MAJOR, DeviceNumbers, VfioNodes};

/// What is denied of one major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// Every minor, present or future, but these.
    AllBut(BTreeSet<u32>),
    /// These minors.
    Only(BTreeSet<u32>),
}

impl Denied {
    /// Whether this minor is denied.
    pub fn denies(&self, minor: u32) -> bool {
        match self {
            Self::AllBut(minors) => !minors.contains(&minor),
            Self::Only(minors) => minors.contains(&minor),
        }
    }
}

/// What is denied, by major.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    majors: BTreeMap<u32, Denied>,
}

impl Filter {
    /// For a container with this grant, or a pod with the union of its containers' grants.
    pub fn of(grant: &Grant, numbers: &DeviceNumbers, vfio: &VfioNodes) -> Self {
        let mut majors = BTreeMap::new();
        for (major, family) in numbers.majors() {
            let allowed = match family {
                Family::Nvidia => {
                    let control = [MODESET_MINOR, CTL_MINOR].into_iter();
                    let control = control.filter(|_| grant.permits(Class::Control));
                    let gpus = grant.gpus().iter().map(|gpu| gpu.minor);
                    // A GPU is never a control node, whatever its driver may say.
                    let gpus = gpus.filter(|minor| !matches!(*minor, MODESET_MINOR | CTL_MINOR));
                    control.chain(gpus).collect()
                }
                Family::Uvm if grant.permits(Class::Control) => continue,
                Family::Companion if grant.permits(Class::Companion) => continue,
                Family::Caps => grant
                    .gpus()
                    .iter()
                    .flat_map(Gpu::capability_minors)
                    .collect(),
                _ => BTreeSet::new(),
            };
            majors.insert(major, Denied::AllBut(allowed));
        }
        let drm = numbers.drm_minors().iter().copied();
        let drm = drm.filter(|minor| !grant.permits(Class::Drm(*minor)));
        let others = drm
            .map(|minor| (DRM_MAJOR, minor))
            .chain(vfio.iter().copied());
        for (major, minor) in others {
            match majors
                .entry(major)
                .or_insert_with(|| Denied::Only(BTreeSet::new()))
            {
                Denied::Only(minors) => {
                    minors.insert(minor);
                }
                // NVIDIA's own major: said already.
                Denied::AllBut(_) => {}
            }
        }
        Self { majors }
    }

    /// By major, ascending.
    pub fn majors(&self) -> impl Iterator<Item = (u32, &Denied)> {
        self.majors.iter().map(|(major, denied)| (*major, denied))
    }

    /// What is denied of that major, if anything.
    pub fn major(&self, major: u32) -> Option<&Denied> {
        self.majors.get(&major)
    }

    /// Whether the character device of those numbers is denied.
    pub fn denies(&self, major: u32, minor: u32) -> bool {
        self.major(major).is_some_and(|denied| denied.denies(minor))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::gpu::{DeviceId, Node};

    pub(in crate::fence) const HOST: &str = "Character devices:\n195 nvidia\n226 drm\n\
        234 nvidia-nvlink\n235 nvidia-caps-imex-channels\n236 nvidia-nvswitch\n\
        237 nvidia-uvm\n238 nvidia-caps\n239 gdrdrv\n508 nvidia-fs0\n";

    /// NVIDIA cards have the DRM minors n and 128 + n for n < 4; others have the rest.
    pub(in crate::fence) fn numbers() -> DeviceNumbers {
        let drm = (0..4).chain(128..132).collect();
        DeviceNumbers::parse(HOST, drm).unwrap()
    }

    pub(in crate::fence) fn granted(minors: impl IntoIterator<Item = u32>) -> Grant {
        let gpu = |minor: u32| Gpu {
            id: DeviceId::parse(&format!("GPU-{minor}")).unwrap(),
            index: minor,
            minor,
            name: String::new(),
            pci: String::new(),
            nodes: [minor, 128 + minor]
                .map(|drm| Node {
                    path: format!("/dev/dri/{drm}").into(),
                    major: 226,
                    minor: drm,
                })
                .to_vec(),
        };
        Grant::new(minors.into_iter().map(gpu).collect(), BTreeSet::new())
    }

    pub(in crate::fence) fn vfio() -> VfioNodes {
        VfioNodes::from([(511, 3), (511, 9)])
    }

    #[test]
    fn a_mig_device_may_open_its_own_two_capabilities_and_no_other() {
        let node = |path: &str, major, minor| Node {
            path: path.into(),
            major,
            minor,
        };
        let mig = Gpu {
            id: DeviceId::parse("MIG-1").unwrap(),
            index: 0,
            minor: 2,
            name: String::new(),
            pci: String::new(),
            nodes: vec![
                node("/dev/nvidia2", 195, 2),
                node("/dev/nvidia-caps/nvidia-cap30", 238, 30),
                node("/dev/nvidia-caps/nvidia-cap31", 238, 31),
            ],
        };
        let grant = Grant::new(vec![mig], BTreeSet::new());
        let filter = Filter::of(&grant, &numbers(), &vfio());
        for (major, minor) in [(195, 2), (195, 255), (238, 30), (238, 31)] {
            assert!(!filter.denies(major, minor), "{major}:{minor}");
        }
        for (major, minor) in [(195, 0), (238, 0), (238, 1), (238, 2), (238, 32)] {
            assert!(filter.denies(major, minor), "{major}:{minor}");
        }
    }

    #[test]
    fn without_a_grant_every_number_of_the_driver_is_denied() {
        let filter = Filter::of(&granted([]), &numbers(), &vfio());
        for (major, minor) in [
            (195, 0),
            (195, 7),
            (195, 254),
            (195, 255),
            (195, 1 << 19),
            (237, 0),
            (238, 1),
            (239, 0),
            (226, 0),
            (226, 131),
            (511, 3),
        ] {
            assert!(filter.denies(major, minor), "{major}:{minor}");
        }
        for (major, minor) in [(1, 3), (226, 4), (226, 132), (511, 4), (10, 196), (136, 0)] {
            assert!(!filter.denies(major, minor), "{major}:{minor}");
        }
    }

    #[test]
    fn with_a_grant_its_gpu_and_what_every_gpu_needs_are_left() {
        let filter = Filter::of(&granted([1]), &numbers(), &vfio());
        let left = [
            (195, 1),
            (195, 254),
            (195, 255),
            (237, 1),
            (239, 0),
            (508, 0),
            (226, 1),
            (226, 129),
        ];
        for (major, minor) in left {
            assert!(!filter.denies(major, minor), "{major}:{minor}");
        }
        for (major, minor) in [
            (195, 0),
            (195, 2),
            (195, 253),
            (226, 0),
            (226, 128),
            (238, 1),
            (235, 0),
            (236, 0),
            (234, 0),
            (511, 3),
        ] {
            assert!(filter.denies(major, minor), "{major}:{minor}");
        }
    }

    proptest! {
        #[test]
        fn it_denies_exactly_what_the_grant_does_not_permit(
            minors in proptest::collection::btree_set(0u32..6, 0..4),
            major in prop_oneof![Just(195u32), Just(226), 230u32..240, Just(508), Just(511), any::<u32>()],
            minor in prop_oneof![0u32..10, 125u32..135, 250u32..260, any::<u32>()],
        ) {
            let grant = granted(minors);
            let filter = Filter::of(&grant, &numbers(), &vfio());
            let class = numbers().classify(major, minor);
            let expected = class.is_some_and(|class| !grant.permits(class)) || vfio().contains(&(major, minor));
            prop_assert_eq!(filter.denies(major, minor), expected);
        }
    }
}
