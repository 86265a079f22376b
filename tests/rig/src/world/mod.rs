//! A private world: what the tests change instead of the machine.
//!
//! Owns one directory with a short path, and a mount and pid namespace in which `/dev` has fake GPU
//! nodes, `/run` is empty and `/proc/devices` lists the NVIDIA drivers. The directory is the same
//! path inside and outside, so sockets in it serve both sides.
//! Refuses to know containerd: it only runs programs inside.

mod devices;
mod driver;
mod holder;
mod leftovers;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::process::Command;

use crate::command::run;
use crate::oci::LegacyConfig;
use crate::{Artifacts, Failure};
pub use devices::{CONTROL_MINOR, GPU_MAJOR, Gpu, Majors, Node};
pub use driver::DRIVER_VERSION;
pub(crate) use holder::{OwnGroup, only_child};
pub use leftovers::Traces;

use holder::Holder;

/// Nodes that every `/dev` has.
const USUAL: [(&str, u32, u32); 7] = [
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
    ("/dev/tty", 5, 0),
    ("/dev/console", 5, 1),
];

/// Which cgroup hierarchy containerd and runc see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CgroupView {
    /// That of the machine.
    #[default]
    Host,
    /// Only the unified one, as on a node booted with cgroup v2.
    Unified,
}

/// What a world is to have.
#[derive(Debug, Clone)]
pub struct WorldBuilder {
    gpus: Vec<Gpu>,
    nodes: Vec<Node>,
    cgroups: CgroupView,
}

impl WorldBuilder {
    /// So many GPUs, minors from 0.
    #[must_use]
    pub fn gpus(mut self, count: u32) -> Self {
        self.gpus = (0..count).map(Gpu::numbered).collect();
        self
    }

    /// These GPUs.
    #[must_use]
    pub fn gpus_named(mut self, gpus: Vec<Gpu>) -> Self {
        self.gpus = gpus;
        self
    }

    /// One more node in `/dev`.
    #[must_use]
    pub fn node(mut self, node: Node) -> Self {
        self.nodes.push(node);
        self
    }

    /// Which cgroups are seen inside.
    #[must_use]
    pub fn cgroups(mut self, view: CgroupView) -> Self {
        self.cgroups = view;
        self
    }

    /// Makes the world. Needs root.
    pub fn start(self, artifacts: &Artifacts) -> Result<World, Failure> {
        World::start(self, artifacts.clone())
    }
}

/// A running world. Dropping it ends everything in it.
#[derive(Debug)]
pub struct World {
    holder: Holder,
    traces: Traces,
    artifacts: Artifacts,
    gpus: Vec<Gpu>,
    majors: Majors,
    cgroups: CgroupView,
    // Last: removed after the processes that use it are dead.
    dir: TempDir,
}

impl World {
    /// A world with two GPUs and the machine's cgroups, to be changed before it starts.
    pub fn builder() -> WorldBuilder {
        let builder = WorldBuilder {
            gpus: Vec::new(),
            nodes: Vec::new(),
            cgroups: CgroupView::Host,
        };
        builder.gpus(2)
    }

    fn start(wanted: WorldBuilder, artifacts: Artifacts) -> Result<Self, Failure> {
        if wanted.cgroups == CgroupView::Unified && !leftovers::has_unified() {
            return Err(Failure::Missing {
                what: "a mounted cgroup2 hierarchy".to_owned(),
                remedy: "mount -t cgroup2 none /sys/fs/cgroup/unified".to_owned(),
            });
        }
        // Not below TMPDIR: a unix socket's path has at most 107 bytes.
        let dir = tempfile::Builder::new()
            .prefix("gw-")
            .tempdir_in("/tmp")
            .map_err(Failure::file("create a directory in", "/tmp"))?;
        let base = dir.path();
        let real = read("/proc/devices")?;
        let majors = Majors::choose(&real);
        write(&base.join("proc-devices"), majors.proc_devices(&real))?;
        write(&base.join("nodes"), node_list(&wanted, majors))?;
        for name in ["dev", "bin", "log", "cdi", "sys", "kubelet/pod-resources"] {
            let path = base.join(name);
            std::fs::create_dir_all(&path).map_err(Failure::file("create", &path))?;
        }
        driver::write(&base.join("driver"))?;
        let legacy = LegacyConfig {
            gpus: wanted.gpus.clone(),
            control: majors.control_nodes(),
        };
        let legacy = serde_json::to_string(&legacy);
        let legacy = legacy.map_err(|e| Failure::unexpected("legacy.json", e))?;
        write(&base.join("legacy.json"), legacy)?;
        write(&base.join("topology.json"), topology(&wanted.gpus))?;

        let traces = Traces::of(base);
        let view = match wanted.cgroups {
            CgroupView::Host => "host",
            CgroupView::Unified => "v2",
        };
        Ok(Self {
            holder: Holder::start(base, view)?,
            traces,
            artifacts,
            gpus: wanted.gpus,
            majors,
            cgroups: wanted.cgroups,
            dir,
        })
    }

    /// Its directory, the same path inside and outside.
    pub fn base(&self) -> &Path {
        self.dir.path()
    }

    /// A path below [`World::base`].
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.base().join(name)
    }

    /// Root of the fake driver: `--driver-root`.
    pub fn driver_root(&self) -> PathBuf {
        self.path("driver")
    }

    /// Root of the stand-in kubelet: `--kubelet-root`.
    pub fn kubelet_root(&self) -> PathBuf {
        self.path("kubelet")
    }

    /// The CDI directory that containerd and gpu-warden read.
    pub fn cdi_dir(&self) -> PathBuf {
        self.path("cdi")
    }

    /// An empty stand-in for `/sys`, to be filled by the test: `--sys-root`.
    pub fn sys_root(&self) -> PathBuf {
        self.path("sys")
    }

    /// What the fake NVML says: `FAKE_NVML_TOPOLOGY`. It describes [`World::gpus`] until a test
    /// writes something else there.
    pub fn topology(&self) -> PathBuf {
        self.path("topology.json")
    }

    /// The fake `libnvidia-ml.so`, as cargo built it: `--nvml-library`.
    pub fn nvml_library(&self) -> Result<PathBuf, Failure> {
        self.artifacts.built("libnvidia_ml.so")
    }

    /// Tells the fake NVML that the node now has these GPUs, in this order. By rename: the library
    /// may be reading at this moment.
    pub fn plug(&self, gpus: &[Gpu]) -> Result<(), Failure> {
        let new = self.path("topology.new");
        write(&new, topology(gpus))?;
        let path = self.topology();
        std::fs::rename(&new, &path).map_err(Failure::file("rename to", &path))
    }

    /// What it was made with.
    pub fn artifacts(&self) -> &Artifacts {
        &self.artifacts
    }

    /// Its GPUs.
    pub fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// The dynamic majors of its drivers.
    pub fn majors(&self) -> Majors {
        self.majors
    }

    /// Which cgroups are seen inside.
    pub fn cgroup_view(&self) -> CgroupView {
        self.cgroups
    }

    /// The cgroup below which all its pods are, such as `/gw-Ab12Cd`.
    pub fn cgroup_parent(&self) -> String {
        format!("/{}", self.traces.mark())
    }

    /// The first process of its pid namespace, as a pid of the caller's.
    pub fn holder_pid(&self) -> u32 {
        self.holder.pid()
    }

    /// To look for what was left behind, also after the world is gone.
    pub fn traces(&self) -> Traces {
        self.traces.clone()
    }

    /// A program inside, not yet started.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={}", self.holder_pid()))
            .args(["--mount", "--pid", "--"])
            .arg(program);
        command.as_std_mut().process_group_of_its_own();
        command
    }

    /// Runs a program inside to its end; the answer is its stdout.
    pub async fn run(&self, words: &[&str]) -> Result<String, Failure> {
        let (program, args) = words.split_first().unwrap_or((&"true", &[]));
        run(self.command(program).args(args)).await
    }

    /// Plugs a device in: makes its node in the world's `/dev`.
    pub async fn add_node(&self, node: &Node) -> Result<(), Failure> {
        let (major, minor) = (node.major.to_string(), node.minor.to_string());
        let words = ["mknod", "-m", "666", &node.path, "c", &major, &minor];
        self.run(&words).await.map(drop)
    }

    /// Takes a node out of the world's `/dev`.
    pub async fn remove_node(&self, path: &str) -> Result<(), Failure> {
        self.run(&["rm", path]).await.map(drop)
    }

    /// Ends it, removes its cgroups and its directory, and says what is left, which is an error.
    pub async fn teardown(self) -> Result<(), Failure> {
        let traces = self.traces.clone();
        let ended = tokio::task::spawn_blocking(move || {
            drop(self);
            traces.leftovers()
        });
        let left = ended
            .await
            .map_err(|e| Failure::unexpected("ending the world", e))?;
        if left.is_empty() {
            Ok(())
        } else {
            Err(Failure::Leftovers(left))
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.holder.end();
        self.traces.remove_cgroups();
    }
}

fn node_list(wanted: &WorldBuilder, majors: Majors) -> String {
    let usual = USUAL.map(|(path, major, minor)| Node::new(path, major, minor));
    let gpus = wanted.gpus.iter().map(Gpu::node);
    let all = usual
        .into_iter()
        .chain(gpus)
        .chain(majors.control_nodes())
        .chain(wanted.nodes.iter().cloned());
    let lines: Vec<String> = all
        .map(|Node { path, major, minor }| {
            let below_dev = path.trim_start_matches("/dev/");
            format!("{below_dev} {major} {minor}\n")
        })
        .collect();
    lines.concat()
}

/// The format is that of the fake NVML's crate.
fn topology(gpus: &[Gpu]) -> String {
    let described = gpus.iter().map(|gpu| {
        serde_json::json!({
            "uuid": gpu.uuid,
            "name": "NVIDIA GeForce RTX 3080",
            "minor": gpu.minor,
            "pci": format!("00000000:{:02X}:00.0", 0x3b + gpu.minor),
        })
    });
    serde_json::json!({
        "driver_version": DRIVER_VERSION,
        "nvml_version": format!("12.{DRIVER_VERSION}"),
        "gpus": described.collect::<Vec<_>>(),
    })
    .to_string()
}

fn read(path: impl AsRef<Path>) -> Result<String, Failure> {
    std::fs::read_to_string(&path).map_err(Failure::file("read", &path))
}

fn write(path: &Path, text: String) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(Failure::file("write", path))
}
