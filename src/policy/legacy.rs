//! The ways by which NVIDIA's own runtime and hooks can be talked into injecting GPUs, and what in a
//! container speaks for a GPU at all.

use std::collections::BTreeMap;
use std::path::Path;

use super::mounts::{is_gpu_path, lexically_clean};
use super::names::{covers, is_granted};
use super::{ContainerView, Terms, ViewMount};
use crate::gpu::Grant;
use crate::host::{DeviceNumbers, Found};

/// The variable that decides in NVIDIA's runtime; always replaced.
pub const VISIBLE_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";
/// Tells the application which GPUs it has; information only.
pub const WARDEN_UUIDS: &str = "GPU_WARDEN_UUIDS";
/// The value at which NVIDIA's runtime does nothing at all (`none` still injects libraries).
pub const VOID: &str = "void";

/// Variables that bring further devices; replaced where present.
const FURTHER: [&str; 3] = [
    "NVIDIA_IMEX_CHANNELS",
    "NVIDIA_MIG_CONFIG_DEVICES",
    "NVIDIA_MIG_MONITOR_DEVICES",
];

/// Directory whose entries NVIDIA's runtime reads as a device list, when so configured.
const VOLUME_LISTS: [&str; 2] = [
    "/var/run/nvidia-container-devices",
    "/run/nvidia-container-devices",
];

/// The variables under management that a container has, with all their values in order: NVIDIA's own,
/// ours, the configured ones, and those that the node's NVIDIA runtime listens to beside its own.
pub(super) fn managed<'a>(
    view: &'a ContainerView,
    terms: Terms<'_>,
) -> BTreeMap<&'a str, Vec<&'a str>> {
    let is_managed = |name: &str| {
        name == VISIBLE_DEVICES
            || name == WARDEN_UUIDS
            || FURTHER.contains(&name)
            || terms.config.managed_env.iter().any(|own| own == name)
            || terms.toolkit.is_swarm_variable(name)
    };
    let mut managed: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for entry in &view.env {
        let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
        if is_managed(name) {
            managed.entry(name).or_default().push(value);
        }
    }
    managed
}

/// Whether NVIDIA's runtime, told this value, brings nothing beyond the grant: the values by which
/// device plugins name a container's own devices, and those that name none.
pub(super) fn is_harmless(key: &str, value: &str, grant: &Grant) -> bool {
    if matches!(value, "" | VOID | "none") {
        return true;
    }
    key == VISIBLE_DEVICES
        && (is_list_root(value)
            || value
                .split(',')
                .all(|token| is_granted(grant, token) || covers(grant, token)))
}

/// Whether a value of the variable means "see the volume mounts".
pub(super) fn is_list_root(value: &str) -> bool {
    VOLUME_LISTS.contains(&value)
}

/// Whether a mount destination is the entry of a granted GPU in a volume device list.
pub(super) fn lists_own(destination: &str, grant: &Grant) -> bool {
    VOLUME_LISTS.iter().any(|list| {
        let entry = Path::new(destination).strip_prefix(list);
        entry.is_ok_and(|entry| {
            let mut gpus = grant.gpus().iter();
            gpus.any(|gpu| entry == Path::new(gpu.id.as_str()))
        })
    })
}

/// Whether a mount destination lies in a volume device list, however it is spelt.
pub(super) fn is_volume_list(destination: &str) -> bool {
    let clean = lexically_clean(Path::new(destination));
    VOLUME_LISTS.iter().any(|list| clean.starts_with(list))
}

/// What in the container speaks for a GPU, in words; none when nothing does.
///
/// The host nodes of a privileged container are no sign: it carries every node of the host,
/// whether its pod asked for a GPU or not.
pub(super) fn sign(
    view: &ContainerView,
    terms: Terms<'_>,
    numbers: &DeviceNumbers,
) -> Option<String> {
    let speaks = |value: &&str| !matches!(*value, "" | "void" | "none");
    let env = managed(view, terms).into_iter().find_map(|(key, values)| {
        let value = values.into_iter().find(speaks)?;
        Some(format!("its environment has {key}={value}"))
    });
    let is_gpu = |mount: &&ViewMount| match mount.found.found {
        Found::Device { major, minor } => numbers.classify(major, minor).is_some(),
        _ => is_gpu_path(Path::new(&mount.source)),
    };
    let mount = || {
        let mut mounts = view.mounts.iter();
        let mount = mounts.find(|mount| is_volume_list(&mount.destination) || is_gpu(mount))?;
        Some(format!("it mounts {}", mount.destination))
    };
    let cdi = || {
        let name = view.cdi_devices.first().cloned();
        let key = || {
            let mut keys = view.annotations.keys();
            keys.find(|key| terms.toolkit.is_cdi_annotation(key))
                .cloned()
        };
        Some(format!("it asks for CDI devices ({})", name.or_else(key)?))
    };
    let node = || {
        let gpu = view
            .devices
            .iter()
            .find(|node| numbers.classify(node.major, node.minor).is_some());
        gpu.filter(|_| !view.all_devices_allowed)
            .map(|node| format!("it has the node {}", node.path.display()))
    };
    env.or_else(mount).or_else(cdi).or_else(node)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::{Config, Exempt};
    use crate::gpu::{DeviceId, Gpu, Node};
    use crate::host::{Source, Toolkit};

    fn sign_of(view: &ContainerView) -> Option<String> {
        let numbers =
            DeviceNumbers::parse("Character devices:\n510 nvidia-uvm\n", BTreeSet::new()).unwrap();
        let config = Config {
            managed_env: vec!["GPUS".to_owned()],
            ..Config::default()
        };
        let terms = Terms {
            cdi_names: false,
            device_rules: false,
            config: &config,
            toolkit: &Toolkit::unknown(),
            exempt: &Exempt::default(),
        };
        sign(view, terms, &numbers)
    }

    #[test]
    fn every_way_to_ask_for_a_gpu_is_a_sign() {
        let env = |entry: &str| ContainerView {
            env: vec![entry.into()],
            ..Default::default()
        };
        for entry in [
            "NVIDIA_VISIBLE_DEVICES=all",
            "NVIDIA_VISIBLE_DEVICES=0",
            "GPUS=1",
            "NVIDIA_IMEX_CHANNELS=0",
            "DOCKER_RESOURCE_GPU=GPU-1",
        ] {
            assert!(sign_of(&env(entry)).is_some(), "{entry}");
        }
        let mount = |destination: &str, source: &str| ContainerView {
            mounts: vec![ViewMount {
                destination: destination.into(),
                source: source.into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        assert!(
            sign_of(&mount(
                "/var/run/./x/../nvidia-container-devices/GPU-1",
                "/dev/null"
            ))
            .is_some()
        );
        assert!(sign_of(&mount("/mnt", "/dev/nvidia1")).is_some());
        let bound = ContainerView {
            mounts: vec![ViewMount {
                destination: "/printer".into(),
                source: "/srv/lp".into(),
                found: Source {
                    found: Found::Device {
                        major: 195,
                        minor: 0,
                    },
                    relation: None,
                },
                ..Default::default()
            }],
            ..Default::default()
        };
        assert!(sign_of(&bound).is_some(), "known by its number");
        let cdi = ContainerView {
            cdi_devices: vec!["nvidia.com/gpu=all".into()],
            ..Default::default()
        };
        assert!(sign_of(&cdi).is_some());
        let annotated = ContainerView {
            annotations: [("cdi.k8s.io/x".into(), "a/b=c".into())].into(),
            ..Default::default()
        };
        assert!(sign_of(&annotated).is_some());
        let node = Node {
            path: "/dev/x".into(),
            major: 510,
            minor: 0,
        };
        assert!(
            sign_of(&ContainerView {
                devices: vec![node],
                ..Default::default()
            })
            .is_some()
        );
    }

    #[test]
    fn a_last_value_is_harmless_only_if_it_names_nothing_beyond_the_grant() {
        let gpu = Gpu {
            id: DeviceId::parse("GPU-1").unwrap(),
            index: 3,
            minor: 5,
            name: String::new(),
            pci: String::new(),
            nodes: Vec::new(),
        };
        let grant = Grant::new(vec![gpu], BTreeSet::new());
        let harmless = |value: &str, grant: &Grant| is_harmless(VISIBLE_DEVICES, value, grant);
        for value in [
            "",
            "void",
            "none",
            "GPU-1",
            "3",
            "GPU-1,3",
            "nvidia.com/gpu=GPU-1",
            "k8s.device-plugin.nvidia.com/gpu=3",
            "/var/run/nvidia-container-devices",
        ] {
            assert!(harmless(value, &grant), "{value}");
        }
        for value in [
            "all",
            "GPU-2",
            "GPU-1,GPU-2",
            "5",
            "GPU-",
            "GPU-1,",
            "03",
            "nvidia.com/gpu=all",
            "nvidia.com/gpu=GPU-2",
            "nvidia.com/gpu=GPU-1,all",
            "nvidia.com/mig=GPU-1",
            " GPU-2",
        ] {
            assert!(!harmless(value, &grant), "{value}");
        }
        for value in ["GPU-1", "3", "0"] {
            assert!(!harmless(value, &Grant::default()), "{value}");
            assert!(
                !is_harmless("NVIDIA_IMEX_CHANNELS", value, &grant),
                "{value}"
            );
        }
    }

    #[test]
    fn the_index_of_a_mig_device_s_parent_is_beyond_the_grant() {
        let mig = Gpu {
            id: DeviceId::parse("MIG-1").unwrap(),
            index: 3,
            minor: 5,
            name: String::new(),
            pci: String::new(),
            nodes: Vec::new(),
        };
        let grant = Grant::new(vec![mig], BTreeSet::new());
        assert!(is_harmless(VISIBLE_DEVICES, "MIG-1", &grant));
        for value in ["3", "3:0", "MIG-1,3"] {
            assert!(!is_harmless(VISIBLE_DEVICES, value, &grant), "{value}");
        }
    }

    #[test]
    fn an_ordinary_container_shows_no_sign() {
        let view = ContainerView {
            env: [
                "PATH=/bin",
                "NVIDIA_VISIBLE_DEVICES=void",
                "NVIDIA_VISIBLE_DEVICES_X=all",
                "CUDA_VERSION=12",
            ]
            .map(String::from)
            .into(),
            mounts: vec![ViewMount {
                destination: "/data".into(),
                source: "/srv/nvidia".into(),
                ..Default::default()
            }],
            devices: vec![Node {
                path: "/dev/fuse".into(),
                major: 10,
                minor: 229,
            }],
            ..Default::default()
        };
        assert_eq!(sign_of(&view), None);
    }

    #[test]
    fn the_host_nodes_of_a_privileged_container_are_no_sign() {
        let view = ContainerView {
            devices: vec![Node {
                path: "/dev/nvidia0".into(),
                major: 195,
                minor: 0,
            }],
            all_devices_allowed: true,
            ..Default::default()
        };
        assert_eq!(sign_of(&view), None);
    }
}
