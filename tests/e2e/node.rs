//! A node for one test: world, containerd, stand-in kubelet, gpu-warden.

use std::path::PathBuf;

use gpu_warden_rig::cri::{ContainerSpec, Pod, PodSpec};
use gpu_warden_rig::kubelet::{Kubelet, PodRef, Style};
use gpu_warden_rig::under_test::Programs;
use gpu_warden_rig::world::GPU_MAJOR;
use gpu_warden_rig::{
    Artifacts, CgroupView, Containerd, ContainerdFiles, Failure, Process, View, World, artifacts,
    probe,
};

/// Everything that a node runs. Fields drop in this order.
pub(crate) struct Node {
    pub(crate) warden: Process,
    pub(crate) containerd: Containerd,
    pub(crate) kubelet: Kubelet,
    pub(crate) world: World,
}

impl Node {
    pub(crate) async fn start(files: &ContainerdFiles, cgroups: CgroupView) -> Self {
        let world = World::builder()
            .cgroups(cgroups)
            .start(&Artifacts::locate().unwrap())
            .unwrap();
        let programs = Programs {
            cdi_gen: PathBuf::from(env!("CARGO_BIN_EXE_cdi-gen")),
            gpu_warden: PathBuf::from(env!("CARGO_BIN_EXE_gpu-warden")),
            nvml_library: world.nvml_library().unwrap(),
        };
        let containerd = Containerd::start(&world, files).await.unwrap();
        let kubelet = Kubelet::start(&world.kubelet_root()).await.unwrap();
        programs.generate_spec(&world).await.unwrap();
        let warden = programs.start_warden(&world, &containerd).await.unwrap();
        Self {
            warden,
            containerd,
            kubelet,
            world,
        }
    }

    /// The kubelet admits the pod and gives its container these GPUs, by position.
    pub(crate) fn allocate(&self, pod: &PodSpec, container: &ContainerSpec, gpus: &[usize]) {
        let of = PodRef::new(&pod.uid, &pod.namespace, &pod.name);
        self.kubelet.add_container(&of, &container.name);
        if gpus.is_empty() {
            return;
        }
        let ids = gpus.iter().map(|&at| self.world.gpus()[at].uuid.as_str());
        let ids: Vec<&str> = ids.collect();
        self.kubelet
            .allocate(&of, &container.name, "nvidia.com/gpu", &ids, Style::EnvVar)
            .unwrap();
    }

    pub(crate) async fn run(
        &self,
        pod: &PodSpec,
        container: &ContainerSpec,
    ) -> Result<(Pod, String), Failure> {
        let cri = self.containerd.cri();
        let pod = cri.run_pod(pod, &self.world.cgroup_parent()).await?;
        let id = cri.run(&pod, container).await?;
        Ok((pod, id))
    }

    pub(crate) async fn look(&self, id: &str) -> View {
        let majors = self.world.majors();
        let majors = [GPU_MAJOR, majors.uvm, majors.caps];
        probe::look(self.containerd.cri(), id, &majors)
            .await
            .unwrap()
    }

    /// Ends it in order, and fails if anything is left of it.
    pub(crate) async fn end(self) {
        let Self {
            mut warden,
            containerd,
            mut kubelet,
            world,
        } = self;
        let within = std::time::Duration::from_secs(10);
        assert!(warden.stop(within).await.unwrap().success());
        kubelet.stop().await.unwrap();
        drop(containerd);
        world.teardown().await.unwrap();
    }
}

/// Runs a test on each containerd.
pub(crate) async fn on_each_containerd(cgroups: CgroupView, test: impl AsyncFn(&Node)) {
    for files in artifacts::both_containerds().unwrap() {
        let node = Node::start(&files, cgroups).await;
        test(&node).await;
        node.end().await;
    }
}
