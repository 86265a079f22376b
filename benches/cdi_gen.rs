//! `cdi-gen generate` for 1, 8 and 64 GPUs: as a whole process, wall time and peak memory, and
//! inside one process without start-up. Run by `cargo bench`; needs root for the device nodes.
//!
//! The node is the tests' own: a driver root with the libraries of a data-center driver, device
//! nodes with DRM, and the fake NVML (whose memory and time count). Numbers of another generator
//! on the same kind of root, for 1, 8 and 64 GPUs: about 0.02-0.13, 0.05-0.13 and 0.18-0.22 s, and
//! 17-43 MB (`nvidia-ctk` 1.20).

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark fails at once and tells its numbers on stdout"
)]

#[path = "../src/driver/elf_fixture.rs"]
#[expect(dead_code, reason = "this node has no 32-bit libraries")]
mod elf_fixture;
#[path = "../tests/cdi_gen/node.rs"]
#[expect(dead_code, reason = "the benchmark needs a part of it")]
mod node;

use std::io::{Read, Write, pipe};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpu_warden::gpu::NvmlLibrary;
use gpu_warden::host::Roots;
use gpu_warden::spec::{BuildOptions, generate};
use node::{Node, VERSION, can_mknod};
use serde_json::json;

const SIZES: [u32; 3] = [1, 8, 64];
const RUNS: usize = 25;
/// For 64 GPUs.
const TARGET_WALL: Duration = Duration::from_millis(15);
const TARGET_PEAK_KIB: u64 = 12 * 1024;
/// Tells the benchmark's own executable to measure inside itself, over the roots that follow.
const INSIDE: &str = "--inside";

/// Beside the three of the tests' node.
const LIBRARIES: [&str; 24] = [
    "libcudadebugger",
    "libnvcuvid",
    "libnvidia-allocator",
    "libnvidia-cfg",
    "libnvidia-eglcore",
    "libnvidia-encode",
    "libnvidia-fbc",
    "libnvidia-glcore",
    "libnvidia-glsi",
    "libnvidia-glvkspirv",
    "libnvidia-gpucomp",
    "libnvidia-ngx",
    "libnvidia-nvvm",
    "libnvidia-opencl",
    "libnvidia-opticalflow",
    "libnvidia-pkcs11-openssl3",
    "libnvidia-rtcore",
    "libnvidia-sandboxutils",
    "libnvidia-tls",
    "libnvoptix",
    "libGLX_nvidia",
    "libEGL_nvidia",
    "libGLESv2_nvidia",
    "libvdpau_nvidia",
];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == INSIDE) {
        inside(&args[at + 1]);
        return;
    }
    // `cargo test --benches` runs every benchmark for its effects only.
    let runs = if args.iter().any(|arg| arg == "--bench") {
        RUNS
    } else {
        1
    };
    if !can_mknod() {
        println!("not measured: device nodes need root");
        return;
    }
    println!(
        "{:>4}  {:>12}  {:>12}  {:>10}  {:>14}",
        "GPUs", "wall median", "wall minimum", "peak KiB", "in-process"
    );
    for count in SIZES {
        let node = host(count);
        let mut walls: Vec<_> = (0..runs).map(|_| wall(&node)).collect();
        walls.sort();
        let (median, minimum) = (walls[walls.len() / 2], walls[0]);
        let peak = peak_kib(&node);
        println!(
            "{count:>4}  {median:>12.2?}  {minimum:>12.2?}  {peak:>10}  {:>14}",
            measured_inside(&node)
        );
        if count == 64 {
            let met = |met| if met { "met" } else { "missed" };
            println!(
                "targets for 64 GPUs: wall below {TARGET_WALL:?} {}, peak below {TARGET_PEAK_KIB} KiB {}",
                met(median < TARGET_WALL),
                met(peak < TARGET_PEAK_KIB)
            );
        }
    }
}

fn host(count: u32) -> Node {
    let node = Node::with_driver();
    for stem in LIBRARIES {
        node.put(
            &format!("usr/lib/x86_64-linux-gnu/{stem}.so.{VERSION}"),
            &elf_fixture::library(Some(&format!("{stem}.so.1"))),
        );
    }
    let gpus: Vec<_> = (0..count)
        .map(|minor| {
            if minor > 1 {
                node.device(&format!("nvidia{minor}"), 195, minor);
            }
            let bus = 0x40 + minor;
            if minor != 0 {
                let (card, render) = (minor + 1, minor + 128);
                let pci = format!("0000:{bus:02x}:00.0");
                node.drm(&pci, &format!("card{card}"), card, card);
                node.drm(&pci, &format!("renderD{render}"), render, render);
            }
            json!({
                "uuid": format!("GPU-{minor:08x}-0000-4000-8000-000000000000"),
                "name": "NVIDIA A100-SXM4-40GB",
                "minor": minor,
                "pci": format!("00000000:{bus:02X}:00.0"),
                "mig": 0,
            })
        })
        .collect();
    node.topology(&json!({ "driver_version": VERSION, "gpus": gpus }));
    node
}

fn start(node: &Node, stdout: Stdio) -> Child {
    let root = |name| node.path(name).display().to_string();
    Command::new(env!("CARGO_BIN_EXE_cdi-gen"))
        .env_clear()
        .env("FAKE_NVML_TOPOLOGY", node.path("topology.json"))
        .args(["generate", "--output=-", "--driver-root", &root("")])
        .args(["--sys-root", &root("sys"), "--proc-root", &root("proc")])
        .stdout(stdout)
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn wall(node: &Node) -> Duration {
    let start_of = Instant::now();
    let status = start(node, Stdio::null()).wait().unwrap();
    let taken = start_of.elapsed();
    assert!(status.success(), "{status}");
    taken
}

/// The kernel tells a peak only while the process lives. A full pipe holds it at its last act, the
/// writing of a spec that is complete by then.
fn peak_kib(node: &Node) -> u64 {
    let (mut reader, mut writer) = pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    let mut filled = 0_u64;
    while let Ok(count) = writer.write(&[0; 4096]) {
        filled += u64::try_from(count).unwrap();
    }
    rustix::fs::fcntl_setfl(&writer, flags).unwrap();
    let mut child = start(node, writer.into());
    let mut peak = 0;
    let mut still = 0;
    while still < 50 {
        std::thread::sleep(Duration::from_millis(5));
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let value = |key: &str| {
            let line = status.lines().find(|line| line.starts_with(key))?;
            line.split_whitespace().nth(1).map(str::to_owned)
        };
        let now = value("VmHWM:").unwrap().parse().unwrap();
        let sleeps = value("State:").unwrap() == "S";
        still = if now == peak && sleeps { still + 1 } else { 0 };
        peak = now;
    }
    let mut spec = Vec::new();
    reader.read_to_end(&mut spec).unwrap();
    assert!(
        u64::try_from(spec.len()).unwrap() > filled,
        "nothing was written"
    );
    assert!(child.wait().unwrap().success());
    peak
}

/// In a process of its own: the fake NVML reads its topology's name from the environment.
fn measured_inside(node: &Node) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .env("FAKE_NVML_TOPOLOGY", node.path("topology.json"))
        .args([INSIDE, &node.path("").display().to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn inside(root: &str) {
    let roots = Roots {
        driver: root.into(),
        dev: root.into(),
        sys: format!("{root}/sys").into(),
        proc: format!("{root}/proc").into(),
        ..Roots::default()
    };
    let nvml = NvmlLibrary {
        path: None,
        search: Vec::new(),
    };
    let options = BuildOptions::new("nvidia.com/gpu".parse().unwrap());
    let mut times: Vec<_> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            let made = generate(&roots, &nvml, &options).unwrap();
            std::hint::black_box(made.spec.to_yaml());
            start.elapsed()
        })
        .collect();
    times.sort();
    println!("{:.2?}", times[times.len() / 2]);
}
