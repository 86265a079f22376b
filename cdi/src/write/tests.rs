use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use super::*;
use crate::model::{ContainerEdits, Device};

fn spec(mark: &str) -> Spec {
    Spec {
        cdi_version: "0.3.0".into(),
        kind: "nvidia.com/gpu".into(),
        devices: vec![Device {
            name: "GPU-0".into(),
            container_edits: ContainerEdits {
                env: vec![format!("A={mark}")],
                ..ContainerEdits::default()
            },
            ..Device::default()
        }],
        ..Spec::default()
    }
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn a_new_file_is_readable_by_all_and_leaves_nothing_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    assert_eq!(
        write_spec(&path, &spec("1"), Format::Yaml).unwrap(),
        Outcome::Written
    );
    assert_eq!(mode(&path), 0o644);
    assert_eq!(names(dir.path()), ["a.yaml"]);
    assert_eq!(Spec::load(&path).unwrap(), spec("1"));
}

#[test]
fn json_is_written_under_its_own_extension() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.json");
    write_spec(&path, &spec("1"), Format::Json).unwrap();
    assert_eq!(Spec::load(&path).unwrap(), spec("1"));
}

#[test]
fn equal_content_is_not_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    write_spec(&path, &spec("1"), Format::Yaml).unwrap();
    let before = (
        inode(&path),
        fs::metadata(&path).unwrap().modified().unwrap(),
    );
    assert_eq!(
        write_spec(&path, &spec("1"), Format::Yaml).unwrap(),
        Outcome::Unchanged
    );
    assert_eq!(
        (
            inode(&path),
            fs::metadata(&path).unwrap().modified().unwrap()
        ),
        before
    );
}

#[test]
fn a_wrong_mode_of_equal_content_is_mended_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    write_spec(&path, &spec("1"), Format::Yaml).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let before = inode(&path);
    assert_eq!(
        write_spec(&path, &spec("1"), Format::Yaml).unwrap(),
        Outcome::Unchanged
    );
    assert_eq!((inode(&path), mode(&path)), (before, 0o644));
}

#[test]
fn changed_content_replaces_the_inode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    write_spec(&path, &spec("1"), Format::Yaml).unwrap();
    let held = File::open(&path).unwrap();
    assert_eq!(
        write_spec(&path, &spec("2"), Format::Yaml).unwrap(),
        Outcome::Written
    );
    assert_ne!(held.metadata().unwrap().ino(), inode(&path));
    let mut old = String::new();
    (&held).read_to_string(&mut old).unwrap();
    assert_eq!(Spec::from_yaml(&old).unwrap(), spec("1"));
}

#[test]
fn an_invalid_spec_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/a.yaml");
    let mut bad = spec("1");
    bad.kind = "vendor.com/m".into();
    let error = write_spec(&path, &bad, Format::Yaml).unwrap_err();
    assert!(matches!(error, WriteError::Invalid { .. }));
    assert!(error.to_string().contains("one character"), "{error}");
    assert!(names(dir.path()).is_empty());
}

#[test]
fn a_spec_that_the_reader_would_find_too_large_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    let error = write_spec(&path, &spec(&"x".repeat(MAX_BYTES)), Format::Yaml).unwrap_err();
    assert!(matches!(error, WriteError::TooLarge { .. }));
    assert!(names(dir.path()).is_empty());
}

#[test]
fn a_name_that_readers_ignore_or_misread_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (name, format) in [
        ("a.yml", Format::Yaml),
        ("a", Format::Yaml),
        ("a.json", Format::Yaml),
        ("a.yaml", Format::Json),
    ] {
        let error = write_spec(&dir.path().join(name), &spec("1"), format).unwrap_err();
        assert!(matches!(error, WriteError::Name { .. }), "{name}");
    }
    assert!(names(dir.path()).is_empty());
}

#[test]
fn missing_directories_get_mode_0755() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run/cdi/a.yaml");
    write_spec(&path, &spec("1"), Format::Yaml).unwrap();
    assert_eq!(mode(&dir.path().join("run")), 0o755);
    assert_eq!(mode(&dir.path().join("run/cdi")), 0o755);
}

#[test]
fn an_existing_directory_keeps_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
    write_spec(&dir.path().join("a.yaml"), &spec("1"), Format::Yaml).unwrap();
    assert_eq!(mode(dir.path()), 0o700);
}

#[test]
fn a_link_as_target_is_refused_and_its_target_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let (target, path) = (dir.path().join("target"), dir.path().join("a.yaml"));
    fs::write(&target, "precious").unwrap();
    symlink(&target, &path).unwrap();
    for error in [
        write_spec(&path, &spec("1"), Format::Yaml).unwrap_err(),
        remove_spec(&path).unwrap_err(),
    ] {
        assert!(matches!(error, WriteError::Symlink { .. }));
        assert!(error.to_string().contains("a.yaml"));
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
    assert!(path.is_symlink());
}

#[test]
fn a_dangling_link_as_target_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    symlink(dir.path().join("nowhere"), &path).unwrap();
    let error = write_spec(&path, &spec("1"), Format::Yaml).unwrap_err();
    assert!(matches!(error, WriteError::Symlink { .. }));
    assert_eq!(names(dir.path()), ["a.yaml"]);
}

#[test]
fn a_linked_directory_is_used() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("run")).unwrap();
    symlink("run", dir.path().join("var-run")).unwrap();
    write_spec(&dir.path().join("var-run/a.yaml"), &spec("1"), Format::Yaml).unwrap();
    assert_eq!(names(&dir.path().join("run")), ["a.yaml"]);
}

#[test]
fn a_directory_as_target_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    fs::create_dir(&path).unwrap();
    let write = write_spec(&path, &spec("1"), Format::Yaml).unwrap_err();
    let remove = remove_spec(&path).unwrap_err();
    assert!(matches!(write, WriteError::NotAFile { .. }));
    assert!(matches!(remove, WriteError::NotAFile { .. }));
    assert_eq!(names(dir.path()), ["a.yaml"]);
}

#[test]
fn a_file_where_the_directory_should_be_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = write_spec(&file.join("a.yaml"), &spec("1"), Format::Yaml).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}

#[test]
fn a_failed_rename_leaves_no_temporary_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    fs::create_dir(&path).unwrap();
    let error = replace(dir.path(), &path, b"x").unwrap_err();
    assert!(error.to_string().starts_with("rename to"), "{error}");
    assert_eq!(names(dir.path()), ["a.yaml"]);
}

#[test]
fn removal_tells_whether_there_was_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    assert_eq!(remove_spec(&path).unwrap(), RemoveOutcome::Absent);
    write_spec(&path, &spec("1"), Format::Yaml).unwrap();
    assert_eq!(remove_spec(&path).unwrap(), RemoveOutcome::Removed);
    assert!(names(dir.path()).is_empty());
    assert!(matches!(
        remove_spec(Path::new("/etc/x")),
        Err(WriteError::Name { .. })
    ));
    let missing = dir.path().join("missing/a.yaml");
    assert_eq!(remove_spec(&missing).unwrap(), RemoveOutcome::Absent);
}

/// A temporary file as a writer leaves it that dies before its rename.
fn leave(dir: &Path, name: &str, age: Duration) -> File {
    let file = File::create(dir.join(name)).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
    file
}

const OLD: Duration = Duration::from_secs(3600);

#[test]
fn a_leftover_of_a_dead_writer_of_this_target_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    leave(dir.path(), ".a.yaml.Xy12ab.cdi-tmp", OLD);
    write_spec(&dir.path().join("a.yaml"), &spec("1"), Format::Yaml).unwrap();
    assert_eq!(names(dir.path()), ["a.yaml"]);
}

#[test]
fn what_is_not_clearly_a_leftover_of_this_target_stays() {
    let dir = tempfile::tempdir().unwrap();
    let kept = [
        ".a.yaml..cdi-tmp",
        ".a.yaml.b.yaml.Xy12ab.cdi-tmp",
        ".b.yaml.Xy12ab.cdi-tmp",
        "a.yaml.Xy12ab.cdi-tmp",
        ".a.yaml.Xy12ab.tmp",
    ];
    for name in kept {
        leave(dir.path(), name, OLD);
    }
    leave(dir.path(), ".a.yaml.young1.cdi-tmp", Duration::ZERO);
    symlink("/etc/hostname", dir.path().join(".a.yaml.link01.cdi-tmp")).unwrap();
    fs::create_dir(dir.path().join(".a.yaml.dir001.cdi-tmp")).unwrap();
    write_spec(&dir.path().join("a.yaml"), &spec("1"), Format::Yaml).unwrap();
    assert_eq!(names(dir.path()).len(), kept.len() + 4);
}

#[test]
fn an_old_temporary_file_of_a_living_writer_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.yaml");
    let slow = create_temporary(dir.path(), &path).unwrap();
    slow.as_file()
        .set_modified(SystemTime::now() - OLD)
        .unwrap();
    write_spec(&path, &spec("1"), Format::Yaml).unwrap();
    assert!(slow.path().exists());
}

#[test]
fn no_reader_looks_at_a_temporary_file() {
    let dir = tempfile::tempdir().unwrap();
    let temporary = create_temporary(dir.path(), &dir.path().join("a.yaml")).unwrap();
    assert_eq!(Format::from_path(temporary.path()), None);
    assert_eq!(mode(temporary.path()), 0o600);
}
