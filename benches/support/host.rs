//! The node as a host in a temporary directory, on which the real `gpu-warden run` is started: it
//! loads the fake NVML, writes its spec, and connects to the socket of the benchmark's runtime.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::UnixListener;

use super::elf_fixture;
use super::node::{self, GPUS, LIBRARIES, LIBRARY_DIR, VERSION};

/// Names another build of `gpu-warden` than the one that cargo made for the benchmark.
const PROGRAM: &str = "BENCH_PROGRAM";
const START: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug)]
pub(crate) struct Host {
    dir: TempDir,
}

/// A running `gpu-warden run`; ended when dropped.
#[derive(Debug)]
pub(crate) struct Warden {
    child: Child,
    log: PathBuf,
}

impl Host {
    /// None, with a word on stdout, where device nodes can't be made.
    pub(crate) fn make() -> Result<Option<Self>> {
        // Not below TMPDIR: a unix socket's path has at most 107 bytes.
        let dir = tempfile::Builder::new().prefix("gw-").tempdir_in("/tmp")?;
        let host = Self { dir };
        fs::create_dir(host.path("dev"))?;
        if host.node("dev/probe", 195, 0).is_err() {
            println!(
                "\nleft out: the real program needs GPU nodes, and making them needs CAP_MKNOD (root)"
            );
            return Ok(None);
        }
        fs::remove_file(host.path("dev/probe"))?;
        host.fill()?;
        Ok(Some(host))
    }

    fn fill(&self) -> Result<()> {
        for dir in ["sys", "cdi", "kubelet", "dev/dri"] {
            fs::create_dir_all(self.path(dir))?;
        }
        self.write("proc/devices", node::PROC_DEVICES.as_bytes())?;
        let inventory = node::inventory();
        let nodes = inventory.gpus.iter().flat_map(|gpu| &gpu.nodes);
        for found in nodes.chain(&inventory.control) {
            let path = found.path.display().to_string();
            self.node(path.trim_start_matches('/'), found.major, found.minor)?;
        }
        for gpu in 0..GPUS {
            let pci = format!("0000:{:02x}:00.0", node::bus(gpu));
            for (name, minor) in [
                (format!("card{gpu}"), gpu),
                (format!("renderD{}", 128 + gpu), 128 + gpu),
            ] {
                for dir in [
                    format!("sys/bus/pci/devices/{pci}/drm/{name}"),
                    format!("sys/class/drm/{name}"),
                ] {
                    self.write(&format!("{dir}/dev"), format!("226:{minor}\n").as_bytes())?;
                    self.write(&format!("{dir}/device/vendor"), b"0x10de\n")?;
                }
            }
        }
        let libraries = LIBRARY_DIR.trim_start_matches('/');
        for name in (0..LIBRARIES).map(node::library) {
            let elf = elf_fixture::library(Some(&format!("{name}.1")));
            self.write(&format!("{libraries}/{name}.{VERSION}"), &elf)?;
        }
        self.write("usr/bin/nvidia-smi", b"#!/bin/sh\n")?;
        fs::set_permissions(
            self.path("usr/bin/nvidia-smi"),
            fs::Permissions::from_mode(0o755),
        )?;
        self.write("opt/nvml.so", &fs::read(fake_nvml()?)?)?;
        symlink(
            "/opt/nvml.so",
            self.path(&format!("{libraries}/libnvidia-ml.so.1")),
        )?;
        let gpus = inventory.gpus.iter().map(|gpu| {
            let pci = format!("0000{}", gpu.pci);
            json!({"uuid": gpu.id.as_str(), "name": gpu.name, "minor": gpu.minor, "pci": pci, "mig": 0})
        });
        let topology = json!({"driver_version": VERSION, "gpus": gpus.collect::<Vec<_>>()});
        self.write("topology.json", topology.to_string().as_bytes())
    }

    /// Root of the kubelet.
    pub(crate) fn kubelet_root(&self) -> PathBuf {
        self.path("kubelet")
    }

    /// The runtime's socket, fresh.
    pub(crate) fn listen(&self) -> Result<UnixListener> {
        let path = self.path("nri.sock");
        if path.exists() {
            fs::remove_file(&path)?;
        }
        UnixListener::bind(&path).with_context(|| format!("bind {}", path.display()))
    }

    /// Starts the program with `environment` added.
    pub(crate) fn start(&self, environment: &[(String, String)]) -> Result<Warden> {
        let log = self.path("gpu-warden.log");
        let root = |flag: &str, path: &str| format!("--{flag}={}", self.path(path).display());
        let child = Command::new(program())
            .env_clear()
            .env("FAKE_NVML_TOPOLOGY", self.path("topology.json"))
            .envs(environment.iter().cloned())
            .arg("run")
            .arg(root("driver-root", ""))
            .arg(root("sys-root", "sys"))
            .arg(root("proc-root", "proc"))
            .arg(root("kubelet-root", "kubelet"))
            .arg(root("cdi-dir", "cdi"))
            .arg(root("nri-socket", "nri.sock"))
            .arg(root("status-socket", "status.sock"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .context("start gpu-warden")?;
        Ok(Warden { child, log })
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn write(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path(path);
        let write = || {
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            fs::write(&path, bytes)
        };
        write().with_context(|| format!("write {}", path.display()))
    }

    fn node(&self, path: &str, major: u32, minor: u32) -> Result<()> {
        let (mode, device) = (Mode::from_raw_mode(0o666), makedev(major, minor));
        mknodat(
            CWD,
            self.path(path),
            FileType::CharacterDevice,
            mode,
            device,
        )
        .with_context(|| format!("make the node {path}"))
    }
}

impl Warden {
    /// Its pid.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has logged that it knows every GPU.
    pub(crate) async fn knows_gpus(&mut self) -> Result<()> {
        let until = Instant::now() + START;
        loop {
            let log = fs::read_to_string(&self.log)?;
            if log.contains(&node::uuid(GPUS - 1)) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("gpu-warden ended ({status}):\n{log}");
            }
            ensure!(Instant::now() < until, "gpu-warden knows no GPU:\n{log}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        // Fails only when it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program that cargo built for this benchmark, or another build to compare it with.
fn program() -> PathBuf {
    std::env::var_os(PROGRAM).map_or_else(|| env!("CARGO_BIN_EXE_gpu-warden").into(), PathBuf::from)
}

/// The fake library in the directory of the program under test; `cargo bench` alone does not build it.
fn fake_nvml() -> Result<PathBuf> {
    let dir = Path::new(env!("CARGO_BIN_EXE_gpu-warden"))
        .parent()
        .context("the program has a directory")?;
    let library = dir.join("libnvidia_ml.so");
    if !library.exists() {
        let target = dir.parent().context("a target directory")?;
        let status = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--release",
                "--package",
                "fake-nvml",
                "--target-dir",
            ])
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()?;
        ensure!(
            status.success(),
            "`cargo build --release --package fake-nvml` failed"
        );
    }
    Ok(library)
}
