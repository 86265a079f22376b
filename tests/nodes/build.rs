//! Makes a described node in a temporary directory, and runs `cdi-gen` over it.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::OnceLock;

use rustix::fs::{FileType, Mode, makedev};
use serde_json::json;
use tempfile::TempDir;

use crate::describe::{Content, Description, Gpu};
use crate::elf_fixture::{library, library_32};

/// Where the fake NVML lies in a driver root, and where `libnvidia-ml.so.1` leads.
const NVML: &str = ".nvml/libnvidia-ml.so";

pub(crate) struct Node {
    dir: TempDir,
    description: Description,
    sockets: Vec<UnixListener>,
}

pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Device nodes need a capability that an ordinary user lacks; such a run skips the test.
pub(crate) fn can_mknod() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let can = mknod(&dir.path().join("probe"), 195, 0).is_ok();
    if !can {
        eprintln!("skipped: needs CAP_MKNOD");
    }
    can
}

fn mknod(path: &Path, major: u32, minor: u32) -> rustix::io::Result<()> {
    rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        FileType::CharacterDevice,
        Mode::from_raw_mode(0o666),
        makedev(major, minor),
    )?;
    rustix::fs::chmod(path, Mode::from_raw_mode(0o666))
}

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
        fs::read(dir.join("libnvidia_ml.so")).unwrap_or_else(|error| {
            panic!("`cargo build -p fake-nvml` said {built:?}, and its library: {error}")
        })
    })
}

impl Node {
    pub(crate) fn new(description: &Description) -> Self {
        let mut node = Self {
            dir: tempfile::tempdir().unwrap(),
            description: description.clone(),
            sockets: Vec::new(),
        };
        for dir in ["proc", "sys", "dev", "etc"] {
            fs::create_dir_all(node.path(dir)).unwrap();
        }
        let content = description.content.clone();
        node.add(&content);
        node.topology(description.driver.as_deref(), &content);
        if let Some(version) = &description.driver {
            node.put(
                "proc/driver/nvidia/version",
                format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  x\n")
                    .as_bytes(),
            );
        }
        node
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn in_root(&self, path: &str) -> String {
        format!("{}/{path}", self.description.root)
            .trim_start_matches('/')
            .to_owned()
    }

    pub(crate) fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(crate) fn remove(&self, path: &str) {
        let path = self.path(path);
        let kind = fs::symlink_metadata(&path).unwrap().file_type();
        if kind.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    pub(crate) fn add(&mut self, content: &Content) {
        for (narrow, libraries) in [(false, &content.libraries), (true, &content.libraries_32)] {
            for (dir, names) in libraries {
                for name in names {
                    self.library(dir, name, narrow);
                }
            }
        }
        for (path, text) in &content.files {
            self.put(&self.in_root(path), text.as_bytes());
        }
        for path in &content.programs {
            let path = self.in_root(path);
            self.put(&path, b"#!/bin/sh\n");
            fs::set_permissions(self.path(&path), fs::Permissions::from_mode(0o755)).unwrap();
        }
        for (path, target) in &content.links {
            let path = self.path(&self.in_root(path));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let _ = fs::remove_file(&path);
            symlink(target, path).unwrap();
        }
        for path in &content.directories {
            fs::create_dir_all(self.path(&self.in_root(path))).unwrap();
        }
        for path in &content.sockets {
            let path = self.path(&self.in_root(path));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            self.sockets.push(UnixListener::bind(path).unwrap());
        }
        if !content.loader_cache.is_empty() {
            let bytes = loader_cache(&content.loader_cache);
            self.put(&self.in_root("etc/ld.so.cache"), &bytes);
        }
        for (path, numbers) in &content.nodes {
            self.device(path, numbers);
        }
        for (path, text) in &content.proc {
            self.put(&format!("proc/{path}"), text.as_bytes());
        }
        for (path, text) in &content.sys {
            self.put(&format!("sys/{path}"), text.as_bytes());
        }
        if !content.majors.is_empty() {
            let mut text = "Character devices:\n  1 mem\n195 nvidia\n226 drm\n".to_owned();
            for (name, major) in &content.majors {
                writeln!(text, "{major} {name}").unwrap();
            }
            self.put("proc/devices", text.as_bytes());
        }
        for gpu in &content.gpus {
            self.gpu(gpu);
        }
    }

    fn library(&self, dir: &str, name: &str, narrow: bool) {
        let version = self.description.driver.as_deref().unwrap_or("0.0");
        let stem = name.split(".so").next().unwrap();
        let (soname, file) = name.split_once('=').map_or_else(
            || (name, format!("{stem}.so.{version}")),
            |(soname, file)| (soname, file.to_owned()),
        );
        let dir = self.in_root(dir);
        let bytes = if narrow { library_32 } else { library }(Some(soname));
        self.put(&format!("{dir}/{file}"), &bytes);
        let link = self.path(&format!("{dir}/{soname}"));
        if soname == file || link.exists() {
            return;
        }
        if soname == "libnvidia-ml.so.1" && !narrow {
            self.put(&self.in_root(NVML), fake_nvml());
            symlink(format!("/{NVML}"), link).unwrap();
        } else {
            symlink(file, link).unwrap();
        }
    }

    fn device(&self, name: &str, numbers: &str) {
        let path = self.path(&self.description.dev_root).join("dev").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        if let Some(target) = numbers.strip_prefix("-> ") {
            symlink(target, path).unwrap();
            return;
        }
        let parts: Vec<u32> = numbers.split(':').map(|n| n.parse().unwrap()).collect();
        mknod(&path, parts[0], parts[1]).unwrap();
        if let Some(group) = parts.get(2) {
            std::os::unix::fs::chown(&path, None, Some(*group)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).unwrap();
        }
    }

    fn gpu(&self, gpu: &Gpu) {
        self.device(
            &format!("nvidia{}", gpu.minor),
            &format!("195:{}", gpu.minor),
        );
        let pci = format!("0000:{}:00.0", gpu.bus);
        let uuid = gpu.uuid.as_str().unwrap_or("?");
        self.put(
            &format!("proc/driver/nvidia/gpus/{pci}/information"),
            format!(
                "Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\nBus Location: \t {pci}\n\
                 Device Minor: \t {}\nGPU Excluded:\t No\n",
                gpu.minor
            )
            .as_bytes(),
        );
        let Some(drm) = gpu.drm else { return };
        for (name, minor) in [
            (format!("card{drm}"), drm),
            (format!("renderD{}", 128 + drm), 128 + drm),
        ] {
            for dir in [
                format!("sys/bus/pci/devices/{pci}/drm"),
                "sys/class/drm".into(),
            ] {
                self.put(
                    &format!("{dir}/{name}/dev"),
                    format!("226:{minor}\n").as_bytes(),
                );
                self.put(&format!("{dir}/{name}/device/vendor"), b"0x10de\n");
            }
            self.device(&format!("dri/{name}"), &format!("226:{minor}:44"));
            let kind = if name.starts_with("card") {
                "card"
            } else {
                "render"
            };
            self.device(
                &format!("dri/by-path/pci-{pci}-{kind}"),
                &format!("-> ../{name}"),
            );
        }
    }

    /// What the fake NVML tells.
    pub(crate) fn topology(&self, driver: Option<&str>, content: &Content) {
        let gpus: Vec<_> = content
            .gpus
            .iter()
            .map(|gpu| {
                json!({
                    "uuid": gpu.uuid,
                    "name": gpu.name.clone().unwrap_or(json!("NVIDIA H100 80GB HBM3")),
                    "minor": gpu.minor,
                    "pci": format!("00000000:{}:00.0", gpu.bus.to_uppercase()),
                    "mig": gpu.mig,
                    "mig_devices": gpu.mig_devices,
                    "errors": gpu.errors,
                })
            })
            .collect();
        let topology = json!({
            "driver_version": driver.unwrap_or("0.0"),
            "gpus": gpus,
            "errors": content.errors,
        });
        self.put("topology.json", topology.to_string().as_bytes());
    }

    /// A command of `cdi-gen` over this node, with nothing of the caller's environment.
    pub(crate) fn command(&self, name: &str) -> assert_cmd::Command {
        let root = |name: &str| self.path(name).display().to_string();
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_cdi-gen"));
        command
            .env_clear()
            .env("FAKE_NVML_TOPOLOGY", self.path("topology.json"))
            .arg(name)
            .args(["--driver-root", &root(&self.description.root)])
            .args(["--dev-root", &root(&self.description.dev_root)])
            .args(["--sys-root", &root("sys")])
            .args(["--proc-root", &root("proc")]);
        command
    }

    pub(crate) fn generate(&self) -> assert_cmd::Command {
        self.command("generate")
    }

    /// Flags for a view as a host has it: the node's root is `/`.
    pub(crate) fn host_roots(&self) -> [String; 2] {
        let in_host = |root: &str| format!("/{}", root.trim_start_matches('/'));
        [
            format!("--host-driver-root={}", in_host(&self.description.root)),
            format!("--host-dev-root={}", in_host(&self.description.dev_root)),
        ]
    }

    /// Something that can be executed.
    pub(crate) fn program(&self, path: &str) {
        let path = self.in_root(path);
        self.put(&path, b"#!/bin/sh\n");
        fs::set_permissions(self.path(&path), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// `generate` to stdout, as a host would see it.
    pub(crate) fn run(&self, arguments: &[String]) -> Run {
        let output = self
            .generate()
            .args(self.host_roots())
            .args(["--output", "-"])
            .args(arguments)
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

impl Run {
    pub(crate) fn devices(&self) -> Vec<String> {
        if self.stdout.is_empty() {
            return Vec::new();
        }
        let spec =
            cdi::Spec::from_yaml(&self.stdout).unwrap_or_else(|e| panic!("{e}\n{}", self.stdout));
        spec.devices.into_iter().map(|device| device.name).collect()
    }
}

/// `/etc/ld.so.cache` in the new format, as glibc's headers define it.
fn loader_cache(entries: &std::collections::BTreeMap<String, String>) -> Vec<u8> {
    let count = u32::try_from(entries.len()).unwrap();
    let strings_at = 48 + 24 * count;
    let mut strings = Vec::new();
    let mut table = Vec::new();
    for (name, dir) in entries {
        table.extend(0x0303_u32.to_le_bytes());
        for text in [name.clone(), format!("{dir}/{name}")] {
            let at = strings_at + u32::try_from(strings.len()).unwrap();
            table.extend(at.to_le_bytes());
            strings.extend(text.bytes());
            strings.push(0);
        }
        table.extend([0; 12]);
    }
    let mut out = b"glibc-ld.so.cache1.1".to_vec();
    out.extend(count.to_le_bytes());
    out.extend(u32::try_from(strings.len()).unwrap().to_le_bytes());
    out.extend([0; 20]);
    out.extend(table);
    out.extend(strings);
    out
}
