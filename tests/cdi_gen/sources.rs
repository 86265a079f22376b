//! NVML, the kernel module, or nothing: which one is asked, and what is said when none answers.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::node::{Node, VERSION, can_mknod, gpu};

#[test]
fn no_driver_is_exit_4_and_says_what_was_looked_for() {
    let run = Node::bare().run(&["--nvml-library", "/nonexistent/libnvidia-ml.so.1"]);
    assert_eq!((run.code, run.stdout.as_str()), (4, ""));
    insta::assert_snapshot!(run.stderr, @r"
    cdi-gen: no NVIDIA driver here; looked for:
      - the NVML library /nonexistent/libnvidia-ml.so.1, as it was named
      - the kernel module's directory [ROOT]/proc/driver/nvidia
    ");
}

#[test]
fn without_a_named_library_the_search_is_told_too() {
    let run = Node::bare().run(&["--library-search-path", "/opt/a,/opt/b"]);
    // A machine with a driver of its own offers one to the loader; it can't be hidden from here.
    if !run.stderr.starts_with("cdi-gen: no NVIDIA driver here") {
        eprintln!("skipped: this machine has an NVML library");
        return;
    }
    assert_eq!(run.code, 4);
    insta::assert_snapshot!(run.stderr, @r"
    cdi-gen: no NVIDIA driver here; looked for:
      - libnvidia-ml.so.1 below the driver root [ROOT]/ in /opt/a, /opt/b
      - libnvidia-ml.so.1 where the dynamic loader looks
      - the kernel module's directory [ROOT]/proc/driver/nvidia
    ");
}

#[test]
fn a_driver_without_a_gpu_is_exit_4_as_well() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    node.topology(&json!({ "driver_version": VERSION }));
    let run = node.run(&[]);
    assert_eq!((run.code, run.stdout.as_str()), (4, ""));
    assert!(run.stderr.contains("has no GPU"), "{}", run.stderr);
}

#[test]
fn a_library_without_its_module_is_a_failure_not_an_absence() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    node.topology(&json!({
        "driver_version": VERSION,
        "errors": { "nvmlInit_v2": "DRIVER_NOT_LOADED" },
    }));
    let run = node.run(&[]);
    assert_eq!(run.code, 3);
    assert!(
        run.stderr.contains("present but does not work"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("modprobe nvidia"), "{}", run.stderr);
}

#[test]
fn a_file_that_is_no_library_is_a_failure() {
    let node = Node::bare();
    node.put("broken.so", b"not ELF");
    let path = node.path("broken.so").display().to_string();
    let run = node.run(&["--nvml-library", &path]);
    assert_eq!(run.code, 3);
    assert!(run.stderr.contains("broken.so"), "{}", run.stderr);
}

#[test]
fn the_kernel_module_answers_when_nvml_does_not() {
    if !can_mknod() {
        return;
    }
    for errors in [
        json!({ "nvmlInit_v2": "LIB_RM_VERSION_MISMATCH" }),
        json!({ "nvmlDeviceGetCount_v2": "UNKNOWN" }),
    ] {
        let node = Node::with_driver();
        node.procfs("0000:5e:00.0", "GPU-bbbb", 0);
        node.procfs("0000:3b:00.0", "GPU-aaaa", 1);
        node.topology(&json!({ "driver_version": VERSION, "errors": errors, "gpus": [] }));
        let run = node.run(&[]);
        assert_eq!(run.code, 0, "{}", run.stderr);
        assert_eq!(run.devices(), ["GPU-aaaa", "GPU-bbbb"]);
        assert!(run.stdout.contains("/dev/dri/renderD128"));
        assert!(run.stderr.contains("NVML can't be asked"), "{}", run.stderr);
    }
}

#[test]
fn both_sources_make_the_same_spec() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    node.procfs("0000:3b:00.0", "GPU-aaaa", 1);
    node.procfs("0000:5e:00.0", "GPU-bbbb", 0);
    let nvml = node.run(&[]);
    let procfs = node.run(&["--nvml-library", "/nonexistent"]);
    assert_eq!((nvml.code, procfs.code), (0, 0));
    assert_eq!(nvml.stdout, procfs.stdout);
}

#[test]
fn mig_instances_in_procfs_leave_out_their_gpu() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    node.procfs("0000:3b:00.0", "GPU-aaaa", 1);
    node.procfs("0000:5e:00.0", "GPU-bbbb", 0);
    node.put("proc/driver/nvidia/capabilities/gpu1/mig/gi3/access", b"");
    let run = node.run(&["--nvml-library", "/nonexistent"]);
    assert_eq!((run.code, run.devices()), (1, vec!["GPU-bbbb".into()]));
    assert!(run.stderr.contains("MIG is enabled"), "{}", run.stderr);
}

#[test]
fn calls_that_an_old_driver_lacks_are_not_fatal() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    let mut old = gpu("aaaa", 1, "3B");
    old["errors"] = json!({
        "nvmlDeviceGetMigMode": "FUNCTION_NOT_FOUND",
        "nvmlDeviceGetPciInfo_v3": "FUNCTION_NOT_FOUND",
        "nvmlDeviceGetName": "NOT_SUPPORTED",
    });
    node.topology(&json!({ "driver_version": VERSION, "gpus": [old] }));
    let run = node.run(&[]);
    assert_eq!((run.code, run.devices()), (0, vec!["GPU-aaaa".into()]));
}

#[test]
fn a_version_that_is_none_is_replaced_by_the_module_s_or_refused() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    node.topology(&json!({ "driver_version": "../../x", "gpus": [gpu("aaaa", 1, "3B")] }));
    assert_eq!(node.run(&[]).code, 3);
    node.procfs("0000:3b:00.0", "GPU-aaaa", 1);
    let run = node.run(&[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains(VERSION));
}

#[test]
fn files_of_another_version_than_the_running_driver_s_are_an_error_that_names_both() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    node.topology(&json!({ "driver_version": "575.51.03", "gpus": [gpu("aaaa", 1, "3B")] }));
    let run = node.run(&[]);
    assert_eq!((run.code, run.stdout.as_str()), (3, ""));
    assert!(run.stderr.contains("575.51.03") && run.stderr.contains(VERSION));
}

#[test]
fn a_count_beyond_all_nodes_ends_at_once() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    node.topology(&json!({ "driver_version": VERSION, "count": u32::MAX }));
    let start = Instant::now();
    assert_eq!(node.run(&[]).code, 3);
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_gpu_that_vanishes_during_the_walk_is_a_fault() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    node.topology(&json!({
        "driver_version": VERSION, "count": 2, "gpus": [gpu("aaaa", 1, "3B")],
    }));
    let run = node.run(&[]);
    assert_eq!((run.code, run.devices()), (1, vec!["GPU-aaaa".into()]));
}

#[test]
fn a_slow_start_is_waited_for() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    node.topology(&json!({
        "driver_version": VERSION, "init_delay_ms": 400, "gpus": [gpu("aaaa", 1, "3B")],
    }));
    let start = Instant::now();
    assert_eq!(node.run(&[]).code, 0);
    assert!(start.elapsed() >= Duration::from_millis(400));
}
