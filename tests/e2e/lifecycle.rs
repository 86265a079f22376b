//! Restarts: of the container, of containerd, of gpu-warden; and who holds a GPU meanwhile.

use std::os::unix::fs::PermissionsExt as _;

use gpu_warden_rig::cri::{ContainerSpec, PodSpec};
use gpu_warden_rig::under_test::{self, REGISTERED};
use gpu_warden_rig::world::Gpu;
use gpu_warden_rig::{World, artifacts};

use crate::support::{Node, on_both, programs};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_container_has_the_same_gpu() {
    on_both(World::builder(), async |node: &mut Node| {
        let pod = PodSpec::new("crasher").privileged();
        node.allocate(&pod, "main", &[1]);
        let sandbox = node.sandbox(&pod).await;
        let cri = node.containerd.cri();
        for attempt in 0..3 {
            let id = cri
                .run(
                    &sandbox,
                    &ContainerSpec {
                        attempt,
                        ..ContainerSpec::new("main")
                    },
                )
                .await
                .unwrap();
            node.has_exactly(&id, &[1]).await;
            cri.stop(&id, 0).await.unwrap();
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_of_containerd_the_next_container_is_guarded() {
    on_both(World::builder(), async |node: &mut Node| {
        let before = PodSpec::new("before").privileged();
        node.allocate(&before, "main", &[0]);
        let running = node
            .run(&before, &ContainerSpec::new("main"))
            .await
            .unwrap();
        for kill in [false, true] {
            let registrations = node.warden.log().unwrap().matches(REGISTERED).count();
            if kill {
                node.containerd.kill().await.unwrap();
            } else {
                node.containerd.stop().await.unwrap();
            }
            node.containerd.start_again().await.unwrap();
            registered_again(node, registrations).await;
            let pod = PodSpec::new("after").privileged();
            node.allocate(&pod, "main", &[1]);
            let sandbox = node.sandbox(&pod).await;
            let id = node
                .containerd
                .cri()
                .run(&sandbox, &ContainerSpec::new("main"))
                .await
                .unwrap();
            node.has_exactly(&id, &[1]).await;
            node.has_exactly(&running, &[0]).await;
            node.containerd.cri().stop(&id, 0).await.unwrap();
            node.containerd.cri().stop_pod(&sandbox).await.unwrap();
            node.kubelet.release(&pod.uid);
        }
    })
    .await;
}

async fn registered_again(node: &Node, before: usize) {
    let end = std::time::Instant::now() + PATIENCE;
    while node.warden.log().unwrap().matches(REGISTERED).count() <= before {
        assert!(
            std::time::Instant::now() < end,
            "{}",
            node.warden.log().unwrap()
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// As with a force deletion: the kubelet gives the GPU to the next pod while the old one still runs
/// on it. The new one has to wait, also when gpu-warden was restarted in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_on_which_another_pod_still_runs_is_not_given_away() {
    on_both(World::builder(), async |node: &mut Node| {
        let old = PodSpec::new("old").privileged();
        node.allocate(&old, "main", &[0]);
        let holder = node.run(&old, &ContainerSpec::new("main")).await.unwrap();
        for kill in [None, Some(false), Some(true)] {
            match kill {
                None => {}
                Some(true) => node.warden.kill().await.unwrap(),
                Some(false) => under_test::stop(&mut node.warden).await.unwrap(),
            }
            if kill.is_some() {
                under_test::start_again(&mut node.warden).await.unwrap();
            }
            let new = PodSpec::new("new").privileged();
            node.allocate(&new, "main", &[0]);
            let refused = node.refused(&new, &ContainerSpec::new("main")).await;
            assert!(
                refused.contains("default/old/main") && refused.contains("[gpu-held]"),
                "{refused}"
            );
        }
        node.has_exactly(&holder, &[0]).await;
        node.containerd.cri().stop(&holder, 0).await.unwrap();
        node.kubelet.release(&old.uid);
        let new = PodSpec::new("newest").privileged();
        node.allocate(&new, "main", &[0]);
        let id = node.run(&new, &ContainerSpec::new("main")).await.unwrap();
        node.has_exactly(&id, &[0]).await;
    })
    .await;
}

/// A stop that happened while gpu-warden was away must not hold the GPU for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_was_missed_frees_the_gpu() {
    on_both(World::builder(), async |node: &mut Node| {
        let old = PodSpec::new("old");
        node.allocate(&old, "main", &[0]);
        let holder = node.run(&old, &ContainerSpec::new("main")).await.unwrap();
        node.warden.kill().await.unwrap();
        node.containerd.cri().stop(&holder, 0).await.unwrap();
        under_test::start_again(&mut node.warden).await.unwrap();
        let new = PodSpec::new("new");
        node.allocate(&new, "main", &[0]);
        let id = node.run(&new, &ContainerSpec::new("main")).await.unwrap();
        node.has_exactly(&id, &[0]).await;
    })
    .await;
}

/// containerd starts it by itself, before it serves any request.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_containerd_starts_guards_from_the_first_container_on() {
    for files in artifacts::both_containerds().unwrap() {
        let mut node = Node::start(&files, World::builder()).await;
        let roots = programs(&node.world).roots(&node.world);
        let flags: Vec<_> = roots.iter().map(|flag| flag.to_string_lossy()).collect();
        under_test::stop(&mut node.warden).await.unwrap();
        node.containerd.stop().await.unwrap();
        let script = format!(
            "#!/bin/sh\nexport FAKE_NVML_TOPOLOGY={}\nexec {} run {} --kubelet-root={} --cdi-dir={} 2>{}\n",
            node.world.topology().display(),
            env!("CARGO_BIN_EXE_gpu-warden"),
            flags.join(" "),
            node.world.kubelet_root().display(),
            node.world.cdi_dir().display(),
            node.world.path("log/prelaunched.log").display(),
        );
        let plugin = node.containerd.nri_plugins().join("99-gpu-warden");
        std::fs::create_dir_all(plugin.parent().unwrap()).unwrap();
        std::fs::write(&plugin, script).unwrap();
        std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
        node.containerd.start_again().await.unwrap();
        let pod = PodSpec::new("first").privileged();
        node.allocate(&pod, "main", &[1]);
        let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
        node.has_exactly(&id, &[1]).await;
        drop(node.containerd);
        node.world.teardown().await.unwrap();
    }
}

/// UUIDs in another order than minors: nothing may confuse the two.
#[tokio::test(flavor = "multi_thread")]
async fn the_node_follows_the_uuid_and_not_the_index() {
    let gpus = vec![Gpu::numbered(5), Gpu::numbered(3)];
    on_both(
        World::builder().gpus_named(gpus),
        async |node: &mut Node| {
            let pod = PodSpec::new("crossed").privileged();
            node.allocate(&pod, "main", &[1]);
            let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
            node.has_exactly(&id, &[1]).await;
            assert_eq!(node.variable(&id, "GPU_WARDEN_UUIDS").await, node.uuid(1));
        },
    )
    .await;
}
