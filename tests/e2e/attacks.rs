//! What an adversary, or a bad day, does to a node.

use std::process::{Command, Stdio};
use std::time::Duration;

use gpu_warden_rig::containerd::LEGACY_HANDLER;
use gpu_warden_rig::cri::spec::DeviceSpec;
use gpu_warden_rig::cri::{ContainerSpec, PodSpec};
use gpu_warden_rig::kubelet::Style;
use gpu_warden_rig::under_test::{self, REGISTERED};
use gpu_warden_rig::{Image, World, artifacts};

use crate::support::{Node, container_with, on_both, programs};

const PATIENCE: Duration = Duration::from_secs(20);

/// Lets the driver take so long for its start, as without persistence mode, or when it hangs.
fn slow_driver(node: &Node, delay: Duration) {
    let path = node.world.topology();
    let text = std::fs::read_to_string(&path).unwrap();
    let mut topology: serde_json::Value = serde_json::from_str(&text).unwrap();
    topology["init_delay_ms"] = u64::try_from(delay.as_millis()).unwrap().into();
    let new = path.with_extension("new");
    std::fs::write(&new, topology.to_string()).unwrap();
    std::fs::rename(&new, &path).unwrap();
}

/// While it waits for the driver it is disconnected already, and containers are created unguarded.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_hangs_does_not_keep_gpu_warden_from_ending() {
    on_both(World::builder(), async |node: &mut Node| {
        under_test::stop(&mut node.warden).await.unwrap();
        slow_driver(node, Duration::from_secs(30));
        node.warden.start().await.unwrap();
        let registered = format!(" {REGISTERED}");
        node.warden
            .wait_for_log(&registered, PATIENCE)
            .await
            .unwrap();
        node.warden.stop(Duration::from_secs(4)).await.unwrap();
        slow_driver(node, Duration::ZERO);
        under_test::start_again(&mut node.warden).await.unwrap();
    })
    .await;
}

/// The runtime says what runs as soon as gpu-warden is back, the driver a second later what there is.
#[tokio::test(flavor = "multi_thread")]
async fn who_holds_a_gpu_is_known_before_the_driver_answers() {
    on_both(World::builder(), async |node: &mut Node| {
        let old = PodSpec::new("old");
        node.allocate(&old, "main", &[0]);
        node.run(&old, &ContainerSpec::new("main")).await.unwrap();
        node.warden.kill().await.unwrap();
        slow_driver(node, Duration::from_secs(2));
        under_test::start_again(&mut node.warden).await.unwrap();
        let new = PodSpec::new("new");
        node.allocate(&new, "main", &[0]);
        let refused = node.refused(&new, &ContainerSpec::new("main")).await;
        assert!(refused.contains("[gpu-held]"), "{refused}");
    })
    .await;
}

/// With the allocation for the successor the kubelet's records forget the force-deleted pod, which
/// still runs; and then gpu-warden or containerd starts again.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_does_not_give_the_gpu_of_a_force_deleted_pod_away() {
    for kill_warden in [false, true] {
        on_both(World::builder(), async |node: &mut Node| {
            let old = PodSpec::new("old");
            node.allocate(&old, "main", &[0]);
            let holder = node.run(&old, &ContainerSpec::new("main")).await.unwrap();
            node.kubelet.release(&old.uid);
            let new = PodSpec::new("new");
            node.allocate(&new, "main", &[0]);
            if kill_warden {
                node.warden.kill().await.unwrap();
                under_test::start_again(&mut node.warden).await.unwrap();
            } else {
                let before = registrations(node);
                node.containerd.stop().await.unwrap();
                node.containerd.start_again().await.unwrap();
                registered_again(node, before).await;
            }
            let refused = node.refused(&new, &ContainerSpec::new("main")).await;
            assert!(
                refused.contains("default/old/main") && refused.contains("[gpu-held]"),
                "{refused}"
            );
            node.containerd.cri().stop(&holder, 0).await.unwrap();
            let again = PodSpec { attempt: 1, ..new };
            let container = ContainerSpec {
                attempt: 1,
                ..ContainerSpec::new("main")
            };
            let id = node.run(&again, &container).await.unwrap();
            node.has_exactly(&id, &[0]).await;
        })
        .await;
    }
}

fn registrations(node: &Node) -> usize {
    node.warden.log().unwrap().matches(REGISTERED).count()
}

async fn registered_again(node: &Node, before: usize) {
    let end = std::time::Instant::now() + PATIENCE;
    while registrations(node) <= before {
        assert!(
            std::time::Instant::now() < end,
            "{}",
            node.warden.log().unwrap()
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The device plugin's own spec, as NVIDIA's writes it: other kind, same nodes, a hook.
fn device_plugin_spec(node: &Node) {
    let devices: Vec<_> = node
        .world
        .gpus()
        .iter()
        .map(|gpu| {
            serde_json::json!({
                "name": gpu.uuid,
                "containerEdits": { "deviceNodes": [{ "path": gpu.node().path }] },
            })
        })
        .collect();
    let control: Vec<_> = node
        .world
        .majors()
        .control_nodes()
        .iter()
        .map(|node| serde_json::json!({ "path": node.path }))
        .collect();
    let spec = serde_json::json!({
        "cdiVersion": "0.5.0",
        "kind": "k8s.device-plugin.nvidia.com/gpu",
        "devices": devices,
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": control,
            "hooks": [{ "hookName": "createRuntime", "path": "/bin/true" }],
        },
    });
    let path = node
        .world
        .cdi_dir()
        .join("k8s.device-plugin.nvidia.com-gpu.json");
    std::fs::write(path, spec.to_string()).unwrap();
}

/// The image's `all` stays in the environment beside the `void` of the device plugin's spec.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_runtime_has_injected_by_cdi_is_not_injected_again() {
    on_both(World::builder(), async |node: &mut Node| {
        device_plugin_spec(node);
        let image = Image::named("cuda").env("NVIDIA_VISIBLE_DEVICES", "all");
        node.containerd.import(&node.world, &image).await.unwrap();
        for style in [Style::CdiCri, Style::CdiAnnotations] {
            for image in [Image::busybox(), image.clone()] {
                let pod = PodSpec::new("cdi");
                let uuid = node.uuid(1);
                node.allocate_ids(&pod, "main", &[&uuid], style);
                let sandbox = node.sandbox(&pod).await;
                let container = container_with("main", style, &[&uuid]).image(&image);
                let cri = node.containerd.cri();
                let id = cri.run(&sandbox, &container).await.unwrap();
                node.has_exactly(&id, &[1]).await;
                let spec = cri.oci_spec(&id).await.unwrap();
                let hooks = spec["hooks"]["createRuntime"]
                    .as_array()
                    .map_or(0, Vec::len);
                assert_eq!(hooks, 1, "{style:?} {}", image.reference);
                // Only gpu-warden's own spec brings the library.
                assert!(
                    !spec["mounts"].to_string().contains("libcuda"),
                    "{style:?} {}",
                    image.reference
                );
                cri.stop(&id, 0).await.unwrap();
                cri.stop_pod(&sandbox).await.unwrap();
                node.kubelet.release(&pod.uid);
            }
        }
    })
    .await;
}

/// Everything that a spec can bring is brought without the file as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_cdi_directory_that_cannot_be_written_costs_no_pod_its_gpu() {
    for files in artifacts::both_containerds().unwrap() {
        let node = Node::start_with(&files, World::builder(), |launch| {
            launch.arg("--cdi-dir=/proc/cdi")
        })
        .await;
        let pod = PodSpec::new("train").privileged();
        node.allocate(&pod, "main", &[1]);
        let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
        node.has_exactly(&id, &[1]).await;
        node.end().await;
    }
}

/// Another file that defines the same devices makes runtimes drop both.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_spec_with_the_same_devices_costs_no_pod_its_gpu() {
    on_both(World::builder(), async |node: &mut Node| {
        let own = node.world.cdi_dir().join("nvidia.com-gpu.yaml");
        std::fs::copy(&own, node.world.cdi_dir().join("nvidia.yaml")).unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        let pod = PodSpec::new("train").privileged();
        node.allocate(&pod, "main", &[1]);
        let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
        node.has_exactly(&id, &[1]).await;
    })
    .await;
}

/// A CUDA image keeps its `all` beside the device plugin's directory name.
#[tokio::test(flavor = "multi_thread")]
async fn volume_mounts_go_together_with_an_image_that_asks_for_all() {
    on_both(World::builder(), async |node: &mut Node| {
        let image = Image::named("cuda").env("NVIDIA_VISIBLE_DEVICES", "all");
        node.containerd.import(&node.world, &image).await.unwrap();
        for handler in ["", LEGACY_HANDLER] {
            let pod = PodSpec::new("volumes").runtime_handler(handler);
            let uuid = node.uuid(1);
            node.allocate_ids(&pod, "main", &[&uuid], Style::VolumeMounts);
            let sandbox = node.sandbox(&pod).await;
            let container = container_with("main", Style::VolumeMounts, &[&uuid]).image(&image);
            let id = node
                .containerd
                .cri()
                .run(&sandbox, &container)
                .await
                .unwrap();
            node.has_exactly(&id, &[1]).await;
            node.containerd.cri().stop(&id, 0).await.unwrap();
            node.containerd.cri().stop_pod(&sandbox).await.unwrap();
            node.kubelet.release(&pod.uid);
        }
    })
    .await;
}

fn alone(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "sh", "-c", script, "sh"])
        .arg(env!("CARGO_BIN_EXE_gpu-warden"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// 128 inotify instances are all that root has by default, and a node full of agents uses them up.
#[test]
fn without_inotify_it_runs_and_polls() {
    let script = "echo 0 >/proc/sys/user/max_inotify_instances || exit 9
        timeout 3 \"$1\" run --nri-socket=/nonexistent/nri.sock --kubelet-root=/nonexistent --cdi-dir=/proc/cdi";
    let output = alone(script).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        log.contains("inotify") || log.contains("file events"),
        "{log}"
    );
    // What timeout(1) says when it had to end the command.
    assert_eq!(output.status.code(), Some(124), "{log}");
}

#[test]
fn a_start_that_fails_always_says_why() {
    for args in [
        "--log-level=a=b=c",
        "--config=/nonexistent",
        "--plugin-index=x",
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_gpu-warden"))
            .args([
                "run",
                "--nri-socket=/nonexistent/nri.sock",
                "--cdi-dir=/proc/cdi",
                args,
            ])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3), "{args}");
        assert!(!output.stderr.is_empty(), "{args}");
    }
}

/// Nobody reads what gpu-warden logs: the journal or the runtime's log copier hangs.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_nobody_reads_does_not_stop_the_guard() {
    for files in artifacts::both_containerds().unwrap() {
        let mut node = Node::start(&files, World::builder()).await;
        under_test::stop(&mut node.warden).await.unwrap();
        let fifo = node.world.path("full");
        let launch = programs(&node.world).warden(&node.world, &node.containerd);
        let script = "mkfifo \"$1\"; exec 9<>\"$1\"
            timeout 1 sh -c 'while :; do echo; done >&9'
            shift; exec \"$@\" 2>&9";
        let mut full = gpu_warden_rig::process::Launch::new("full", "/bin/sh");
        for arg in ["-c", script, "sh"] {
            full = full.arg(arg);
        }
        full = full.arg(fifo.as_os_str()).arg(launch.program.as_os_str());
        full.args.extend(launch.args.clone());
        full.env.clone_from(&launch.env);
        let mut warden = full.start(&node.world).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        for n in 0..2 {
            let pod = PodSpec::new(&format!("unlogged-{n}")).privileged();
            node.admit(&pod, "main");
            let id = node.run(&pod, &ContainerSpec::new("main")).await.unwrap();
            let view = node.look(&id).await;
            assert_eq!(view.paths(), Vec::<&str>::new());
        }
        warden.stop(Duration::from_secs(5)).await.unwrap();
        under_test::start_again(&mut node.warden).await.unwrap();
        node.end().await;
    }
}

/// As much as a pod's author can ask for: it costs nobody else the guard.
#[tokio::test(flavor = "multi_thread")]
async fn a_huge_container_is_guarded_and_so_is_the_next_one() {
    on_both(World::builder(), async |node: &mut Node| {
        let huge = PodSpec::new("huge").privileged();
        node.admit(&huge, "main");
        let volume = node.world.path("log").display().to_string();
        let mut container = ContainerSpec::new("main").annotation("big", &"x".repeat(200_000));
        for n in 0..1000 {
            container = container.env(&format!("K{n}"), &"v".repeat(900));
        }
        for n in 0..1500 {
            container = container.mount(&volume, &format!("/dev/m{n}"));
        }
        let id = node.run(&huge, &container).await.unwrap();
        node.has_exactly(&id, &[]).await;
        let next = PodSpec::new("next").privileged();
        node.admit(&next, "main");
        let id = node.run(&next, &ContainerSpec::new("main")).await.unwrap();
        node.has_exactly(&id, &[]).await;
    })
    .await;
}

/// Nothing reports its end to a kubelet that has given the GPU to the next pod at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_ends_at_once_holds_nothing() {
    on_both(World::builder(), async |node: &mut Node| {
        for n in 0..3 {
            let pod = PodSpec::new(&format!("short-{n}")).privileged();
            node.allocate(&pod, "main", &[0]);
            let short = ContainerSpec::new("main").command(&["/bin/true"]);
            let id = node.run(&pod, &short).await.unwrap();
            // It has ended by itself; on what is ending at this moment containerd may answer with an error.
            let _ = node.containerd.cri().stop(&id, 0).await;
            node.kubelet.release(&pod.uid);
        }
    })
    .await;
}

/// Nothing tells a plugin which directories the runtime reads, or whether it reads any.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_does_not_find_the_devices_by_name_gets_them_at_the_second_attempt() {
    on_both(World::builder(), async |node: &mut Node| {
        let before = registrations(node);
        node.containerd.stop().await.unwrap();
        let path = node.world.path("containerd.toml");
        let text = std::fs::read_to_string(&path).unwrap();
        let text = text.replace("enable_cdi = true", "enable_cdi = false");
        std::fs::write(&path, text).unwrap();
        node.containerd.start_again().await.unwrap();
        registered_again(node, before).await;
        let pod = PodSpec::new("train");
        node.allocate(&pod, "main", &[1]);
        let sandbox = node.sandbox(&pod).await;
        let cri = node.containerd.cri();
        let mut ran = cri.run(&sandbox, &ContainerSpec::new("main")).await;
        if ran.is_err() {
            ran = cri.run(&sandbox, &ContainerSpec::new("main")).await;
        }
        node.has_exactly(&ran.unwrap(), &[1]).await;
    })
    .await;
}

/// Another device plugin hands out a node of a GPU under a path of its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_outside_dev_is_found_also_when_its_creation_was_unseen() {
    on_both(World::builder(), async |node: &mut Node| {
        let pod = PodSpec::new("outside");
        node.allocate(&pod, "main", &[0]);
        let sandbox = node.sandbox(&pod).await;
        let mut container = ContainerSpec::new("main").device("/dev/nvidia0");
        container.devices.push(DeviceSpec {
            host_path: "/dev/nvidia1".into(),
            container_path: "/opt/gpu".into(),
            permissions: "rw".into(),
        });
        let id = node
            .containerd
            .cri()
            .run(&sandbox, &container)
            .await
            .unwrap();
        let script = "stat -c %t:%T /opt/gpu";
        let cri = node.containerd.cri();
        let out = cri.exec(&id, &["/bin/sh", "-c", script]).await.unwrap();
        assert_eq!(out.stdout.trim(), "1:3", "re-pointed");
        cri.stop(&id, 0).await.unwrap();

        // In a pod that has no fence yet: with one, runc itself can't make the node.
        node.kubelet.release(&pod.uid);
        let unseen = PodSpec::new("unseen");
        node.allocate(&unseen, "main", &[0]);
        let sandbox = node.sandbox(&unseen).await;
        under_test::stop(&mut node.warden).await.unwrap();
        let id = node
            .containerd
            .cri()
            .create(&sandbox, &container)
            .await
            .unwrap();
        under_test::start_again(&mut node.warden).await.unwrap();
        let failure = node.containerd.cri().start(&id).await.unwrap_err();
        let refused = failure.refusal().unwrap();
        assert!(
            refused.contains("/opt/gpu") && refused.contains("[gate-breach]"),
            "{refused}"
        );
    })
    .await;
}
