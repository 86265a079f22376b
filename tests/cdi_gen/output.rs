//! The file: golden content, other readers, formats, when it is written and when not.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use container_device_interface::cache::{new_cache, with_auto_refresh};
use container_device_interface::spec_dirs::with_spec_dirs;
use serde_json::json;

use crate::node::{Node, VERSION, can_mknod, gpu};

/// `UPDATE_GOLDEN=1` writes the file instead; the difference is then to be read before a commit.
pub(crate) fn assert_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        fs::write(&path, text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap();
    assert_eq!(
        text,
        golden,
        "{} differs; UPDATE_GOLDEN=1 updates it",
        path.display()
    );
}

#[test]
fn the_spec_of_a_plain_host_is_the_golden_one() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    let plain = ["--host-driver-root=/", "--host-dev-root=/"];
    assert_golden("two-gpus.yaml", &node.run(&plain).stdout);
    let json = node.run(&[&plain[..], &["--format=json"]].concat());
    assert_golden("two-gpus.json", &json.stdout);
}

#[test]
fn the_spec_with_one_hook_is_the_golden_one() {
    if !can_mknod() {
        return;
    }
    let run = Node::with_driver().run(&[
        "--host-driver-root=/",
        "--host-dev-root=/",
        "--hook-path=/usr/bin/cdi-gen",
    ]);
    assert_golden("one-hook.yaml", &run.stdout);
}

#[test]
fn the_spec_of_a_driver_container_is_the_golden_one() {
    if !can_mknod() {
        return;
    }
    let run = Node::with_driver().run(&[
        "--host-driver-root=/run/nvidia/driver",
        "--host-dev-root=/",
        "--device-name-strategy=uuid,index,type-index",
        "--all-device",
        "--vendor=example.com",
        "--class=accelerator",
    ]);
    assert_golden("driver-container.yaml", &run.stdout);
}

#[test]
fn another_reader_loads_the_spec_and_injects_each_device() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    let dir = node.path("cdi").display().to_string();
    node.generate().args(["--cdi-dir", &dir]).assert().success();
    let cache = new_cache(vec![with_spec_dirs(&[&dir]), with_auto_refresh(false)]);
    let mut cache = cache.lock().unwrap();
    assert_eq!(
        cache.list_devices(),
        ["nvidia.com/gpu=GPU-aaaa", "nvidia.com/gpu=GPU-bbbb"]
    );
    for (device, minor) in [("GPU-aaaa", 1), ("GPU-bbbb", 0)] {
        #[expect(
            clippy::default_trait_access,
            reason = "the type's crate is no dependency of ours; inference names it"
        )]
        let mut oci = Default::default();
        cache
            .inject_devices(Some(&mut oci), vec![format!("nvidia.com/gpu={device}")])
            .unwrap();
        let linux = oci.linux().as_ref().unwrap();
        let numbers: Vec<_> = linux
            .devices()
            .as_ref()
            .unwrap()
            .iter()
            .map(|device| {
                (
                    device.path().display().to_string(),
                    device.major(),
                    device.minor(),
                )
            })
            .collect();
        let own = (format!("/dev/nvidia{minor}"), 195, minor);
        assert!(numbers.contains(&own), "{numbers:?}");
        assert!(numbers.contains(&("/dev/nvidia-uvm".into(), 511, 0)));
        let foreign = format!("/dev/nvidia{}", 1 - minor);
        assert!(numbers.iter().all(|(path, ..)| *path != foreign));
        let env = oci.process().as_ref().unwrap().env().as_ref().unwrap();
        assert!(env.contains(&"NVIDIA_VISIBLE_DEVICES=void".into()));
        let mounts = oci.mounts().as_ref().unwrap();
        let library = format!("libcuda.so.{VERSION}");
        assert!(
            mounts
                .iter()
                .any(|mount| mount.destination().ends_with(&library))
        );
        let hooks = oci.hooks().as_ref().unwrap().create_container();
        let [hook] = hooks.as_ref().unwrap().as_slice() else {
            panic!("one hook: {hooks:?}");
        };
        assert_eq!(hook.path(), Path::new(env!("CARGO_BIN_EXE_cdi-gen")));
        assert_eq!(hook.args().as_ref().unwrap()[..2], ["cdi-gen", "hook"]);
    }
}

#[test]
fn an_equal_spec_is_not_written_again() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    let file = node.path("nvidia.yaml");
    let run = || {
        let output = node.generate().arg("--output").arg(&file).output().unwrap();
        assert!(output.status.success());
        assert!(output.stdout.is_empty());
        (
            fs::metadata(&file).unwrap().ino(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (first, said) = run();
    assert!(said.contains("nvidia.yaml written"), "{said}");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o644
    );
    let (second, said) = run();
    assert!(said.contains("already up to date"), "{said}");
    assert_eq!(first, second);
    node.topology(&json!({ "driver_version": VERSION, "gpus": [gpu("aaaa", 1, "3B")] }));
    assert_ne!(run().0, second);
}

#[test]
fn a_failure_leaves_the_old_file_alone() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    let file = node.path("nvidia.yaml");
    let generate = || node.generate().arg("--output").arg(&file).output().unwrap();
    generate();
    let before = fs::read(&file).unwrap();
    node.topology(&json!({ "driver_version": "999.1", "gpus": [gpu("aaaa", 1, "3B")] }));
    assert_eq!(generate().status.code(), Some(3));
    assert_eq!(fs::read(&file).unwrap(), before);
}

#[test]
fn the_environment_sets_what_no_flag_does() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    let output = node
        .generate()
        .env("CDI_GEN_OUTPUT", "-")
        .env("CDI_GEN_FORMAT", "json")
        .env("CDI_GEN_DEVICE_NAME_STRATEGY", "index")
        .env("CDI_GEN_ALL_DEVICE", "1")
        .env("CDI_GEN_QUIET", "yes")
        .output()
        .unwrap();
    let spec = cdi::Spec::from_json(&String::from_utf8(output.stdout).unwrap()).unwrap();
    let names: Vec<_> = spec.devices.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["0", "1", "all"]);
}

#[test]
fn an_unwritable_place_is_exit_3() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    node.put("file", b"");
    let output = node
        .generate()
        .arg("--output")
        .arg(node.path("file/x.yaml"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn an_invalid_spec_goes_nowhere_not_even_to_stdout() {
    if !can_mknod() {
        return;
    }
    let run = Node::with_driver().run(&["--host-driver-root=/a/../b"]);
    assert_eq!((run.code, run.stdout.as_str()), (3, ""));
    assert!(run.stderr.contains("invalid"), "{}", run.stderr);
}

#[test]
fn usage_errors_are_exit_2_and_say_nothing_on_stdout() {
    for flags in [&["--vendor=x"][..], &["--driver-root=rel"], &["--nonsense"]] {
        let run = Node::bare().run(flags);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{flags:?}");
    }
}

#[test]
fn quiet_says_nothing_of_a_success() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    let file = node.path("x.yaml");
    let output = node.generate().arg("--quiet").arg("-o").arg(&file).output();
    assert_eq!(output.unwrap().stderr, b"");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    if !can_mknod() {
        return;
    }
    let node = Node::with_driver();
    let root = |name: &str| node.path(name).display().to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_cdi-gen"))
        .env_clear()
        .env("FAKE_NVML_TOPOLOGY", node.path("topology.json"))
        .args(["generate", "-o", "-", "--driver-root", &root("")])
        .args(["--sys-root", &root("sys"), "--proc-root", &root("proc")])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
}
