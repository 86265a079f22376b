//! What a spec holds is data, and what was done is told to programs too.

use std::fs;

use serde_json::Value;

use crate::node::{Node, VERSION, can_mknod};

fn report(node: &Node, flags: &[&str]) -> (i32, Value, String) {
    let output = node
        .generate()
        .arg("--output")
        .arg(node.path("spec.yaml"))
        .arg("--report=json")
        .args(flags)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output.status.code().unwrap(), report, said)
}

#[test]
fn the_report_names_each_gpu_and_each_reason() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    fs::remove_file(node.path("dev/nvidia1")).unwrap();
    fs::remove_file(node.path("dev/nvidia-modeset")).unwrap();
    let (code, report, said) = report(&node, &[]);
    assert_eq!(code, 1, "{said}");
    assert_eq!(report["exit_code"], 1);
    assert_eq!(report["outcome"], "written");
    assert_eq!(report["driver_version"], VERSION);
    assert_eq!(report["gpus"][0]["uuid"], "GPU-bbbb");
    assert_eq!(report["gpus"][0]["index"], "1");
    assert_eq!(report["gpus"][0]["nodes"][0], "/dev/nvidia0");
    assert_eq!(report["left_out"][0]["what"], "GPU 0 (0000:3b:00.0)");
    let reason = report["left_out"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("nvidia-modprobe -c 1"), "{reason}");
    assert_eq!(report["missing_nodes"][0]["what"], "/dev/nvidia-modeset");
    let absent = report["not_found"].as_array().unwrap();
    assert!(absent.iter().any(|entry| entry["name"] == "MPS programs"));
}

#[test]
fn a_report_and_a_spec_never_share_stdout() {
    if !can_mknod() {
        return;
    }
    let run = Node::with_driver().run(&["--report=json"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("--output"), "{}", run.stderr);
}

#[test]
fn the_built_in_manifest_can_be_printed_and_read_back() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    let printed = node.run(&["--print-manifest"]);
    assert_eq!(printed.code, 0);
    node.put("manifest.yaml", printed.stdout.as_bytes());
    let path = node.path("manifest.yaml").display().to_string();
    assert_eq!(
        node.run(&["--manifest", &path]).stdout,
        node.run(&[]).stdout
    );
}

#[test]
fn an_operator_s_manifest_takes_the_place_of_the_built_in_one() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    let builtin = include_str!("../../src/driver/manifest.yaml");
    let own = builtin.replace(
        "- name: CUDA companions\n",
        "- name: site settings\n  kind: config\n  capabilities: [compute]\n  required-for: [compute]\n  \
         in: [/etc]\n  to: /etc\n  files: [site.conf]\n- name: CUDA companions\n",
    );
    assert_ne!(own, builtin);
    node.put("manifest.yaml", own.as_bytes());
    let path = node.path("manifest.yaml").display().to_string();
    let flags = ["--manifest", &path];
    let missing = node.run(&flags);
    assert_eq!((missing.code, missing.stdout.as_str()), (3, ""));
    assert!(
        missing.stderr.contains("site settings (site.conf)"),
        "{}",
        missing.stderr
    );
    node.put("etc/site.conf", b"");
    let run = node.run(&flags);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("containerPath: /etc/site.conf"));
    node.put(
        "manifest.yaml",
        own.replace("required-for", "required").as_bytes(),
    );
    let strict = node.run(&flags);
    assert_eq!(strict.code, 3);
    assert!(
        strict.stderr.contains("unknown field `required`"),
        "{}",
        strict.stderr
    );
}

#[test]
fn what_makes_no_sense_is_a_usage_error() {
    for flags in [
        &["--capabilities=cuda"][..],
        &["--preset=plan9"],
        &["--mode=legacy"],
        &["--container-library-dir=lib"],
        &["--container-library-dir-32=/lib32"],
        &["--device-id=all,0"],
    ] {
        let run = Node::bare().run(flags);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{flags:?}");
    }
}
