//! The kernel's device filter: what stays closed whatever a container does, on cgroup v1, on v2 and
//! where both are.

mod attacks;
mod running;

use std::os::unix::fs::symlink;

use std::time::{Duration, Instant};

use gpu_warden_rig::cri::{ContainerSpec, PodSpec};
use gpu_warden_rig::probe::{self, Made};
use gpu_warden_rig::world::{CONTROL_MINOR, GPU_MAJOR};
use gpu_warden_rig::{CgroupView, Open, World, artifacts, under_test};

use crate::support::Node;

const PATIENCE: Duration = Duration::from_secs(20);
/// No GPU of any world has it, and no node.
const FUTURE_MINOR: u32 = 7;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// v1 controllers with a unified tree beside them.
    Hybrid,
    /// The same machine, but gpu-warden is shown the v1 hierarchy alone.
    V1,
    /// v2 alone.
    V2,
}

/// Runs a test on containerd 1.7 and 2.x under each kind of cgroups.
async fn on_each(kinds: &[Kind], test: impl AsyncFn(&mut Node, Kind)) {
    for files in artifacts::both_containerds().unwrap() {
        for &kind in kinds {
            let v1_alone = tempfile::tempdir().unwrap();
            symlink("/sys/fs/cgroup/devices", v1_alone.path().join("devices")).unwrap();
            let view = match kind {
                Kind::V2 => CgroupView::Unified,
                Kind::Hybrid | Kind::V1 => CgroupView::Host,
            };
            let world = World::builder().cgroups(view);
            let mut node = Node::start_with(&files, world, |launch| match kind {
                Kind::V1 => launch.arg(format!("--cgroup-root={}", v1_alone.path().display())),
                Kind::Hybrid | Kind::V2 => launch,
            })
            .await;
            test(&mut node, kind).await;
            node.end().await;
        }
    }
}

const ALL: [Kind; 3] = [Kind::Hybrid, Kind::V1, Kind::V2];

async fn made(node: &Node, id: &str, major: u32, minor: u32) -> Made {
    probe::make(node.containerd.cri(), id, major, minor)
        .await
        .unwrap()
}

async fn is_open(node: &Node, id: &str, major: u32, minor: u32) {
    assert_eq!(
        made(node, id, major, minor).await,
        Made::Node(Open::Enxio),
        "{major}:{minor}\n{}",
        node.warden.log().unwrap()
    );
}

/// On v2 the node can't even be made; on v1 it can, as runtimes allow mknod to everybody, and does not open.
async fn is_closed(node: &Node, kind: Kind, id: &str, major: u32, minor: u32) {
    let made = made(node, id, major, minor).await;
    let log = node.warden.log().unwrap();
    match (&made, kind) {
        (Made::Refused(said), _) if said.contains("Operation not permitted") => {}
        (Made::Node(Open::Eperm), Kind::V1) => {}
        _ => panic!("{major}:{minor} under {kind:?}: {made:?}\n{log}"),
    }
}

/// Its own GPU opens; the other, one that no node has yet, and MIG capabilities do not.
async fn has_only(node: &Node, kind: Kind, id: &str, gpu: usize) {
    let [own, other] = [gpu, 1 - gpu].map(|gpu| node.world.gpus()[gpu].minor);
    is_open(node, id, GPU_MAJOR, own).await;
    is_open(node, id, GPU_MAJOR, CONTROL_MINOR).await;
    is_open(node, id, node.world.majors().uvm, 0).await;
    is_closed(node, kind, id, GPU_MAJOR, other).await;
    is_closed(node, kind, id, GPU_MAJOR, FUTURE_MINOR).await;
    is_closed(node, kind, id, node.world.majors().caps, 1).await;
}

async fn shell(node: &Node, id: &str, script: &str) -> String {
    let words = ["/bin/sh", "-c", script];
    let out = node.containerd.cri().exec(id, &words).await.unwrap();
    format!("{}{}", out.stdout, out.stderr)
}

fn pods(name: &str) -> [PodSpec; 2] {
    [
        PodSpec::new(&format!("strong-{name}")).privileged(),
        PodSpec::new(&format!("plain-{name}")),
    ]
}

/// The point of it all: privileged or not, under every kind of cgroups, also after its author has
/// mounted what he likes, also when gpu-warden is gone and when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn the_other_gpu_stays_closed_whatever_is_mounted_and_when_gpu_warden_is_gone() {
    on_each(&ALL, async |node: &mut Node, kind| {
        let mut ids = Vec::new();
        for (gpu, pod) in pods("one").into_iter().enumerate() {
            node.allocate(&pod, "main", &[gpu]);
            ids.push(node.run(&pod, &ContainerSpec::new("main")).await.unwrap());
        }
        for (gpu, id) in ids.iter().enumerate() {
            has_only(node, kind, id, gpu).await;
        }

        let other = node.world.gpus()[1].minor;
        // On v1 a node can be made, and a devtmpfs is the host's.
        let file_systems: &[_] = if kind == Kind::V1 { &["tmpfs"] } else { &["tmpfs", "devtmpfs"] };
        for file_system in file_systems {
            let script = format!(
                "mkdir -p /m && mount -t {file_system} m /m && \
                 (mknod /m/rig-made c {GPU_MAJOR} {other} && : </m/rig-made); rm -f /m/rig-made; umount /m"
            );
            let said = shell(node, &ids[0], &script).await;
            assert!(said.contains("Operation not permitted"), "{file_system}: {said}");
        }

        node.warden.kill().await.unwrap();
        for (gpu, id) in ids.iter().enumerate() {
            has_only(node, kind, id, gpu).await;
        }
        under_test::start_again(&mut node.warden).await.unwrap();
        logged(node, "a running container was fenced", ids.len()).await;
        for (gpu, id) in ids.iter().enumerate() {
            has_only(node, kind, id, gpu).await;
        }
    })
    .await;
}

async fn logged(node: &Node, words: &str, times: usize) {
    let end = Instant::now() + PATIENCE;
    while node.warden.log().unwrap().matches(words).count() < times {
        let log = node.warden.log().unwrap();
        assert!(Instant::now() < end, "{times} times {words:?}:\n{log}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_gpu_the_control_nodes_are_closed_too() {
    on_each(&ALL, async |node: &mut Node, kind| {
        for pod in pods("none") {
            node.admit(&pod, "main");
            let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
            let majors = node.world.majors();
            for (major, minor) in [
                (GPU_MAJOR, 0),
                (GPU_MAJOR, FUTURE_MINOR),
                (GPU_MAJOR, 254),
                (GPU_MAJOR, CONTROL_MINOR),
                (majors.uvm, 0),
                (majors.uvm, 1),
                (majors.caps, 1),
            ] {
                is_closed(node, kind, &id, major, minor).await;
            }
            let null = shell(node, &id, ": </dev/null && : >/dev/null && echo fine").await;
            assert_eq!(null, "fine\n", "what is not a GPU stays as it was");
        }
    })
    .await;
}

/// Each exactly its own, in whatever order they come and go; the pod's level follows.
#[tokio::test(flavor = "multi_thread")]
async fn two_containers_of_one_pod_have_each_their_own_gpu() {
    on_each(&ALL, async |node: &mut Node, kind| {
        for pod in pods("pair") {
            node.admit(&pod, "side");
            node.allocate(&pod, "first", &[0]);
            node.allocate(&pod, "second", &[1]);
            let sandbox = node.sandbox(&pod).await;
            let cri = node.containerd.cri();
            let side = cri
                .run(&sandbox, &ContainerSpec::new("side"))
                .await
                .unwrap();
            let first = cri
                .run(&sandbox, &ContainerSpec::new("first"))
                .await
                .unwrap();
            has_only(node, kind, &first, 0).await;
            let second = cri
                .run(&sandbox, &ContainerSpec::new("second"))
                .await
                .unwrap();
            has_only(node, kind, &first, 0).await;
            has_only(node, kind, &second, 1).await;
            is_closed(node, kind, &side, GPU_MAJOR, 0).await;
            is_closed(node, kind, &side, GPU_MAJOR, CONTROL_MINOR).await;

            cri.stop(&first, 0).await.unwrap();
            has_only(node, kind, &second, 1).await;
            cri.stop(&second, 0).await.unwrap();
            let again = ContainerSpec {
                attempt: 1,
                ..ContainerSpec::new("first")
            };
            let again = cri.run(&sandbox, &again).await.unwrap();
            has_only(node, kind, &again, 0).await;
            cri.stop_pod(&sandbox).await.unwrap();
            node.kubelet.release(&pod.uid);
        }
    })
    .await;
}

/// DRM nodes of the other card and vfio groups of GPUs, by what sysfs says.
#[tokio::test(flavor = "multi_thread")]
async fn drm_and_vfio_nodes_of_gpus_are_closed_and_those_of_others_are_not() {
    const VFIO_MAJOR: u32 = 379;
    on_each(&ALL, async |node: &mut Node, kind| {
        let sys = node.world.sys_root();
        for (file, text) in [
            ("class/drm/card7/dev", "226:7"),
            ("class/drm/card7/device/vendor", "0x10de"),
            ("class/drm/card8/dev", "226:8"),
            ("class/drm/card8/device/vendor", "0x8086"),
            ("class/vfio/70/dev", "379:0"),
            ("class/vfio/71/dev", "379:1"),
            (
                "kernel/iommu_groups/70/devices/0000:3b:00.0/vendor",
                "0x10de",
            ),
            (
                "kernel/iommu_groups/71/devices/0000:5e:00.0/vendor",
                "0x8086",
            ),
        ] {
            let path = sys.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let pod = PodSpec::new("painter").privileged();
        node.allocate(&pod, "main", &[0]);
        let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
        is_closed(node, kind, &id, 226, 7).await;
        is_closed(node, kind, &id, VFIO_MAJOR, 0).await;
        is_open(node, &id, 226, 8).await;
        is_open(node, &id, VFIO_MAJOR, 1).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_cgroup_means_no_start() {
    for files in artifacts::both_containerds().unwrap() {
        let empty = tempfile::tempdir().unwrap();
        let node = Node::start_with(&files, World::builder(), |launch| {
            launch.arg(format!("--cgroup-root={}", empty.path().display()))
        })
        .await;
        for pod in pods("lost") {
            node.admit(&pod, "main");
            let refused = node.refused(&pod, &ContainerSpec::new("main")).await;
            assert!(
                refused.contains("[fence-failed]")
                    && refused.contains("--cgroup-root")
                    && refused.contains(&empty.path().display().to_string()),
                "{refused}"
            );
        }
        node.end().await;
    }
}
