//! `cdi-gen check`: each fault seeded alone and found, and nothing found on a clean node.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::commands::RUN_FILE;
use crate::node::{Node, can_mknod, gpu};
use crate::output::assert_golden;

const LIBS: &str = "usr/lib/x86_64-linux-gnu";

/// A node with a spec, one fault, and exactly these findings.
fn finds(fault: impl FnOnce(&Node), ids: &[&str]) -> serde_json::Value {
    let node = Node::with_spec();
    fault(&node);
    let run = node.check(&["-o", "json"]);
    assert_eq!(run.ids(), ids, "{}", run.stdout);
    assert_eq!(run.code, 1, "{}", run.stderr);
    run.json()
}

#[test]
fn a_clean_node_has_no_finding() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_spec();
    let run = node.check(&["-o", "json"]);
    assert_eq!((run.code, run.ids()), (0, Vec::new()), "{}", run.stdout);
    let run = node.check(&[]);
    assert_eq!(run.code, 0);
    assert_golden("commands/check-clean.txt", &run.stdout);
}

#[test]
fn a_drifted_uvm_major_is_found() {
    if !can_mknod() {
        return;
    }
    // As nvidia-ctk writes it: a major without a type, from before the module was loaded again.
    let answer = finds(
        |node| {
            node.edit_spec(
                "    - path: /dev/nvidia-uvm\n",
                "    - path: /dev/nvidia-uvm\n      major: 510\n      minor: 0\n",
            );
        },
        &["major-drift"],
    );
    let evidence = answer["findings"][0]["evidence"][0].as_str().unwrap();
    assert!(
        evidence.contains("510") && evidence.contains("511"),
        "{evidence}"
    );
}

#[test]
fn a_uvm_node_older_than_the_module_is_found() {
    if !can_mknod() {
        return;
    }
    finds(
        |node| {
            node.put(
                "proc/devices",
                b"Character devices:\n195 nvidia\n226 drm\n509 nvidia-uvm\n",
            );
        },
        &["host-node-stale"],
    );
}

#[test]
fn a_library_that_an_upgrade_took_away_is_found() {
    if !can_mknod() {
        return;
    }
    let answer = finds(
        |node| {
            for stem in ["libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"] {
                fs::rename(
                    node.path(&format!("{LIBS}/{stem}.so.570.133.20")),
                    node.path(&format!("{LIBS}/{stem}.so.575.51.03")),
                )
                .unwrap();
            }
            node.topology(&json!({
                "driver_version": "575.51.03",
                "gpus": [gpu("aaaa", 1, "3B"), gpu("bbbb", 0, "5E")],
            }));
        },
        &["driver-version", "mount-missing"],
    );
    assert_eq!(answer["driver"], "575.51.03");
    assert_eq!(
        answer["findings"][1]["evidence"].as_array().unwrap().len(),
        3
    );
}

#[test]
fn a_renumbered_drm_node_is_found() {
    if !can_mknod() {
        return;
    }
    let answer = finds(
        |node| {
            for sysfs in ["bus/pci/devices/0000:3b:00.0/drm", "class/drm"] {
                fs::remove_dir_all(node.path(&format!("sys/{sysfs}/renderD128"))).unwrap();
            }
            fs::remove_file(node.path("dev/dri/renderD128")).unwrap();
            node.drm("0000:3b:00.0", "renderD129", 129, 129);
        },
        &["drm-renumbered"],
    );
    let evidence = answer["findings"][0]["evidence"][0].as_str().unwrap();
    assert!(evidence.contains("renderD128") && evidence.contains("renderD129"));
}

#[test]
fn a_drm_node_that_is_another_card_s_now_is_found() {
    if !can_mknod() {
        return;
    }
    finds(
        |node| {
            let from = node.path("sys/bus/pci/devices/0000:3b:00.0/drm/renderD128");
            let to = node.path("sys/bus/pci/devices/0000:5e:00.0/drm");
            fs::create_dir_all(&to).unwrap();
            fs::rename(from, to.join("renderD128")).unwrap();
        },
        &["drm-renumbered"],
    );
}

#[test]
fn a_stale_file_in_etc_that_shadows_or_is_shadowed_is_found() {
    if !can_mknod() {
        return;
    }
    let answer = finds(
        |node| {
            node.edit_spec(
                "    - path: /dev/nvidia-uvm\n",
                "    - path: /dev/nvidia-uvm\n      major: 510\n",
            );
            fs::rename(node.path(RUN_FILE), node.path("etc/cdi/nvidia.yaml")).unwrap();
            node.write_spec(&[]);
        },
        &["device-shadowed"],
    );
    let finding = &answer["findings"][0];
    assert_eq!(finding["subject"], "etc/cdi/nvidia.yaml");
    assert!(finding["evidence"][0].as_str().unwrap().contains("stale"));
    // The other way round: the runtime gives /etc/cdi the last word.
    let node = Node::with_spec();
    node.edit_spec(
        "    - path: /dev/nvidia-uvm\n",
        "    - path: /dev/nvidia-uvm\n      major: 510\n",
    );
    fs::rename(node.path(RUN_FILE), node.path("etc/cdi/nvidia.yaml")).unwrap();
    node.write_spec(&[]);
    let run = node.on_host("check", &["--cdi-dir=run/cdi,etc/cdi", "-o", "json"]);
    assert_eq!(run.ids(), ["major-drift", "device-shadowed"]);
}

#[test]
fn a_stale_device_that_resurfaces_is_found() {
    if !can_mknod() {
        return;
    }
    let answer = finds(
        |node| {
            let old = fs::read_to_string(node.path(RUN_FILE)).unwrap();
            let old = old.replace("GPU-bbbb", "GPU-gone");
            let start = old.find("  - name: \"GPU-aaaa\"").unwrap();
            let end = old.find("  - name: \"GPU-gone\"").unwrap();
            let old = format!("{}{}", &old[..start], &old[end..]);
            node.put("etc/cdi/nvidia.yaml", old.as_bytes());
        },
        &["gpu-gone"],
    );
    assert_eq!(answer["findings"][0]["subject"], "nvidia.com/gpu=GPU-gone");
}

#[test]
fn a_duplicate_device_in_one_directory_is_found() {
    if !can_mknod() {
        return;
    }
    finds(
        |node| {
            fs::copy(node.path(RUN_FILE), node.path("run/cdi/nvidia.yaml")).unwrap();
        },
        &["device-conflict", "device-conflict"],
    );
}

#[test]
fn a_file_closed_to_ordinary_users_is_found() {
    if !can_mknod() {
        return;
    }
    finds(
        |node| {
            let closed = fs::Permissions::from_mode(0o600);
            fs::set_permissions(node.path(RUN_FILE), closed).unwrap();
        },
        &["file-mode"],
    );
}

#[test]
fn what_runtimes_skip_is_found() {
    if !can_mknod() {
        return;
    }
    for (name, text, id) in [
        ("x.yaml", "devices: [", "file-malformed"),
        ("x.json", "", "file-malformed"),
        ("x.yaml", "\u{fffd}", "file-malformed"),
        (
            "x.yaml",
            "cdiVersion: 0.5.0\nkind: a.com/m\ndevices: []\n",
            "file-invalid",
        ),
        ("x.yml", "cdiVersion: 0.5.0\n", "file-ignored"),
    ] {
        finds(
            |node| node.put(&format!("etc/cdi/{name}"), text.as_bytes()),
            &[id],
        );
    }
    finds(
        |node| node.put("etc/cdi/x.yaml", b"\xff\xfe"),
        &["file-unreadable"],
    );
    finds(
        |node| {
            let fifo = node.path("etc/cdi/x.yaml");
            let mode = rustix::fs::Mode::from_raw_mode(0o644);
            rustix::fs::mknodat(rustix::fs::CWD, fifo, rustix::fs::FileType::Fifo, mode, 0)
                .unwrap();
        },
        &["file-unreadable"],
    );
}

#[test]
fn index_names_where_consumers_ask_by_uuid_are_found() {
    if !can_mknod() {
        return;
    }
    let answer = finds(
        |node| node.write_spec(&["--device-name-strategy=index"]),
        &["uuid-name-missing", "uuid-name-missing"],
    );
    let evidence = answer["findings"][0]["evidence"][0].as_str().unwrap();
    assert!(evidence.contains("nvidia.com/gpu=0"), "{evidence}");
}

#[test]
fn an_index_that_means_another_gpu_now_is_found() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    node.write_spec(&["--device-name-strategy=uuid,index"]);
    assert_eq!(node.check(&["-o", "json"]).ids(), Vec::<String>::new());
    node.topology(&json!({
        "driver_version": crate::node::VERSION,
        "gpus": [gpu("bbbb", 0, "5E"), gpu("aaaa", 1, "3B")],
    }));
    let ids = node.check(&["-o", "json"]).ids();
    assert_eq!(
        ids.iter().filter(|id| *id == "wrong-gpu").count(),
        2,
        "{ids:?}"
    );
}

#[test]
fn an_expected_name_that_does_not_resolve_is_found() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_spec();
    let flags = ["-o", "json", "--expect=management.nvidia.com/gpu=GPU-aaaa"];
    assert_eq!(node.check(&flags).ids(), ["name-unresolvable"]);
    let flags = ["-o", "json", "--expect=nvidia.com/gpu=GPU-aaaa"];
    assert_eq!(node.check(&flags).code, 0);
}

#[test]
fn a_lost_gpu_is_told_with_its_device() {
    if !can_mknod() {
        return;
    }
    finds(
        |node| {
            let mut lost = gpu("aaaa", 1, "3B");
            lost["errors"] = json!({ "nvmlDeviceGetUUID": "GPU_IS_LOST" });
            node.topology(&json!({
                "driver_version": crate::node::VERSION, "gpus": [lost, gpu("bbbb", 0, "5E")],
            }));
        },
        &["gpu-gone", "gpu-fault"],
    );
}

#[test]
fn a_host_without_driver_is_exit_4_unless_it_has_specs() {
    if !can_mknod() {
        return;
    }
    let bare = Node::bare();
    let library = [
        "--nvml-library",
        "/nonexistent/libnvidia-ml.so.1",
        "-o",
        "json",
    ];
    let run = bare.check(&library);
    assert_eq!((run.code, run.ids()), (4, Vec::new()), "{}", run.stdout);
    let with_spec = Node::with_spec();
    let run = with_spec.check(&library);
    assert_eq!((run.code, run.ids()), (1, vec!["driver-absent".to_owned()]));
}

#[test]
fn a_driver_container_is_seen_through_its_mounts() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    fs::create_dir_all(node.path("run/cdi")).unwrap();
    let root = |name| node.path(name).display().to_string();
    let (driver, sys, proc) = (root(""), root("sys"), root("proc"));
    let roots = [
        "--driver-root",
        &driver,
        "--sys-root",
        &sys,
        "--proc-root",
        &proc,
        "--host-driver-root=/run/nvidia/driver",
        "--host-dev-root=/run/nvidia/driver",
    ];
    let generate = [&roots[..], &["--output", RUN_FILE]].concat();
    assert_eq!(node.command("generate", &generate).code, 0);
    let check = [&roots[..], &["--cdi-dir=run/cdi", "-o", "json"]].concat();
    let run = node.command("check", &check);
    assert_eq!((run.code, run.ids()), (0, Vec::new()), "{}", run.stdout);
    fs::remove_file(node.path("usr/bin/nvidia-smi")).unwrap();
    assert_eq!(node.command("check", &check).ids(), ["mount-missing"]);
}

#[test]
fn the_table_names_severity_id_subject_evidence_and_remedy() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_spec();
    fs::copy(node.path(RUN_FILE), node.path("etc/cdi/old.yaml")).unwrap();
    node.edit_spec(
        "    - path: /dev/nvidia-uvm\n",
        "    - path: /dev/nvidia-uvm\n      major: 510\n",
    );
    fs::remove_file(node.path("usr/bin/nvidia-smi")).unwrap();
    let run = node.check(&[]);
    assert_eq!(run.code, 1);
    assert_golden("commands/check-findings.txt", &run.stdout);
    assert_golden(
        "commands/check-findings.json",
        &node.check(&["-o", "json"]).stdout,
    );
    assert_golden(
        "commands/check-findings.answer.yaml",
        &node.check(&["-o", "yaml"]).stdout,
    );
}

#[test]
fn usage_errors_are_exit_2() {
    let node = Node::bare();
    for flags in [
        &["--expect=gpu"][..],
        &["-o", "xml"],
        &["--vendor=x"],
        &["surplus"],
    ] {
        let run = node.command("check", flags);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{flags:?}");
    }
}
