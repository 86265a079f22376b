//! The gate by itself: what CreateContainer has missed, or could not prevent.

use gpu_warden_rig::containerd::LEGACY_HANDLER;
use gpu_warden_rig::cri::{ContainerSpec, PodSpec};
use gpu_warden_rig::{World, under_test};

use crate::support::{Node, on_both};

/// With a hostPath volume at `/dev`, the container's `/dev` is the host's: an unlink there would
/// take the GPU away from the whole node.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_on_the_hosts_dev_is_refused_and_the_host_keeps_its_nodes() {
    on_both(World::builder(), async |node: &mut Node| {
        let container = ContainerSpec::new("main").mount("/dev", "/dev");
        let before = node.world.run(&["ls", "/dev"]).await.unwrap();
        for gpus in [&[][..], &[0]] {
            let pod = PodSpec::new("host-dev").privileged();
            node.admit(&pod, "main");
            node.allocate(&pod, "main", gpus);
            let refused = node.refused(&pod, &container).await;
            assert!(
                refused.contains("not the container's own") && refused.contains("[shared-dev]"),
                "{refused}"
            );
            node.kubelet.release(&pod.uid);
        }
        assert_eq!(node.world.run(&["ls", "/dev"]).await.unwrap(), before);
    })
    .await;
}

/// A single node bound into `/dev` is no file of the container either.
#[tokio::test(flavor = "multi_thread")]
async fn a_bound_node_of_another_gpu_is_refused_under_any_name() {
    on_both(World::builder(), async |node: &mut Node| {
        for destination in ["/dev/nvidia1", "/dev/printer"] {
            let pod = PodSpec::new("binder").privileged();
            node.allocate(&pod, "main", &[0]);
            let container = ContainerSpec::new("main").mount("/dev/nvidia1", destination);
            let refused = node.refused(&pod, &container).await;
            assert!(
                refused.contains(destination) && refused.contains("[shared-dev]"),
                "{refused}"
            );
            node.kubelet.release(&pod.uid);
        }
        let listed = node.world.run(&["ls", "/dev"]).await.unwrap();
        assert!(listed.lines().any(|name| name == "nvidia1"), "{listed}");
    })
    .await;
}

/// Created while gpu-warden was away, so nothing was adjusted; started when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_was_created_unseen_gets_the_full_check_at_its_start() {
    on_both(World::builder(), async |node: &mut Node| {
        let (owner, thief) = (
            PodSpec::new("owner").privileged(),
            PodSpec::new("thief").runtime_handler(LEGACY_HANDLER),
        );
        node.allocate(&owner, "main", &[1]);
        node.admit(&thief, "main");
        let (owners, thiefs) = (node.sandbox(&owner).await, node.sandbox(&thief).await);
        under_test::stop(&mut node.warden).await.unwrap();
        let cri = node.containerd.cri();
        let all = ContainerSpec::new("main").env("NVIDIA_VISIBLE_DEVICES", "all");
        let privileged = cri.create(&owners, &all).await.unwrap();
        let legacy = cri.create(&thiefs, &all).await.unwrap();
        under_test::start_again(&mut node.warden).await.unwrap();

        let cri = node.containerd.cri();
        cri.start(&privileged).await.unwrap();
        cri.start(&legacy).await.unwrap();
        node.has_exactly(&privileged, &[1]).await;
        node.has_exactly(&legacy, &[]).await;
    })
    .await;
}

/// Created unseen without any GPU node, although one is allocated: it can't be added any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_without_its_allocated_gpu_does_not_start() {
    on_both(World::builder(), async |node: &mut Node| {
        let pod = PodSpec::new("bare");
        node.allocate(&pod, "main", &[0]);
        let sandbox = node.sandbox(&pod).await;
        under_test::stop(&mut node.warden).await.unwrap();
        let id = node
            .containerd
            .cri()
            .create(&sandbox, &ContainerSpec::new("main"))
            .await
            .unwrap();
        under_test::start_again(&mut node.warden).await.unwrap();
        let failure = node.containerd.cri().start(&id).await.unwrap_err();
        let refused = failure.refusal().unwrap();
        assert!(
            refused.contains(&node.uuid(0)) && refused.contains("[gate-breach]"),
            "{refused}"
        );
    })
    .await;
}

/// The node's own GPU components see everything; a pod elsewhere that takes their name does not.
#[tokio::test(flavor = "multi_thread")]
async fn an_exempt_pod_is_left_as_it_is_and_its_name_alone_exempts_nobody() {
    on_both(World::builder(), async |node: &mut Node| {
        let plugin = PodSpec::new("nvidia-device-plugin-daemonset-7xk2p").privileged();
        let own = plugin.clone().namespace("kube-system");
        node.admit(&plugin, "main");
        node.admit(&own, "main");
        let id = node.run(&own, &ContainerSpec::new("main")).await.unwrap();
        node.has_exactly(&id, &[0, 1]).await;
        let id = node
            .run(&plugin, &ContainerSpec::new("main"))
            .await
            .unwrap();
        node.has_exactly(&id, &[]).await;
    })
    .await;
}
