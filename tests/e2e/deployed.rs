//! As it is shipped: with the capabilities of the unit and of the DaemonSet, and no others.

use gpu_warden_rig::World;
use gpu_warden_rig::artifacts;
use gpu_warden_rig::cri::{ContainerSpec, PodSpec};
use gpu_warden_rig::process::Launch;

use crate::support::Node;

const UNIT: &str = include_str!("../../deploy/systemd/gpu-warden.service");
const DAEMON_SET: &str = include_str!("../../deploy/kustomize/base/daemonset.yaml");

/// `sys_ptrace`, … as the unit bounds them.
fn capabilities() -> Vec<String> {
    let line = UNIT
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
        .unwrap();
    line.split(' ')
        .map(|name| name.trim_start_matches("CAP_").to_lowercase())
        .collect()
}

#[test]
fn the_unit_and_the_daemon_set_ask_for_the_same_capabilities() {
    let line = DAEMON_SET
        .lines()
        .find(|line| line.trim_start().starts_with("add: ["))
        .unwrap();
    let list = line.split(['[', ']']).nth(1).unwrap();
    let listed: Vec<_> = list.split(", ").map(str::to_lowercase).collect();
    assert_eq!(listed, capabilities());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shipped_capabilities_are_enough_for_the_gate() {
    let bounded = |launch: Launch| {
        let set: Vec<_> = capabilities()
            .iter()
            .map(|name| format!("+{name}"))
            .collect();
        let program = launch.program.clone();
        let mut bounded = Launch {
            program: "/usr/bin/setpriv".into(),
            args: Vec::new(),
            ..launch.clone()
        }
        .arg(format!("--bounding-set=-all,{}", set.join(",")))
        .arg("--inh-caps=-all")
        .arg("--no-new-privs")
        .arg(program);
        bounded.args.extend(launch.args);
        bounded
    };
    for files in artifacts::both_containerds().unwrap() {
        let node = Node::start_with(&files, World::builder(), bounded).await;
        let pid = node.warden.host_pid().unwrap();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let effective = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:\t"))
            .unwrap();
        let effective = u64::from_str_radix(effective, 16).unwrap();
        assert_eq!(
            effective.count_ones() as usize,
            capabilities().len(),
            "{effective:x}"
        );

        let pod = PodSpec::new("strong").privileged();
        node.allocate(&pod, "main", &[1]);
        let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
        node.has_exactly(&id, &[1]).await;
        let pod = PodSpec::new("plain");
        node.allocate(&pod, "main", &[0]);
        let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
        node.has_exactly(&id, &[0]).await;
        node.end().await;
    }
}
