//! A node as gpu-warden finds it: a kubelet that allocates, a driver with GPUs, and gpu-warden itself.
//!
//! Owns how gpu-warden is started in a world, and how the fake NVML is told what the world has.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::Launch;
use crate::world::{DRIVER_VERSION, Gpu};
use crate::{Containerd, Failure, Process, World};

/// Its log line once the runtime has accepted it.
pub const REGISTERED: &str = "registered with the runtime";

const START: Duration = Duration::from_secs(20);
const STOP: Duration = Duration::from_secs(10);

/// Tells the fake NVML that the node has these GPUs, in this order.
pub fn write_topology(path: &Path, gpus: &[Gpu]) -> Result<(), Failure> {
    let gpus: Vec<_> = gpus
        .iter()
        .enumerate()
        .map(|(n, gpu)| {
            serde_json::json!({
                "uuid": gpu.uuid,
                "name": "Stand-in GPU",
                "minor": gpu.minor,
                "pci": format!("00000000:{:02X}:00.0", n + 1),
            })
        })
        .collect();
    let text = serde_json::json!({
        "driver_version": DRIVER_VERSION,
        "nvml_version": format!("12.{DRIVER_VERSION}"),
        "gpus": gpus,
    });
    // By rename: the library may be reading it at this moment.
    let new = path.with_extension("new");
    std::fs::write(&new, text.to_string()).map_err(Failure::file("write", &new))?;
    std::fs::rename(&new, path).map_err(Failure::file("rename to", path))
}

/// The flags by which `cdi-gen` and `gpu-warden` find this world's hardware.
pub fn host_flags(world: &World) -> Result<Vec<String>, Failure> {
    let flag = |name: &str, path: PathBuf| format!("--{name}={}", path.display());
    Ok(vec![
        flag("driver-root", world.driver_root()),
        "--dev-root=/".to_owned(),
        flag("sys-root", world.sys_root()),
        flag("nvml-library", world.nvml_library()?),
    ])
}

/// How `gpu-warden run` is started against a containerd of a world; flags may be added.
pub fn launch(program: &Path, world: &World, containerd: &Containerd) -> Result<Launch, Failure> {
    let mut launch = Launch::new("gpu-warden", program).arg("run");
    for flag in host_flags(world)? {
        launch = launch.arg(flag);
    }
    let flag = |name: &str, path: PathBuf| format!("--{name}={}", path.display());
    Ok(launch
        .arg(flag("kubelet-root", world.kubelet_root()))
        .arg(flag("cdi-dir", world.cdi_dir()))
        .arg(flag("nri-socket", containerd.nri_socket()))
        .env("FAKE_NVML_TOPOLOGY", world.topology()))
}

/// Starts it, and waits until the runtime has accepted it and it knows its GPUs.
pub async fn start(launch: Launch, world: &World) -> Result<Process, Failure> {
    let mut process = launch.start(world).await?;
    ready(&mut process).await?;
    Ok(process)
}

/// Starts a stopped or killed one again.
pub async fn start_again(process: &mut Process) -> Result<(), Failure> {
    process.start().await?;
    ready(process).await
}

/// SIGTERM, and until it has ended.
pub async fn stop(process: &mut Process) -> Result<(), Failure> {
    process.stop(STOP).await.map(drop)
}

async fn ready(process: &mut Process) -> Result<(), Failure> {
    process.wait_for_log(REGISTERED, START).await?;
    process.wait_for_log("GPUs: ", START).await
}
