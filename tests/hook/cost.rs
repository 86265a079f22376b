//! What one start costs. Not a test of a bound: that depends on the machine's load.
//!
//! `CDI_GEN=target/release/cdi-gen cargo test --test hook cost -- --ignored --nocapture`

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::container::{Container, one_hook, plain};
use crate::elf_fixture::library;
use crate::image::Libc;
use crate::rootfs::Bundle;

const RUNS: usize = 200;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn time(program: &Path, arguments: &[String], state: &Path) -> Duration {
    let state = fs::File::open(state).unwrap();
    let start = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::from(state))
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    start.elapsed()
}

#[test]
#[ignore = "a measurement"]
fn of_the_hook_with_thirty_libraries_and_a_real_cache() {
    let program = std::env::var_os("CDI_GEN").map_or_else(
        || env!("CARGO_BIN_EXE_cdi-gen").into(),
        std::path::PathBuf::from,
    );
    let bundle = Bundle::new();
    let mut arguments = vec!["hook".to_owned()];
    for index in 0..30 {
        let name = format!("libnvidia-{index}.so");
        let soname = format!("{name}.1");
        let file = format!("/usr/lib64/{name}.570.1");
        bundle.put(&file, &library(Some(&soname)));
        arguments.push(format!("--link={name}.570.1::/usr/lib64/{soname}"));
        arguments.push(format!("--library=/usr/lib64/{soname}"));
    }
    fs::write(bundle.path("state.json"), bundle.state()).unwrap();
    let state = bundle.path("state.json");
    let cache = bundle.root("/etc/ld.so.cache");
    let (mut first, mut again) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        fs::copy("/etc/ld.so.cache", &cache).unwrap();
        for index in 0..30 {
            fs::remove_file(bundle.root(&format!("/usr/lib64/libnvidia-{index}.so.1"))).ok();
        }
        first.push(time(&program, &arguments, &state));
        again.push(time(&program, &arguments, &state));
    }
    let idle = (0..RUNS).map(|_| time(Path::new("/bin/true"), &[], &state));
    eprintln!(
        "first start {:?}, later start {:?}, /bin/true {:?} (medians of {RUNS})",
        median(first),
        median(again),
        median(idle.collect())
    );
}

#[test]
#[ignore = "a measurement"]
fn of_a_whole_container_with_and_without_the_hook() {
    let mut with = Container::new(Libc::Glibc, "/usr/lib64", one_hook());
    let mut without = Container::new(Libc::Glibc, "/usr/lib64", plain());
    for container in [&mut with, &mut without] {
        container.command("exit 0");
    }
    let (mut times, mut plain_times) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        times.push(with.time());
        plain_times.push(without.time());
    }
    eprintln!(
        "runc run: with the hook {:?}, without {:?} (medians of 20)",
        median(times),
        median(plain_times)
    );
}
