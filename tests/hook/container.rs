//! A container of the real runc, made of an image and a spec as a CDI-aware runtime makes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cdi::{ContainerEdits, Spec};
use gpu_warden::driver::DriverFiles;
use gpu_warden::gpu::{DeviceId, Gpu, Inventory, Node, NodeLink, Source};
use gpu_warden::spec::{BuildOptions, HookMode, build};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::image::{Libc, VERSION, driver, image, nvml};

pub(crate) struct Container {
    dir: TempDir,
    config: Value,
}

pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) output: String,
    /// What the hook said; the runtime keeps it to itself.
    pub(crate) hook: String,
}

/// The mode with this build's own program.
pub(crate) fn one_hook() -> HookMode {
    HookMode::One {
        program: env!("CARGO_BIN_EXE_cdi-gen").into(),
    }
}

/// A spec with libraries where the host has them, and no more.
pub(crate) fn plain() -> HookMode {
    HookMode::None {
        loader_dirs: Vec::new(),
    }
}

impl Container {
    /// An image of `libc`, and a spec for a driver whose libraries are in `directory` on the host.
    pub(crate) fn new(libc: Libc, directory: &str, mode: HookMode) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("driver")).unwrap();
        driver(libc, &path("driver"), directory);
        nvml(libc, &path("driver"), directory);
        image(libc, &path("rootfs"));
        let written = Command::new("runc")
            .args(["spec", "--bundle"])
            .arg(dir.path())
            .status();
        assert!(
            written
                .as_ref()
                .is_ok_and(std::process::ExitStatus::success),
            "runc: {written:?}; tests/setup/setup.sh installs it"
        );
        let mut config: Value =
            serde_json::from_slice(&fs::read(path("config.json")).unwrap()).unwrap();
        config["process"]["terminal"] = false.into();
        config["process"]["args"] = json!(["/bin/cuda"]);
        config["root"]["readonly"] = false.into();
        config["hooks"] = json!({"createContainer": []});
        config["linux"]["devices"] =
            json!([{"path": "/dev/dri/card1", "type": "c", "major": 226, "minor": 1}]);
        let mut container = Self { dir, config };
        let spec = container.spec(mode);
        container.apply(&spec.container_edits);
        container
    }

    fn spec(&self, hooks: HookMode) -> Spec {
        let root = self.path("driver");
        let node = |path: &str, major, minor| Node {
            path: path.into(),
            major,
            minor,
        };
        let inventory = Inventory {
            gpus: vec![Gpu {
                id: DeviceId::parse("GPU-aaaa").unwrap(),
                index: 0,
                minor: 0,
                name: "T".into(),
                pci: "0000:3b:00.0".into(),
                nodes: vec![
                    node("/dev/nvidia0", 195, 0),
                    node("/dev/dri/card1", 226, 1),
                    node("/dev/dri/renderD128", 226, 128),
                ],
            }],
            links: [("card1", "card"), ("renderD128", "render")]
                .map(|(node, kind)| NodeLink {
                    node: format!("/dev/dri/{node}").into(),
                    path: format!("/dev/dri/by-path/pci-0000:3b:00.0-{kind}").into(),
                    target: format!("../{node}"),
                })
                .into(),
            ..Inventory::empty(Source::Procfs, VERSION)
        };
        let files = DriverFiles::find(&root, VERSION, &[]).unwrap();
        let options = BuildOptions {
            host_driver_root: root.to_str().unwrap().to_owned(),
            hooks,
            ..BuildOptions::new("nvidia.com/gpu".parse().unwrap())
        };
        let spec = build(&inventory, &files, &options);
        spec.validate_for_writing().unwrap();
        spec
    }

    fn apply(&mut self, edits: &ContainerEdits) {
        let mounts = self.config["mounts"].as_array_mut().unwrap();
        for mount in &edits.mounts {
            mounts.push(json!({
                "destination": mount.container_path,
                "source": mount.host_path,
                "type": "bind",
                "options": mount.options,
            }));
        }
        let log = self.dir.path().join("hook.log");
        for hook in &edits.hooks {
            let redirect = format!("exec \"$0\" \"$@\" 2>'{}'", log.display());
            let mut args = vec!["sh", "-c", &redirect, &hook.path];
            args.extend(hook.args[1..].iter().map(String::as_str));
            let value = json!({"path": "/bin/sh", "args": args, "env": hook.env});
            self.hooks().push(value);
        }
    }

    pub(crate) fn hooks(&mut self) -> &mut Vec<Value> {
        self.config["hooks"]["createContainer"]
            .as_array_mut()
            .unwrap()
    }

    /// Has a shell script run in the root file system before our hook.
    pub(crate) fn before(&mut self, text: &str) {
        let text = format!("cd '{}'; {text}", self.rootfs().display());
        let path = "PATH=/usr/bin:/bin:/usr/sbin:/sbin";
        let hook = json!({"path": "/bin/sh", "args": ["sh", "-ec", text], "env": [path]});
        self.hooks().insert(0, hook);
    }

    pub(crate) fn config(&mut self) -> &mut Value {
        &mut self.config
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A program of the image instead of `/bin/cuda`.
    pub(crate) fn command(&mut self, command: &str) {
        self.config["process"]["args"] = json!(["/bin/sh", "-c", command]);
    }

    /// Runs it to its end. `through` starts runc, and may be empty.
    pub(crate) fn run_through(&self, through: &[&str], flags: &[&str]) -> Run {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let id = format!("cdi-gen-hook-{}-{count}", std::process::id());
        fs::write(self.path("config.json"), self.config.to_string()).unwrap();
        let state = self.path("state");
        let line: Vec<_> = through.iter().chain(&["runc"]).copied().collect();
        let output = assert_cmd::Command::new(line[0])
            .args(&line[1..])
            .arg("--root")
            .arg(&state)
            .args(flags)
            .args(["run", "--bundle"])
            .arg(self.dir.path())
            .arg(id)
            .timeout(Duration::from_secs(60))
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Run {
            code: output.status.code(),
            output: text(&output.stdout) + &text(&output.stderr),
            hook: fs::read_to_string(self.path("hook.log")).unwrap_or_default(),
        }
    }

    pub(crate) fn run(&self) -> Run {
        self.run_through(&[], &[])
    }

    /// The time that one whole run takes.
    pub(crate) fn time(&self) -> Duration {
        let start = Instant::now();
        assert_eq!(self.run().code, Some(0));
        start.elapsed()
    }

    pub(crate) fn rootfs(&self) -> PathBuf {
        self.path("rootfs")
    }
}

/// Gives a tree to a user.
pub(crate) fn give(path: &Path, id: u32) {
    let done = Command::new("chown")
        .args(["-hR", &format!("{id}:{id}")])
        .arg(path)
        .status();
    assert!(done.unwrap().success());
}
