//! Attempts on the fence itself, from inside, and lists of devices that make it hard.

use std::path::Path;

use gpu_warden_rig::cri::{ContainerSpec, PodSpec};
use gpu_warden_rig::world::GPU_MAJOR;

use super::{Kind, has_only, is_open, logged, on_each, shell};
use crate::support::Node;

/// On v1 a privileged container may write the control files of its own cgroup, so it lifts its own
/// fence. Its pod's stays, and is narrowed when a container of the pod ends.
#[tokio::test(flavor = "multi_thread")]
async fn on_v1_a_privileged_container_cannot_allow_itself_another_gpu() {
    on_each(&[Kind::V1, Kind::Hybrid], async |node: &mut Node, kind| {
        let pod = PodSpec::new("climber").privileged();
        node.allocate(&pod, "first", &[0]);
        node.allocate(&pod, "second", &[1]);
        let sandbox = node.sandbox(&pod).await;
        let cri = node.containerd.cri();
        let first = cri.run(&sandbox, &ContainerSpec::new("first")).await.unwrap();
        let climb = "cd /sys/fs/cgroup/devices; \
            for rule in 'c 195:1 rwm' 'c 195:* rwm' 'a *:* rwm'; do echo \"$rule\" >devices.allow; done; echo tried";
        let said = shell(node, &first, climb).await;
        assert!(said.contains("tried\n"), "{said}");
        has_only(node, kind, &first, 0).await;

        // With the second container, the pod has both: what the first gained is its own pod's GPU alone.
        let second = cri.run(&sandbox, &ContainerSpec::new("second")).await.unwrap();
        has_only(node, kind, &second, 1).await;
        cri.stop(&second, 0).await.unwrap();
        shell(node, &first, climb).await;
        has_only(node, kind, &first, 0).await;
    })
    .await;
}

/// Docker or another runtime in a privileged container makes cgroups of its own below, and allows
/// mknod in them as every runtime does: the kernel would refuse that if the fence denied mknod on v1.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_within_a_privileged_container_can_make_its_cgroups() {
    on_each(&[Kind::V1, Kind::Hybrid], async |node: &mut Node, kind| {
        let pod = PodSpec::new("nested").privileged();
        node.allocate(&pod, "main", &[0]);
        let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
        let nest = "mkdir /sys/fs/cgroup/devices/inner && cd /sys/fs/cgroup/devices/inner && \
            echo a >devices.deny && echo 'c *:* m' >devices.allow && echo 'c 1:3 rwm' >devices.allow && \
            echo 'c 195:0 rwm' >devices.allow && ! echo 'c 195:1 rwm' >devices.allow && \
            cat devices.list && cd .. && rmdir inner";
        let said = shell(node, &id, nest).await;
        assert!(said.contains("c *:* m\nc 1:3 rwm\nc 195:0 rwm\n"), "{said}");
        has_only(node, kind, &id, 0).await;
    })
    .await;
}

/// Makes the OCI runtime widen the v1 list of each container that it has built by this rule.
fn widen(node: &Node, rule: &str) {
    let runtime = node.world.path("bin/runc");
    let plain = std::fs::read_to_string(&runtime).unwrap();
    let devices = format!("/sys/fs/cgroup/devices{}", node.world.cgroup_parent());
    // The container's id is the last argument.
    let widening = format!(
        "code=$?\ncase \" $* \" in *\" create \"*)\n\
         for id; do :; done\n\
         find {devices} -name \"$id\" | while read -r group; do echo '{rule}' >\"$group/devices.allow\"; done\n\
         esac\nexit $code\n"
    );
    std::fs::write(runtime, plain.replace("exec ", "") + &widening).unwrap();
}

/// A deny of one number beside a wildcard would succeed and do nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_wildcard_in_a_v1_whitelist_is_replaced_by_what_is_granted() {
    on_each(&[Kind::V1, Kind::Hybrid], async |node: &mut Node, kind| {
        widen(node, "c 195:* rwm");
        let pod = PodSpec::new("wild");
        node.allocate(&pod, "main", &[0]);
        let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
        has_only(node, kind, &id, 0).await;
    })
    .await;
}

/// Without a major it can't be taken apart; where v2 is there too, that does it.
#[tokio::test(flavor = "multi_thread")]
async fn a_v1_whitelist_that_allows_every_device_needs_v2_beside_it() {
    on_each(&[Kind::V1, Kind::Hybrid], async |node: &mut Node, kind| {
        widen(node, "c *:* rw");
        let pod = PodSpec::new("wide");
        node.allocate(&pod, "main", &[0]);
        if kind == Kind::Hybrid {
            let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
            return has_only(node, kind, &id, 0).await;
        }
        let refused = node.refused(&pod, &ContainerSpec::new("main")).await;
        assert!(
            refused.contains("c *:* rwm") && refused.contains("[fence-failed]"),
            "{refused}"
        );
    })
    .await;
}

/// A container that can run the rig's own programs: busybox has no C library.
fn armed(name: &str) -> ContainerSpec {
    let tools = Path::new(env!("CARGO_BIN_EXE_gpu-warden"))
        .parent()
        .unwrap();
    ["/lib", "/lib64", "/usr/lib"]
        .into_iter()
        .filter(|dir| Path::new(dir).exists())
        .fold(ContainerSpec::new(name), |spec, dir| spec.mount(dir, dir))
        .mount(&tools.display().to_string(), "/tools")
}

/// With `CAP_SYS_ADMIN` a container may take device programs off each cgroup that it can reach: its own.
#[tokio::test(flavor = "multi_thread")]
async fn on_v2_a_container_that_takes_its_own_fence_down_stays_within_its_pod_s() {
    on_each(&[Kind::V2], async |node: &mut Node, kind| {
        let pod = PodSpec::new("digger");
        node.allocate(&pod, "main", &[0]);
        let container = ContainerSpec {
            add_capabilities: vec!["SYS_ADMIN".to_owned()],
            ..armed("main")
        };
        let id = node.run(&pod, &container).await.unwrap();
        let dig = "mkdir -p /m && mount -t cgroup2 m /m && /tools/detach-programs /m && ls /m | grep -c pod; umount /m";
        let said = shell(node, &id, dig).await;
        // The runtime's and ours.
        assert_eq!(said, "detached 2\n0\n");
        has_only(node, kind, &id, 0).await;
    })
    .await;
}

/// containerd gives privileged containers the host's cgroup namespace, so that they reach their pod's
/// cgroup as well. That can't be prevented from outside; it is noticed, said, and undone.
#[tokio::test(flavor = "multi_thread")]
async fn on_v2_a_fence_that_a_privileged_container_takes_down_is_put_up_again() {
    on_each(&[Kind::V2], async |node: &mut Node, kind| {
        let pod = PodSpec::new("digger").privileged();
        node.allocate(&pod, "main", &[0]);
        let id = node.run(&pod, &armed("main")).await.unwrap();
        has_only(node, kind, &id, 0).await;
        let dig = "own=/sys/fs/cgroup$(sed -n s/^0:://p /proc/self/cgroup); \
            /tools/detach-programs \"$own\" && /tools/detach-programs \"${own%/*}\"";
        let said = shell(node, &id, dig).await;
        assert_eq!(said, "detached 2\ndetached 1\n");
        is_open(node, &id, GPU_MAJOR, 1).await;
        // A change in the CDI directory makes gpu-warden look now instead of at the next poll.
        let spec = node.world.cdi_dir().join("nvidia.com-gpu.yaml");
        std::fs::write(spec, "torn").unwrap();
        logged(node, "the fence of a running container was taken down", 1).await;
        logged(node, "a running container was fenced", 1).await;
        has_only(node, kind, &id, 0).await;
    })
    .await;
}
