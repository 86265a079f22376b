//! The ways by which NVIDIA's own runtime and hooks can be talked into injecting GPUs, and what in a
//! container speaks for a GPU at all.

use std::path::{Component, Path, PathBuf};

use super::ContainerView;
use crate::gpu::{Gpu, Grant};
use crate::host::DeviceNumbers;

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

/// Annotation prefixes that request CDI devices.
const CDI_PREFIXES: [&str; 2] = ["cdi.k8s.io/", "nvidia.cdi.k8s.io/"];

/// All variables under management, the configured ones (`swarm-resource` names) included.
pub(super) fn managed_env(configured: &[String]) -> impl Iterator<Item = &str> {
    std::iter::once(VISIBLE_DEVICES)
        .chain(FURTHER)
        .chain(std::iter::once(WARDEN_UUIDS))
        .chain(configured.iter().map(String::as_str))
}

/// Whether NVIDIA's runtime, told this value, brings nothing beyond the grant: the values by which
/// device plugins name a container's own devices, and those that name none.
pub(super) fn is_harmless(key: &str, value: &str, grant: &Grant) -> bool {
    if matches!(value, "" | VOID | "none") {
        return true;
    }
    key == VISIBLE_DEVICES
        && (is_list_root(value)
            || value.split(',').all(|token| {
                // The index of a MIG device is its parent's, and names all of it.
                let named = |gpu: &Gpu| {
                    token == gpu.id.as_str() || (!gpu.id.is_mig() && token == gpu.index.to_string())
                };
                grant.gpus().iter().any(named)
            }))
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
    configured: &[String],
    numbers: &DeviceNumbers,
) -> Option<String> {
    let speaks = |value: &str| !matches!(value, "" | "void" | "none");
    let env = managed_env(configured).find_map(|key| {
        view.values(key)
            .find(|value| speaks(value))
            .map(|value| format!("its environment has {key}={value}"))
    });
    let mount = || {
        let mount = view
            .mounts
            .iter()
            .find(|mount| is_volume_list(&mount.destination) || is_gpu_path(&mount.source))?;
        Some(format!("it mounts {}", mount.destination))
    };
    let cdi = || {
        let name = view.cdi_devices.first().cloned();
        let key = || {
            view.annotations
                .keys()
                .find(|key| CDI_PREFIXES.iter().any(|prefix| key.starts_with(prefix)))
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

fn is_gpu_path(source: &str) -> bool {
    let clean = lexically_clean(Path::new(source));
    clean
        .strip_prefix("/dev")
        .is_ok_and(|rest| rest.to_string_lossy().starts_with("nvidia"))
}

/// Resolves `.` and `..` by the text alone.
fn lexically_clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            other => clean.push(other),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::gpu::{DeviceId, Node};
    use crate::policy::ViewMount;

    fn sign_of(view: &ContainerView) -> Option<String> {
        let numbers =
            DeviceNumbers::parse("Character devices:\n510 nvidia-uvm\n", BTreeSet::new()).unwrap();
        sign(view, &["GPUS".to_owned()], &numbers)
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
        ] {
            assert!(sign_of(&env(entry)).is_some(), "{entry}");
        }
        let mount = |destination: &str, source: &str| ContainerView {
            mounts: vec![ViewMount {
                destination: destination.into(),
                source: source.into(),
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
