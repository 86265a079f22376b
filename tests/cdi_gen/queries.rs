//! `list`, `validate`, `diff`, `explain`, the previews of `generate`, completions and manual pages.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::commands::{DIRS, RUN_FILE};
use crate::node::{Node, VERSION, can_mknod, gpu};
use crate::output::assert_golden;

/// A node with a file that wins, one that loses, and one that nobody reads.
fn crowded() -> Node {
    let node = Node::with_spec();
    let old = "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n\
        - name: \"GPU-aaaa\"\n  containerEdits: {deviceNodes: [{path: /dev/nvidia7}]}\n\
        - name: \"0\"\n  containerEdits: {deviceNodes: [{path: /dev/nvidia1}]}\n";
    node.put("etc/cdi/nvidia.yaml", old.as_bytes());
    node.put("etc/cdi/torn.json", b"{\"cdiVersion\": ");
    node
}

#[test]
fn list_shows_every_definition_and_its_state() {
    if !can_mknod() {
        return;
    }
    let node = crowded();
    let run = node.command("list", &["--cdi-dir", DIRS]);
    assert_eq!(run.code, 0);
    assert_golden("commands/list.txt", &run.stdout);
    assert!(run.stderr.contains("torn.json"), "{}", run.stderr);
    let run = node.command("list", &["--cdi-dir", DIRS, "-o", "json"]);
    assert_golden("commands/list.json", &run.stdout);
    let other = node.command(
        "list",
        &["--cdi-dir", DIRS, "--kind=amd.com/gpu", "-o", "json"],
    );
    assert_eq!(other.json()["devices"], json!([]));
}

#[test]
fn list_of_nothing_is_nothing() {
    let run = Node::bare().command("list", &["--cdi-dir", DIRS]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""));
}

#[test]
fn validate_tells_all_broken_rules_of_all_files_at_once() {
    let node = Node::bare();
    let bad = "cdiVersion: 0.3.0\nkind: a.com/m\ndevices:\n- name: \"0\"\n  containerEdits: {env: [\"=x\"]}\n- name: \"0\"\n  containerEdits: {}\n";
    node.put("etc/cdi/bad.yaml", bad.as_bytes());
    let good = "cdiVersion: 0.5.0\nkind: a.com/gpu\ndevices:\n- name: \"0\"\n  containerEdits: {env: [\"A=x\"]}\n";
    node.put("etc/cdi/good.yaml", good.as_bytes());
    node.put("etc/cdi/torn.json", b"{");
    let run = node.command("validate", &["etc/cdi", "-o", "json"]);
    assert_eq!(run.code, 1);
    assert_eq!(
        run.ids(),
        [
            "version-too-low",
            "kind",
            "env",
            "duplicate-device",
            "no-edit",
            "malformed"
        ]
    );
    let valid: Vec<_> = run.json()["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["valid"].as_bool().unwrap())
        .collect();
    assert_eq!(valid, [false, true, false]);
    let run = node.command("validate", &["etc/cdi/bad.yaml", "etc/cdi/good.yaml"]);
    assert_golden("commands/validate.txt", &run.stdout);
    assert_eq!(node.command("validate", &["etc/cdi/good.yaml"]).code, 0);
}

#[test]
fn strict_asks_for_more_than_readers_do() {
    let node = Node::bare();
    let loose = "cdiVersion: 0.5.0\nkind: a.com/gpu\ndevices:\n- name: \"0\"\n  containerEdits: {deviceNodes: [{path: dev/x, permissions: none}]}\n";
    node.put("x.yaml", loose.as_bytes());
    assert_eq!(node.command("validate", &["x.yaml"]).code, 0);
    let run = node.command("validate", &["x.yaml", "--strict", "-o", "json"]);
    assert_eq!(
        (run.code, run.ids()),
        (1, vec!["path".into(), "none-permissions".into()])
    );
    assert_eq!(run.json()["findings"][0]["severity"], "warning");
}

#[test]
fn a_directory_of_valid_files_may_still_be_in_conflict() {
    let node = Node::bare();
    let good = "cdiVersion: 0.5.0\nkind: a.com/gpu\ndevices:\n- name: \"0\"\n  containerEdits: {env: [\"A=x\"]}\n";
    node.put("c/a.yaml", good.as_bytes());
    node.put("c/b.yaml", good.as_bytes());
    let run = node.command("validate", &["c", "-o", "json"]);
    assert_eq!(
        (run.code, run.ids()),
        (1, vec!["device-conflict".to_owned()])
    );
}

#[test]
fn a_file_that_is_not_there_is_a_failure_after_the_others_are_judged() {
    let node = Node::bare();
    let good = "cdiVersion: 0.5.0\nkind: a.com/gpu\ndevices:\n- name: \"0\"\n  containerEdits: {env: [\"A=x\"]}\n";
    node.put("a.yaml", good.as_bytes());
    let run = node.command("validate", &["nowhere.yaml", "a.yaml", "-o", "json"]);
    assert_eq!((run.code, run.ids()), (3, vec!["unreadable".to_owned()]));
    assert_eq!(run.json()["files"][1]["valid"], true);
}

#[test]
fn diff_with_this_host_is_equal_until_the_host_changes() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_spec();
    let diff = |flags: &[&str]| node.on_host("diff", flags);
    let run = diff(&[RUN_FILE]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{}", run.stderr);
    assert_eq!(
        diff(&["--cdi-dir", &node.path("run/cdi").display().to_string()]).code,
        0
    );
    fs::remove_file(node.path("usr/bin/nvidia-smi")).unwrap();
    node.topology(
        &json!({ "driver_version": VERSION, "gpus": [gpu("aaaa", 1, "3B"), gpu("cccc", 0, "5E")] }),
    );
    let run = diff(&[RUN_FILE]);
    assert_eq!(run.code, 1);
    assert_golden("commands/diff.txt", &run.stdout);
    let run = diff(&[RUN_FILE, "-o", "json"]);
    assert_eq!(run.code, 1);
    assert_golden("commands/diff.json", &run.stdout);
}

#[test]
fn diff_of_two_files_compares_meaning_not_text() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_spec();
    let json = cdi::Spec::from_file(&node.path(RUN_FILE))
        .unwrap()
        .to_json();
    node.put("other.json", json.as_bytes());
    assert_eq!(node.command("diff", &[RUN_FILE, "other.json"]).code, 0);
    node.put(
        "other.json",
        json.replace("/dev/nvidia1", "/dev/nvidia2").as_bytes(),
    );
    let run = node.command("diff", &[RUN_FILE, "other.json", "-o", "json"]);
    assert_eq!(run.code, 1);
    assert_eq!(run.json()["differences"].as_array().unwrap().len(), 2);
    assert_eq!(node.command("diff", &[RUN_FILE, "nowhere.json"]).code, 3);
}

#[test]
fn diff_tells_of_a_control_node_that_came_later() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    fs::remove_file(node.path("dev/nvidia-modeset")).unwrap();
    node.write_spec(&[]);
    assert_eq!(node.on_host("diff", &[RUN_FILE]).code, 0);
    node.device("nvidia-modeset", 195, 254);
    let run = node.on_host("diff", &[RUN_FILE]);
    assert_eq!(run.code, 1);
    assert!(
        run.stdout.contains("deviceNodes[/dev/nvidia-modeset]"),
        "{}",
        run.stdout
    );
}

#[test]
fn diff_without_a_driver_is_exit_4() {
    let node = Node::bare();
    let run = node.on_host("diff", &["--nvml-library", "/nonexistent"]);
    assert_eq!((run.code, run.stdout.as_str()), (4, ""));
}

#[test]
fn explain_names_the_file_the_edits_and_the_losers() {
    if !can_mknod() {
        return;
    }
    let node = crowded();
    fs::remove_file(node.path("etc/cdi/torn.json")).unwrap();
    let run = node.command("explain", &["nvidia.com/gpu=GPU-aaaa", "--cdi-dir", DIRS]);
    assert_eq!(run.code, 0);
    assert_golden("commands/explain.txt", &run.stdout);
    let run = node.command(
        "explain",
        &["nvidia.com/gpu=0", "--cdi-dir", DIRS, "-o", "json"],
    );
    assert_golden("commands/explain.json", &run.stdout);
}

#[test]
fn explain_says_why_a_name_gives_no_device() {
    if !can_mknod() {
        return;
    }
    let node = crowded();
    fs::copy(node.path(RUN_FILE), node.path("run/cdi/copy.yaml")).unwrap();
    for (name, words) in [
        ("nvidia.com/gpu=GPU-zzzz", "no CDI file defines"),
        ("nvidia.com/gpu=GPU-zzzz", "torn.json"),
        ("nvidia.com/gpu=GPU-bbbb", "remove all but one"),
        ("management.nvidia.com/gpu=0", "there is: nvidia.com/gpu=0"),
        ("nvidia.com/gpu", "no `=`"),
        ("nvidia.com/gpu=MIG-GPU-a/1/0", "MIG-<uuid>"),
    ] {
        let run = node.command("explain", &[name, "--cdi-dir", DIRS]);
        assert_eq!(run.code, 1, "{name}");
        assert!(run.stdout.contains(words), "{name}: {}", run.stdout);
    }
}

#[test]
fn a_dry_run_touches_nothing_and_says_what_would_happen() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_spec();
    let inode = || fs::metadata(node.path(RUN_FILE)).unwrap().ino();
    let before = inode();
    let flags = ["--output", RUN_FILE, "--dry-run"];
    let run = node.on_host("generate", &flags);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""));
    assert!(run.stderr.contains("is up to date"), "{}", run.stderr);
    node.topology(&json!({ "driver_version": VERSION, "gpus": [gpu("aaaa", 1, "3B")] }));
    let run = node.on_host("generate", &flags);
    assert!(run.stderr.contains("would be written"), "{}", run.stderr);
    assert_eq!(inode(), before);
    let run = node.on_host("generate", &["--output=new/x.yaml", "--dry-run"]);
    assert_eq!(run.code, 0);
    assert!(!node.path("new").exists());
}

#[test]
fn generate_diff_prints_the_change_and_writes_nothing() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_spec();
    let flags = ["--output", RUN_FILE, "--diff"];
    let run = node.on_host("generate", &flags);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{}", run.stderr);
    let before = fs::read(node.path(RUN_FILE)).unwrap();
    node.topology(&json!({ "driver_version": VERSION, "gpus": [gpu("aaaa", 1, "3B")] }));
    let run = node.on_host("generate", &flags);
    assert_eq!(run.code, 1);
    assert_golden("commands/generate-diff.txt", &run.stdout);
    assert_eq!(fs::read(node.path(RUN_FILE)).unwrap(), before);
    let run = node.on_host("generate", &["--output=new.yaml", "--diff"]);
    assert_eq!(run.code, 1);
    assert!(run.stdout.contains("the file"), "{}", run.stdout);
    assert!(!node.path("new.yaml").exists());
}

#[test]
fn a_preview_tells_of_a_gpu_that_is_left_out() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_spec();
    fs::remove_file(node.path("dev/nvidia0")).unwrap();
    let run = node.on_host("generate", &["--output", RUN_FILE, "--dry-run"]);
    assert_eq!(run.code, 1);
    assert!(
        run.stderr.contains("nvidia-modprobe -c 0"),
        "{}",
        run.stderr
    );
}

#[test]
fn each_shell_gets_a_script_that_names_every_command() {
    let node = Node::bare();
    for shell in ["bash", "zsh", "fish"] {
        let run = node.command("completions", &[shell]);
        assert_eq!(run.code, 0);
        for command in ["generate", "check", "explain", "validate", "diff", "list"] {
            assert!(run.stdout.contains(command), "{shell} lacks {command}");
        }
    }
    assert_eq!(node.command("completions", &["tcsh"]).code, 2);
    let bash = node.command("completions", &["bash"]).stdout;
    node.put("c.bash", bash.as_bytes());
    let status = Command::new("bash")
        .args(["-n", "c.bash"])
        .current_dir(node.path(""))
        .status();
    assert!(status.unwrap().success(), "the script is no bash");
}

#[test]
fn manual_pages_are_printed_and_written() {
    let node = Node::bare();
    let run = node.command("man", &[]);
    assert_eq!(run.code, 0);
    assert!(run.stdout.contains(".TH cdi-gen 1"), "{}", run.stdout);
    let run = node.command("man", &["--dir", "man/man1"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, ""));
    for page in [
        "cdi-gen",
        "cdi-gen-generate",
        "cdi-gen-check",
        "cdi-gen-explain",
    ] {
        let text = fs::read_to_string(node.path(&format!("man/man1/{page}.1"))).unwrap();
        assert!(text.contains(".SH"), "{page}");
    }
    node.put("file", b"");
    assert_eq!(node.command("man", &["--dir", "file/x"]).code, 3);
}

/// Every query, with a reader that has gone before the first byte.
#[test]
fn a_reader_that_goes_away_is_no_failure_of_any_command() {
    if !can_mknod() {
        return;
    }
    let node = crowded();
    fs::remove_file(node.path("etc/cdi/torn.json")).unwrap();
    let (root, sys, proc) = (node.path(""), node.path("sys"), node.path("proc"));
    let (root, sys, proc) = (
        root.to_str().unwrap(),
        sys.to_str().unwrap(),
        proc.to_str().unwrap(),
    );
    let look = [
        "--driver-root",
        root,
        "--sys-root",
        sys,
        "--proc-root",
        proc,
        "--host-driver-root",
        "/",
        "--host-dev-root",
        "/",
    ];
    for (command, flags, code) in [
        ("list", vec!["--cdi-dir", DIRS], 0),
        ("validate", vec!["etc/cdi"], 0),
        (
            "explain",
            vec!["nvidia.com/gpu=GPU-aaaa", "--cdi-dir", DIRS],
            0,
        ),
        ("check", [&look[..], &["--cdi-dir", DIRS]].concat(), 1),
        ("diff", [&look[..], &["etc/cdi/nvidia.yaml"]].concat(), 1),
        ("completions", vec!["bash"], 0),
        ("man", vec![], 0),
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_cdi-gen"))
            .env_clear()
            .env("FAKE_NVML_TOPOLOGY", node.path("topology.json"))
            .current_dir(node.path(""))
            .arg(command)
            .args(&flags)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        let mut stderr = child.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        assert_eq!(
            child.wait().unwrap().code(),
            Some(code),
            "{command}: {said}"
        );
    }
}

#[test]
fn logs_never_reach_stdout() {
    if !can_mknod() {
        return;
    }
    let node = crowded();
    let run = node.command("list", &["--cdi-dir", DIRS, "-vv", "-o", "json"]);
    assert!(run.json()["devices"].is_array());
    assert!(!run.stderr.is_empty());
}

#[test]
fn a_preview_is_of_what_the_same_flags_would_write() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    let file = node.path("spec.yaml").display().to_string();
    let flags = [
        "--device-id=1",
        "--all-device",
        "--no-drm",
        "--capabilities=utility",
        "--output",
        file.as_str(),
    ];
    let run = |more: &[&str]| {
        let output = node.generate().args(flags).args(more).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), output.stdout, said)
    };
    let code = |more: &[&str]| run(more).0;
    let report = |more: &[&str]| -> serde_json::Value {
        let (code, report, said) = run(more);
        assert_eq!(code, Some(0), "{said}");
        serde_json::from_slice(&report).unwrap()
    };
    let planned = report(&["--dry-run", "--report=json"]);
    assert_eq!(planned["outcome"], "would be written");
    assert!(!node.path("spec.yaml").exists());
    assert_eq!(code(&["--diff"]), Some(1));
    let written = report(&["--report=json"]);
    assert_eq!(written["outcome"], "written");
    assert_eq!(planned["devices"], written["devices"]);
    assert_eq!(planned["not_found"], written["not_found"]);
    assert_eq!(
        (code(&["--diff"]), code(&["--dry-run"])),
        (Some(0), Some(0))
    );
    let planned = report(&["--dry-run", "--report=json"]);
    assert_eq!(planned["outcome"], "already up to date");
    // Other flags, another spec.
    assert_eq!(code(&["--diff", "--hooks=none"]), Some(1));
    for contradiction in [
        ["--diff", "--report=json"],
        ["--dry-run", "--device-id=all"],
    ] {
        assert_eq!(code(&contradiction), Some(2), "{contradiction:?}");
    }
}
