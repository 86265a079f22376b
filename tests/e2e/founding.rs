//! The founding case (canonical/microk8s#5115) and its relatives: every container sees its own.

use gpu_warden_rig::containerd::LEGACY_HANDLER;
use gpu_warden_rig::cri::{ContainerSpec, PodSpec};
use gpu_warden_rig::kubelet::Style;
use gpu_warden_rig::probe::{self, Made};
use gpu_warden_rig::world::GPU_MAJOR;
use gpu_warden_rig::{CgroupView, Image, Open, World};

use crate::support::{Node, container_with, of, on_both};

/// An image like CUDA's, which asks for every GPU by itself.
async fn cuda_image(node: &Node) -> Image {
    let image = Image::named("cuda").env("NVIDIA_VISIBLE_DEVICES", "all");
    node.containerd.import(&node.world, &image).await.unwrap();
    image
}

async fn privileged_pair_and_a_third(node: &mut Node) {
    let image = cuda_image(node).await;
    let stream = |n: usize| {
        PodSpec::new(&format!("stream-{n}"))
            .privileged()
            .runtime_handler(LEGACY_HANDLER)
    };
    let mut ids = Vec::new();
    for n in [0, 1] {
        let pod = stream(n);
        node.allocate(&pod, "main", &[n]);
        // The image's `all` stays beside the device plugin's own value.
        let uuid = node.uuid(n);
        let container = container_with("main", Style::EnvVar, &[&uuid]).image(&image);
        ids.push(node.run(&pod, &container).await.unwrap());
    }
    let third = stream(2);
    node.admit(&third, "main");
    let container = ContainerSpec::new("main").image(&image);
    ids.push(node.run(&third, &container).await.unwrap());

    node.has_exactly(&ids[0], &[0]).await;
    node.has_exactly(&ids[1], &[1]).await;
    node.has_exactly(&ids[2], &[]).await;
    assert_eq!(
        node.variable(&ids[2], "NVIDIA_VISIBLE_DEVICES").await,
        "void"
    );
    assert_eq!(
        node.variable(&ids[1], "GPU_WARDEN_UUIDS").await,
        node.uuid(1)
    );
}

/// The same with the variable in the image alone, as where the device plugin sets none.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_asks_for_all_gets_the_allocated_gpu_alone() {
    on_both(World::builder(), async |node: &mut Node| {
        let image = cuda_image(node).await;
        let pod = PodSpec::new("stream")
            .privileged()
            .runtime_handler(LEGACY_HANDLER);
        node.allocate(&pod, "main", &[1]);
        let container = ContainerSpec::new("main").image(&image);
        let id = node.run(&pod, &container).await.unwrap();
        node.has_exactly(&id, &[1]).await;
        assert_eq!(node.variable(&id, "NVIDIA_VISIBLE_DEVICES").await, "void");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_privileged_pods_see_their_own_gpu_and_a_third_sees_none() {
    on_both(World::builder(), privileged_pair_and_a_third).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_privileged_pods_see_their_own_gpu_on_cgroup_v2_too() {
    on_both(
        World::builder().cgroups(CgroupView::Unified),
        privileged_pair_and_a_third,
    )
    .await;
}

async fn unprivileged_pair(node: &mut Node) {
    for (n, handler) in [(0, LEGACY_HANDLER), (1, "")] {
        let pod = PodSpec::new(&format!("train-{n}")).runtime_handler(handler);
        node.allocate(&pod, "main", &[n]);
        let uuid = node.uuid(n);
        let id = node
            .run(&pod, &container_with("main", Style::EnvVar, &[&uuid]))
            .await
            .unwrap();
        node.has_exactly(&id, &[n]).await;
        let other = node.world.gpus()[1 - n].minor;
        let made = probe::make(node.containerd.cri(), &id, GPU_MAJOR, other)
            .await
            .unwrap();
        // Where cgroup v2 is there as well the node can't even be made.
        let closed = match &made {
            Made::Refused(said) => said.contains("Operation not permitted"),
            Made::Node(open) => *open == Open::Eperm,
        };
        assert!(closed, "a node of its own making stays closed: {made:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unprivileged_pair_is_isolated_whatever_the_runtime_class() {
    on_both(World::builder(), unprivileged_pair).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_a_gpu_whose_image_says_all_gets_none() {
    on_both(World::builder(), async |node: &mut Node| {
        let image = cuda_image(node).await;
        for handler in [LEGACY_HANDLER, ""] {
            let pod = PodSpec::new("innocent").runtime_handler(handler);
            node.admit(&pod, "main");
            let id = node
                .run(&pod, &ContainerSpec::new("main").image(&image))
                .await
                .unwrap();
            node.has_exactly(&id, &[]).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_with_two_of_three_gpus_has_both_and_no_other() {
    on_both(World::builder().gpus(3), async |node: &mut Node| {
        for pod in [
            PodSpec::new("pair"),
            PodSpec::new("strong-pair").privileged(),
        ] {
            node.allocate(&pod, "main", &[0, 2]);
            let sandbox = node.sandbox(&pod).await;
            let cri = node.containerd.cri();
            let id = cri
                .run(&sandbox, &ContainerSpec::new("main"))
                .await
                .unwrap();
            node.has_exactly(&id, &[0, 2]).await;
            cri.stop(&id, 0).await.unwrap();
            cri.stop_pod(&sandbox).await.unwrap();
        }
    })
    .await;
}

/// The driver's files come with the GPU, at their SONAMEs too, and not without.
#[tokio::test(flavor = "multi_thread")]
async fn the_driver_libraries_come_with_the_gpu_and_only_with_it() {
    on_both(World::builder(), async |node: &mut Node| {
        let has_library = async |node: &Node, pod: &PodSpec| {
            let id = node.run(pod, &ContainerSpec::new("main")).await.unwrap();
            let script = "ls /usr/lib/x86_64-linux-gnu/libcuda.so.1 2>/dev/null";
            let out = node
                .containerd
                .cri()
                .exec(&id, &["/bin/sh", "-c", script])
                .await
                .unwrap();
            out.code == 0
        };
        let (with, without) = (PodSpec::new("with"), PodSpec::new("without"));
        node.allocate(&with, "main", &[0]);
        node.admit(&without, "main");
        assert!(has_library(node, &with).await);
        assert!(!has_library(node, &without).await);
    })
    .await;
}

/// Every way by which a device plugin hands its devices over ends in the same container.
#[tokio::test(flavor = "multi_thread")]
async fn every_device_list_strategy_ends_in_the_same_container() {
    on_both(World::builder(), async |node: &mut Node| {
        for style in [Style::EnvVar, Style::VolumeMounts] {
            for handler in [LEGACY_HANDLER, ""] {
                let pod = PodSpec::new("strategy").runtime_handler(handler);
                let uuid = node.uuid(1);
                node.allocate_ids(&pod, "main", &[&uuid], style);
                let sandbox = node.sandbox(&pod).await;
                let id = node
                    .containerd
                    .cri()
                    .run(&sandbox, &container_with("main", style, &[&uuid]))
                    .await
                    .unwrap();
                node.has_exactly(&id, &[1]).await;
                node.containerd.cri().stop(&id, 0).await.unwrap();
                node.containerd.cri().stop_pod(&sandbox).await.unwrap();
                node.kubelet.release(&pod.uid);
            }
        }
    })
    .await;
}

/// The kubelet hands a regular init container's GPU on to the main container, and reports the init
/// container nowhere but in its checkpoint (kubernetes/kubernetes#126765).
#[tokio::test(flavor = "multi_thread")]
async fn an_init_container_has_its_gpu_and_the_main_container_follows_on_it() {
    on_both(World::builder(), async |node: &mut Node| {
        let pod = PodSpec::new("staged");
        let uuid = node.uuid(0);
        node.kubelet
            .allocate_init(
                &of(&pod),
                "setup",
                crate::support::RESOURCE,
                &[&uuid],
                Style::EnvVar,
            )
            .unwrap();
        node.allocate(&pod, "main", &[0]);
        let sandbox = node.sandbox(&pod).await;
        let cri = node.containerd.cri();
        let setup = cri
            .run(&sandbox, &ContainerSpec::new("setup"))
            .await
            .unwrap();
        node.has_exactly(&setup, &[0]).await;
        cri.stop(&setup, 0).await.unwrap();
        let main = cri
            .run(&sandbox, &ContainerSpec::new("main"))
            .await
            .unwrap();
        node.has_exactly(&main, &[0]).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_of_one_gpu_are_shared_by_two_pods() {
    on_both(World::builder(), async |node: &mut Node| {
        for n in [0, 1] {
            let pod = PodSpec::new(&format!("slice-{n}")).privileged();
            node.allocate_ids(
                &pod,
                "main",
                &[&format!("{}::{n}", node.uuid(1))],
                Style::EnvVar,
            );
            let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
            node.has_exactly(&id, &[1]).await;
        }
    })
    .await;
}
