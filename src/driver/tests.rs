//! Driver roots built in a temporary directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::elf_fixture::library;
use super::{DriverError, DriverFiles, InRoot, nvml_library};

mod sets;

const VERSION: &str = "570.133.20";
const MULTIARCH: &str = "usr/lib/x86_64-linux-gnu";

fn put(root: &Path, path: &str, bytes: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn install(root: &Path, dir: &str, version: &str) {
    for (stem, soname) in [
        ("libcuda", "libcuda.so.1"),
        ("libnvidia-ml", "libnvidia-ml.so.1"),
        ("libnvidia-ptxjitcompiler", "libnvidia-ptxjitcompiler.so.1"),
    ] {
        put(
            root,
            &format!("{dir}/{stem}.so.{version}"),
            &library(Some(soname)),
        );
    }
}

fn find(root: &Path) -> Result<DriverFiles, DriverError> {
    DriverFiles::find(root, VERSION, &[])
}

fn paths(files: &DriverFiles) -> Vec<String> {
    let text = |path: &PathBuf| path.display().to_string();
    files
        .libraries
        .iter()
        .flat_map(|found| std::iter::once(text(&found.path)).chain(found.names.iter().map(text)))
        .collect()
}

#[test]
fn libraries_come_with_their_soname_and_libcuda_with_its_plain_name() {
    let root = tempfile::tempdir().unwrap();
    install(root.path(), MULTIARCH, VERSION);
    put(root.path(), &format!("{MULTIARCH}/libc.so.6"), b"");
    let files = find(root.path()).unwrap();
    let dir = "/usr/lib/x86_64-linux-gnu";
    assert_eq!(
        paths(&files),
        [
            format!("{dir}/libcuda.so.{VERSION}"),
            format!("{dir}/libcuda.so.1"),
            format!("{dir}/libcuda.so"),
            format!("{dir}/libnvidia-ml.so.{VERSION}"),
            format!("{dir}/libnvidia-ml.so.1"),
            format!("{dir}/libnvidia-ptxjitcompiler.so.{VERSION}"),
            format!("{dir}/libnvidia-ptxjitcompiler.so.1"),
        ]
    );
}

#[test]
fn an_absolute_link_means_a_place_inside_the_root() {
    let root = tempfile::tempdir().unwrap();
    install(root.path(), "opt/driver", VERSION);
    fs::create_dir_all(root.path().join(MULTIARCH)).unwrap();
    for stem in ["libcuda", "libnvidia-ml"] {
        symlink(
            format!("/opt/driver/{stem}.so.{VERSION}"),
            root.path().join(format!("{MULTIARCH}/{stem}.so.{VERSION}")),
        )
        .unwrap();
    }
    let files = find(root.path()).unwrap();
    assert_eq!(
        files.libraries[0].file,
        Path::new(&format!("/opt/driver/libcuda.so.{VERSION}"))
    );
    assert_eq!(
        files.libraries[0].path,
        Path::new(&format!("/{MULTIARCH}/libcuda.so.{VERSION}"))
    );
}

#[test]
fn a_link_cannot_lead_out_of_the_root() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join(format!("libcuda.so.{VERSION}"));
    fs::write(&secret, library(Some("libcuda.so.1"))).unwrap();
    let root = tempfile::tempdir().unwrap();
    install(root.path(), MULTIARCH, VERSION);
    let link = root
        .path()
        .join(format!("{MULTIARCH}/libcuda.so.{VERSION}"));
    fs::remove_file(&link).unwrap();
    for target in [
        secret.clone(),
        Path::new("../../../../../../../../..").join(secret.strip_prefix("/").unwrap()),
    ] {
        symlink(&target, &link).unwrap();
        let error = find(root.path()).unwrap_err();
        assert!(
            matches!(&error, DriverError::Missing { missing, .. } if missing[0].contains("libcuda")),
            "{}: {error}",
            target.display()
        );
        fs::remove_file(&link).unwrap();
    }
}

#[test]
fn one_directory_under_two_names_counts_once() {
    let root = tempfile::tempdir().unwrap();
    install(root.path(), "usr/lib", VERSION);
    symlink("lib", root.path().join("usr/lib64")).unwrap();
    symlink("usr/lib", root.path().join("lib")).unwrap();
    symlink("/usr/lib", root.path().join("lib64")).unwrap();
    let files = find(root.path()).unwrap();
    assert_eq!(files.libraries.len(), 3);
    assert!(
        paths(&files)
            .iter()
            .all(|path| path.starts_with("/usr/lib/"))
    );
}

#[test]
fn debian_s_private_directory_gets_its_sonames_where_the_loader_looks() {
    let root = tempfile::tempdir().unwrap();
    install(root.path(), &format!("{MULTIARCH}/nvidia/current"), VERSION);
    let files = find(root.path()).unwrap();
    assert_eq!(
        files.libraries[0].names[0],
        Path::new("/usr/lib/x86_64-linux-gnu/libcuda.so.1")
    );
}

#[test]
fn files_of_another_version_are_an_error_that_names_both() {
    let root = tempfile::tempdir().unwrap();
    install(root.path(), MULTIARCH, "575.51.03");
    let error = find(root.path()).unwrap_err().to_string();
    assert!(
        error.contains(VERSION) && error.contains("575.51.03"),
        "{error}"
    );
}

#[test]
fn a_half_done_upgrade_is_an_error_even_if_some_files_fit() {
    for lagging in ["libcuda", "libnvidia-ml"] {
        let root = tempfile::tempdir().unwrap();
        install(root.path(), MULTIARCH, VERSION);
        let dir = root.path().join(MULTIARCH);
        fs::rename(
            dir.join(format!("{lagging}.so.{VERSION}")),
            dir.join(format!("{lagging}.so.565.1")),
        )
        .unwrap();
        assert!(matches!(
            find(root.path()),
            Err(DriverError::Mismatch { found, .. }) if found == ["565.1"]
        ));
    }
}

#[test]
fn old_files_beside_the_right_ones_do_no_harm() {
    let root = tempfile::tempdir().unwrap();
    install(root.path(), MULTIARCH, VERSION);
    install(root.path(), MULTIARCH, "565.1");
    assert!(find(root.path()).is_ok());
}

#[test]
fn an_empty_root_says_where_it_looked_and_a_missing_one_that_it_is_missing() {
    let root = tempfile::tempdir().unwrap();
    let error = find(root.path()).unwrap_err().to_string();
    assert!(error.contains("/usr/lib/x86_64-linux-gnu"), "{error}");
    let gone = root.path().join("gone");
    assert!(matches!(find(&gone), Err(DriverError::Root { .. })));
}

#[test]
fn a_version_that_is_a_pattern_or_a_path_is_refused() {
    for version in ["", "*", "../../x", "570.133.20\n"] {
        assert!(
            matches!(
                DriverFiles::find(Path::new("/"), version, &[]),
                Err(DriverError::Version(_))
            ),
            "{version:?}"
        );
    }
}

#[test]
fn a_fifo_or_directory_named_like_a_library_does_not_block() {
    let root = tempfile::tempdir().unwrap();
    install(root.path(), MULTIARCH, VERSION);
    let dir = root.path().join(MULTIARCH);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join(format!("libnvidia-fifo.so.{VERSION}")),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    fs::create_dir(dir.join(format!("libnvidia-dir.so.{VERSION}"))).unwrap();
    assert_eq!(find(root.path()).unwrap().libraries.len(), 3);
}

#[test]
fn programs_are_found_in_the_root_and_must_be_executable() {
    let root = tempfile::tempdir().unwrap();
    install(root.path(), MULTIARCH, VERSION);
    put(root.path(), "usr/bin/nvidia-debugdump", b"x");
    put(root.path(), "opt/bin/nvidia-smi", b"x");
    fs::set_permissions(
        root.path().join("opt/bin/nvidia-smi"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    symlink(
        "/opt/bin/nvidia-smi",
        root.path().join("usr/bin/nvidia-smi"),
    )
    .unwrap();
    let files = find(root.path()).unwrap();
    assert_eq!(files.programs.len(), 1);
    assert_eq!(files.programs[0].path, Path::new("/usr/bin/nvidia-smi"));
    assert_eq!(files.programs[0].file, Path::new("/opt/bin/nvidia-smi"));
}

#[test]
fn nvml_is_found_by_its_link_and_given_by_its_real_path() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(nvml_library(root.path(), &[]), None);
    install(root.path(), "usr/lib64", VERSION);
    symlink(
        format!("/usr/lib64/libnvidia-ml.so.{VERSION}"),
        root.path().join("usr/lib64/libnvidia-ml.so.1"),
    )
    .unwrap();
    assert_eq!(
        nvml_library(root.path(), &[]).unwrap(),
        root.path()
            .join(format!("usr/lib64/libnvidia-ml.so.{VERSION}"))
    );
    assert_eq!(nvml_library(root.path(), &["/opt".into()]), None);
}

#[test]
fn dot_dot_stays_in_the_root() {
    let root = tempfile::tempdir().unwrap();
    put(root.path(), "a", b"x");
    let opened = InRoot::open(root.path()).unwrap();
    let found = opened.file(Path::new("/../../../a")).unwrap();
    assert_eq!(found.path, Path::new("/a"));
}
