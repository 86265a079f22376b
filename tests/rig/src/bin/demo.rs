//! `gpu-warden-demo`: the founding case on real containerd and runc, without and with gpu-warden, on
//! a machine without a GPU.
//!
//! Two privileged pods with one GPU each, and a third pod that asked for none. The image of all three
//! asks for every GPU, as CUDA's do. The demo prints what each can reach, and ends with 0 only if the unguarded
//! pods reach GPUs that are not theirs and the guarded ones reach exactly their own.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use gpu_warden_rig::containerd::LEGACY_HANDLER;
use gpu_warden_rig::cri::{ContainerSpec, Pod, PodSpec};
use gpu_warden_rig::kubelet::{Kubelet, PodRef, Style};
use gpu_warden_rig::probe::{self, Made};
use gpu_warden_rig::under_test::Programs;
use gpu_warden_rig::world::GPU_MAJOR;
use gpu_warden_rig::{
    Artifacts, CgroupView, Containerd, ContainerdFiles, Failure, Image, Open, View, World,
    artifacts, table,
};
use tokio::signal::unix::{SignalKind, signal};

const LEGEND: &str = "\
OPENS    the kernel lets the container use the GPU (ENXIO: there is no driver behind the node here)
denied   the kernel refuses (EPERM)
absent   there is no such node in the container
own node the GPUs that open through a node which the container makes for itself with mknod
";

/// Shows the founding case without and with gpu-warden
#[derive(Debug, Parser)]
#[command(name = "gpu-warden-demo")]
struct Args {
    /// Directory of containerd, ctr and containerd-shim-runc-v2
    #[arg(long, value_name = "DIR")]
    containerd: PathBuf,
    /// [default: beside this program]
    #[arg(long, value_name = "FILE")]
    cdi_gen: Option<PathBuf>,
    /// [default: beside this program]
    #[arg(long, value_name = "FILE")]
    gpu_warden: Option<PathBuf>,
    /// The fake NVML [default: beside this program]
    #[arg(long, value_name = "FILE")]
    nvml_library: Option<PathBuf>,
    /// Show containerd only the unified cgroup hierarchy
    #[arg(long)]
    cgroup_v2: bool,
}

/// One pod of the story.
struct Role {
    name: &'static str,
    privileged: bool,
    /// Position of its GPU among the world's.
    gpu: Option<usize>,
}

const ROLES: [Role; 3] = [
    Role {
        name: "stream-a",
        privileged: true,
        gpu: Some(0),
    },
    Role {
        name: "stream-b",
        privileged: true,
        gpu: Some(1),
    },
    Role {
        name: "no-gpu",
        privileged: false,
        gpu: None,
    },
];

/// What one pod reached, or why it was not started.
enum Outcome {
    Ran { view: View, made: Vec<Open> },
    Refused(String),
}

impl Outcome {
    /// Whether it can use the GPU of that minor in any way.
    fn reaches(&self, minor: u32) -> bool {
        match self {
            Self::Refused(_) => false,
            Self::Ran { view, made } => {
                let by_own_node = usize::try_from(minor).ok().and_then(|at| made.get(at));
                view.gpu(minor).allowed() || by_own_node.is_some_and(Open::allowed)
            }
        }
    }

    /// What is not exactly its own GPU, in words; empty is right.
    fn deviations(&self, own: Option<u32>, minors: &[u32]) -> Vec<String> {
        let view = match self {
            Self::Refused(_) => return vec!["was not started".to_owned()],
            Self::Ran { view, .. } => view,
        };
        let mut found = Vec::new();
        for &minor in minors {
            match (own == Some(minor), self.reaches(minor)) {
                (true, false) => found.push(format!("can't use its own GPU {minor}")),
                (false, true) if view.gpu(minor).allowed() => {
                    found.push(format!("can use GPU {minor}"));
                }
                (false, true) => found.push(format!("can use GPU {minor} by a node of its own")),
                _ => {}
            }
        }
        if own.is_none() && !view.nodes.is_empty() {
            found.push(format!("sees {}", view.paths().join(", ")));
        }
        found
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    match demo(&args).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            // Nothing is left to tell the user with when stderr is closed.
            let _ = writeln!(std::io::stderr(), "gpu-warden-demo: {error:#}");
            ExitCode::from(3)
        }
    }
}

/// Whatever happens in the story, the world is torn down and the tearing down is checked.
async fn demo(args: &Args) -> Result<bool> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM can't be handled")?;
    let view = if args.cgroup_v2 {
        CgroupView::Unified
    } else {
        CgroupView::Host
    };
    let world = World::builder()
        .cgroups(view)
        .start(&Artifacts::locate()?)?;
    let told = tokio::select! {
        told = story(args, &world) => told,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        _ = terminate.recv() => Err(anyhow::anyhow!("terminated")),
    };
    let torn_down = world.teardown().await;
    let exact = told?;
    torn_down?;
    say("Nothing is left of it on this machine: no process, mount, cgroup or file.\n")?;
    Ok(exact)
}

async fn story(args: &Args, world: &World) -> Result<bool> {
    let programs = programs(args, world)?;
    let files = ContainerdFiles::at(&args.containerd)?;
    let containerd = Containerd::start(world, &files).await?;
    let kubelet = Kubelet::start(&world.kubelet_root()).await?;
    let image = Image::named("cuda").env("NVIDIA_VISIBLE_DEVICES", "all");
    containerd.import(world, &image).await?;
    say(&format!(
        "A node with {} GPUs: containerd {}, the nvidia runtime class, and a device plugin that \
         tells each pod its GPU by environment variable.\n\n",
        world.gpus().len(),
        files.version,
    ))?;

    let before = act(world, &containerd, &kubelet, &image).await?;
    say(&report("Without gpu-warden", world, &before))?;

    let spec = programs.generate_spec(world).await?;
    let warden = programs.start_warden(world, &containerd).await?;
    let after = act(world, &containerd, &kubelet, &image).await?;
    say(&report("With gpu-warden", world, &after))?;
    drop((warden, spec));
    say(&format!("{LEGEND}\n"))?;

    let minors: Vec<u32> = world.gpus().iter().map(|gpu| gpu.minor).collect();
    let own = |role: &Role| role.gpu.map(|at| world.gpus()[at].minor);
    let mut wrong = Vec::new();
    for (role, (before, after)) in ROLES.iter().zip(before.iter().zip(&after)) {
        if !minors.iter().all(|&minor| before.reaches(minor)) {
            wrong.push(format!(
                "without gpu-warden {} should reach every GPU",
                role.name
            ));
        }
        let deviations = after.deviations(own(role), &minors);
        let deviations = deviations.into_iter();
        wrong.extend(deviations.map(|what| format!("with gpu-warden {} {what}", role.name)));
    }
    if wrong.is_empty() {
        say("Each guarded pod reaches exactly what the kubelet allocated to it.\n")?;
    }
    for what in &wrong {
        say(&format!("FAILED: {what}\n"))?;
    }
    Ok(wrong.is_empty())
}

fn programs(args: &Args, world: &World) -> Result<Programs, Failure> {
    let chosen = |given: &Option<PathBuf>, name: &str| match given {
        Some(path) => artifacts::real_path(path),
        None => world.artifacts().built(name),
    };
    Ok(Programs {
        cdi_gen: chosen(&args.cdi_gen, "cdi-gen")?,
        gpu_warden: chosen(&args.gpu_warden, "gpu-warden")?,
        nvml_library: chosen(&args.nvml_library, "libnvidia_ml.so")?,
    })
}

/// Runs all three pods side by side, looks into each, and removes them. `image` asks for all GPUs,
/// as those of CUDA do.
async fn act(
    world: &World,
    containerd: &Containerd,
    kubelet: &Kubelet,
    image: &Image,
) -> Result<Vec<Outcome>> {
    let mut pods: Vec<Pod> = Vec::new();
    let mut outcomes = Vec::new();
    for role in &ROLES {
        let mut spec = PodSpec::new(role.name).runtime_handler(LEGACY_HANDLER);
        spec.privileged = role.privileged;
        let identity = PodRef::new(&spec.uid, &spec.namespace, &spec.name);
        let mut container = ContainerSpec::new("main").image(image);
        kubelet.add_container(&identity, &container.name);
        if let Some(at) = role.gpu {
            let id = world.gpus()[at].uuid.as_str();
            let resource = "nvidia.com/gpu";
            kubelet.allocate(&identity, &container.name, resource, &[id], Style::EnvVar)?;
            container = container.env("NVIDIA_VISIBLE_DEVICES", id);
        }
        let cri = containerd.cri();
        let pod = cri.run_pod(&spec, &world.cgroup_parent()).await?;
        let ran = cri.run(&pod, &container).await;
        outcomes.push(match ran {
            Ok(id) => look(world, containerd, &id).await?,
            Err(failure) => match failure.refusal() {
                Some(why) => Outcome::Refused(why.to_owned()),
                None => return Err(failure.into()),
            },
        });
        pods.push(pod);
    }
    for pod in pods {
        containerd.cri().stop_pod(&pod).await?;
        containerd.cri().remove_pod(&pod).await?;
        kubelet.release(&pod.spec.uid);
    }
    Ok(outcomes)
}

async fn look(world: &World, containerd: &Containerd, id: &str) -> Result<Outcome> {
    let majors = world.majors();
    let majors = [GPU_MAJOR, majors.uvm, majors.caps];
    let view = probe::look(containerd.cri(), id, &majors).await?;
    let mut made = Vec::new();
    for gpu in world.gpus() {
        let tried = probe::make(containerd.cri(), id, GPU_MAJOR, gpu.minor).await?;
        made.push(match tried {
            Made::Refused(_) => Open::Eperm,
            Made::Node(open) => open,
        });
    }
    Ok(Outcome::Ran { view, made })
}

fn report(title: &str, world: &World, outcomes: &[Outcome]) -> String {
    let titles = world.gpus().iter().map(|gpu| format!("gpu {}", gpu.minor));
    let titles: Vec<String> = titles.collect();
    let mut header = vec!["pod", "allocated", "nodes in /dev"];
    header.extend(titles.iter().map(String::as_str));
    header.push("own node");
    let mut text = format!("{title}\n");
    let mut refusals = String::new();
    let mut rows = Vec::new();
    for (role, outcome) in ROLES.iter().zip(outcomes) {
        let allocated = role.gpu.map_or("-", |at| world.gpus()[at].uuid.as_str());
        let mut row = vec![role.name.to_owned(), allocated.to_owned()];
        match outcome {
            Outcome::Ran { view, made } => row.extend(cells(world, view, made)),
            Outcome::Refused(why) => {
                row.push("(not started)".to_owned());
                // A String takes every write.
                let _ = writeln!(refusals, "{}: {why}", role.name);
            }
        }
        rows.push(row);
    }
    text.push_str(&table::render(&header, &rows));
    text.push_str(&refusals);
    text.push('\n');
    text
}

fn cells(world: &World, view: &View, made: &[Open]) -> Vec<String> {
    let paths = view.paths();
    let names = paths.iter().map(|path| path.trim_start_matches("/dev/"));
    let names: Vec<&str> = names.collect();
    let opened = world.gpus().iter().zip(made);
    let opened: Vec<String> = opened
        .filter(|(_, open)| open.allowed())
        .map(|(gpu, _)| gpu.minor.to_string())
        .collect();
    let list = |items: &[String]| match items {
        [] => "none".to_owned(),
        items => items.join(" "),
    };
    let mut cells = vec![match names.as_slice() {
        [] => "none".to_owned(),
        names => names.join(" "),
    }];
    cells.extend(
        world
            .gpus()
            .iter()
            .map(|gpu| view.gpu(gpu.minor).to_string()),
    );
    cells.push(list(&opened));
    cells
}

fn say(text: &str) -> std::io::Result<()> {
    std::io::stdout().write_all(text.as_bytes())
}
