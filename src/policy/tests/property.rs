//! The property that guards every rule: no decision leaves a way to a GPU outside the allocation, as
//! far as the message and the host show one.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::gpu::Grant;
use crate::host::{Class, Found, Place, Relation, Source as OnHost};

/// A CDI name with the number of the GPU that it stands for; none for all of them.
fn requests() -> impl Strategy<Value = (String, Option<u32>)> + Clone {
    let kind = prop_oneof![
        Just("nvidia.com/gpu"),
        Just("k8s.device-plugin.nvidia.com/gpu"),
        Just("runtime.nvidia.com/gpu"),
        Just("management.nvidia.com/gpu"),
    ];
    let device = prop_oneof![
        Just(("all".to_owned(), None)),
        (0u32..5).prop_map(|n| (n.to_string(), Some(n))),
        (0u32..5).prop_map(|n| (format!("GPU-{n}"), Some(n))),
    ];
    (kind, device).prop_map(|(kind, (name, gpu))| (format!("{kind}={name}"), gpu))
}

/// An annotation, whether it is the pod's, whether it holds for the container `main`, and the GPUs it
/// asks for (`None` is all of them).
#[derive(Debug, Clone)]
struct Ask {
    key: String,
    value: String,
    of_pod: bool,
    gpus: Vec<Option<u32>>,
}

fn asks() -> impl Strategy<Value = Ask> {
    let list = proptest::collection::vec(requests(), 1..3);
    let scope = prop_oneof![
        Just(""),
        Just("/pod"),
        Just("/container.main"),
        Just("/container.other")
    ];
    let separator = prop_oneof![Just(","), Just("\n"), Just("; ")];
    let gpus =
        |list: &[(String, Option<u32>)]| list.iter().map(|(_, gpu)| *gpu).collect::<Vec<_>>();
    let names = |list: &[(String, Option<u32>)]| -> Vec<String> {
        list.iter().map(|(name, _)| name.clone()).collect()
    };
    let holds = |scope: &str, gpus: Vec<Option<u32>>| {
        if scope.ends_with("other") {
            Vec::new()
        } else {
            gpus
        }
    };
    prop_oneof![
        (
            prop_oneof![Just("cdi.k8s.io/"), Just("nvidia.cdi.k8s.io/")],
            "[a-z_]{1,5}",
            list.clone()
        )
            .prop_map(move |(prefix, name, list)| Ask {
                key: format!("{prefix}{name}"),
                value: names(&list).join(","),
                of_pod: false,
                gpus: gpus(&list),
            }),
        (scope.clone(), separator, list.clone()).prop_map(move |(scope, separator, list)| Ask {
            key: format!("nvidia.cdi.k8s.io{scope}"),
            value: names(&list).join(separator),
            of_pod: true,
            gpus: holds(scope, gpus(&list)),
        }),
        (
            scope.clone(),
            prop_oneof![Just("noderesource.dev"), Just("nri.io")],
            list
        )
            .prop_map(move |(scope, domain, list)| Ask {
                key: format!("cdi-devices.{domain}{scope}"),
                value: format!("- {}\n", names(&list).join("\n- ")),
                of_pod: true,
                gpus: holds(scope, gpus(&list)),
            }),
        (
            scope,
            prop_oneof![Just("noderesource.dev"), Just("nri.io")],
            0u32..5
        )
            .prop_map(move |(scope, domain, gpu)| Ask {
                key: format!("devices.{domain}{scope}"),
                value: format!(
                    "- {{path: /dev/x, type: c, major: 195, minor: {}}}",
                    gpu + 1
                ),
                of_pod: true,
                gpus: holds(scope, vec![Some(gpu)]),
            }),
    ]
}

fn mounts() -> impl Strategy<Value = ViewMount> {
    let found = prop_oneof![
        Just(Found::Unknown),
        Just(Found::Other),
        (
            prop_oneof![Just(195u32), Just(226), Just(510), Just(10)],
            0u32..260
        )
            .prop_map(|(major, minor)| Found::Device { major, minor }),
        proptest::collection::vec(0u32..4, 0..2).prop_map(|minors| Found::Directory(
            minors
                .into_iter()
                .map(|minor| ("/dev/x".into(), Class::Gpu(minor)))
                .collect()
        )),
    ];
    let place = any::<bool>().prop_map(|sockets| Place {
        path: "/run/x".into(),
        sockets,
    });
    let relation = prop_oneof![
        4 => Just(None),
        1 => place.clone().prop_map(|place| Some(Relation::Within(place))),
        1 => place.prop_map(|place| Some(Relation::Contains(place))),
    ];
    let destination = prop_oneof![
        Just("/mnt"),
        Just("/var/run/nvidia-container-devices/GPU-1"),
        Just("/run/./nvidia-container-devices/all"),
        Just("/dev/nvidia0")
    ];
    let source = prop_oneof![
        Just("/srv/x".to_owned()),
        (0u32..6).prop_map(|n| format!("/dev/nvidia{n}"))
    ];
    (destination, source, any::<bool>(), found, relation).prop_map(
        |(destination, source, writable, found, relation)| ViewMount {
            destination: destination.to_owned(),
            source,
            writable,
            found: OnHost { found, relation },
        },
    )
}

fn rules() -> impl Strategy<Value = DeviceRule> {
    let major = prop_oneof![
        Just(None),
        Just(Some(195u32)),
        Just(Some(226)),
        Just(Some(1))
    ];
    (any::<bool>(), major, proptest::option::of(0u32..260)).prop_map(|(allow, major, minor)| {
        DeviceRule {
            allow,
            major,
            minor,
        }
    })
}

prop_compose! {
    fn views()(
        env in proptest::collection::vec(
            prop_oneof![
                "NVIDIA_VISIBLE_DEVICES=(all|void|none|0|GPU-[0-9]|nvidia.com/gpu=(all|GPU-[0-9]))",
                "GPU_WARDEN_UUIDS=GPU-[0-9]",
                "DOCKER_RESOURCE_GPU=(all|GPU-[0-9])",
                "NVIDIA_(IMEX_CHANNELS|MIG_CONFIG_DEVICES|MIG_MONITOR_DEVICES)=(all|0)",
                "[A-Z]{1,3}=[a-z]?",
                ".{0,12}",
            ], 0..4),
        devices in proptest::collection::vec(
            (prop_oneof!["/dev/nvidia[0-9]", "/dev/[a-z]{1,4}"], prop_oneof![Just(195u32), Just(226), Just(510), 0u32..600], 0u32..260), 0..8),
        cdi in proptest::collection::vec(requests().prop_map(|(name, _)| name), 0..2),
        all_devices_allowed in any::<bool>(),
        mounts in proptest::collection::vec(mounts(), 0..2),
        rules in proptest::collection::vec(rules(), 0..3),
        privileged in any::<bool>(),
        host_pid in any::<bool>(),
    ) -> ContainerView {
        ContainerView {
            env,
            devices: devices.iter().map(|(path, major, minor)| node(path, *major, *minor)).collect(),
            cdi_devices: cdi,
            all_devices_allowed,
            mounts,
            rules,
            privileged,
            host_pid,
            ..Default::default()
        }
    }
}

prop_compose! {
    fn configs()(privileged in 0usize..3, host_pid in 0usize..3, directories in any::<bool>()) -> Config {
        let words = ["allow", "refuse-with-gpu", "refuse"];
        let directories = if directories { "refuse" } else { "gate" };
        Config::parse(
            &format!("{{privileged: {}, hostPID: {}, hostDirectories: {directories}}}", words[privileged], words[host_pid]),
            "test",
        )
        .unwrap()
    }
}

/// What a value of a managed variable ends as: ours, unless the key stood there twice.
fn ends<'a>(view: &'a ContainerView, admission: &'a Admission, key: &'a str) -> Option<&'a str> {
    let values: Vec<_> = view.values(key).collect();
    match values.as_slice() {
        [.., last] if values.len() > 1 => Some(last),
        [only] => Some(admission.env.get(key).map_or(*only, String::as_str)),
        _ => admission.env.get(key).map(String::as_str),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// No decision ever grants a device outside the allocation: not in the grant, not by name, not
    /// as an injected node; none of the nodes that the OCI spec brought stays; no variable,
    /// annotation, mount or rule is left by which another component would bring one.
    #[test]
    fn no_decision_grants_outside_the_allocation(
        view in views(),
        ask in proptest::option::of(asks()),
        config in configs(),
        wanted in proptest::collection::btree_set(prop_oneof![0u32..5, 10u32..13], 0..4),
        gpus in 0u32..4,
        shape in 0u8..5,
        injected in any::<bool>(),
        names in any::<bool>(),
        device_rules in any::<bool>(),
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
        let mut view = view;
        if let Some(ask) = &ask {
            let of = if ask.of_pod { &mut view.pod_annotations } else { &mut view.annotations };
            of.insert(ask.key.clone(), ask.value.clone());
        }
        let terms = Terms { device_rules, config: &config, ..terms(names) };
        let decision = decide(&subject(), &view, &allocation, facts, terms);
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

        let is_own = |name: &str| {
            let name = name.strip_prefix("nvidia.com/gpu=").unwrap_or(name);
            inventory.gpus.iter().any(|gpu| {
                allocated.contains(&gpu.id) && (name == gpu.id.as_str() || name == gpu.index.to_string())
            }) || inventory.mig.iter().any(|mig| allocated.contains(&mig.gpu.id) && name == mig.gpu.id.as_str())
        };
        let nothing = |value: &str| matches!(value, "" | "void" | "none");
        let visible = ends(&view, &admission, VISIBLE_DEVICES).unwrap_or("");
        prop_assert!(visible.split(',').all(|name| nothing(name) || is_own(name)), "{visible}");
        prop_assert!(ends(&view, &admission, VISIBLE_DEVICES).is_some(), "absent means all in some images");
        for key in ["DOCKER_RESOURCE_GPU", "NVIDIA_IMEX_CHANNELS", "NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES"] {
            prop_assert!(ends(&view, &admission, key).is_none_or(nothing), "{key}");
        }

        if let Some(ask) = &ask {
            let foreign = ask.gpus.iter().find(|gpu| gpu.is_none_or(|n| !allocated.contains(&id(n))));
            prop_assert_eq!(foreign, None, "{:?} is let pass", ask);
            prop_assert_eq!(
                admission.drop_annotations.clone(),
                if ask.of_pod { BTreeSet::new() } else { BTreeSet::from([ask.key.clone()]) }
            );
        }
        for name in &view.cdi_devices {
            let device = name.split_once('=').unwrap().1;
            prop_assert!(is_own(device), "{name} is let pass");
        }

        for mount in &view.mounts {
            if mount.destination.contains("nvidia-container-devices") {
                prop_assert!(admission.drop_mounts.contains(&mount.destination));
                continue;
            }
            match mount.found.found {
                Found::Device { major, minor } => prop_assert!(may(major, minor), "{mount:?}"),
                Found::Unknown => {
                    let minor = mount.source.strip_prefix("/dev/nvidia").map(|n| n.parse().unwrap());
                    prop_assert!(minor.is_none_or(|minor| may(195, minor)), "{mount:?}");
                }
                _ => {}
            }
            if let Some(Relation::Within(place)) = &mount.found.relation {
                prop_assert!(!mount.writable && !place.sockets, "{mount:?}");
            }
        }

        for (major, minor) in &admission.deny {
            prop_assert!(!may(*major, *minor), "{major}:{minor} is its own");
        }
        if device_rules {
            for n in inventory.devices().flat_map(|gpu| &gpu.nodes).chain(&inventory.control).filter(|_| shape != 2) {
                prop_assert!(
                    may(n.major, n.minor) || !view.opens(n.major, n.minor) || admission.deny.contains(&(n.major, n.minor)),
                    "{n:?} can be opened"
                );
            }
        }
        let has_gpu = !allocated.is_empty();
        prop_assert!(!view.privileged || !config.privileged.refuses(has_gpu));
        prop_assert!(!view.host_pid || !config.host_pid.refuses(has_gpu));
    }

    /// Whatever plugins add, what is let through brings nothing outside the grant.
    #[test]
    fn no_merged_adjustment_brings_more_than_the_grant(
        added in views(),
        ask in proptest::option::of(asks()),
        granted in proptest::collection::btree_set(0u32..3, 0..3),
    ) {
        let (inventory, numbers) = (inventory(3), numbers());
        let spec = spec(&inventory);
        let facts = NodeFacts { inventory: Ok(&inventory), spec: Some(&spec), numbers: &numbers };
        let gpus = inventory.gpus.iter().filter(|gpu| granted.contains(&gpu.index)).cloned();
        let grant = Grant::new(gpus.collect(), BTreeSet::new());
        let mut added = added;
        if let Some(ask) = ask.as_ref().filter(|ask| !ask.of_pod) {
            added.annotations = BTreeMap::from([(ask.key.clone(), ask.value.clone())]);
        }
        if validate(&added, "main", &grant, facts, terms(true)).is_err() {
            return Ok(());
        }
        for device in &added.devices {
            let class = numbers.classify(device.major, device.minor);
            prop_assert!(class.is_none_or(|class| grant.permits(class)), "{device:?}");
        }
        for gpu in inventory.gpus.iter().filter(|gpu| !granted.contains(&gpu.index)) {
            prop_assert!(!added.opens(195, gpu.minor), "{gpu:?}");
            let is_it = |text: &str| text.ends_with(&format!("={}", gpu.id)) || text.ends_with("=all") || text.ends_with(&format!("={}", gpu.index));
            prop_assert!(!added.cdi_devices.iter().any(|name| is_it(name)));
            prop_assert!(!added.annotations.values().flat_map(|value| value.split(',')).any(is_it));
        }
        prop_assert!(!added.values(VISIBLE_DEVICES).any(|value| value.ends_with("all")));
    }
}
