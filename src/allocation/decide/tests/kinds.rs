//! Which kinds of resources, ids, claims and device plugin answers lead to what.

use super::*;
use crate::allocation::api::deviceplugin::CDIDevice as PluginCdi;
use crate::allocation::api::podresources::{CDIDevice, ClaimResource, DynamicResource};

#[test]
fn which_resources_count() {
    let rows: [(&str, Resources, Is); 12] = [
        (
            "renamed",
            &[("example.com/a100", &["GPU-a"])],
            Is::Grant(&["GPU-a"]),
        ),
        (
            "two profiles",
            &[
                ("nvidia.com/mig-1g.5gb", &["MIG-a"]),
                ("nvidia.com/mig-2g.10gb", &["MIG-b"]),
            ],
            Is::Grant(&["MIG-a", "MIG-b"]),
        ),
        (
            "of another vendor",
            &[("example.com/fpga", &["0000:3b:00.0"])],
            Is::Grant(&[]),
        ),
        (
            "another vendor's beside ours",
            &[("example.com/fpga", &["card0"]), (GPU, &["GPU-a"])],
            Is::Grant(&["GPU-a"]),
        ),
        (
            "NVIDIA's network functions beside a GPU",
            &[("nvidia.com/hostdev", &["0000:3b:00.2"]), (GPU, &["GPU-a"])],
            Is::Grant(&["GPU-a"]),
        ),
        (
            "NVIDIA's network functions alone",
            &[("nvidia.com/sriov_rdma_vf", &["0000:3b:00.2"])],
            Is::Grant(&[]),
        ),
        (
            "a replica of another shape",
            &[("nvidia.com/gpu.shared", &["0"])],
            Is::Unsupported,
        ),
        (
            "a profile of another shape",
            &[("nvidia.com/mig-1g.5gb", &["0:1"])],
            Is::Unsupported,
        ),
        (
            "MIG of old drivers",
            &[("nvidia.com/gpu", &["MIG-GPU-a/1/0"])],
            Is::Unsupported,
        ),
        (
            "a mixture",
            &[("example.com/x", &["GPU-a", "card0"])],
            Is::Unsupported,
        ),
        (
            "replicas of one",
            &[("nvidia.com/gpu.shared", &["GPU-a::0", "GPU-a::3"])],
            Is::Grant(&["GPU-a"]),
        ),
        ("none", &[], Is::Grant(&[])),
    ];
    for (row, resources, expected) in &rows {
        check(
            row,
            &recorded(resources),
            &pods(vec![pod("c", resources)]),
            expected,
        );
    }
}

#[test]
fn an_unsupported_id_in_either_source_is_refused_by_name() {
    let odd: Resources = &[("nvidia.com/gpu", &["odd"])];
    for (record, report) in [
        (recorded(odd), pods(vec![pod("c", &[])])),
        (recorded(&[]), pods(vec![pod("c", odd)])),
    ] {
        let Verdict::Settled(Err(AllocationError::Unsupported(text))) =
            decide(&subject(), &record, &report)
        else {
            panic!("{record:?}, {report:?}");
        };
        assert!(
            text.contains("`odd`") && text.contains("`nvidia.com/gpu`"),
            "{text}"
        );
    }
}

#[test]
fn replicas_are_compared_by_device_and_marked_shared() {
    let record = recorded(&[("nvidia.com/gpu", &["GPU-a::0", "GPU-b"])]);
    let report = pods(vec![pod(
        "c",
        &[("nvidia.com/gpu", &["GPU-b", "GPU-a::1"])],
    )]);
    let Verdict::Settled(Ok(allocation)) = decide(&subject(), &record, &report) else {
        panic!();
    };
    assert_eq!(allocation.devices, devices(&["GPU-a", "GPU-b"]));
    assert_eq!(allocation.shared, devices(&["GPU-a"]));
}

#[test]
fn one_resource_over_several_numa_nodes_is_one_set() {
    let mut report = pod("c", &[(GPU, &["GPU-a"])]);
    report.containers[0].devices.push(ContainerDevices {
        resource_name: GPU.to_owned(),
        device_ids: vec!["GPU-a".to_owned(), "GPU-b".to_owned()],
        ..Default::default()
    });
    check(
        "NUMA",
        &recorded(&[(GPU, &["GPU-a", "GPU-b"])]),
        &pods(vec![report]),
        &Is::Grant(&["GPU-a", "GPU-b"]),
    );
}

fn with_response(change: impl FnOnce(&mut ContainerAllocateResponse)) -> Recorded {
    let mut response = ContainerAllocateResponse::default();
    change(&mut response);
    let assigned = Assigned {
        ids: ["GPU-a".to_owned()].into(),
        responses: Ok(vec![ContainerAllocateResponse::default(), response]),
    };
    Recorded::Entries([(GPU.to_owned(), assigned)].into())
}

#[test]
fn injection_by_the_runtime_is_told_from_the_device_plugins_answer() {
    let annotate = |key: &'static str| {
        with_response(|r| {
            r.annotations.insert(key.to_owned(), "x".to_owned());
        })
    };
    let rows = [
        (with_response(|_| {}), false),
        (
            with_response(|r| r.cdi_devices.push(PluginCdi::default())),
            true,
        ),
        (annotate("cdi.k8s.io/nvidia-device-plugin_1"), true),
        (annotate("nvidia.cdi.k8s.io/nvidia-device-plugin_1"), true),
        (annotate("example.com/cdi.k8s.io"), false),
    ];
    for (record, expected) in rows {
        let report = pods(vec![pod("c", &[(GPU, &["GPU-a"])])]);
        let Verdict::Settled(Ok(allocation)) = decide(&subject(), &record, &report) else {
            panic!("{record:?}");
        };
        assert_eq!(allocation.injected_by_runtime, expected, "{record:?}");
    }
}

#[test]
fn an_undecodable_response_matters_only_for_gpus() {
    let entry = |resource: &str, id: &str| {
        let assigned = Assigned {
            ids: [id.to_owned()].into(),
            responses: Err("truncated".to_owned()),
        };
        Recorded::Entries([(resource.to_owned(), assigned)].into())
    };
    let report = pods(vec![pod("c", &[(GPU, &["GPU-a"])])]);
    check(
        "ours",
        &entry(GPU, "GPU-a"),
        &report,
        &Is::RereadUnavailable,
    );
    let bare = pods(vec![pod("c", &[])]);
    check(
        "not ours",
        &entry("example.com/fpga", "card0"),
        &bare,
        &Is::Grant(&[]),
    );
}

fn with_claim(driver: &str, cdi: &str) -> Reported {
    let mut report = pod("c", &[]);
    report.containers[0]
        .dynamic_resources
        .push(DynamicResource {
            claim_name: "my-claim".to_owned(),
            claim_namespace: "ns".to_owned(),
            claim_resources: vec![ClaimResource {
                driver_name: driver.to_owned(),
                cdi_devices: vec![CDIDevice {
                    name: cdi.to_owned(),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        });
    pods(vec![report])
}

#[test]
fn a_gpu_by_resource_claim_is_refused_and_other_claims_are_not_ours() {
    for (driver, cdi, expected) in [
        ("gpu.nvidia.com", "", Is::Unsupported),
        (
            "other.example.com",
            "k8s.gpu.nvidia.com/claim=u-gpu-0",
            Is::Unsupported,
        ),
        ("nic.example.com", "example.com/nic=0", Is::Grant(&[])),
    ] {
        check(driver, &recorded(&[]), &with_claim(driver, cdi), &expected);
    }
    let verdict = decide(
        &subject(),
        &recorded(&[]),
        &with_claim("gpu.nvidia.com", ""),
    );
    let Verdict::Settled(Err(e)) = verdict else {
        panic!("{verdict:?}");
    };
    assert!(e.to_string().contains("ns/my-claim"), "{e}");
}
