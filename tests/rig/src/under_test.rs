//! How the programs under test are started in a world: where each of their roots and sockets is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::run;
use crate::process::{Launch, Process};
use crate::{Containerd, Failure, World};

/// What gpu-warden logs once the runtime has taken it in.
pub const REGISTERED: &str = "registered with the runtime";

/// The variable that the fake NVML reads.
const TOPOLOGY: &str = "FAKE_NVML_TOPOLOGY";
/// What it logs after its first look at the hardware.
const KNOWS_GPUS: &str = "GPUs: ";
const START: Duration = Duration::from_secs(20);
const STOP: Duration = Duration::from_secs(10);

/// The programs, as cargo built them or as the caller says.
#[derive(Debug, Clone)]
pub struct Programs {
    /// `cdi-gen`.
    pub cdi_gen: PathBuf,
    /// `gpu-warden`.
    pub gpu_warden: PathBuf,
    /// The fake `libnvidia-ml.so`.
    pub nvml_library: PathBuf,
}

impl Programs {
    /// Those that lie beside the running program.
    pub fn built(world: &World) -> Result<Self, Failure> {
        let artifacts = world.artifacts();
        Ok(Self {
            cdi_gen: artifacts.built("cdi-gen")?,
            gpu_warden: artifacts.built("gpu-warden")?,
            nvml_library: world.nvml_library()?,
        })
    }

    /// The flags that both programs share.
    pub fn roots(&self, world: &World) -> Vec<OsString> {
        let flag = |name: &str, path: &Path| {
            let mut flag = OsString::from(format!("--{name}="));
            flag.push(path);
            flag
        };
        vec![
            flag("driver-root", &world.driver_root()),
            flag("dev-root", Path::new("/")),
            flag("sys-root", &world.sys_root()),
            flag("nvml-library", &self.nvml_library),
        ]
    }

    /// Writes the spec of the world's GPUs into its CDI directory; the answer is the file.
    pub async fn generate_spec(&self, world: &World) -> Result<PathBuf, Failure> {
        let spec = world.cdi_dir().join("nvidia.com-gpu.yaml");
        let mut command = world.command(&self.cdi_gen);
        command
            .args(["generate", "--output"])
            .arg(&spec)
            .args(self.roots(world))
            .env(TOPOLOGY, world.topology());
        run(&mut command).await?;
        Ok(spec)
    }

    /// `gpu-warden run`, not yet started, for further arguments.
    pub fn warden(&self, world: &World, containerd: &Containerd) -> Launch {
        let flag = |name: &str, path: PathBuf| {
            let mut flag = OsString::from(format!("--{name}="));
            flag.push(path);
            flag
        };
        let mut launch = Launch::new("gpu-warden", &self.gpu_warden)
            .arg("run")
            .arg(flag("kubelet-root", world.kubelet_root()))
            .arg(flag("cdi-dir", world.cdi_dir()))
            .arg(flag("nri-socket", containerd.nri_socket()))
            .env(TOPOLOGY, world.topology());
        launch.args.extend(self.roots(world));
        launch
    }

    /// Starts gpu-warden and waits until containers are guarded.
    pub async fn start_warden(
        &self,
        world: &World,
        containerd: &Containerd,
    ) -> Result<Process, Failure> {
        let mut warden = self.warden(world, containerd).start(world).await?;
        wait_until_ready(&mut warden).await?;
        Ok(warden)
    }
}

/// Waits until a gpu-warden that was started (again) is registered with the runtime and knows its GPUs.
pub async fn wait_until_ready(warden: &mut Process) -> Result<(), Failure> {
    warden
        .wait_for_log(&format!(" {REGISTERED}"), START)
        .await?;
    warden.wait_for_log(KNOWS_GPUS, START).await
}

/// SIGTERM, until it has ended.
pub async fn stop(warden: &mut Process) -> Result<(), Failure> {
    warden.stop(STOP).await.map(drop)
}

/// Starts a stopped or killed one again, as [`Programs::start_warden`].
pub async fn start_again(warden: &mut Process) -> Result<(), Failure> {
    warden.start().await?;
    wait_until_ready(warden).await
}
