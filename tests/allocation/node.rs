//! A kubelet root with a stand-in kubelet, and the value under test on it.

use std::time::{Duration, Instant};

use gpu_warden::allocation::{Allocation, AllocationError, Kubelet, Subject};
use gpu_warden::gpu::DeviceId;
use gpu_warden_rig::kubelet::{Kubelet as StandIn, PodRef, Style};
use tempfile::TempDir;

pub(crate) const GPU: &str = "nvidia.com/gpu";
pub(crate) const A: &str = "GPU-12345678-1234-1234-1234-123456780000";
pub(crate) const B: &str = "GPU-12345678-1234-1234-1234-123456780001";
/// What a container creation has for this question.
pub(crate) const BUDGET: Duration = Duration::from_millis(1200);

pub(crate) struct Node {
    pub(crate) root: TempDir,
    pub(crate) kubelet: StandIn,
    pub(crate) asked: Kubelet,
}

impl Node {
    pub(crate) async fn new() -> Self {
        let root = TempDir::new().unwrap();
        let kubelet = StandIn::start(root.path()).await.unwrap();
        let asked = Kubelet::new(root.path());
        Self {
            root,
            kubelet,
            asked,
        }
    }

    /// With pod `p`, whose container `c` has GPU A and whose container `bare` has none.
    pub(crate) async fn with_pod() -> Self {
        let node = Self::new().await;
        let pod = pod("p");
        node.kubelet
            .allocate(&pod, "c", GPU, &[A], Style::EnvVar)
            .unwrap();
        node.kubelet.add_container(&pod, "bare");
        node
    }

    pub(crate) async fn ask(&self, pod: &PodRef, container: &str) -> Answer {
        self.ask_within(BUDGET, pod, container).await
    }

    pub(crate) async fn ask_within(
        &self,
        budget: Duration,
        pod: &PodRef,
        container: &str,
    ) -> Answer {
        let deadline = Instant::now() + budget;
        self.asked
            .allocation(&subject(pod, container), deadline)
            .await
    }
}

pub(crate) type Answer = Result<Allocation, AllocationError>;

pub(crate) fn pod(name: &str) -> PodRef {
    PodRef::new(&format!("uid-of-{name}"), "default", name)
}

pub(crate) fn subject(pod: &PodRef, container: &str) -> Subject {
    Subject {
        pod_uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        container: container.to_owned(),
    }
}

#[track_caller]
pub(crate) fn assert_devices(answer: &Answer, expected: &[&str]) {
    let allocation = answer.as_ref().unwrap();
    let ids: Vec<_> = allocation.devices.iter().map(DeviceId::as_str).collect();
    assert_eq!(ids, expected);
}

#[track_caller]
pub(crate) fn assert_conflict(answer: &Answer, parts: &[&str]) {
    let Err(AllocationError::Conflict(text)) = answer else {
        panic!("{answer:?} is no conflict");
    };
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

#[track_caller]
pub(crate) fn assert_unavailable(answer: &Answer, parts: &[&str]) {
    let Err(AllocationError::Unavailable(text)) = answer else {
        panic!("{answer:?} is not `unavailable`");
    };
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}
