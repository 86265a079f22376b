//! The contrast: what containers reach today, without gpu-warden, on real containerd and runc.
//!
//! Proves that the rig shows the disease which the rest of the tests claim to cure, and that its
//! oracle can tell an open device from a closed one.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use gpu_warden_rig::containerd::LEGACY_HANDLER;
use gpu_warden_rig::cri::{ContainerSpec, PodSpec};
use gpu_warden_rig::probe::{self, Made};
use gpu_warden_rig::world::GPU_MAJOR;
use gpu_warden_rig::{
    Artifacts, CgroupView, Containerd, ContainerdFiles, Image, Open, View, World, artifacts,
};

async fn in_each_world(view: CgroupView, test: impl AsyncFn(&World, &Containerd)) {
    for files in artifacts::both_containerds().unwrap() {
        let world = World::builder().cgroups(view);
        let world = world.start(&Artifacts::locate().unwrap()).unwrap();
        let containerd = start(&world, &files).await;
        test(&world, &containerd).await;
        drop(containerd);
        world.teardown().await.unwrap();
    }
}

async fn start(world: &World, files: &ContainerdFiles) -> Containerd {
    let containerd = Containerd::start(world, files).await.unwrap();
    let (name, version) = containerd.cri().version().await.unwrap();
    assert_eq!(name, "containerd");
    assert!(version.contains(&files.version), "{version}");
    containerd
}

async fn run(world: &World, containerd: &Containerd, pod: PodSpec, c: ContainerSpec) -> String {
    let cri = containerd.cri();
    let pod = cri.run_pod(&pod, &world.cgroup_parent()).await.unwrap();
    cri.run(&pod, &c).await.unwrap()
}

async fn look(world: &World, containerd: &Containerd, id: &str) -> View {
    let majors = [GPU_MAJOR, world.majors().uvm];
    probe::look(containerd.cri(), id, &majors).await.unwrap()
}

/// As the kubelet and a device plugin with the environment strategy would ask for one GPU.
fn one_gpu(world: &World, n: usize) -> ContainerSpec {
    ContainerSpec::new("main").env("NVIDIA_VISIBLE_DEVICES", &world.gpus()[n].uuid)
}

async fn privileged_pods_reach_both_gpus(world: &World, containerd: &Containerd) {
    let mut views = Vec::new();
    for n in [0, 1] {
        let pod = PodSpec::new(&format!("stream-{n}"))
            .privileged()
            .runtime_handler(LEGACY_HANDLER);
        let id = run(world, containerd, pod, one_gpu(world, n)).await;
        views.push(look(world, containerd, &id).await);
    }
    for view in views {
        assert!(view.gpu(0).allowed() && view.gpu(1).allowed(), "{view:?}");
        assert!(view.paths().contains(&"/dev/nvidia-uvm"), "{view:?}");
    }
}

async fn the_variable_comes_twice(world: &World, containerd: &Containerd) {
    let cuda = Image::named("cuda").env("NVIDIA_VISIBLE_DEVICES", "all");
    containerd.import(world, &cuda).await.unwrap();
    let pod = PodSpec::new("ordinary").runtime_handler(LEGACY_HANDLER);
    let id = run(world, containerd, pod, one_gpu(world, 1).image(&cuda)).await;
    let spec = containerd.cri().oci_spec(&id).await.unwrap();
    let env = spec["process"]["env"].as_array().unwrap();
    let values: Vec<_> = env
        .iter()
        .filter_map(|entry| entry.as_str()?.strip_prefix("NVIDIA_VISIBLE_DEVICES="))
        .collect();
    assert_eq!(values, ["all", world.gpus()[1].uuid.as_str()]);
    let view = look(world, containerd, &id).await;
    assert!(!view.gpu(0).allowed() && view.gpu(1).allowed(), "{view:?}");
}

/// Every CUDA image bakes `all` in, and the device plugin's default adds its own: containerd keeps
/// both, so a duplicated variable is the ordinary case and no sign of an attack.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_and_the_device_plugin_set_the_variable_twice() {
    in_each_world(CgroupView::Host, the_variable_comes_twice).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_privileged_pods_with_one_gpu_each_open_both() {
    in_each_world(CgroupView::Host, privileged_pods_reach_both_gpus).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_privileged_pods_with_one_gpu_each_open_both_on_cgroup_v2() {
    in_each_world(CgroupView::Unified, privileged_pods_reach_both_gpus).await;
}

async fn the_environment_decides(world: &World, containerd: &Containerd) {
    let legacy = |name: &str| PodSpec::new(name).runtime_handler(LEGACY_HANDLER);
    let all = ContainerSpec::new("main").env("NVIDIA_VISIBLE_DEVICES", "all");
    let id = run(world, containerd, legacy("greedy"), all).await;
    let view = look(world, containerd, &id).await;
    assert!(view.gpu(0).allowed() && view.gpu(1).allowed(), "{view:?}");

    let baked = Image::named("cuda").env("NVIDIA_VISIBLE_DEVICES", "all");
    containerd.import(world, &baked).await.unwrap();
    let from_image = ContainerSpec::new("main").image(&baked);
    let id = run(world, containerd, legacy("innocent"), from_image).await;
    let view = look(world, containerd, &id).await;
    assert!(view.gpu(0).allowed() && view.gpu(1).allowed(), "{view:?}");

    let id = run(world, containerd, legacy("modest"), one_gpu(world, 1)).await;
    let view = look(world, containerd, &id).await;
    assert_eq!(view.gpu(0), Open::Absent);
    assert!(view.gpu(1).allowed(), "{view:?}");
    let made = probe::make(containerd.cri(), &id, GPU_MAJOR, 0).await;
    assert_eq!(made.unwrap(), Made::Node(Open::Eperm));

    let plain = ContainerSpec::new("main").env("NVIDIA_VISIBLE_DEVICES", "all");
    let id = run(world, containerd, PodSpec::new("plain"), plain).await;
    let view = look(world, containerd, &id).await;
    assert_eq!(view.paths(), Vec::<&str>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_legacy_runtime_gives_an_unprivileged_pod_whatever_the_environment_says() {
    in_each_world(CgroupView::Host, the_environment_decides).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_legacy_runtime_does_so_on_cgroup_v2_too() {
    in_each_world(CgroupView::Unified, the_environment_decides).await;
}
