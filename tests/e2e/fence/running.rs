//! Containers that run already when gpu-warden comes, and what it leaves in them.

use std::path::Path;

use gpu_warden_rig::cri::{ContainerSpec, PodSpec};
use gpu_warden_rig::under_test;
use gpu_warden_rig::world::{CONTROL_MINOR, GPU_MAJOR};

use super::{ALL, Kind, has_only, is_closed, is_open, logged, on_each, pods};
use crate::support::Node;

/// Created and started while gpu-warden was away: it sees everything until gpu-warden is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_runs_already_is_fenced_when_its_allocation_is_known() {
    on_each(&ALL, async |node: &mut Node, kind| {
        let [strong, idle] = ["early", "idle"].map(|name| PodSpec::new(name).privileged());
        node.allocate(&strong, "main", &[0]);
        node.admit(&idle, "main");
        under_test::stop(&mut node.warden).await.unwrap();
        let early = node
            .run(&strong, &ContainerSpec::new("main"))
            .await
            .unwrap();
        let idle = node.run(&idle, &ContainerSpec::new("main")).await.unwrap();
        for id in [&early, &idle] {
            is_open(node, id, GPU_MAJOR, 1).await;
        }
        under_test::start_again(&mut node.warden).await.unwrap();
        logged(node, "a running container was fenced", 2).await;
        has_only(node, kind, &early, 0).await;
        is_closed(node, kind, &idle, GPU_MAJOR, 0).await;
        is_closed(node, kind, &idle, GPU_MAJOR, CONTROL_MINOR).await;
    })
    .await;
}

/// What is allocated can't be learnt: the container is left alone, and said so.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_allocation_is_not_known_is_left_until_it_is() {
    on_each(&[Kind::Hybrid], async |node: &mut Node, kind| {
        let pod = PodSpec::new("early").privileged();
        node.allocate(&pod, "main", &[0]);
        under_test::stop(&mut node.warden).await.unwrap();
        let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
        // An unknown GPU: the topology does not have it any more.
        node.world.plug(&[]).unwrap();
        node.warden.start().await.unwrap();
        logged(
            node,
            "left without a fence until its allocation is known",
            1,
        )
        .await;
        is_open(node, &id, GPU_MAJOR, 0).await;
        node.world.plug(node.world.gpus()).unwrap();
        logged(node, "a running container was fenced", 1).await;
        has_only(node, kind, &id, 0).await;
    })
    .await;
}

/// The trial thread has left the container's cgroup, and whatever was tried is gone.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_gpu_warden_stays_in_a_container_s_cgroup() {
    on_each(&[Kind::V1], async |node: &mut Node, _| {
        let own = |pid: u32, thread: &Path| {
            std::fs::read_to_string(thread.join("cgroup")).unwrap_or_else(|e| panic!("{pid}: {e}"))
        };
        for pod in pods("clean") {
            node.allocate(&pod, "main", &[0]);
            let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
            let warden = node.warden.host_pid().unwrap();
            for thread in std::fs::read_dir(format!("/proc/{warden}/task")).unwrap() {
                let groups = own(warden, &thread.unwrap().path());
                assert!(!groups.contains(&id), "{groups}");
            }
            node.kubelet.release(&pod.uid);
            node.containerd.cri().stop(&id, 0).await.unwrap();
        }
    })
    .await;
}
