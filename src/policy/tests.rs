//! The policy as a whole: one test per rule, and the property that guards them all.

mod devices;
mod merged;
mod property;
mod recipe;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use cdi::{ContainerEdits, Device, DeviceNode, Mount, Spec};

use super::*;
use crate::allocation::{Allocation, AllocationError, Subject};
use crate::config::{Config, Exempt};
use crate::gpu::{DeviceId, Gpu, Inventory, MigDevice, Node, Source};
use crate::host::{DeviceNumbers, Toolkit};

/// From 10 on, MIG devices.
fn id(n: u32) -> DeviceId {
    let kind = if n < 10 { "GPU" } else { "MIG" };
    DeviceId::parse(&format!("{kind}-{n}")).unwrap()
}

fn node(path: &str, major: u32, minor: u32) -> Node {
    Node {
        path: path.into(),
        major,
        minor,
    }
}

/// MIG device 10 + n is a part of one GPU, whose index is 8 and whose minor is 9; its capabilities
/// are those of minors 30 + 2n and 31 + 2n.
fn mig(n: u32) -> MigDevice {
    let cap = |minor: u32| node(&format!("/dev/nvidia-caps/nvidia-cap{minor}"), 511, minor);
    MigDevice {
        gpu: Gpu {
            id: id(10 + n),
            index: 8,
            minor: 9,
            name: "H100 MIG 1g.10gb".into(),
            pci: "0000:08:00.0".into(),
            nodes: vec![
                node("/dev/nvidia9", 195, 9),
                cap(30 + 2 * n),
                cap(31 + 2 * n),
            ],
        },
        parent: id(8),
        slot: n,
        gpu_instance: 7 + n,
        compute_instance: 0,
        modes: [].into(),
        drm: Vec::new(),
    }
}

/// GPU n has minor n + 1, so that nothing can confuse index and minor.
fn inventory(count: u32) -> Inventory {
    let gpu = |n| Gpu {
        id: id(n),
        index: n,
        minor: n + 1,
        name: "T4".into(),
        pci: format!("0000:0{n}:00.0"),
        nodes: vec![
            node(&format!("/dev/nvidia{}", n + 1), 195, n + 1),
            node(&format!("/dev/dri/renderD{}", 128 + n), 226, 128 + n),
        ],
    };
    Inventory {
        gpus: (0..count).map(gpu).collect(),
        mig: (0..2).map(mig).collect(),
        control: vec![
            node("/dev/nvidiactl", 195, 255),
            node("/dev/nvidia-uvm", 510, 0),
        ],
        ..Inventory::empty(Source::Nvml, "570.1")
    }
}

fn spec(inventory: &Inventory) -> Spec {
    let nodes = |nodes: &[Node]| {
        nodes
            .iter()
            .map(|n| DeviceNode {
                path: n.path.display().to_string(),
                ..Default::default()
            })
            .collect()
    };
    Spec {
        cdi_version: "0.5.0".into(),
        kind: "nvidia.com/gpu".into(),
        devices: inventory
            .devices()
            .map(|gpu| Device {
                name: gpu.id.to_string(),
                container_edits: ContainerEdits {
                    device_nodes: nodes(&gpu.nodes),
                    ..Default::default()
                },
                ..Default::default()
            })
            .collect(),
        container_edits: ContainerEdits {
            env: vec!["NVIDIA_VISIBLE_DEVICES=void".into(), "LIBS=/x".into()],
            device_nodes: nodes(&inventory.control),
            mounts: vec![Mount {
                host_path: "/l".into(),
                container_path: "/l".into(),
                ..Default::default()
            }],
            ..Default::default()
        },
        ..Default::default()
    }
}

fn numbers() -> DeviceNumbers {
    let drm = (128..160).collect();
    DeviceNumbers::parse(
        "Character devices:\n195 nvidia\n510 nvidia-uvm\n511 nvidia-caps\n",
        drm,
    )
    .unwrap()
}

fn subject() -> Subject {
    Subject {
        pod_uid: "u".into(),
        namespace: "team-a".into(),
        pod: "train-0".into(),
        container: "main".into(),
    }
}

static CONFIG: LazyLock<Config> = LazyLock::new(Config::default);
static TOOLKIT: LazyLock<Toolkit> = LazyLock::new(Toolkit::unknown);
static EXEMPT: LazyLock<Exempt> = LazyLock::new(Exempt::default);

fn terms(cdi_names: bool) -> Terms<'static> {
    Terms {
        cdi_names,
        device_rules: false,
        config: &CONFIG,
        toolkit: &TOOLKIT,
        exempt: &EXEMPT,
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "what the kubelet's answer looks like"
)]
fn allocated(ids: &[u32]) -> Result<Allocation, AllocationError> {
    Ok(Allocation {
        devices: ids.iter().map(|&n| id(n)).collect(),
        ..Default::default()
    })
}

fn run(
    view: &ContainerView,
    allocation: &Result<Allocation, AllocationError>,
    names: bool,
) -> Decision {
    run_under(view, allocation, terms(names))
}

fn run_under(
    view: &ContainerView,
    allocation: &Result<Allocation, AllocationError>,
    terms: Terms<'_>,
) -> Decision {
    let (inventory, numbers) = (inventory(2), numbers());
    let spec = spec(&inventory);
    let facts = NodeFacts {
        inventory: Ok(&inventory),
        spec: Some(&spec),
        numbers: &numbers,
    };
    decide(&subject(), view, allocation, facts, terms)
}

fn admitted(decision: Decision) -> Admission {
    match decision {
        Decision::Admit(admission) => admission,
        other => panic!("{other:?}"),
    }
}

fn refused(decision: Decision) -> Refusal {
    match decision {
        Decision::Refuse(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

/// A privileged container of the founding case: all nodes of the host, env `all`.
fn privileged() -> ContainerView {
    ContainerView {
        env: vec!["PATH=/bin".into(), "NVIDIA_VISIBLE_DEVICES=all".into()],
        devices: vec![
            node("/dev/null", 1, 3),
            node("/dev/nvidia1", 195, 1),
            node("/dev/nvidia2", 195, 2),
            node("/dev/nvidiactl", 195, 255),
        ],
        all_devices_allowed: true,
        ..Default::default()
    }
}

#[test]
fn a_privileged_container_keeps_its_own_gpu_and_no_other() {
    let admission = admitted(run(&privileged(), &allocated(&[1]), false));
    assert_eq!(admission.reason, Reason::Granted);
    assert_eq!(admission.repoint, BTreeSet::from(["/dev/nvidia1".into()]));
    assert_eq!(admission.env["NVIDIA_VISIBLE_DEVICES"], "void");
    assert_eq!(admission.env["GPU_WARDEN_UUIDS"], "GPU-1");
    let Injection::Edits(edits) = admission.inject else {
        panic!("expanded")
    };
    let numbers: Vec<_> = edits
        .device_nodes
        .iter()
        .map(|n| (n.major.unwrap(), n.minor.unwrap()))
        .collect();
    assert_eq!(numbers, [(195, 255), (510, 0), (195, 2), (226, 129)]);
}

#[test]
fn a_runtime_that_honours_names_gets_names() {
    let admission = admitted(run(&privileged(), &allocated(&[0, 1]), true));
    assert_eq!(
        admission.inject,
        Injection::Names(vec![
            "nvidia.com/gpu=GPU-0".into(),
            "nvidia.com/gpu=GPU-1".into()
        ])
    );
    assert!(admission.repoint.is_empty());
}

#[test]
fn without_an_allocation_nothing_is_left_not_even_control_nodes() {
    let admission = admitted(run(&privileged(), &allocated(&[]), true));
    assert_eq!(
        (admission.reason, admission.inject),
        (Reason::NoGpu, Injection::Nothing)
    );
    assert_eq!(admission.repoint.len(), 3);
}

#[test]
fn the_variable_is_set_even_where_absent_and_only_once() {
    let admission = admitted(run(&ContainerView::default(), &allocated(&[]), false));
    assert_eq!(
        admission.env.into_iter().collect::<Vec<_>>(),
        [("NVIDIA_VISIBLE_DEVICES".into(), "void".into())]
    );
    let void = ContainerView {
        env: vec!["NVIDIA_VISIBLE_DEVICES=void".into()],
        ..Default::default()
    };
    assert!(admitted(run(&void, &allocated(&[]), false)).env.is_empty());
}

fn with_env(entries: &[&str]) -> ContainerView {
    ContainerView {
        env: entries.iter().map(|&entry| entry.to_owned()).collect(),
        ..Default::default()
    }
}

#[test]
fn a_managed_variable_twice_is_refused_when_its_last_value_asks_for_more_than_the_grant() {
    for first in ["NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_VISIBLE_DEVICES"] {
        let view = with_env(&[first, "NVIDIA_VISIBLE_DEVICES=all"]);
        for allocation in [allocated(&[]), allocated(&[0])] {
            let refusal = refused(run(&view, &allocation, false));
            assert_eq!(refusal.reason, Reason::DuplicateEnv);
        }
    }
}

/// containerd keeps a CUDA image's variable beside the device plugin's (measured on 1.7.24, 2.1.9).
#[test]
fn an_image_that_says_all_beside_the_device_plugins_own_value_is_admitted() {
    let view = with_env(&["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=GPU-1"]);
    assert_eq!(
        admitted(run(&view, &allocated(&[1]), false)).reason,
        Reason::Granted
    );
    let refusal = refused(run(&view, &allocated(&[0]), false));
    assert_eq!(refusal.reason, Reason::DuplicateEnv, "another's GPU");
}

#[test]
fn with_no_answer_from_the_kubelet_only_what_shows_no_sign_of_a_gpu_runs() {
    let unavailable = Err(AllocationError::Unavailable("socket refused".into()));
    let plain = ContainerView {
        env: vec!["A=b".into()],
        ..Default::default()
    };
    assert_eq!(
        admitted(run(&plain, &unavailable, false)).reason,
        Reason::NoGpuUnasked
    );
    assert_eq!(
        refused(run(&privileged(), &unavailable, false)).reason,
        Reason::AllocationUnavailable
    );
    let agent = ContainerView {
        env: Vec::new(),
        ..privileged()
    };
    let admission = admitted(run(&agent, &unavailable, false));
    assert!(admission.grant.is_empty());
    assert_eq!(
        admission.repoint.len(),
        3,
        "a privileged node agent runs, without any GPU"
    );
}

#[test]
fn a_gpu_that_the_node_does_not_have_is_refused_in_a_sentence_for_people() {
    let refusal = refused(run(&privileged(), &allocated(&[7]), false));
    assert_eq!(refusal.reason, Reason::GpuUnknown);
    let text = refusal.to_string();
    for part in [
        "container \"main\" of pod team-a/train-0",
        "GPU-7",
        "this node has no such usable GPU",
        "[gpu-unknown]",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn what_the_runtime_has_injected_is_not_injected_again() {
    let allocation = Ok(Allocation {
        injected_by_runtime: true,
        ..allocated(&[1]).unwrap()
    });
    let injected = ContainerView {
        env: vec!["NVIDIA_VISIBLE_DEVICES=void".into()],
        devices: vec![node("/dev/nvidia2", 195, 2)],
        ..Default::default()
    };
    assert_eq!(
        admitted(run(&injected, &allocation, true)).inject,
        Injection::Done
    );
    let cuda_image = ContainerView {
        env: vec![
            "NVIDIA_VISIBLE_DEVICES=all".into(),
            "NVIDIA_VISIBLE_DEVICES=void".into(),
        ],
        ..injected.clone()
    };
    assert_eq!(
        admitted(run(&cuda_image, &allocation, true)).inject,
        Injection::Done
    );
    let asked_only = ContainerView {
        devices: Vec::new(),
        ..injected
    };
    assert!(matches!(
        admitted(run(&asked_only, &allocation, true)).inject,
        Injection::Names(_)
    ));
}

#[test]
fn a_foreign_node_at_the_path_of_a_granted_one_is_replaced_by_the_injection() {
    let view = ContainerView {
        devices: vec![node("/dev/nvidia2", 195, 1)],
        ..Default::default()
    };
    for names in [false, true] {
        assert!(
            admitted(run(&view, &allocated(&[1]), names))
                .repoint
                .is_empty()
        );
    }
}

#[test]
fn a_mig_device_is_granted_with_its_own_capabilities_and_no_other() {
    let view = ContainerView {
        devices: vec![
            node("/dev/nvidia9", 195, 9),
            node("/dev/nvidia-caps/nvidia-cap1", 511, 1),
            node("/dev/nvidia-caps/nvidia-cap30", 511, 30),
            node("/dev/nvidia-caps/nvidia-cap33", 511, 33),
        ],
        all_devices_allowed: true,
        ..Default::default()
    };
    let admission = admitted(run(&view, &allocated(&[11]), false));
    assert_eq!(
        admission.repoint,
        BTreeSet::from([
            "/dev/nvidia-caps/nvidia-cap1".into(),
            "/dev/nvidia-caps/nvidia-cap30".into()
        ])
    );
    let Injection::Edits(edits) = admission.inject else {
        panic!("expanded")
    };
    let numbers: Vec<_> = edits
        .device_nodes
        .iter()
        .map(|n| (n.major.unwrap(), n.minor.unwrap()))
        .collect();
    assert_eq!(
        numbers,
        [(195, 255), (510, 0), (195, 9), (511, 32), (511, 33)]
    );
    let whole = admitted(run(&view, &allocated(&[0]), true));
    assert_eq!(whole.repoint.len(), 4, "a whole GPU brings no capability");
}

#[test]
fn a_mig_device_counts_as_injected_only_with_both_of_its_capabilities() {
    let allocation = Ok(Allocation {
        injected_by_runtime: true,
        ..allocated(&[10]).unwrap()
    });
    let mut view = ContainerView {
        env: vec!["NVIDIA_VISIBLE_DEVICES=void".into()],
        devices: mig(0).gpu.nodes,
        ..Default::default()
    };
    assert_eq!(
        admitted(run(&view, &allocation, true)).inject,
        Injection::Done
    );
    view.devices.pop();
    assert!(matches!(
        admitted(run(&view, &allocation, true)).inject,
        Injection::Names(_)
    ));
}

#[test]
fn volume_device_lists_are_dropped() {
    let destination = "/var/run/nvidia-container-devices/GPU-1".to_owned();
    let mounts = vec![ViewMount {
        destination: destination.clone(),
        source: "/dev/null".into(),
        ..Default::default()
    }];
    let admission = admitted(run(
        &ContainerView {
            mounts,
            ..Default::default()
        },
        &allocated(&[]),
        false,
    ));
    assert_eq!(admission.drop_mounts, BTreeSet::from([destination]));
}

/// The variable can't be replaced there, and NVIDIA's runtime follows it to the list.
#[test]
fn a_volume_device_list_that_is_still_pointed_to_keeps_the_containers_own_entries() {
    let list = "/var/run/nvidia-container-devices";
    let mount = |id: &str| ViewMount {
        destination: format!("{list}/{id}"),
        source: "/dev/null".into(),
        ..Default::default()
    };
    let foreign = [
        "GPU-0",
        "GPU-1/../GPU-0",
        "imex/1",
        "cdi/nvidia.com/gpu/all",
    ];
    let view = ContainerView {
        env: vec![
            "NVIDIA_VISIBLE_DEVICES=all".into(),
            format!("NVIDIA_VISIBLE_DEVICES={list}"),
        ],
        mounts: foreign
            .iter()
            .chain(&["GPU-1"])
            .map(|id| mount(id))
            .collect(),
        ..Default::default()
    };
    let all_but_own = foreign.map(|id| mount(id).destination);
    let admission = admitted(run(&view, &allocated(&[1]), false));
    assert_eq!(admission.drop_mounts, BTreeSet::from(all_but_own));
    let nobodys = admitted(run(&view, &allocated(&[]), false));
    assert_eq!(nobodys.drop_mounts.len(), 5);
}
