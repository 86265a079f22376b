//! What is refused, and that the sentence reaches whoever asked.

use gpu_warden_rig::World;
use gpu_warden_rig::cri::{ContainerSpec, PodSpec};
use gpu_warden_rig::kubelet::Style;

use crate::support::{Node, container_with, on_both};

fn mentions(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_kubelet_gpu_containers_are_refused_and_others_run() {
    on_both(World::builder(), async |node: &mut Node| {
        node.kubelet.stop().await.unwrap();
        let uuid = node.uuid(0);
        let refused = node
            .refused(
                &PodSpec::new("train-0"),
                &container_with("main", Style::EnvVar, &[&uuid]),
            )
            .await;
        mentions(
            &refused,
            &[
                "\"main\"",
                "pod default/train-0",
                &uuid,
                "kubelet",
                "[allocation-unavailable]",
            ],
        );

        let plain = node
            .run(&PodSpec::new("web"), &ContainerSpec::new("main"))
            .await
            .unwrap();
        node.has_exactly(&plain, &[]).await;
        let agent = node
            .run(
                &PodSpec::new("agent").privileged(),
                &ContainerSpec::new("main"),
            )
            .await
            .unwrap();
        node.has_exactly(&agent, &[]).await;

        node.kubelet.start_again().await.unwrap();
        let pod = PodSpec::new("train-0");
        node.allocate(&pod, "main", &[0]);
        let id = node
            .run(&pod, &container_with("main", Style::EnvVar, &[&uuid]))
            .await
            .unwrap();
        node.has_exactly(&id, &[0]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allocated_container_is_refused_while_the_kubelet_cannot_confirm_it() {
    on_both(World::builder(), async |node: &mut Node| {
        let pod = PodSpec::new("train-0");
        node.allocate(&pod, "main", &[1]);
        node.kubelet.stop().await.unwrap();
        let refused = node.refused(&pod, &ContainerSpec::new("main")).await;
        mentions(
            &refused,
            &[
                "pod default/train-0",
                &node.uuid(1),
                "[allocation-conflict]",
            ],
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_disagree_are_refused() {
    on_both(World::builder(), async |node: &mut Node| {
        let pod = PodSpec::new("train-0");
        node.allocate(&pod, "main", &[0]);
        let other = node.uuid(1);
        node.kubelet
            .misbehave(|faults| faults.disagree = Some(vec![other.clone()]));
        let refused = node.refused(&pod, &ContainerSpec::new("main")).await;
        mentions(&refused, &[&node.uuid(0), &other, "[allocation-conflict]"]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubelet_that_hangs_is_answered_for_in_time() {
    on_both(World::builder(), async |node: &mut Node| {
        node.kubelet.misbehave(|faults| faults.hang = true);
        let uuid = node.uuid(0);
        let refused = node
            .refused(
                &PodSpec::new("train-0"),
                &container_with("main", Style::EnvVar, &[&uuid]),
            )
            .await;
        mentions(
            &refused,
            &["pod default/train-0", "[allocation-unavailable]"],
        );
        // Still connected: the refusal came before the runtime lost patience.
        node.kubelet.misbehave(|faults| faults.hang = false);
        let pod = PodSpec::new("next").privileged();
        node.admit(&pod, "main");
        let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
        node.has_exactly(&id, &[]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_that_is_set_twice_is_refused() {
    on_both(World::builder(), async |node: &mut Node| {
        let pod = PodSpec::new("twice");
        node.admit(&pod, "main");
        let container = ContainerSpec::new("main")
            .env("NVIDIA_VISIBLE_DEVICES", "none")
            .env("NVIDIA_VISIBLE_DEVICES", "all");
        let refused = node.refused(&pod, &container).await;
        mentions(
            &refused,
            &["NVIDIA_VISIBLE_DEVICES", "2 times", "[duplicate-env]"],
        );
    })
    .await;
}

/// A GPU that falls off the bus leaves the spec and is no longer granted; one that comes is.
#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_is_gone_is_not_granted_and_one_that_comes_back_is() {
    on_both(World::builder(), async |node: &mut Node| {
        let gpus = node.world.gpus().to_vec();
        let spec =
            || std::fs::read_to_string(node.world.cdi_dir().join("nvidia.com-gpu.yaml")).unwrap();
        assert!(spec().contains(&gpus[1].uuid));
        node.world.plug(&gpus[..1]).unwrap();
        node.world.remove_node(&gpus[1].node().path).await.unwrap();
        until(|| !spec().contains(&gpus[1].uuid)).await;
        assert!(spec().contains(&gpus[0].uuid));
        let pod = PodSpec::new("train-1");
        node.allocate(&pod, "main", &[1]);
        let refused = node.refused(&pod, &ContainerSpec::new("main")).await;
        mentions(
            &refused,
            &[&gpus[1].uuid, "no such usable GPU", "[gpu-unknown]"],
        );

        node.world.plug(&gpus).unwrap();
        node.world.add_node(&gpus[1].node()).await.unwrap();
        until(|| spec().contains(&gpus[1].uuid)).await;
        let sandbox = node.sandbox(&PodSpec { attempt: 1, ..pod }).await;
        let id = node
            .containerd
            .cri()
            .run(&sandbox, &ContainerSpec::new("main"))
            .await
            .unwrap();
        node.has_exactly(&id, &[1]).await;
    })
    .await;
}

async fn until(condition: impl Fn() -> bool) {
    for _ in 0..400 {
        if condition() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    panic!("it did not come to pass within 10 s");
}
