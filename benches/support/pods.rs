//! The pods of the node, at the kubelet and as the runtime names them.

use std::path::Path;

use anyhow::Result;
use gpu_warden_rig::kubelet::{Kubelet, PodRef, Style};
use nri::api::{Container, ContainerState, PodSandbox};

use super::container::{self, Kind};
use super::node;

/// The kubelet's default limit.
pub(crate) const PODS: usize = 110;
/// Name of every pod's one container.
pub(crate) const CONTAINER: &str = "main";

/// Every second pod has a GPU: eight time-sliced ones, each with more replicas than this needs.
pub(crate) fn has_gpu(pod: usize) -> bool {
    pod.is_multiple_of(2)
}

/// The GPU of a pod that has one.
pub(crate) fn gpu_of(pod: usize) -> String {
    node::uuid((pod / 2) % node::GPUS)
}

/// A stand-in kubelet below `root` that knows all pods, with a checkpoint of half of them.
pub(crate) async fn kubelet(root: &Path) -> Result<Kubelet> {
    let kubelet = Kubelet::start(root).await?;
    for n in 0..PODS {
        let sandbox = sandbox(n);
        let pod = PodRef::new(&sandbox.uid, &sandbox.namespace, &sandbox.name);
        if has_gpu(n) {
            let replica = format!("{}::{}", gpu_of(n), n / 2 / node::GPUS);
            let ids = [replica.as_str()];
            kubelet.allocate(&pod, CONTAINER, "nvidia.com/gpu", &ids, Style::EnvVar)?;
        } else {
            kubelet.add_container(&pod, CONTAINER);
        }
    }
    Ok(kubelet)
}

/// A pod's sandbox.
pub(crate) fn sandbox(n: usize) -> PodSandbox {
    let uid = format!("7d3c1f0e-9a52-4c1b-8f6e-{n:012x}");
    let labels = [
        ("app.kubernetes.io/name", "trainer"),
        ("app.kubernetes.io/instance", "trainer-a"),
        ("pod-template-hash", "6d4cf56db6"),
        ("io.kubernetes.pod.uid", &uid),
    ];
    PodSandbox {
        id: format!("{n:064x}"),
        name: format!("trainer-6d4cf56db6-{n:05}"),
        namespace: "research".into(),
        labels: labels.map(|(k, v)| (k.into(), v.into())).into(),
        uid,
        pid: 1000,
        ..Default::default()
    }
}

/// What a runtime sends when a plugin connects: every pod, each with its running container.
pub(crate) fn running() -> (Vec<PodSandbox>, Vec<Container>) {
    let containers = (0..PODS).map(|n| {
        let kind = if has_gpu(n) { Kind::Gpu } else { Kind::Plain };
        Container {
            state: ContainerState::CONTAINER_RUNNING.into(),
            // No process of this machine: nothing here looks at it.
            pid: u32::MAX >> 1,
            ..container::of(n, n, kind)
        }
    });
    ((0..PODS).map(sandbox).collect(), containers.collect())
}
