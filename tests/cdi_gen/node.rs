//! A GPU node in a temporary directory: driver root, `/dev`, `/sys`, `/proc`, and the fake NVML.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::OnceLock;

use rustix::fs::{FileType, Mode, makedev};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::elf_fixture::library;

pub(crate) const VERSION: &str = "570.133.20";
const LIBS: &str = "usr/lib/x86_64-linux-gnu";

/// The fake library's bytes, built once, and read at once: another test run may replace the file.
fn fake_nvml() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let dir = Path::new(env!("CARGO_BIN_EXE_cdi-gen")).parent().unwrap();
        let mut cargo = Process::new(env!("CARGO"));
        cargo
            .args(["build", "--quiet", "-p", "fake-nvml", "--target-dir"])
            .arg(dir.parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        if dir.ends_with("release") {
            cargo.arg("--release");
        }
        let built = cargo.status();
        let file = dir.join("libnvidia_ml.so");
        fs::read(&file).unwrap_or_else(|error| {
            panic!(
                "{}: {error}; `cargo build -p fake-nvml` makes it, and said {built:?}",
                file.display()
            )
        })
    })
}

/// Device nodes need a capability that an ordinary user lacks; such a run skips the test. In CI
/// (the variable `CI` is set) it fails instead: a skipped test proves nothing.
pub(crate) fn can_mknod() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let can = mknod(&dir.path().join("probe"), 195, 0).is_ok();
    if !can {
        assert!(std::env::var_os("CI").is_none(), "needs CAP_MKNOD");
        eprintln!("skipped: needs CAP_MKNOD");
    }
    can
}

fn mknod(path: &Path, major: u32, minor: u32) -> rustix::io::Result<()> {
    let mode = Mode::from_raw_mode(0o666);
    let device = makedev(major, minor);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        FileType::CharacterDevice,
        mode,
        device,
    )
}

/// One GPU of a topology file.
pub(crate) fn gpu(uuid: &str, minor: u32, bus: &str) -> Value {
    json!({
        "uuid": format!("GPU-{uuid}"),
        "name": "NVIDIA A100-SXM4-40GB",
        "minor": minor,
        "pci": format!("00000000:{bus}:00.0"),
        "mig": 0,
    })
}

pub(crate) struct Node {
    dir: TempDir,
}

impl Node {
    /// A host without a driver: procfs, and no GPU.
    pub(crate) fn bare() -> Self {
        let node = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for dir in ["dev", "sys", "etc"] {
            fs::create_dir_all(node.path(dir)).unwrap();
        }
        node.put("proc/devices", b"Character devices:\n  1 mem\n");
        node
    }

    /// A host with a driver, control nodes and two GPUs whose index is not their minor.
    pub(crate) fn with_driver() -> Self {
        let node = Self::bare();
        node.put(
            "proc/devices",
            b"Character devices:\n  1 mem\n195 nvidia\n226 drm\n511 nvidia-uvm\n",
        );
        for (stem, soname) in [
            ("libcuda", "libcuda.so.1"),
            ("libnvidia-ml", "libnvidia-ml.so.1"),
            ("libnvidia-ptxjitcompiler", "libnvidia-ptxjitcompiler.so.1"),
        ] {
            node.put(
                &format!("{LIBS}/{stem}.so.{VERSION}"),
                &library(Some(soname)),
            );
        }
        // An absolute link that means something inside the root only.
        node.put("opt/nvml.so", fake_nvml());
        symlink(
            "/opt/nvml.so",
            node.path(&format!("{LIBS}/libnvidia-ml.so.1")),
        )
        .unwrap();
        node.put("usr/bin/nvidia-smi", b"#!/bin/sh\n");
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(node.path("usr/bin/nvidia-smi"), executable).unwrap();
        for (path, major, minor) in [
            ("nvidiactl", 195, 255),
            ("nvidia-uvm", 511, 0),
            ("nvidia-uvm-tools", 511, 1),
            ("nvidia-modeset", 195, 254),
            ("nvidia0", 195, 0),
            ("nvidia1", 195, 1),
        ] {
            node.device(path, major, minor);
        }
        node.drm("0000:3b:00.0", "card1", 1, 1);
        node.drm("0000:3b:00.0", "renderD128", 128, 128);
        node.topology(&json!({
            "driver_version": VERSION,
            "gpus": [gpu("aaaa", 1, "3B"), gpu("bbbb", 0, "5E")],
        }));
        node
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// A character device below `/dev`.
    pub(crate) fn device(&self, name: &str, major: u32, minor: u32) {
        let path = self.path("dev").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        mknod(&path, major, minor).unwrap();
    }

    /// A DRM entry in sysfs with the number `said`, and its node with the number `real`.
    pub(crate) fn drm(&self, pci: &str, name: &str, said: u32, real: u32) {
        let dev = format!("226:{said}\n");
        for dir in [
            format!("sys/bus/pci/devices/{pci}/drm/{name}"),
            format!("sys/class/drm/{name}"),
        ] {
            self.put(&format!("{dir}/dev"), dev.as_bytes());
            self.put(&format!("{dir}/device/vendor"), b"0x10de\n");
        }
        self.device(&format!("dri/{name}"), 226, real);
    }

    pub(crate) fn topology(&self, topology: &Value) {
        self.put("topology.json", topology.to_string().as_bytes());
    }

    /// What the kernel module shows of a GPU.
    pub(crate) fn procfs(&self, pci: &str, uuid: &str, minor: u32) {
        self.put(
            "proc/driver/nvidia/version",
            format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {VERSION}  Tue\n").as_bytes(),
        );
        self.put(
            &format!("proc/driver/nvidia/gpus/{pci}/information"),
            format!(
                "Model: \t\t NVIDIA A100\nGPU UUID: \t {uuid}\nBus Location: \t {pci}\n\
                 Device Minor: \t {minor}\nGPU Excluded:\t No\n"
            )
            .as_bytes(),
        );
    }

    /// `cdi-gen generate` over this node, with nothing of the caller's environment.
    pub(crate) fn generate(&self) -> assert_cmd::Command {
        let root = |name| self.path(name).display().to_string();
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_cdi-gen"));
        command
            .env_clear()
            .env("FAKE_NVML_TOPOLOGY", self.path("topology.json"))
            .arg("generate")
            .args(["--driver-root", &root("")])
            .args(["--sys-root", &root("sys")])
            .args(["--proc-root", &root("proc")]);
        command
    }

    /// The same, to stdout; with the exit code, the spec if there is one, and stderr without this
    /// node's own path.
    pub(crate) fn run(&self, flags: &[&str]) -> Run {
        let output = self
            .generate()
            .args(["--output", "-"])
            .args(flags)
            .output()
            .unwrap();
        let root = self.dir.path().display().to_string();
        Run {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr)
                .unwrap()
                .replace(&root, "[ROOT]"),
        }
    }
}

pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn spec(&self) -> cdi::Spec {
        cdi::Spec::from_yaml(&self.stdout).unwrap_or_else(|e| panic!("{e}\n{}", self.stderr))
    }

    pub(crate) fn devices(&self) -> Vec<String> {
        self.spec()
            .devices
            .into_iter()
            .map(|device| device.name)
            .collect()
    }
}
