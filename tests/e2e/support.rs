//! A whole node for one test: world, containerd, stand-in kubelet, gpu-warden.

use std::path::PathBuf;

use gpu_warden_rig::cri::{ContainerSpec, Pod, PodSpec};
use gpu_warden_rig::kubelet::{Kubelet, PodRef, Style, response};
use gpu_warden_rig::process::{Launch, Process};
use gpu_warden_rig::under_test::{self, Programs};
use gpu_warden_rig::world::{GPU_MAJOR, WorldBuilder};
use gpu_warden_rig::{
    Artifacts, Containerd, ContainerdFiles, Failure, View, World, artifacts, probe,
};

/// Resource name of whole GPUs.
pub const RESOURCE: &str = "nvidia.com/gpu";

/// See the module.
pub struct Node {
    pub warden: Process,
    pub kubelet: Kubelet,
    pub containerd: Containerd,
    pub world: World,
}

/// Runs a test on containerd 1.7 and on 2.x, each in a fresh node, and checks that nothing is left.
pub async fn on_both(world: WorldBuilder, test: impl AsyncFn(&mut Node)) {
    for files in artifacts::both_containerds().unwrap() {
        let mut node = Node::start(&files, world.clone()).await;
        test(&mut node).await;
        node.end().await;
    }
}

impl Node {
    pub async fn start(files: &ContainerdFiles, world: WorldBuilder) -> Self {
        Self::start_with(files, world, |launch| launch).await
    }

    /// With further flags for gpu-warden.
    pub async fn start_with(
        files: &ContainerdFiles,
        world: WorldBuilder,
        flags: impl FnOnce(Launch) -> Launch,
    ) -> Self {
        let world = world.start(&Artifacts::locate().unwrap()).unwrap();
        let containerd = Containerd::start(&world, files).await.unwrap();
        let kubelet = Kubelet::start(&world.kubelet_root()).await.unwrap();
        let launch = flags(programs(&world).warden(&world, &containerd));
        let mut warden = launch.start(&world).await.unwrap();
        under_test::wait_until_ready(&mut warden).await.unwrap();
        Self {
            warden,
            kubelet,
            containerd,
            world,
        }
    }

    pub async fn end(mut self) {
        let log = self.warden.log().unwrap();
        assert!(!log.contains("panicked"), "{log}");
        under_test::stop(&mut self.warden).await.unwrap();
        drop(self.containerd);
        self.world.teardown().await.unwrap();
    }

    pub fn uuid(&self, gpu: usize) -> String {
        self.world.gpus()[gpu].uuid.clone()
    }

    /// As the kubelet does at admission: GPUs for one container, by index in the world.
    pub fn allocate(&self, pod: &PodSpec, container: &str, gpus: &[usize]) {
        let ids: Vec<_> = gpus.iter().map(|&gpu| self.uuid(gpu)).collect();
        let ids: Vec<_> = ids.iter().map(String::as_str).collect();
        self.allocate_ids(pod, container, &ids, Style::EnvVar);
    }

    pub fn allocate_ids(&self, pod: &PodSpec, container: &str, ids: &[&str], style: Style) {
        self.kubelet
            .allocate(&of(pod), container, RESOURCE, ids, style)
            .unwrap();
    }

    /// A pod without devices is known to the kubelet all the same.
    pub fn admit(&self, pod: &PodSpec, container: &str) {
        self.kubelet.add_container(&of(pod), container);
    }

    pub async fn sandbox(&self, pod: &PodSpec) -> Pod {
        self.containerd
            .cri()
            .run_pod(pod, &self.world.cgroup_parent())
            .await
            .unwrap()
    }

    /// Sandbox, container, start.
    pub async fn run(&self, pod: &PodSpec, container: &ContainerSpec) -> Result<String, Failure> {
        let sandbox = self.sandbox(pod).await;
        self.containerd.cri().run(&sandbox, container).await
    }

    pub async fn look(&self, id: &str) -> View {
        let majors = [GPU_MAJOR, self.world.majors().uvm, self.world.majors().caps];
        probe::look(self.containerd.cri(), id, &majors)
            .await
            .unwrap()
    }

    /// Asserts that a container has exactly these GPUs: their nodes and the control nodes or, with
    /// no GPU, nothing; and that the kernel opens what is there.
    pub async fn has_exactly(&self, id: &str, gpus: &[usize]) {
        let view = self.look(id).await;
        let mut expected: Vec<_> = gpus
            .iter()
            .map(|&gpu| self.world.gpus()[gpu].node().path)
            .collect();
        if !gpus.is_empty() {
            expected.extend(
                self.world
                    .majors()
                    .control_nodes()
                    .into_iter()
                    .map(|node| node.path),
            );
        }
        expected.sort();
        assert_eq!(
            view.paths(),
            expected,
            "{view:?}\n{}",
            self.warden.log().unwrap()
        );
        for &gpu in gpus {
            assert!(view.gpu(self.world.gpus()[gpu].minor).allowed(), "{view:?}");
        }
    }

    /// The refusal that reached the CRI caller.
    pub async fn refused(&self, pod: &PodSpec, container: &ContainerSpec) -> String {
        let failure = self
            .run(pod, container)
            .await
            .expect_err("it must be refused");
        failure
            .refusal()
            .unwrap_or_else(|| panic!("{failure}"))
            .to_owned()
    }

    pub async fn variable(&self, id: &str, name: &str) -> String {
        let script = format!("printf %s \"${name}\"");
        self.containerd
            .cri()
            .exec(id, &["/bin/sh", "-c", &script])
            .await
            .unwrap()
            .stdout
    }
}

/// The programs that cargo built for this test.
pub fn programs(world: &World) -> Programs {
    Programs {
        cdi_gen: PathBuf::from(env!("CARGO_BIN_EXE_cdi-gen")),
        gpu_warden: PathBuf::from(env!("CARGO_BIN_EXE_gpu-warden")),
        nvml_library: world.nvml_library().unwrap(),
    }
}

pub fn of(pod: &PodSpec) -> PodRef {
    PodRef::new(&pod.uid, &pod.namespace, &pod.name)
}

/// A container as the kubelet makes it from a device plugin's answer.
pub fn container_with(name: &str, style: Style, ids: &[&str]) -> ContainerSpec {
    let answer = response(style, ids);
    let mut container = ContainerSpec::new(name);
    for (key, value) in &answer.envs {
        container = container.env(key, value);
    }
    for mount in &answer.mounts {
        container = container.mount(&mount.host_path, &mount.container_path);
    }
    for device in &answer.devices {
        container = container.device(&device.container_path);
    }
    for (key, value) in &answer.annotations {
        container = container.annotation(key, value);
    }
    for device in &answer.cdi_devices {
        container = container.cdi_device(&device.name);
    }
    container
}
