//! What all NRI plugins together may bring.

use std::collections::BTreeMap;

use super::*;
use crate::gpu::Grant;
use crate::host::{Found, Source as OnHost};

fn judge(added: &ContainerView, ids: &[u32]) -> Result<(), Refused> {
    let (inventory, numbers) = (inventory(2), numbers());
    let spec = spec(&inventory);
    let gpus = ids.iter().map(|&n| inventory.gpus[n as usize].clone());
    let grant = Grant::new(gpus.collect(), BTreeSet::new());
    let facts = NodeFacts {
        inventory: Ok(&inventory),
        spec: Some(&spec),
        numbers: &numbers,
    };
    validate(added, "main", &grant, facts, terms(true))
}

fn cdi(name: &str) -> ContainerView {
    ContainerView {
        cdi_devices: vec![name.to_owned()],
        ..Default::default()
    }
}

#[test]
fn our_own_injection_and_what_others_do_apart_from_gpus_is_let_through() {
    let ours = ContainerView {
        env: vec![
            "NVIDIA_VISIBLE_DEVICES=void".into(),
            "GPU_WARDEN_UUIDS=GPU-1".into(),
            "A=b".into(),
        ],
        devices: vec![
            node("/dev/nvidia2", 195, 2),
            node("/dev/nvidia1", 1, 3),
            node("/dev/fuse", 10, 229),
        ],
        cdi_devices: vec!["nvidia.com/gpu=GPU-1".into(), "vendor.com/net=eth1".into()],
        rules: vec![DeviceRule {
            allow: false,
            major: Some(195),
            minor: Some(1),
        }],
        ..Default::default()
    };
    assert_eq!(judge(&ours, &[1]), Ok(()));
    assert_eq!(judge(&ContainerView::default(), &[]), Ok(()));
}

#[test]
fn nobody_may_add_a_gpu_beyond_the_grant() {
    let mounted = |found| ContainerView {
        mounts: vec![ViewMount {
            destination: "/x".into(),
            source: "/dev/nvidia1".into(),
            writable: true,
            found: OnHost {
                found,
                relation: None,
            },
        }],
        ..Default::default()
    };
    let ruled = |major, minor| ContainerView {
        rules: vec![DeviceRule {
            allow: true,
            major,
            minor,
        }],
        ..Default::default()
    };
    for added in [
        cdi("nvidia.com/gpu=all"),
        cdi("nvidia.com/gpu=GPU-0"),
        cdi("management.nvidia.com/gpu=all"),
        with_env(&["NVIDIA_VISIBLE_DEVICES=all"]),
        with_env(&["NVIDIA_IMEX_CHANNELS=0"]),
        with_env(&["DOCKER_RESOURCE_GPU=GPU-0"]),
        ContainerView {
            devices: vec![node("/x", 195, 1)],
            ..Default::default()
        },
        mounted(Found::Unknown),
        mounted(Found::Device {
            major: 195,
            minor: 1,
        }),
        ContainerView {
            annotations: BTreeMap::from([("cdi.k8s.io/x".into(), "nvidia.com/gpu=0".into())]),
            ..Default::default()
        },
        ruled(Some(195), Some(1)),
        ruled(Some(195), None),
        ruled(None, None),
        ContainerView {
            all_devices_allowed: true,
            ..Default::default()
        },
    ] {
        let (reason, cause) = judge(&added, &[1]).expect_err(&format!("{added:?}"));
        assert_eq!(reason, Reason::MergedForeign, "{cause}");
    }
}
