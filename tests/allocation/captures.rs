//! What a real kubelet wrote gives the allocations that it made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gpu_warden::allocation::api::podresources::ListPodResourcesResponse;
use gpu_warden::allocation::checkpoint::Checkpoint;
use gpu_warden::allocation::decide::{Recorded, Reported, Verdict, decide};
use gpu_warden::allocation::podresources::Report;
use gpu_warden::allocation::{Allocation, AllocationError, Subject};
use gpu_warden::gpu::DeviceId;
use protobuf::Message as _;

use crate::node::{A, B};

struct Row {
    uid: &'static str,
    pod: &'static str,
    container: &'static str,
    devices: &'static [&'static str],
}

const fn row(
    uid: &'static str,
    pod: &'static str,
    container: &'static str,
    devices: &'static [&'static str],
) -> Row {
    Row {
        uid,
        pod,
        container,
        devices,
    }
}

const GPU1: &str = "d8a5920ca864f515bf7486c7e6c52d6d";
const GPU2: &str = "a7b58041b8426ec73692f9ff846be33e";
const INIT_21: &str = "08ed77ea64a811082d198dbb6756570f";
const INIT_17: &str = "522ba60a9b22b9ddf943a7354b4886e7";

const A_THEN_B: &[Row] = &[
    row(GPU1, "gpu1-rig-node", "cuda", &[A]),
    row(GPU2, "gpu2-rig-node", "cuda", &[B]),
];
const B_THEN_A: &[Row] = &[
    row(GPU1, "gpu1-rig-node", "cuda", &[B]),
    row(GPU2, "gpu2-rig-node", "cuda", &[A]),
];

/// Capture, whether its device plugin asked for CDI, and every container of it.
const CAPTURES: &[(&str, bool, &[Row])] = &[
    (
        "02-two-pods-passdevspecs-c21",
        false,
        &[
            row(
                "a3ce837e91aa304bff1c72d561c23f4c",
                "gpu1-rig-node",
                "cuda",
                &[A],
            ),
            row(
                "1897c5c92411fcd303cf987d337c3357",
                "gpu2-rig-node",
                "cuda",
                &[B],
            ),
            row("of-a-pod-without-gpu", "hello-rig-node", "c", &[]),
        ],
    ),
    (
        "03-init-sidecar-c21",
        false,
        &[
            row(INIT_21, "gpuinit-rig-node", "setup", &[A]),
            row(INIT_21, "gpuinit-rig-node", "sidecar", &[A]),
            row(INIT_21, "gpuinit-rig-node", "main", &[B]),
            row(INIT_21, "gpuinit-rig-node", "nogpu", &[]),
            row("of-a-pod-without-gpu", "hello-rig-node", "c", &[]),
        ],
    ),
    ("05-envvar-c21", false, A_THEN_B),
    ("06-cdi-cri-c21", true, B_THEN_A),
    ("07-cdi-annotations-c21", true, A_THEN_B),
    ("08-envvar-index-c21", false, A_THEN_B),
    ("09-volume-mounts-c21", false, A_THEN_B),
    (
        "12-init-passdevspecs-c17",
        false,
        &[
            row(INIT_17, "gpuinit-rig-node", "setup", &[B]),
            row(INIT_17, "gpuinit-rig-node", "sidecar", &[B]),
            row(INIT_17, "gpuinit-rig-node", "main", &[A]),
            row(INIT_17, "gpuinit-rig-node", "nogpu", &[]),
        ],
    ),
    ("18-cgroup2-two-pods-c21", false, B_THEN_A),
    (
        "19-nvidia-runtime-envvar-c21",
        false,
        &[
            row(GPU1, "gpu1-rig-node", "cuda", &[B]),
            row(GPU2, "gpu2-rig-node", "cuda", &[A]),
            row("of-the-thief", "thief-rig-node", "noalloc", &[]),
        ],
    ),
];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kubelet")
}

fn checkpoint(name: &str) -> Checkpoint {
    let path = fixtures().join(format!("checkpoint/{name}.json"));
    Checkpoint::parse(&std::fs::read(path).unwrap()).unwrap()
}

fn list(name: &str) -> ListPodResourcesResponse {
    let path = fixtures().join(format!("podresources/{name}-list.pb"));
    ListPodResourcesResponse::parse_from_bytes(&std::fs::read(path).unwrap()).unwrap()
}

fn subject(row: &Row) -> Subject {
    Subject {
        pod_uid: row.uid.to_owned(),
        namespace: "default".to_owned(),
        pod: row.pod.to_owned(),
        container: row.container.to_owned(),
    }
}

fn judge(row: &Row, checkpoint: &Checkpoint, list: &ListPodResourcesResponse) -> Verdict {
    let mut pods = list.pod_resources.clone();
    pods.retain(|pod| pod.namespace == "default" && pod.name == row.pod);
    let report = if pods.is_empty() {
        Report::Absent
    } else {
        Report::Pods(pods)
    };
    let recorded = Recorded::Entries(checkpoint.lookup(row.uid, row.container));
    decide(&subject(row), &recorded, &Reported::Answer(report))
}

#[test]
fn every_checksum_verifies() {
    let mut seen = 0;
    for file in std::fs::read_dir(fixtures().join("checkpoint")).unwrap() {
        let path = file.unwrap().path();
        let checkpoint = Checkpoint::parse(&std::fs::read(&path).unwrap()).unwrap();
        assert!(checkpoint.verified(), "{}", path.display());
        seen += 1;
    }
    assert_eq!(seen, 12);
}

#[test]
fn every_container_of_every_capture_has_its_allocation() {
    for (name, by_cdi, rows) in CAPTURES {
        let (checkpoint, list) = (checkpoint(name), list(name));
        for row in *rows {
            let devices: BTreeSet<_> = row
                .devices
                .iter()
                .map(|id| DeviceId::parse(id).unwrap())
                .collect();
            let expected = Allocation {
                injected_by_runtime: *by_cdi && !devices.is_empty(),
                devices,
                shared: BTreeSet::new(),
            };
            assert_eq!(
                judge(row, &checkpoint, &list),
                Verdict::Settled(Ok(expected)),
                "{name}: {}/{}",
                row.pod,
                row.container
            );
        }
        let listed: BTreeSet<_> = rows.iter().map(|r| (r.uid, r.container)).collect();
        for container in checkpoint.containers() {
            assert!(
                listed.contains(&container),
                "{name}: {container:?} has no row"
            );
        }
    }
}

#[test]
fn a_node_that_never_allocated_has_no_entries() {
    let checkpoint = checkpoint("01-registered-no-pods");
    assert!(checkpoint.containers().is_empty());
    let row = row(GPU1, "gpu1-rig-node", "cuda", &[]);
    assert_eq!(
        judge(&row, &checkpoint, &ListPodResourcesResponse::default()),
        Verdict::Settled(Ok(Allocation::default()))
    );
}

#[test]
fn entries_that_a_deleted_pod_left_grant_nothing() {
    let stale = checkpoint("04-stale-after-deletion");
    for container in ["setup", "sidecar", "main"] {
        let row = row(INIT_21, "gpuinit-rig-node", container, &[]);
        let verdict = judge(&row, &stale, &ListPodResourcesResponse::default());
        assert!(
            matches!(&verdict, Verdict::Reread(AllocationError::Conflict(_))),
            "{container}: {verdict:?}"
        );
    }
}

#[test]
fn a_pod_that_takes_anothers_name_gets_nothing_of_it() {
    let name = "05-envvar-c21";
    let imposter = row("another-uid", "gpu1-rig-node", "cuda", &[]);
    let verdict = judge(&imposter, &checkpoint(name), &list(name));
    assert!(
        matches!(
            &verdict,
            Verdict::Settled(Err(AllocationError::Conflict(_)))
        ),
        "{verdict:?}"
    );
}

#[test]
fn no_mix_of_two_captures_grants_what_the_checkpoint_does_not_hold() {
    let checkpoints: BTreeMap<_, _> = CAPTURES.iter().map(|c| (c.0, checkpoint(c.0))).collect();
    let lists: BTreeMap<_, _> = CAPTURES.iter().map(|c| (c.0, list(c.0))).collect();
    for (name, checkpoint) in &checkpoints {
        for list in lists.values() {
            for row in CAPTURES.iter().flat_map(|c| c.2) {
                let Verdict::Settled(Ok(allocation)) = judge(row, checkpoint, list) else {
                    continue;
                };
                let held: BTreeSet<_> = checkpoint
                    .lookup(row.uid, row.container)
                    .into_values()
                    .flat_map(|a| a.ids)
                    .map(|id| DeviceId::parse(&id).unwrap())
                    .collect();
                assert_eq!(allocation.devices, held, "{name}: {}", row.pod);
            }
        }
    }
}
