//! The same property over whole GPUs and MIG devices, which share their parent's minor: nothing of the
//! grant, of the injection or of the OCI spec lies outside the allocation.

use proptest::prelude::*;

use super::*;
use crate::host::Class;

prop_compose! {
    fn views()(
        env in proptest::collection::vec(
            prop_oneof!["NVIDIA_VISIBLE_DEVICES=(all|void|none|0|8|8:0|GPU-[0-9]|MIG-1[0-2])", "GPU_WARDEN_UUIDS=GPU-[0-9]", "[A-Z]{1,3}=[a-z]?", ".{0,12}"], 0..4),
        devices in proptest::collection::vec(
            (prop_oneof!["/dev/nvidia[0-9]", "/dev/nvidia-caps/nvidia-cap3[0-3]", "/dev/[a-z]{1,4}"], prop_oneof![Just(195u32), Just(226), Just(510), Just(511), 0u32..600], prop_oneof![0u32..260, 28u32..36]), 0..8),
        cdi in proptest::collection::vec("nvidia.com/gpu=(all|GPU-[0-9])", 0..2),
        all_devices_allowed in any::<bool>(),
    ) -> ContainerView {
        ContainerView {
            env,
            devices: devices.iter().map(|(path, major, minor)| node(path, *major, *minor)).collect(),
            cdi_devices: cdi,
            all_devices_allowed,
            ..Default::default()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// No decision ever grants a device outside the allocation: not in the grant, not by name, not
    /// as an injected node, and none of the nodes that the OCI spec brought stays.
    #[test]
    fn no_decision_grants_outside_the_allocation(
        view in views(),
        wanted in proptest::collection::btree_set(prop_oneof![0u32..5, 10u32..13], 0..4),
        gpus in 0u32..4,
        shape in 0u8..5,
        injected in any::<bool>(),
        names in any::<bool>(),
    ) {
        let (inventory, numbers) = (inventory(gpus), numbers());
        let spec = spec(&inventory);
        let wanted: Vec<u32> = wanted.into_iter().collect();
        let allocation = match shape {
            0 => Err(AllocationError::Unavailable("x".into())),
            1 => Err(AllocationError::Conflict("x".into())),
            _ => Ok(Allocation { injected_by_runtime: injected, ..allocated(&wanted).unwrap() }),
        };
        let facts = NodeFacts {
            inventory: if shape == 2 { Err("broken") } else { Ok(&inventory) },
            spec: Some(&spec),
            numbers: &numbers,
        };
        let decision = decide(&subject(), &view, &allocation, facts, terms(names));
        let Decision::Admit(admission) = decision else { return Ok(()) };
        let allocated = allocation.map(|a| a.devices).unwrap_or_default();
        let held: Vec<_> = inventory.devices().filter(|g| allocated.contains(&g.id)).collect();
        let has = |wanted: (u32, u32)| held.iter().any(|g| g.nodes.iter().any(|n| (n.major, n.minor) == wanted));
        let may = |major, minor| match numbers.classify(major, minor) {
            Some(Class::Gpu(minor)) => has((195, minor)),
            Some(Class::Drm(minor)) => has((226, minor)),
            Some(Class::Capability(minor)) => has((511, minor)),
            Some(_) => !allocated.is_empty(),
            None => true,
        };
        prop_assert_eq!(admission.grant.ids(), allocated.clone(), "exactly the allocation, or a refusal");
        let mut set: BTreeSet<_> = admission.repoint.clone();
        match &admission.inject {
            Injection::Nothing | Injection::Done => {}
            Injection::Names(names) => {
                for name in names {
                    let id = name.strip_prefix("nvidia.com/gpu=").and_then(|id| DeviceId::parse(id).ok());
                    prop_assert!(id.is_some_and(|id| allocated.contains(&id)));
                }
                set.extend(admission.grant.gpus().iter().flat_map(|g| g.nodes.iter().map(|n| n.path.clone())));
            }
            Injection::Edits(edits) => {
                for n in &edits.device_nodes {
                    let numbers = (n.major.unwrap().try_into().unwrap(), n.minor.unwrap().try_into().unwrap());
                    prop_assert!(may(numbers.0, numbers.1), "{n:?}");
                    set.insert(n.path.clone().into());
                }
            }
        }
        for n in view.devices.iter().filter(|n| !set.contains(&n.path)) {
            prop_assert!(may(n.major, n.minor), "{n:?} stays");
        }
        // What the runtime ends with: our value, unless the key stood there twice.
        let values: Vec<_> = view.values("NVIDIA_VISIBLE_DEVICES").collect();
        let ends = match values.as_slice() {
            [.., last] if values.len() > 1 => *last,
            _ => admission.env.get("NVIDIA_VISIBLE_DEVICES").map_or("void", String::as_str),
        };
        let mut names = ends.split(',').filter(|name| !matches!(*name, "" | "void" | "none"));
        prop_assert!(names.all(|name| {
            inventory.gpus.iter().any(|gpu| {
                allocated.contains(&gpu.id) && (name == gpu.id.as_str() || name == gpu.index.to_string())
            }) || inventory.mig.iter().any(|mig| allocated.contains(&mig.gpu.id) && name == mig.gpu.id.as_str())
        }), "{ends}");
    }
}
