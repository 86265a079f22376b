//! What the hook does to a root file system, and what it says of what it does not.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::elf_fixture::library;
use crate::rootfs::{ARGUMENTS, Bundle, LIBRARY};

fn arch() -> &'static str {
    std::env::consts::ARCH
}

#[test]
fn links_and_a_cache_are_made_and_stay_as_they_are_on_the_next_start() {
    let bundle = Bundle::new();
    let run = bundle.hook();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let link = fs::read_link(bundle.root("/usr/lib64/libcuda.so.1")).unwrap();
    assert_eq!(link.to_str(), Some("libcuda.so.570.1"));
    let cache = bundle.root("/etc/ld.so.cache");
    let bytes = fs::read(&cache).unwrap();
    assert!(bytes.starts_with(b"glibc-ld.so.cache1.1"));
    assert!(bytes.ends_with(b"/usr/lib64/libcuda.so.1\0"));
    let before = fs::metadata(&cache).unwrap();
    assert_eq!(before.permissions().mode() & 0o7777, 0o644);

    assert_eq!(bundle.hook().code, Some(0));
    assert_eq!(fs::metadata(&cache).unwrap().ino(), before.ino());
    let names = fs::read_dir(bundle.root("/etc")).unwrap().count();
    assert_eq!(names, 1);
}

#[test]
fn a_link_whose_target_is_absent_is_not_made() {
    let bundle = Bundle::new();
    let run = bundle.hook_by(
        &[],
        &["--link=absent.so::/usr/lib64/a.so", "--link=/no/b::/opt/b"],
    );
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    assert!(!bundle.root("/usr/lib64/a.so").is_symlink());
    assert!(!bundle.root("/opt").exists());
}

#[test]
fn a_driver_of_the_image_gives_way_to_the_host_s() {
    let bundle = Bundle::new();
    bundle.put("/usr/lib64/libcuda.so.1", b"the image's own");
    assert_eq!(bundle.hook().code, Some(0));
    assert!(bundle.root("/usr/lib64/libcuda.so.1").is_symlink());
}

#[test]
fn a_procfs_that_is_not_masked_is_left_alone() {
    let bundle = Bundle::new();
    bundle.put("/proc/driver/nvidia/params", b"ModifyDeviceFiles: 1\n");
    fs::write(
        bundle.path("config.json"),
        r#"{"root": {"path": "rootfs"}, "linux": {}}"#,
    )
    .unwrap();
    let run = bundle.hook_by(&[], &["--freeze-device-files"]);
    assert_eq!(run.code, Some(0));
    assert!(run.stderr.contains("procfs is unmasked"), "{}", run.stderr);
    let params = fs::read(bundle.root("/proc/driver/nvidia/params")).unwrap();
    assert_eq!(params, b"ModifyDeviceFiles: 1\n");
}

#[test]
fn every_skipped_step_is_one_line() {
    let bundle = Bundle::new();
    fs::create_dir(bundle.root("/usr/lib64/libcuda.so.1")).unwrap();
    fs::create_dir(bundle.root("/etc/ld.so.cache")).unwrap();
    let arguments = [
        "--link=libcuda.so.570.1::/usr/lib64/libcuda.so.1",
        "--library=/usr/lib64/libcuda.so.570.1",
        "--freeze-device-files",
        "--from-the-future=1",
    ];
    let run = bundle.hook_by(&[], &arguments);
    assert_eq!(run.code, Some(0));
    let lines: Vec<_> = run.stderr.lines().collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    for (line, part) in lines.iter().zip([
        "skipped `--from-the-future=1`: this cdi-gen does not know it",
        "skipped the link /usr/lib64/libcuda.so.1 to libcuda.so.570.1: Is a directory",
        "skipped /etc/ld.so.cache: it is no regular file",
        "skipped ModifyDeviceFiles: 0 in /proc/driver/nvidia/params: No such file",
    ]) {
        assert!(line.starts_with("cdi-gen hook: "), "{line}");
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn an_image_without_a_loader_gets_no_cache() {
    let bundle = Bundle::new();
    fs::remove_dir_all(bundle.root("/lib64")).unwrap();
    fs::remove_dir_all(bundle.root("/lib")).unwrap();
    let run = bundle.hook();
    assert!(run.stderr.contains("neither glibc's loader nor musl's"));
    assert!(!bundle.root("/etc/ld.so.cache").exists());
}

#[test]
fn musl_s_list_of_directories_gets_the_absent_ones() {
    for (present, after) in [
        (None, "/lib:/usr/local/lib:/usr/lib\n/usr/lib64\n"),
        (Some("/lib:/opt\n"), "/lib:/opt\n/usr/lib64\n"),
        (Some("/lib\n/usr/lib64"), "/lib\n/usr/lib64"),
        (Some(""), "/usr/lib64\n"),
    ] {
        let bundle = Bundle::new();
        for dir in ["/lib64", "/lib"] {
            fs::remove_dir_all(bundle.root(dir)).unwrap();
        }
        bundle.put(&format!("/lib/ld-musl-{}.so.1", arch()), b"");
        let file = format!("/etc/ld-musl-{}.path", arch());
        if let Some(present) = present {
            bundle.put(&file, present.as_bytes());
        }
        for _ in 0..2 {
            let run = bundle.hook();
            assert_eq!(run.code, Some(0));
            assert!(!run.stderr.contains("ld-musl"), "{}", run.stderr);
            assert_eq!(fs::read_to_string(bundle.root(&file)).unwrap(), after);
        }
        assert!(!bundle.root("/etc/ld.so.cache").exists());
    }
}

#[test]
fn what_is_no_library_is_not_made_known() {
    let bundle = Bundle::new();
    bundle.put(LIBRARY, b"#!/bin/sh\n");
    assert_eq!(bundle.hook().code, Some(0));
    assert!(!bundle.root("/etc/ld.so.cache").exists());
    let mut narrow = library(None);
    narrow[4] = 1;
    narrow[18] = 3;
    bundle.put(LIBRARY, &narrow);
    assert_eq!(bundle.hook().code, Some(0));
    let cache = fs::read(bundle.root("/etc/ld.so.cache")).unwrap();
    assert_eq!(cache[48..52], [3, 0, 0, 0]);
}

#[test]
fn a_run_that_cannot_know_its_container_fails_with_a_sentence() {
    let bundle = Bundle::new();
    let hook = |stdin: &str, argument: &str| {
        let output = assert_cmd::Command::new(env!("CARGO_BIN_EXE_cdi-gen"))
            .args(["hook", argument])
            .write_stdin(stdin)
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), stderr)
    };
    let state = bundle.state();
    fs::remove_dir_all(bundle.root("/")).unwrap();
    for (stdin, argument, part) in [
        ("", ARGUMENTS[0], "the container's state on stdin"),
        (
            r#"{"bundle": "/nowhere"}"#,
            ARGUMENTS[0],
            "/nowhere/config.json",
        ),
        (
            &state,
            "--library=relative",
            "`--library=relative` is wrong",
        ),
        (&state, ARGUMENTS[0], "root file system"),
    ] {
        let (code, stderr) = hook(stdin, argument);
        assert_eq!(code, Some(3), "{stderr}");
        assert!(
            stderr.starts_with("cdi-gen: ") && stderr.contains(part),
            "{stderr}"
        );
    }
}
