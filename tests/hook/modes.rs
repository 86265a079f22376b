//! The program finds `libcuda.so.1` with the hook, and without any; and does not with less.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use gpu_warden::spec::{HookMode, LOADER_DIRS};
use serde_json::json;

use crate::container::{Container, Run, give, one_hook, plain};
use crate::image::Libc;

/// Not among the directories of Debian's loader, as on a host of another distribution.
const FOREIGN: &str = "/usr/lib64";
/// Where no loader looks.
const NOWHERE: &str = "/home/kubernetes/bin/nvidia/lib64";
const NATIVE: &str = LOADER_DIRS[0];

fn no_hook() -> HookMode {
    HookMode::None {
        loader_dirs: LOADER_DIRS.map(Into::into).to_vec(),
    }
}

fn assert_works(run: &Run) {
    assert_eq!(run.code, Some(0), "{}{}", run.output, run.hook);
    assert!(run.output.contains("cuInit=42"), "{}", run.output);
}

fn assert_absent(run: &Run) {
    assert_eq!(run.code, Some(7), "{}", run.output);
    assert!(run.output.contains("absent: "), "{}", run.output);
}

#[test]
fn the_libraries_alone_are_not_found() {
    assert_absent(&Container::new(Libc::Glibc, FOREIGN, plain()).run());
    let mut alone = Container::new(Libc::Glibc, NATIVE, one_hook());
    alone.hooks().clear();
    assert_absent(&alone.run());
}

/// Where the driver's libraries are: in directories which the loader of the image knows or not.
fn directories() -> [String; 3] {
    // The search below a driver root does not know GKE's directory by itself.
    [NATIVE, FOREIGN, "/usr/lib64/nvidia/current"].map(Into::into)
}

#[test]
fn with_one_hook_the_program_finds_the_driver() {
    for directory in directories() {
        let container = Container::new(Libc::Glibc, &directory, one_hook());
        assert_works(&container.run());
        // The image keeps what the first start wrote.
        assert_works(&container.run());
    }
}

#[test]
fn without_any_hook_the_program_finds_the_driver() {
    for directory in directories() {
        assert_works(&Container::new(Libc::Glibc, &directory, no_hook()).run());
    }
    let chosen = HookMode::None {
        loader_dirs: vec!["/lib".into()],
    };
    assert_works(&Container::new(Libc::Glibc, FOREIGN, chosen).run());
    let nowhere = HookMode::None {
        loader_dirs: vec![NOWHERE.into()],
    };
    assert_absent(&Container::new(Libc::Glibc, FOREIGN, nowhere).run());
}

#[test]
fn the_cache_of_the_image_is_kept_and_the_driver_added() {
    for format in ["new", "compat", "old"] {
        let container = Container::new(Libc::Glibc, FOREIGN, one_hook());
        let root = container.rootfs();
        // A library which only the cache knows; the image's own ldconfig has written it there.
        let own = root.join("opt/own");
        fs::create_dir_all(&own).unwrap();
        let libc = root
            .join(NATIVE.trim_start_matches('/'))
            .join("libown.so.1");
        crate::image::driver(Libc::Glibc, &own, "/");
        fs::create_dir_all(libc.parent().unwrap()).unwrap();
        fs::rename(own.join("libcuda.so.570.133.20"), own.join("libcuda.so.1")).unwrap();
        fs::write(root.join("etc/ld.so.conf"), "/opt/own\n").unwrap();
        let made = Command::new("/sbin/ldconfig")
            .args(["-c", format, "-r"])
            .arg(&root)
            .status();
        assert!(made.unwrap().success());
        let listed = || {
            let output = Command::new("/sbin/ldconfig")
                .arg("-p")
                .arg("-C")
                .arg(root.join("etc/ld.so.cache"))
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let before = listed();
        assert!(before.contains("/opt/own/libcuda.so.1"), "{before}");
        assert_works(&container.run());
        let after = listed();
        assert!(after.contains("=> /usr/lib64/libcuda.so.1"), "{after}");
        assert!(!after.contains("/opt/own/libcuda.so.1"), "{after}");
        for line in before.lines().filter(|line| line.contains("libc.so")) {
            assert!(after.contains(line), "{line} in {after}");
        }
    }
}

#[test]
fn links_of_the_gpu_s_drm_nodes_that_are_there_are_made() {
    let mut container = Container::new(Libc::Glibc, FOREIGN, one_hook());
    container.command("for f in /dev/dri/by-path/*; do echo $f $(readlink $f); done");
    let run = container.run();
    assert_eq!(
        run.output, "/dev/dri/by-path/pci-0000:3b:00.0-card ../card1\n",
        "{}",
        run.hook
    );
}

/// Puts a stand-in for the driver's procfs directory into the container, before our hook runs.
fn with_params(container: &mut Container) {
    container.before(
        "mount -t tmpfs none proc/driver; mkdir proc/driver/nvidia; \
         printf 'A: 1\\nModifyDeviceFiles: 1\\nB: 2\\n' >proc/driver/nvidia/params; \
         echo gpu >proc/driver/nvidia/gpus",
    );
}

const SHOW: &str = "cat /proc/driver/nvidia/params /proc/driver/nvidia/gpus; \
     echo changed >/proc/driver/nvidia/params; grep -c /proc/driver/nvidia /proc/mounts";

#[test]
fn the_driver_is_told_not_to_make_device_files() {
    let mut container = Container::new(Libc::Glibc, FOREIGN, one_hook());
    with_params(&mut container);
    container.command(SHOW);
    let run = container.run();
    assert!(
        run.output
            .starts_with("A: 1\nModifyDeviceFiles: 0\nB: 2\ngpu\n"),
        "{}{}",
        run.output,
        run.hook
    );
    assert!(
        run.output.contains("Read-only file system"),
        "{}",
        run.output
    );
    assert!(run.output.contains("\n1\n"), "{}", run.output);
    assert_eq!(run.hook, "");
}

#[test]
fn in_a_user_namespace_everything_works_the_same() {
    let mut container = Container::new(Libc::Glibc, FOREIGN, one_hook());
    with_params(&mut container);
    container.command(&format!("/bin/cuda; {SHOW}"));
    in_user_namespace(&mut container, 100_000);
    let run = container.run();
    assert!(
        run.output
            .starts_with("cuInit=42\nA: 1\nModifyDeviceFiles: 0\nB: 2\ngpu\n"),
        "{}{}",
        run.output,
        run.hook
    );
}

fn in_user_namespace(container: &mut Container, host: u32) {
    let map = json!([{"containerID": 0, "hostID": host, "size": 1000}]);
    let linux = &mut container.config()["linux"];
    linux["uidMappings"] = map.clone();
    linux["gidMappings"] = map;
    linux["namespaces"]
        .as_array_mut()
        .unwrap()
        .push(json!({"type": "user"}));
    // Nodes are bound from the host there, and it has none of this number.
    linux["devices"] = json!([]);
    let mounts = container.config()["mounts"].as_array_mut().unwrap();
    for mount in mounts {
        if let Some(options) = mount["options"].as_array_mut() {
            options.retain(|option| option != "gid=5");
        }
    }
    let dir = container.path("");
    give(&dir, host);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_rootless_runtime_runs_the_hook_too() {
    const USER: u32 = 65_534;
    let mut container = Container::new(Libc::Glibc, FOREIGN, one_hook());
    let spec = Command::new("runc")
        .args(["spec", "--rootless", "--bundle"])
        .arg(container.path("driver"))
        .status();
    assert!(spec.unwrap().success());
    let text = fs::read(container.path("driver/config.json")).unwrap();
    let rootless: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let map = json!([{"containerID": 0, "hostID": USER, "size": 1}]);
    let own: Vec<_> = container.config()["mounts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|mount| mount["type"] == "bind")
        .cloned()
        .collect();
    container.config()["linux"] = rootless["linux"].clone();
    container.config()["linux"]["uidMappings"] = map.clone();
    container.config()["linux"]["gidMappings"] = map;
    container.config()["mounts"] = rootless["mounts"].clone();
    container.config()["mounts"]
        .as_array_mut()
        .unwrap()
        .extend(own);
    let dir = container.path("");
    give(&dir, USER);
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    let user = USER.to_string();
    let through = [
        "setpriv",
        "--reuid",
        &user,
        "--regid",
        &user,
        "--clear-groups",
    ];
    let run = container.run_through(&through, &["--rootless", "true"]);
    assert_works(&run);
}

#[test]
fn a_root_file_system_that_the_runtime_makes_read_only_is_no_obstacle() {
    let mut container = Container::new(Libc::Glibc, FOREIGN, one_hook());
    container.config()["root"]["readonly"] = true.into();
    fs::write(
        container.rootfs().join("etc/ld.so.cache"),
        fs::read("/etc/ld.so.cache").unwrap(),
    )
    .unwrap();
    let run = container.run();
    assert_works(&run);
    assert!(!run.hook.contains("ld.so.cache"), "{}", run.hook);
}

/// What crun does with such a container, and runc only after the hooks.
const READ_ONLY: &str = "mount -o remount,bind,ro .";

#[test]
fn a_root_file_system_that_cannot_be_written_gets_its_cache_by_a_mount() {
    let mut container = Container::new(Libc::Glibc, FOREIGN, one_hook());
    let made = Command::new("/sbin/ldconfig")
        .arg("-r")
        .arg(container.rootfs())
        .status();
    assert!(made.unwrap().success());
    let cache = container.rootfs().join("etc/ld.so.cache");
    let before = fs::read(&cache).unwrap();
    container.before(READ_ONLY);
    container.command("/bin/cuda; ls /etc; echo x >/etc/ld.so.cache");
    let run = container.run();
    assert!(
        run.output.starts_with("cuInit=42\nld.so.cache\n"),
        "{}",
        run.output
    );
    assert!(
        run.output.contains("Read-only file system"),
        "{}",
        run.output
    );
    assert!(!run.hook.contains("ld.so.cache"), "{}", run.hook);
    assert_eq!(fs::read(&cache).unwrap(), before);
}

#[test]
fn a_root_file_system_that_cannot_be_written_is_left_and_the_container_starts() {
    let mut container = Container::new(Libc::Glibc, FOREIGN, one_hook());
    container.before(READ_ONLY);
    container.command("echo started");
    let run = container.run();
    assert_eq!(run.output, "started\n");
    for skipped in [
        "skipped the link /usr/lib64/libcuda.so.1 to libcuda.so.570.133.20: Read-only file system",
        "skipped /etc/ld.so.cache: Read-only file system",
    ] {
        assert!(run.hook.contains(skipped), "{}", run.hook);
    }
}

#[test]
fn a_library_directory_that_cannot_be_written_needs_no_links() {
    let mut container = Container::new(Libc::Glibc, FOREIGN, one_hook());
    container.before("mount --bind usr/lib64 usr/lib64; mount -o remount,bind,ro usr/lib64");
    // A bind mount without what is mounted inside it shows runc's empty mount point.
    container.config()["mounts"]
        .as_array_mut()
        .unwrap()
        .retain(|mount| !mount["destination"].as_str().unwrap().starts_with(FOREIGN));
    crate::image::driver(Libc::Glibc, &container.rootfs(), FOREIGN);
    let run = container.run();
    assert_works(&run);
    assert!(run.hook.contains("skipped the link"), "{}", run.hook);
}

#[test]
fn musl_finds_the_driver_with_the_hook_and_not_without() {
    assert_absent(&Container::new(Libc::Musl, FOREIGN, plain()).run());
    let container = Container::new(Libc::Musl, FOREIGN, one_hook());
    assert_works(&container.run());
    assert_works(&container.run());
    let mode = HookMode::None {
        loader_dirs: vec!["/usr/lib".into()],
    };
    assert_works(&Container::new(Libc::Musl, FOREIGN, mode).run());
}

#[test]
fn an_image_without_a_c_library_starts_and_the_hook_says_what_it_left() {
    let mut container = Container::new(Libc::Glibc, FOREIGN, one_hook());
    for dir in ["lib", "lib64"] {
        let _ = fs::remove_dir_all(container.rootfs().join(dir));
    }
    container.command("echo started");
    let run = container.run();
    assert_eq!(run.output, "started\n");
    assert!(
        run.hook.contains("neither glibc's loader nor musl's"),
        "{}",
        run.hook
    );
}
