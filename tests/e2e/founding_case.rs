//! The case that the project started from: two privileged pods with one GPU each, and a pod that
//! asked for none but whose image asks for all. The rig's own tests show what they reach without
//! gpu-warden.

use gpu_warden_rig::containerd::LEGACY_HANDLER;
use gpu_warden_rig::cri::{ContainerSpec, PodSpec};
use gpu_warden_rig::{CgroupView, Image, Open};

use crate::node::{Node, on_each_containerd};

async fn each_pod_gets_its_own(node: &Node) {
    let mut views = Vec::new();
    for at in [0, 1] {
        let pod = PodSpec::new(&format!("stream-{at}"))
            .privileged()
            .runtime_handler(LEGACY_HANDLER);
        let uuid = &node.world.gpus()[at].uuid;
        let container = ContainerSpec::new("main").env("NVIDIA_VISIBLE_DEVICES", uuid);
        node.allocate(&pod, &container, &[at]);
        let (_, id) = node.run(&pod, &container).await.unwrap();
        views.push(node.look(&id).await);
    }
    for (view, (own, other)) in views.iter().zip([(0, 1), (1, 0)]) {
        assert!(view.gpu(own).allowed(), "{view:?}");
        assert_eq!(view.gpu(other), Open::Absent, "{view:?}");
        assert!(view.paths().contains(&"/dev/nvidiactl"), "{view:?}");
    }
}

async fn none_asked_none_given(node: &Node) {
    let cuda = Image::named("cuda").env("NVIDIA_VISIBLE_DEVICES", "all");
    node.containerd.import(&node.world, &cuda).await.unwrap();
    let pod = PodSpec::new("web").runtime_handler(LEGACY_HANDLER);
    let container = ContainerSpec::new("main").image(&cuda);
    node.allocate(&pod, &container, &[]);
    let (_, id) = node.run(&pod, &container).await.unwrap();
    assert_eq!(node.look(&id).await.paths(), Vec::<&str>::new());
}

async fn founding_case(node: &Node) {
    each_pod_gets_its_own(node).await;
    none_asked_none_given(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pod_sees_and_opens_exactly_its_own_gpu() {
    on_each_containerd(CgroupView::Host, founding_case).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pod_sees_and_opens_exactly_its_own_gpu_on_cgroup_v2() {
    on_each_containerd(CgroupView::Unified, founding_case).await;
}
