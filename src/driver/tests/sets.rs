//! What each capability set brings, from where, and to where.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::super::elf_fixture::{library, library_32};
use super::super::{
    Capability, DriverError, DriverFiles, FindOptions, Manifest, ldcache, nvml_library,
};
use super::{MULTIARCH, VERSION, find, install, paths, put};

fn with(root: &Path, change: impl FnOnce(&mut FindOptions)) -> Result<DriverFiles, DriverError> {
    let mut options = FindOptions::new(Manifest::builtin().unwrap());
    change(&mut options);
    DriverFiles::find_with(root, VERSION, &options)
}

#[test]
fn libraries_of_32_bits_come_on_request_only_and_never_stand_for_the_others() {
    let root = tempfile::tempdir().unwrap();
    install(root.path(), "usr/lib64", VERSION);
    let narrow = library_32(Some("libcuda.so.1"));
    put(
        root.path(),
        &format!("usr/lib/libcuda.so.{VERSION}"),
        &narrow,
    );
    put(
        root.path(),
        &format!("usr/lib32/libcuda.so.{VERSION}"),
        &narrow,
    );
    let files = find(root.path()).unwrap();
    assert!(
        paths(&files)
            .iter()
            .all(|path| path.starts_with("/usr/lib64/"))
    );
    let both = with(root.path(), |options| {
        options.capabilities.insert(Capability::Compat32);
    })
    .unwrap();
    let both = paths(&both);
    for path in [
        "/usr/lib/libcuda.so.1",
        "/usr/lib32/libcuda.so.1",
        "/usr/lib64/libcuda.so.1",
    ] {
        assert!(both.contains(&path.into()), "{path}: {both:?}");
    }
    fs::remove_file(root.path().join(format!("usr/lib64/libcuda.so.{VERSION}"))).unwrap();
    assert!(matches!(
        find(root.path()),
        Err(DriverError::Missing { .. })
    ));
}

#[test]
fn each_set_brings_its_own_libraries_and_an_unknown_one_comes_with_compute() {
    let root = tempfile::tempdir().unwrap();
    install(root.path(), "usr/lib64", VERSION);
    for name in [
        "libnvcuvid",
        "libGLX_nvidia",
        "libnvidia-ngx",
        "libnvidia-brandnew",
    ] {
        put(
            root.path(),
            &format!("usr/lib64/{name}.so.{VERSION}"),
            &library(None),
        );
    }
    let found = |capabilities: &[Capability]| {
        let files = with(root.path(), |options| {
            options.capabilities = capabilities.iter().copied().collect();
        });
        paths(&files.unwrap())
    };
    let has = |found: &[String], name: &str| found.iter().any(|path| path.contains(name));
    let compute = found(&[Capability::Compute]);
    assert!(has(&compute, "libcuda") && has(&compute, "brandnew"));
    for name in ["libnvidia-ml", "nvcuvid", "GLX", "ngx"] {
        assert!(!has(&compute, name), "{name}");
    }
    let graphics = found(&[Capability::Graphics]);
    assert!(has(&graphics, "libGLX_indirect.so.0") && !has(&graphics, "libcuda"));
    assert!(has(&found(&[Capability::Video]), "nvcuvid"));
    assert!(has(&found(&Capability::ALL), "libnvidia-ngx"));
}

#[test]
fn libraries_can_be_put_into_one_directory_of_the_container() {
    let root = tempfile::tempdir().unwrap();
    install(root.path(), MULTIARCH, VERSION);
    put(
        root.path(),
        &format!("{MULTIARCH}/vdpau/libvdpau_nvidia.so.{VERSION}"),
        &library(None),
    );
    put(
        root.path(),
        &format!("usr/lib/libcuda.so.{VERSION}"),
        &library_32(Some("libcuda.so.1")),
    );
    let files = with(root.path(), |options| {
        options.capabilities = Capability::ALL.into();
        options.targets.lib = Some("/usr/local/nvidia/lib64".into());
    })
    .unwrap();
    let all = paths(&files);
    for path in [
        "/usr/local/nvidia/lib64/libcuda.so.1",
        "/usr/local/nvidia/lib/libcuda.so.1",
        &format!("/usr/local/nvidia/lib64/vdpau/libvdpau_nvidia.so.{VERSION}"),
    ] {
        assert!(all.contains(&path.to_owned()), "{path}: {all:?}");
    }
    assert!(
        all.iter()
            .all(|path| path.starts_with("/usr/local/nvidia/"))
    );
    assert!(
        files
            .libraries
            .iter()
            .all(|found| found.file.starts_with("/usr/lib"))
    );
}

#[test]
fn links_beside_a_library_become_names_and_others_do_not() {
    let root = tempfile::tempdir().unwrap();
    install(root.path(), "usr/lib64", VERSION);
    let dir = root.path().join("usr/lib64");
    symlink(
        format!("libnvidia-ml.so.{VERSION}"),
        dir.join("libnvidia-ml.so"),
    )
    .unwrap();
    symlink("libc.so.6", dir.join("libnvidia-ptxjitcompiler.so")).unwrap();
    let all = paths(&find(root.path()).unwrap());
    assert!(all.contains(&"/usr/lib64/libnvidia-ml.so".into()));
    assert!(!all.contains(&"/usr/lib64/libnvidia-ptxjitcompiler.so".into()));
}

#[test]
fn the_root_s_loader_cache_leads_to_unusual_directories_with_a_driver_alone() {
    let root = tempfile::tempdir().unwrap();
    install(root.path(), "opt/nvidia/lib", VERSION);
    put(
        root.path(),
        "usr/local/cuda/compat/libcuda.so.999.1",
        &library(Some("libcuda.so.1")),
    );
    assert!(matches!(
        find(root.path()),
        Err(DriverError::NoLibraries { .. })
    ));
    let cache = ldcache::fixture(
        &[
            ("libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.1"),
            ("libcuda.so.1", "/opt/nvidia/lib/libcuda.so.1"),
            ("libnvidia-ml.so.1", "/opt/nvidia/lib/libnvidia-ml.so.1"),
        ],
        true,
    );
    put(root.path(), "etc/ld.so.cache", &cache);
    let files = find(root.path()).unwrap();
    assert!(
        paths(&files)
            .iter()
            .all(|path| path.starts_with("/opt/nvidia/lib/"))
    );
    symlink(
        format!("libnvidia-ml.so.{VERSION}"),
        root.path().join("opt/nvidia/lib/libnvidia-ml.so.1"),
    )
    .unwrap();
    assert!(nvml_library(root.path(), &[]).is_some());
    put(root.path(), "etc/ld.so.cache", b"garbage");
    assert!(matches!(
        find(root.path()),
        Err(DriverError::NoLibraries { .. })
    ));
}

#[test]
fn settings_and_firmware_come_from_the_first_directory_that_has_them() {
    let root = tempfile::tempdir().unwrap();
    install(root.path(), "usr/lib64", VERSION);
    put(
        root.path(),
        "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
        b"{}",
    );
    put(
        root.path(),
        "usr/local/share/glvnd/egl_vendor.d/10_nvidia.json",
        b"{}",
    );
    put(root.path(), "vulkan/icd.d/nvidia_icd.json", b"{}");
    put(
        root.path(),
        &format!("lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin"),
        b"",
    );
    put(
        root.path(),
        &format!("lib/firmware/6.1.0/nvidia/{VERSION}/gsp_tu10x.bin"),
        b"",
    );
    let files = with(root.path(), |options| {
        options.capabilities = Capability::ALL.into();
        options.kernel = Some("6.1.0".into());
    })
    .unwrap();
    let pairs: Vec<_> = files
        .extras
        .iter()
        .map(|extra| {
            (
                extra.file.display().to_string(),
                extra.path.display().to_string(),
            )
        })
        .collect();
    let firmware = format!("/lib/firmware/6.1.0/nvidia/{VERSION}/gsp_tu10x.bin");
    assert_eq!(
        pairs,
        [
            (
                "/vulkan/icd.d/nvidia_icd.json".into(),
                "/etc/vulkan/icd.d/nvidia_icd.json".into()
            ),
            (firmware.clone(), firmware),
            (
                "/usr/local/share/glvnd/egl_vendor.d/10_nvidia.json".into(),
                "/usr/share/glvnd/egl_vendor.d/10_nvidia.json".into()
            ),
        ]
    );
}

#[test]
fn sockets_and_the_mps_directory_come_on_request_only() {
    let root = tempfile::tempdir().unwrap();
    install(root.path(), "usr/lib64", VERSION);
    fs::create_dir_all(root.path().join("run/nvidia-persistenced")).unwrap();
    fs::create_dir_all(root.path().join("tmp/nvidia-mps")).unwrap();
    let _listener =
        std::os::unix::net::UnixListener::bind(root.path().join("run/nvidia-persistenced/socket"))
            .unwrap();
    put(root.path(), "run/nvidia-fabricmanager/socket", b"no socket");
    let all = with(root.path(), |options| {
        options.capabilities = Capability::ALL.into();
    })
    .unwrap();
    assert!(all.extras.is_empty());
    let asked = with(root.path(), |options| {
        options
            .capabilities
            .extend([Capability::Ipc, Capability::Mps]);
    })
    .unwrap();
    let found: Vec<_> = asked
        .extras
        .iter()
        .map(|extra| (extra.path.to_str().unwrap(), extra.writable))
        .collect();
    assert_eq!(
        found,
        [
            ("/run/nvidia-persistenced/socket", true),
            ("/tmp/nvidia-mps", true)
        ]
    );
    assert!(
        asked
            .absent
            .iter()
            .any(|absent| absent.name == "fabric manager")
    );
}
