//! Promises of the rig itself: nothing stays behind, containers outlive containerd, hardware can
//! come and go.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::process::Command;
use std::time::{Duration, Instant};

use gpu_warden_rig::cri::{ContainerSpec, PodSpec};
use gpu_warden_rig::process::Launch;
use gpu_warden_rig::world::{GPU_MAJOR, Gpu};
use gpu_warden_rig::{Artifacts, Containerd, Failure, World, artifacts, probe};

fn world() -> World {
    World::builder()
        .start(&Artifacts::locate().unwrap())
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_outlive_a_stopped_and_a_killed_containerd() {
    for files in artifacts::both_containerds().unwrap() {
        let world = world();
        let mut containerd = Containerd::start(&world, &files).await.unwrap();
        let pod = PodSpec::new("survivor").privileged();
        let pod = containerd
            .cri()
            .run_pod(&pod, &world.cgroup_parent())
            .await
            .unwrap();
        let id = containerd
            .cri()
            .run(&pod, &ContainerSpec::new("main"))
            .await
            .unwrap();
        let pid = containerd.cri().pid(&id).await.unwrap();

        containerd.stop().await.unwrap();
        containerd.start_again().await.unwrap();
        containerd.kill().await.unwrap();
        containerd.start_again().await.unwrap();

        assert_eq!(containerd.cri().pid(&id).await.unwrap(), pid);
        let view = probe::look(containerd.cri(), &id, &[GPU_MAJOR]).await;
        assert!(view.unwrap().gpu(0).allowed());
        containerd.cri().stop(&id, 5).await.unwrap();
        let status = containerd.cri().status(&id).await.unwrap();
        assert_eq!(status.exit_code, 0, "it had time to end by itself");
        containerd.cri().remove(&id).await.unwrap();
        containerd.cri().stop_pod(&pod).await.unwrap();
        containerd.cri().remove_pod(&pod).await.unwrap();
        assert!(containerd.cri().list().await.unwrap().is_empty());
        world.teardown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hardware_comes_and_goes_in_the_world_only() {
    let world = world();
    let gpu = Gpu::numbered(7).node();
    world.add_node(&gpu).await.unwrap();
    let listed = world.run(&["ls", "/dev"]).await.unwrap();
    assert!(listed.lines().any(|name| name == "nvidia7"), "{listed}");
    world.remove_node("/dev/nvidia7").await.unwrap();
    let listed = world.run(&["ls", "/dev"]).await.unwrap();
    assert!(
        !listed.contains("nvidia7") && listed.contains("nvidia0"),
        "{listed}"
    );
    let drivers = world.run(&["cat", "/proc/devices"]).await.unwrap();
    assert!(drivers.contains("195 nvidia\n") && drivers.contains(" nvidia-uvm\n"));
    assert_eq!(
        world
            .traces()
            .leftovers()
            .iter()
            .filter(|l| l.starts_with("device"))
            .count(),
        0
    );
    world.teardown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_signalled_itself_and_can_start_again() {
    let world = world();
    let script = "trap 'echo asked; exit 7' TERM; echo up; while :; do sleep 0.05; done";
    let mut program = Launch::new("script", "/bin/sh")
        .arg("-c")
        .arg(script)
        .start(&world)
        .await
        .unwrap();
    let within = Duration::from_secs(10);
    program.wait_for_log("up\n", within).await.unwrap();
    assert_ne!(program.world_pid(), program.host_pid());
    let status = program.stop(within).await.unwrap();
    assert_eq!(status.code(), Some(7));
    assert!(program.log().unwrap().contains("asked"));

    program.start().await.unwrap();
    assert!(
        !program.log().unwrap().contains("asked"),
        "the log of the former run"
    );
    program.kill().await.unwrap();
    program.start().await.unwrap();
    let failure = program
        .wait_for_log("never said", Duration::from_millis(50))
        .await;
    assert!(matches!(failure, Err(Failure::Timeout { .. })));
    world.teardown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_world_dies_with_the_process_that_made_it() {
    use std::io::{BufRead as _, BufReader};
    let files = artifacts::both_containerds().unwrap();
    let mut holder = Command::new(env!("CARGO_BIN_EXE_rig-world"))
        .arg(&files[1].bin)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let base = lines
        .map_while(Result::ok)
        .find_map(|line| Some(line.strip_prefix("directory: ")?.to_owned()))
        .unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    let running = || {
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        pids.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok())
            .any(|line| line.contains(&base))
    };
    let until = Instant::now() + Duration::from_secs(10);
    while running() {
        assert!(Instant::now() < until, "processes of {base} still run");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    std::fs::remove_dir_all(&base).unwrap();
}
