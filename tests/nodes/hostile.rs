//! What a description can't say: very many GPUs, names that are no text, files of others.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::json;

use crate::build::{Node, can_mknod};
use crate::describe::{self, Gpu};

fn ubuntu() -> describe::Description {
    describe::all().remove("ubuntu").unwrap()
}

#[test]
fn of_300_gpus_those_that_can_have_a_node_are_written_and_each_other_is_named() {
    if !can_mknod() {
        return;
    }
    let mut description = ubuntu();
    description.content.gpus = (0..300)
        .map(|n| Gpu {
            uuid: json!(format!("GPU-{n:04}")),
            minor: n,
            bus: format!("{:02x}", n % 256),
            name: None,
            drm: None,
            mig: 0,
            mig_devices: Vec::new(),
            errors: [].into(),
        })
        .collect();
    // Two buses only, so that addresses differ: the domain tells them apart.
    let node = Node::new(&description);
    let text = fs::read_to_string(node.path("topology.json")).unwrap();
    let mut topology: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (n, gpu) in topology["gpus"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .enumerate()
    {
        gpu["pci"] = json!(format!("{:08X}:{:02X}:00.0", n / 256, n % 256));
    }
    node.put("topology.json", topology.to_string().as_bytes());
    let run = node.run(&[]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    // 254 and 255 are the control nodes'.
    assert_eq!(run.devices().len(), 254);
    assert_eq!(run.stderr.matches("is left out").count(), 46);
}

#[test]
fn names_that_are_no_text_harm_nothing() {
    if !can_mknod() {
        return;
    }
    let node = Node::new(&ubuntu());
    let clean = node.run(&[]);
    let libs = node.path("usr/lib/x86_64-linux-gnu");
    for name in [
        &b"libcuda\xff\xfe.so.570.133.20"[..],
        b"libnvidia-\xc3\x28.so.570.133.20",
    ] {
        fs::write(libs.join(OsStr::from_bytes(name)), b"x").unwrap();
    }
    fs::write(node.path("dev").join(OsStr::from_bytes(b"nvidia\xff")), b"").unwrap();
    fs::write(libs.join("lib\u{1b}[31m.so.570.133.20"), b"x").unwrap();
    let run = node.run(&[]);
    assert_eq!((run.code, run.stdout), (0, clean.stdout), "{}", run.stderr);
    assert!(!run.stderr.contains('\u{1b}'), "{:?}", run.stderr);
}

#[test]
fn a_file_that_may_not_be_read_is_a_failure_that_names_it() {
    if !can_mknod() {
        return;
    }
    let node = Node::new(&ubuntu());
    // Root may read everything, so another user runs it, from a place that he can reach.
    fs::set_permissions(node.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    let program = node.path("cdi-gen");
    fs::copy(env!("CARGO_BIN_EXE_cdi-gen"), &program).unwrap();
    let run = || {
        Command::new(&program)
            .env_clear()
            .env("FAKE_NVML_TOPOLOGY", node.path("topology.json"))
            .args(["generate", "--output", "-", "--driver-root"])
            .arg(node.path(""))
            .arg("--proc-root")
            .arg(node.path("proc"))
            .arg("--sys-root")
            .arg(node.path("sys"))
            .uid(65534)
            .gid(65534)
            .output()
    };
    let Ok(readable) = run() else {
        eprintln!("skipped: another user can't reach the temporary directory");
        return;
    };
    assert_eq!(
        readable.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&readable.stderr)
    );
    let library = node.path("usr/lib/x86_64-linux-gnu/libcuda.so.570.133.20");
    fs::set_permissions(&library, fs::Permissions::from_mode(0o600)).unwrap();
    let output = run().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), output.stdout.len()),
        (Some(3), 0),
        "{said}"
    );
    assert!(
        said.contains("libcuda.so.570.133.20") && said.contains("ermission"),
        "{said}"
    );
}
