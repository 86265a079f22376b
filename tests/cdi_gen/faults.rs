//! One bad GPU never hides another, and never gets into the spec.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::node::{Node, VERSION, can_mknod, gpu};

/// Two good GPUs, the first changed by `change`; exit code 1, and only the second is written.
fn only_the_second_is_left(change: impl FnOnce(&mut Value), words: &str) {
    let node = Node::with_driver();
    let mut gpus = vec![gpu("aaaa", 1, "3B"), gpu("bbbb", 0, "5E")];
    change(&mut gpus[0]);
    node.topology(&json!({ "driver_version": VERSION, "gpus": gpus }));
    let run = node.run(&[]);
    assert_eq!(run.code, 1, "{words}: {}", run.stderr);
    assert_eq!(run.devices(), ["GPU-bbbb"], "{words}");
    assert!(run.stderr.contains("GPU 0"), "{words}: {}", run.stderr);
    assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
}

#[test]
fn an_error_of_any_call_leaves_out_that_gpu_alone() {
    if !can_mknod() {
        return;
    }
    for function in [
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetName",
        "nvmlDeviceGetMinorNumber",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetMigMode",
    ] {
        only_the_second_is_left(
            |gpu| gpu["errors"] = json!({ function: "GPU_IS_LOST" }),
            "fell off the bus",
        );
    }
    only_the_second_is_left(
        |gpu| gpu["errors"] = json!({ "nvmlDeviceGetUUID": 4711 }),
        "4711",
    );
}

#[test]
fn what_cannot_be_true_leaves_out_that_gpu_alone() {
    if !can_mknod() {
        return;
    }
    for (field, value, words) in [
        ("mig", json!(1), "MIG is enabled"),
        ("mig", json!(7), "MIG mode is 7"),
        ("minor", json!(255), "minor 255"),
        ("minor", json!(4_000_000_000_u32), "253"),
        ("uuid", json!("GPU-../../etc"), "no GPU or MIG device id"),
        ("uuid", json!("GPU-aaaa::1"), "no UUID of a whole GPU"),
        ("uuid", json!("MIG-aaaa"), "no UUID of a whole GPU"),
        ("uuid", json!(""), "no GPU or MIG device id"),
        ("uuid", json!({ "hex": "ff4750" }), "UUID"),
        ("pci", json!("../../x"), "no PCI address"),
        ("minor", json!(9), "nvidia-modprobe -c 9"),
    ] {
        only_the_second_is_left(|gpu| gpu[field] = value, words);
    }
}

#[test]
fn a_junk_name_harms_nothing() {
    if !can_mknod() {
        return;
    }
    for name in [
        json!({ "hex": "ff00fe" }),
        json!("\u{1b}[31mred\n"),
        json!(""),
    ] {
        let node = Node::with_driver();
        let mut first = gpu("aaaa", 1, "3B");
        first["name"] = name;
        node.topology(&json!({ "driver_version": VERSION, "gpus": [first] }));
        let run = node.run(&["-vv"]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert_eq!(run.devices(), ["GPU-aaaa"]);
        assert!(!run.stderr.contains('\u{1b}'), "{:?}", run.stderr);
    }
}

#[test]
fn a_uuid_or_minor_that_two_claim_leaves_out_both() {
    if !can_mknod() {
        return;
    }
    for (second, words) in [
        (gpu("aaaa", 0, "5E"), "same UUID GPU-aaaa"),
        (gpu("bbbb", 1, "5E"), "same minor 1"),
    ] {
        let node = Node::with_driver();
        node.device("nvidia2", 195, 2);
        node.topology(&json!({
            "driver_version": VERSION,
            "gpus": [gpu("aaaa", 1, "3B"), second, gpu("cccc", 2, "86")],
        }));
        let run = node.run(&[]);
        assert_eq!(run.code, 1);
        assert_eq!(run.devices(), ["GPU-cccc"]);
        assert_eq!(run.stderr.matches(words).count(), 2, "{}", run.stderr);
    }
}

#[test]
fn a_node_with_other_numbers_is_not_the_gpu_s() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    fs::remove_file(node.path("dev/nvidia1")).unwrap();
    node.device("nvidia1", 195, 0);
    let run = node.run(&[]);
    assert_eq!((run.code, run.devices()), (1, vec!["GPU-bbbb".into()]));
    assert!(run.stderr.contains("is 195:0, not 195:1"), "{}", run.stderr);
}

#[test]
fn links_are_no_nodes() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    // Even where the target has the right numbers: a link can be turned around later.
    node.device("elsewhere/gpu", 195, 1);
    node.device("elsewhere/ctl", 195, 255);
    let replace = |link: &str, target: &str| {
        fs::remove_file(node.path("dev").join(link)).unwrap();
        symlink(target, node.path("dev").join(link)).unwrap();
    };
    replace("nvidia1", "elsewhere/gpu");
    let run = node.run(&[]);
    assert_eq!((run.code, run.devices()), (1, vec!["GPU-bbbb".into()]));
    replace("nvidiactl", "elsewhere/ctl");
    let run = node.run(&[]);
    assert_eq!((run.code, run.stdout.as_str()), (3, ""));
    assert!(run.stderr.contains("/dev/nvidiactl"), "{}", run.stderr);
}

#[test]
fn a_required_control_node_that_is_missing_or_stale_is_a_failure_with_its_remedy() {
    if !can_mknod() {
        return;
    }
    let stale = Node::with_driver();
    stale.put(
        "proc/devices",
        b"Character devices:\n195 nvidia\n510 nvidia-uvm\n511 hidraw\n",
    );
    let missing = Node::with_driver();
    fs::remove_file(missing.path("dev/nvidia-uvm")).unwrap();
    for (node, words) in [(stale, "511:0"), (missing, "missing")] {
        let run = node.run(&[]);
        assert_eq!((run.code, run.stdout.as_str()), (3, ""));
        for words in ["/dev/nvidia-uvm", words, "nvidia-modprobe -u"] {
            assert!(run.stderr.contains(words), "{words}: {}", run.stderr);
        }
        assert_eq!(
            node.run(&["--capabilities=utility"]).code,
            0,
            "nvidia-smi needs no uvm"
        );
    }
}

#[test]
fn an_optional_control_node_may_be_missing() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    fs::remove_file(node.path("dev/nvidia-modeset")).unwrap();
    let run = node.run(&[]);
    assert_eq!(run.code, 0);
    assert!(run.stderr.contains("/dev/nvidia-modeset"), "{}", run.stderr);
    let graphics = node.run(&["--capabilities=graphics"]);
    assert_eq!(graphics.code, 3, "{}", graphics.stderr);
}

#[test]
fn a_drm_node_that_sysfs_numbers_differently_is_left_out() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    node.drm("0000:5e:00.0", "renderD129", 129, 130);
    let run = node.run(&[]);
    assert_eq!(run.code, 0);
    assert!(run.stdout.contains("renderD128"));
    assert!(!run.stdout.contains("renderD129"), "{}", run.stdout);
}

#[test]
fn numbers_that_change_between_calls_give_no_mixture() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    let mut first = gpu("aaaa", 1, "3B");
    first["minor"] = json!([1, 0]);
    first["uuid"] = json!(["GPU-aaaa", "GPU-zzzz"]);
    node.topology(&json!({ "driver_version": VERSION, "gpus": [first, gpu("bbbb", 0, "5E")] }));
    let spec = node.run(&[]).spec();
    let paths: Vec<_> = spec
        .devices
        .iter()
        .map(|d| {
            (
                d.name.as_str(),
                d.container_edits.device_nodes[0].path.as_str(),
            )
        })
        .collect();
    assert_eq!(
        paths,
        [("GPU-aaaa", "/dev/nvidia1"), ("GPU-bbbb", "/dev/nvidia0")]
    );
}

#[test]
fn when_no_gpu_is_left_nothing_is_written_and_each_reason_is_told() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    fs::remove_file(node.path("dev/nvidia0")).unwrap();
    fs::remove_file(node.path("dev/nvidia1")).unwrap();
    let run = node.run(&[]);
    assert_eq!((run.code, run.stdout.as_str()), (3, ""));
    assert_eq!(run.stderr.matches("is missing below").count(), 2);
}
