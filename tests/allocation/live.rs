//! A kubelet that behaves: what it allocated is what is answered, and quickly.

use std::time::{Duration, Instant};

use gpu_warden::allocation::AllocationError;
use gpu_warden_rig::kubelet::{PodRef, Style};

use crate::node::{
    A, B, BUDGET, GPU, Node, assert_conflict, assert_devices, assert_unavailable, pod, subject,
};

#[tokio::test]
async fn each_container_of_a_pod_has_its_own_devices() {
    let node = Node::new().await;
    let pod = pod("p");
    let (k, s) = (&node.kubelet, Style::EnvVar);
    k.allocate_init(&pod, "setup", GPU, &[A], s).unwrap();
    k.allocate(&pod, "sidecar", GPU, &[A], s).unwrap();
    k.allocate(&pod, "main", GPU, &[B], s).unwrap();
    k.allocate(&pod, "both", GPU, &[B, A], s).unwrap();
    k.add_container(&pod, "bare");
    assert_devices(&node.ask(&pod, "setup").await, &[A]);
    assert_devices(&node.ask(&pod, "sidecar").await, &[A]);
    assert_devices(&node.ask(&pod, "main").await, &[B]);
    assert_devices(&node.ask(&pod, "both").await, &[A, B]);
    assert_devices(&node.ask(&pod, "bare").await, &[]);
    assert_devices(&node.ask(&pod, "ephemeral").await, &[]);
    assert_eq!(k.calls().list, 0, "Get suffices");
    assert_eq!(k.calls().get, 6, "one call a container");
}

#[tokio::test]
async fn a_pod_that_the_kubelet_does_not_know_has_nothing() {
    let node = Node::with_pod().await;
    assert_devices(&node.ask(&pod("stranger"), "c").await, &[]);
    assert_devices(&node.ask(&PodRef::new("u", "other", "p"), "c").await, &[]);
}

#[tokio::test]
async fn the_device_plugins_strategy_tells_who_injects() {
    let node = Node::new().await;
    for (style, by_runtime) in [
        (Style::EnvVar, false),
        (Style::VolumeMounts, false),
        (Style::CdiAnnotations, true),
        (Style::CdiCri, true),
    ] {
        let pod = pod(&format!("{style:?}").to_lowercase());
        node.kubelet.allocate(&pod, "c", GPU, &[A], style).unwrap();
        let allocation = node.ask(&pod, "c").await.unwrap();
        assert_eq!(allocation.injected_by_runtime, by_runtime, "{style:?}");
    }
}

#[tokio::test]
async fn replicas_stand_for_their_gpu_and_are_shared() {
    let node = Node::new().await;
    let replica = format!("{A}::3");
    let shared = "nvidia.com/gpu.shared";
    node.kubelet
        .allocate(&pod("p"), "c", shared, &[&replica], Style::EnvVar)
        .unwrap();
    let answer = node.ask(&pod("p"), "c").await;
    assert_devices(&answer, &[A]);
    let allocation = answer.unwrap();
    assert_eq!(allocation.shared, allocation.devices);
}

#[tokio::test]
async fn devices_of_other_kinds_are_ignored_and_ids_that_no_gpu_has_refused_by_name() {
    let node = Node::new().await;
    let (k, s) = (&node.kubelet, Style::EnvVar);
    let (fpga, nic, odd) = (pod("fpga"), pod("nic"), pod("odd"));
    k.allocate(&fpga, "c", "example.com/fpga", &["card0"], s)
        .unwrap();
    k.allocate(&nic, "c", "nvidia.com/hostdev", &["0000:3b:00.0"], s)
        .unwrap();
    k.allocate(&odd, "c", "nvidia.com/gpu", &["0000:3b:00.0"], s)
        .unwrap();
    assert_devices(&node.ask(&fpga, "c").await, &[]);
    assert_devices(&node.ask(&nic, "c").await, &[]);
    let Err(AllocationError::Unsupported(text)) = node.ask(&odd, "c").await else {
        panic!("a foreign id was not refused");
    };
    assert!(text.contains("nvidia.com/gpu") && text.contains("0000:3b:00.0"));
}

#[tokio::test]
async fn a_gpu_by_resource_claim_is_refused() {
    let node = Node::with_pod().await;
    let cdi = "k8s.gpu.nvidia.com/claim=uid-gpu-0";
    node.kubelet
        .claim(&pod("p"), "bare", "train", "gpu.nvidia.com", cdi);
    let answer = node.ask(&pod("p"), "bare").await;
    let Err(AllocationError::Unsupported(text)) = answer else {
        panic!("{answer:?}");
    };
    assert!(text.contains("default/train"), "{text}");
}

#[tokio::test]
async fn a_recreated_pod_of_the_same_name_is_another_pod() {
    let node = Node::new().await;
    let (k, s) = (&node.kubelet, Style::EnvVar);
    let old = PodRef::new("uid-old", "default", "db-0");
    let new = PodRef::new("uid-new", "default", "db-0");
    k.allocate(&old, "c", GPU, &[A], s).unwrap();
    k.release(&old.uid);
    assert_conflict(&node.ask(&old, "c").await, &[A, "uid-old", "left"]);
    k.allocate(&new, "c", GPU, &[B], s).unwrap();
    assert_devices(&node.ask(&new, "c").await, &[B]);
    assert_conflict(&node.ask(&old, "c").await, &[B, "uid-old"]);
}

#[tokio::test]
async fn a_pod_in_termination_beside_its_successor_does_not_confuse_list() {
    let node = Node::new().await;
    let (k, s) = (&node.kubelet, Style::EnvVar);
    k.misbehave(|f| f.get_disabled = true);
    let old = PodRef::new("uid-old", "default", "db-0");
    let new = PodRef::new("uid-new", "default", "db-0");
    k.allocate(&old, "c", GPU, &[A], s).unwrap();
    k.allocate(&new, "c", GPU, &[B], s).unwrap();
    assert_devices(&node.ask(&new, "c").await, &[B]);
    assert_devices(&node.ask(&old, "c").await, &[A]);
}

#[tokio::test]
async fn the_newest_checkpoint_is_used_however_fast_it_changes() {
    let node = Node::new().await;
    let pod = pod("p");
    for turn in 0..200 {
        // Same length, so that only identity and time tell the files apart.
        let id = if turn % 2 == 0 { A } else { B };
        node.kubelet.release(&pod.uid);
        node.kubelet
            .allocate(&pod, "c", GPU, &[id], Style::EnvVar)
            .unwrap();
        assert_devices(&node.ask(&pod, "c").await, &[id]);
    }
}

#[tokio::test]
async fn one_value_serves_the_kubelet_over_its_restarts() {
    let mut node = Node::with_pod().await;
    for _ in 0..3 {
        assert_devices(&node.ask(&pod("p"), "c").await, &[A]);
        node.kubelet.stop().await.unwrap();
        let asked_at = Instant::now();
        assert_conflict(&node.ask(&pod("p"), "c").await, &[A, "kubelet.sock"]);
        assert_unavailable(&node.ask(&pod("p"), "bare").await, &["kubelet.sock"]);
        assert!(asked_at.elapsed() < BUDGET, "a refusal is known at once");
        node.kubelet.start_again().await.unwrap();
        assert_devices(&node.ask(&pod("p"), "c").await, &[A]);
        assert_devices(&node.ask(&pod("p"), "bare").await, &[]);
    }
}

#[tokio::test]
async fn a_restart_between_two_calls_costs_no_answer() {
    let mut node = Node::with_pod().await;
    for _ in 0..5 {
        assert_devices(&node.ask(&pod("p"), "c").await, &[A]);
        node.kubelet.stop().await.unwrap();
        node.kubelet.start_again().await.unwrap();
    }
}

#[test]
fn a_value_outlives_the_runtime_of_its_first_call() {
    let runtime = || tokio::runtime::Runtime::new().unwrap();
    let first = runtime();
    let node = first.block_on(Node::with_pod());
    assert_devices(&first.block_on(node.ask(&pod("p"), "c")), &[A]);
    first.shutdown_background();
    assert_devices(&runtime().block_on(node.ask(&pod("p"), "c")), &[A]);
}

#[tokio::test]
async fn an_answer_of_more_than_four_mebibytes_is_taken() {
    let node = Node::with_pod().await;
    let ids: Vec<_> = (0..65_000).map(|n| format!("fuse-{n:048}")).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    let fuse = "example.com/fuse";
    node.kubelet
        .allocate(&pod("p"), "c", fuse, &ids, Style::EnvVar)
        .unwrap();
    let long = Duration::from_secs(20);
    assert_devices(&node.ask_within(long, &pod("p"), "bare").await, &[]);
    node.kubelet.misbehave(|f| f.get_disabled = true);
    assert_devices(&node.ask_within(long, &pod("p"), "c").await, &[A]);
}

#[tokio::test]
async fn a_warm_answer_takes_a_fraction_of_the_budget() {
    let node = Node::with_pod().await;
    let subject = subject(&pod("p"), "c");
    tokio::time::sleep(Duration::from_millis(60)).await;
    let mut times = Vec::new();
    for _ in 0..500 {
        let start = Instant::now();
        let answer = node.asked.allocation(&subject, start + BUDGET).await;
        times.push(start.elapsed());
        assert_devices(&answer, &[A]);
    }
    times.sort();
    let (median, p99) = (times[250], times[495]);
    println!("warm: median {median:?}, p99 {p99:?}, max {:?}", times[499]);
    assert!(median < BUDGET / 20, "median {median:?}");
}
