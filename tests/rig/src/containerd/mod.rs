//! A containerd of its own in a world: configuration, start and stop, images.
//!
//! Invariant: every path that containerd uses lies below the world's directory or in its private
//! `/run`, so instances never meet each other or the machine's own containerd.

mod config;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::command::run;
use crate::cri::Cri;
use crate::process::{Launch, Process};
use crate::world::CgroupView;
use crate::{ContainerdFiles, Failure, Image, World};
use config::Config;

const READY: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// Runtime handler of the stand-in for the legacy NVIDIA runtime.
pub const LEGACY_HANDLER: &str = "nvidia";

/// Settings that tests vary.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// NRI `plugin_request_timeout`, such as `2s`; containerd's default if none.
    pub nri_request_timeout: Option<String>,
    /// Lines of TOML added to the end of the file.
    pub extra: String,
}

/// A running or stopped containerd. Its containers live on between the two, as on a node.
#[derive(Debug)]
pub struct Containerd {
    files: ContainerdFiles,
    process: Process,
    cri: Cri,
    base: PathBuf,
    snapshotter: &'static str,
}

impl Containerd {
    /// Writes the configuration, starts it, waits until CRI answers, and imports the `pause` and
    /// `busybox` images.
    pub async fn start(world: &World, files: &ContainerdFiles) -> Result<Self, Failure> {
        Self::start_with(world, files, &Options::default()).await
    }

    /// As [`Containerd::start`], with settings.
    pub async fn start_with(
        world: &World,
        files: &ContainerdFiles,
        options: &Options,
    ) -> Result<Self, Failure> {
        let base = world.base().to_owned();
        let (runc, legacy) = write_runtimes(world)?;
        let snapshotter = snapshotter_for(&base)?;
        let config = Config {
            base: &base,
            cdi_dir: &world.cdi_dir(),
            runc: &runc,
            legacy: &legacy,
            pause: &Image::pause().reference,
            restrict_oom: !may_raise_oom_priority(),
            snapshotter,
            options,
        };
        let path = base.join("containerd.toml");
        std::fs::write(&path, config.render(files.major)).map_err(Failure::file("write", &path))?;

        // Its own directory first: containerd looks for its shim in PATH before anywhere else.
        let search = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", files.bin.display());
        let process = Launch::new("containerd", files.bin.join("containerd"))
            .arg("--config")
            .arg(path)
            .env("PATH", search)
            .start(world)
            .await?;
        let mut containerd = Self {
            cri: Cri::new(&base.join("containerd.sock")),
            files: files.clone(),
            snapshotter,
            process,
            base,
        };
        containerd.wait_until_ready().await?;
        for image in [Image::pause(), Image::busybox()] {
            containerd.import(world, &image).await?;
        }
        Ok(containerd)
    }

    /// The calls that a kubelet makes.
    pub fn cri(&self) -> &Cri {
        &self.cri
    }

    /// Which containerd this is.
    pub fn files(&self) -> &ContainerdFiles {
        &self.files
    }

    /// The NRI socket: `--nri-socket`.
    pub fn nri_socket(&self) -> PathBuf {
        self.base.join("nri.sock")
    }

    /// The directory of pre-launched NRI plugins, read when containerd starts.
    pub fn nri_plugins(&self) -> PathBuf {
        self.base.join("nri/plugins")
    }

    /// The process, for its log and its pid.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// SIGTERM; containers go on.
    pub async fn stop(&mut self) -> Result<(), Failure> {
        self.process.stop(STOP).await.map(drop)
    }

    /// SIGKILL; containers go on.
    pub async fn kill(&mut self) -> Result<(), Failure> {
        self.process.kill().await
    }

    /// Starts it again on the same root after [`Containerd::stop`] or [`Containerd::kill`].
    pub async fn start_again(&mut self) -> Result<(), Failure> {
        self.process.start().await?;
        self.cri = Cri::new(&self.base.join("containerd.sock"));
        self.wait_until_ready().await
    }

    /// Makes an image known to the kubelet's side.
    pub async fn import(&self, world: &World, image: &Image) -> Result<(), Failure> {
        let tar = self.base.join("image.tar");
        image.write(&world.artifacts().busybox, &tar)?;
        let mut ctr = world.command(self.files.bin.join("ctr"));
        ctr.arg("--address")
            .arg(self.base.join("containerd.sock"))
            .args(["--namespace", "k8s.io", "images", "import"])
            .args(["--snapshotter", self.snapshotter])
            .arg(&tar);
        run(&mut ctr).await?;
        let until = Instant::now() + READY;
        while !self.cri.has_image(&image.reference).await? {
            if Instant::now() > until {
                return Err(Failure::Timeout {
                    what: format!("CRI's knowledge of the image {}", image.reference),
                    within: READY,
                    detail: String::new(),
                });
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    async fn wait_until_ready(&mut self) -> Result<(), Failure> {
        let until = Instant::now() + READY;
        loop {
            let answer = self.cri.version().await;
            let Err(why) = answer else { return Ok(()) };
            if let Some(status) = self.process.ended_with()? {
                return Err(Failure::Command {
                    program: "containerd".to_owned(),
                    status: status.to_string(),
                    output: self.process.log()?,
                });
            }
            if Instant::now() > until {
                return Err(Failure::Timeout {
                    what: "an answer of containerd".to_owned(),
                    within: READY,
                    detail: format!("{why}\n{}", self.process.log()?),
                });
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// The runtimes that containerd calls, as scripts, since it passes them no arguments of ours.
fn write_runtimes(world: &World) -> Result<(PathBuf, PathBuf), Failure> {
    let artifacts = world.artifacts();
    let runc = world.path("bin/runc");
    let filter = match world.cgroup_view() {
        CgroupView::Host => String::new(),
        CgroupView::Unified => {
            let filter = artifacts.built("unified-runtime")?;
            format!("{} ", filter.display())
        }
    };
    script(&runc, &format!("{filter}{}", artifacts.runc.display()))?;
    let legacy = world.path("bin/nvidia-container-runtime");
    let line = format!(
        "{} {} {}",
        artifacts.built("legacy-nvidia-runtime")?.display(),
        world.path("legacy.json").display(),
        runc.display(),
    );
    script(&legacy, &line)?;
    Ok((runc, legacy))
}

fn script(path: &Path, line: &str) -> Result<(), Failure> {
    use std::os::unix::fs::PermissionsExt as _;
    let text = format!("#!/bin/sh\nexec {line} \"$@\"\n");
    std::fs::write(path, text).map_err(Failure::file("write", path))?;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, mode).map_err(Failure::file("make executable", path))
}

/// Whether this root has `CAP_SYS_RESOURCE`; without it runc can't lower an OOM score.
fn may_raise_oom_priority() -> bool {
    const CAP_SYS_RESOURCE: u64 = 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_some_and(|bits| bits & (1 << CAP_SYS_RESOURCE) != 0)
}

/// overlayfs, except where the directory itself lies on one, which the kernel refuses to stack.
fn snapshotter_for(base: &Path) -> Result<&'static str, Failure> {
    const OVERLAYFS_MAGIC: u64 = 0x794c_7630;
    let found = rustix::fs::statfs(base).map_err(|e| Failure::file("look at", base)(e.into()))?;
    let stacked = u64::try_from(found.f_type).is_ok_and(|kind| kind == OVERLAYFS_MAGIC);
    Ok(if stacked { "native" } else { "overlayfs" })
}
