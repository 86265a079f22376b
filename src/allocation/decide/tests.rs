use proptest::prelude::*;

use super::*;
use crate::allocation::api::deviceplugin::ContainerAllocateResponse;
use crate::allocation::api::podresources::{ContainerDevices, ContainerResources};

mod kinds;

const GPU: &str = "nvidia.com/gpu";

/// Ids by resource name.
type Resources<'a> = &'a [(&'a str, &'a [&'a str])];

fn subject() -> Subject {
    Subject {
        pod_uid: "uid-1".to_owned(),
        namespace: "ns".to_owned(),
        pod: "p".to_owned(),
        container: "c".to_owned(),
    }
}

fn recorded(resources: Resources<'_>) -> Recorded {
    Recorded::Entries(
        resources
            .iter()
            .map(|(resource, ids)| {
                let assigned = Assigned {
                    ids: ids.iter().map(|id| (*id).to_owned()).collect(),
                    responses: Ok(vec![ContainerAllocateResponse::default()]),
                };
                ((*resource).to_owned(), assigned)
            })
            .collect(),
    )
}

/// A pod with container `name`, one entry per id.
fn pod(name: &str, resources: Resources<'_>) -> PodResources {
    let devices = resources
        .iter()
        .flat_map(|(resource, ids)| ids.iter().map(move |id| (resource, id)))
        .map(|(resource, id)| ContainerDevices {
            resource_name: (*resource).to_owned(),
            device_ids: vec![(*id).to_owned()],
            ..Default::default()
        })
        .collect();
    PodResources {
        name: "p".to_owned(),
        namespace: "ns".to_owned(),
        containers: vec![ContainerResources {
            name: name.to_owned(),
            devices,
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn pods(pods: Vec<PodResources>) -> Reported {
    Reported::Answer(Report::Pods(pods))
}

fn absent() -> Reported {
    Reported::Answer(Report::Absent)
}

fn unreachable() -> Reported {
    Reported::Unreachable("socket refused".to_owned())
}

fn devices(ids: &[&str]) -> BTreeSet<DeviceId> {
    ids.iter().map(|id| DeviceId::parse(id).unwrap()).collect()
}

#[derive(Debug, PartialEq)]
enum Is {
    Grant(&'static [&'static str]),
    Unavailable,
    Conflict,
    Unsupported,
    RereadUnavailable,
    RereadConflict,
}

fn check(row: &str, recorded: &Recorded, reported: &Reported, expected: &Is) {
    let kind = |error: &AllocationError| match error {
        AllocationError::Unavailable(_) => Is::Unavailable,
        AllocationError::Conflict(_) => Is::Conflict,
        AllocationError::Unsupported(_) => Is::Unsupported,
    };
    let verdict = decide(&subject(), recorded, reported);
    match (&verdict, expected) {
        (Verdict::Settled(Ok(allocation)), Is::Grant(ids)) => {
            assert_eq!(allocation.devices, devices(ids), "{row}");
        }
        (Verdict::Settled(Err(e)), expected) => assert_eq!(kind(e), *expected, "{row}: {e}"),
        (Verdict::Reread(e), Is::RereadConflict) => assert_eq!(kind(e), Is::Conflict, "{row}"),
        (Verdict::Reread(e), Is::RereadUnavailable) => {
            assert_eq!(kind(e), Is::Unavailable, "{row}");
        }
        _ => panic!("{row}: {verdict:?} is not {expected:?}"),
    }
}

#[test]
fn every_pair_of_answers_has_its_row() {
    let none = || recorded(&[]);
    let a = || recorded(&[(GPU, &["GPU-a"])]);
    let broken = || Recorded::Unreadable("torn".to_owned());
    let gives = |ids: &[&str]| pods(vec![pod("c", &[(GPU, ids)])]);
    let bare = || pods(vec![pod("c", &[])]);
    let other_container = || pods(vec![pod("main", &[(GPU, &["GPU-a"])])]);
    let rows = [
        (
            "set, same set",
            a(),
            gives(&["GPU-a"]),
            Is::Grant(&["GPU-a"]),
        ),
        ("set, other set", a(), gives(&["GPU-b"]), Is::RereadConflict),
        (
            "set, more",
            a(),
            gives(&["GPU-a", "GPU-b"]),
            Is::RereadConflict,
        ),
        (
            "set, container without devices",
            a(),
            bare(),
            Is::RereadConflict,
        ),
        (
            "set, init container",
            a(),
            other_container(),
            Is::Grant(&["GPU-a"]),
        ),
        (
            "set, pod without containers",
            a(),
            pods(vec![PodResources::default()]),
            Is::Grant(&["GPU-a"]),
        ),
        ("set, pod absent", a(), absent(), Is::RereadConflict),
        ("set, unreachable", a(), unreachable(), Is::RereadConflict),
        ("nothing, devices", none(), gives(&["GPU-a"]), Is::Conflict),
        (
            "nothing, container without devices",
            none(),
            bare(),
            Is::Grant(&[]),
        ),
        (
            "nothing, container absent",
            none(),
            other_container(),
            Is::Grant(&[]),
        ),
        ("nothing, pod absent", none(), absent(), Is::Grant(&[])),
        (
            "nothing, unreachable",
            none(),
            unreachable(),
            Is::Unavailable,
        ),
        (
            "unreadable, devices",
            broken(),
            gives(&["GPU-a"]),
            Is::RereadUnavailable,
        ),
        (
            "unreadable, no devices",
            broken(),
            bare(),
            Is::RereadUnavailable,
        ),
        (
            "unreadable, pod absent",
            broken(),
            absent(),
            Is::RereadUnavailable,
        ),
        (
            "unreadable, unreachable",
            broken(),
            unreachable(),
            Is::RereadUnavailable,
        ),
        (
            "entry without ids, no devices",
            recorded(&[(GPU, &[])]),
            bare(),
            Is::Grant(&[]),
        ),
        (
            "two of one name, one agrees",
            a(),
            pods(vec![
                pod("c", &[(GPU, &["GPU-b"])]),
                pod("c", &[(GPU, &["GPU-a"])]),
            ]),
            Is::Grant(&["GPU-a"]),
        ),
        (
            "two of one name, none agrees",
            a(),
            pods(vec![pod("c", &[(GPU, &["GPU-b"])]), pod("c", &[])]),
            Is::RereadConflict,
        ),
        (
            "two of one name, the other has the devices",
            none(),
            pods(vec![pod("c", &[(GPU, &["GPU-b"])]), pod("c", &[])]),
            Is::Grant(&[]),
        ),
    ];
    for (row, recorded, reported, expected) in &rows {
        check(row, recorded, reported, expected);
    }
}

#[test]
fn a_conflict_names_both_sets_and_the_pod() {
    let report = pods(vec![pod("c", &[(GPU, &["GPU-b"])])]);
    let Verdict::Reread(e) = decide(&subject(), &recorded(&[(GPU, &["GPU-a"])]), &report) else {
        panic!();
    };
    for part in ["{GPU-a}", "{GPU-b}", "ns/p/c", "uid-1"] {
        assert!(e.to_string().contains(part), "{part} in: {e}");
    }
}

fn some_resources() -> impl Strategy<Value = Vec<(String, Vec<String>)>> {
    let resource = prop_oneof![
        Just(GPU),
        Just("nvidia.com/mig-1g.5gb"),
        Just("example.com/x")
    ];
    let id = prop_oneof![
        4 => (0..4u8).prop_map(|n| format!("GPU-{n}")),
        1 => (0..4u8).prop_map(|n| format!("GPU-{n}::{n}")),
        1 => Just("card0".to_owned()),
    ];
    let resource = (
        resource.prop_map(str::to_owned),
        prop::collection::vec(id, 0..3),
    );
    prop::collection::vec(resource, 0..3)
}

fn borrowed(resources: &[(String, Vec<String>)]) -> Vec<(&str, Vec<&str>)> {
    resources
        .iter()
        .map(|(r, ids)| (r.as_str(), ids.iter().map(String::as_str).collect()))
        .collect()
}

fn some_report() -> impl Strategy<Value = Reported> {
    let one = (prop_oneof![Just("c"), Just("other")], some_resources()).prop_map(|(name, r)| {
        let r = borrowed(&r);
        let r: Vec<(&str, &[&str])> = r.iter().map(|(r, ids)| (*r, ids.as_slice())).collect();
        pod(name, &r)
    });
    prop_oneof![
        Just(absent()),
        Just(unreachable()),
        prop::collection::vec(one, 1..3).prop_map(pods),
    ]
}

proptest! {
    #[test]
    fn the_answer_holds_no_id_that_the_checkpoint_does_not(
        resources in some_resources(),
        report in some_report(),
    ) {
        let borrowed = borrowed(&resources);
        let slices: Vec<(&str, &[&str])> =
            borrowed.iter().map(|(r, ids)| (*r, ids.as_slice())).collect();
        let record = recorded(&slices);
        let Recorded::Entries(entries) = &record else { unreachable!() };
        let held: BTreeSet<_> = entries
            .values()
            .flat_map(|a| &a.ids)
            .filter_map(|id| DeviceId::parse(id).ok())
            .collect();
        if let Verdict::Settled(Ok(allocation)) = decide(&subject(), &record, &report) {
            prop_assert!(allocation.devices.is_subset(&held));
            prop_assert!(allocation.shared.is_subset(&allocation.devices));
            prop_assert_eq!(&allocation.devices, &held);
        }
    }

    #[test]
    fn without_a_readable_checkpoint_nothing_is_granted(report in some_report()) {
        let record = Recorded::Unreadable("torn".to_owned());
        let verdict = decide(&subject(), &record, &report);
        prop_assert!(!matches!(verdict, Verdict::Settled(Ok(_))));
    }
}
