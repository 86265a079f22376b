use std::fs;
use std::path::PathBuf;

use super::*;
use crate::model::DeviceNode;

fn spec(kind: &str, mark: &str, devices: &[&str]) -> Spec {
    let env = |text: String| ContainerEdits {
        env: vec![text],
        ..ContainerEdits::default()
    };
    Spec {
        cdi_version: "0.5.0".into(),
        kind: kind.into(),
        devices: devices
            .iter()
            .map(|name| Device {
                name: (*name).into(),
                container_edits: env(format!("{name}={mark}")),
                ..Device::default()
            })
            .collect(),
        container_edits: env(format!("FILE={mark}")),
        ..Spec::default()
    }
}

fn gpu(device: &str) -> QualifiedName {
    QualifiedName::new("nvidia.com", "gpu", device).unwrap()
}

/// Files as (directory, name, devices); the name is the mark as well.
fn registry(files: &[(usize, &str, &[&str])]) -> Registry {
    Registry::from_candidates(files.iter().map(|(priority, name, devices)| Candidate {
        path: PathBuf::from(*name),
        priority: *priority,
        spec: Ok(spec("nvidia.com/gpu", name, devices)),
    }))
}

fn winner(registry: &Registry, device: &str) -> String {
    let path = registry.resolve(&gpu(device)).unwrap().path;
    path.display().to_string()
}

#[test]
fn the_later_directory_wins_per_device() {
    let registry = registry(&[(0, "etc", &["0", "1"]), (1, "run", &["1", "2"])]);
    assert_eq!(winner(&registry, "0"), "etc");
    assert_eq!(winner(&registry, "1"), "run");
    assert_eq!(winner(&registry, "2"), "run");
    let name = gpu("1");
    let shadowed: Vec<_> = registry.shadowed().collect();
    assert_eq!(
        shadowed,
        [Shadowed {
            name: &name,
            path: Path::new("etc"),
            by: Path::new("run")
        }]
    );
}

#[test]
fn priority_does_not_depend_on_the_order_of_reading() {
    let registry = registry(&[(1, "run", &["0"]), (0, "etc", &["0"])]);
    assert_eq!(winner(&registry, "0"), "run");
}

#[test]
fn a_device_twice_in_one_directory_is_dropped_and_both_files_are_named() {
    let registry = registry(&[(0, "a", &["0", "1"]), (0, "b", &["0"])]);
    let conflict = ResolveError::Conflict {
        name: gpu("0"),
        files: vec!["a".into(), "b".into()],
    };
    assert_eq!(registry.resolve(&gpu("0")).unwrap_err(), conflict);
    assert_eq!(registry.conflicts().collect::<Vec<_>>(), [conflict]);
    assert_eq!(winner(&registry, "1"), "a");
    let names: Vec<_> = registry.devices().map(|found| found.name.clone()).collect();
    assert_eq!(names, [gpu("1")]);
}

#[test]
fn a_conflict_hides_the_device_in_later_directories_too() {
    let registry = registry(&[(0, "a", &["0"]), (0, "b", &["0"]), (1, "c", &["0"])]);
    assert_eq!(
        registry.resolve(&gpu("0")).unwrap_err(),
        ResolveError::Conflict {
            name: gpu("0"),
            files: vec!["a".into(), "b".into()],
        }
    );
}

#[test]
fn the_same_name_under_another_kind_is_another_device() {
    let registry =
        Registry::from_candidates(["nvidia.com/gpu", "nvidia.com/mig"].map(|kind| Candidate {
            path: kind.into(),
            priority: 0,
            spec: Ok(spec(kind, "x", &["0"])),
        }));
    assert_eq!(registry.devices().count(), 2);
    assert_eq!(registry.conflicts().count(), 0);
}

#[test]
fn edits_of_the_file_come_once_before_those_of_its_first_device() {
    let registry = registry(&[(0, "a", &["0", "1"]), (0, "b", &["2"])]);
    let edits = registry
        .edits(&[gpu("1"), gpu("2"), gpu("0"), gpu("1")])
        .unwrap();
    assert_eq!(edits.env, ["FILE=a", "1=a", "FILE=b", "2=b", "0=a"]);
}

#[test]
fn edits_tell_every_device_that_does_not_resolve() {
    let registry = registry(&[(0, "a", &["0"]), (0, "b", &["0"])]);
    let errors = registry.edits(&[gpu("0"), gpu("7")]).unwrap_err().errors;
    assert!(matches!(errors[0], ResolveError::Conflict { .. }));
    assert!(matches!(errors[1], ResolveError::Unknown { .. }));
    assert_eq!(errors.len(), 2);
}

#[test]
fn no_device_asked_means_no_edit() {
    assert!(registry(&[(0, "a", &["0"])]).edits(&[]).unwrap().is_empty());
}

#[test]
fn an_invalid_file_is_told_when_its_device_is_asked_for() {
    let mut bad = spec("nvidia.com/gpu", "bad", &["0"]);
    bad.devices[0].container_edits.device_nodes = vec![DeviceNode::default()];
    let registry = Registry::from_candidates([Candidate {
        path: "bad.yaml".into(),
        priority: 0,
        spec: Ok(bad),
    }]);
    let error = registry.resolve(&gpu("0")).unwrap_err();
    assert!(matches!(&error, ResolveError::Broken { path, .. } if path == Path::new("bad.yaml")));
    let text = error.to_string();
    assert!(
        text.contains("bad.yaml") && text.contains("deviceNodes[0].path"),
        "{text}"
    );
}

#[test]
fn an_invalid_file_of_a_later_directory_hides_nothing() {
    let mut bad = spec("nvidia.com/gpu", "bad", &["0"]);
    bad.cdi_version = "9.9.9".into();
    let registry = Registry::from_candidates([
        Candidate {
            path: "good".into(),
            priority: 0,
            spec: Ok(spec("nvidia.com/gpu", "good", &["0"])),
        },
        Candidate {
            path: "bad".into(),
            priority: 1,
            spec: Ok(bad),
        },
    ]);
    assert_eq!(winner(&registry, "0"), "good");
    assert!(registry.broken()[0].claims.contains(&gpu("0")));
}

#[test]
fn only_json_and_yaml_files_of_the_directory_itself_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, device: &str| {
        let text = spec("nvidia.com/gpu", "x", &[device]).to_json();
        fs::write(dir.path().join(name), text).unwrap();
    };
    put("a.json", "json");
    put("b.yaml", "yaml");
    put(".yaml", "bare");
    put(".hidden.json", "hidden");
    put("c.yml", "yml");
    put("d.yaml.cdi-tmp", "temporary");
    fs::create_dir(dir.path().join("sub.yaml")).unwrap();
    put("sub.yaml/e.yaml", "nested");
    let registry = Registry::load(&[dir.path().into()]);
    let names: Vec<_> = registry
        .devices()
        .map(|d| d.name.device().to_owned())
        .collect();
    assert_eq!(names, ["bare", "hidden", "json", "yaml"]);
    assert!(registry.broken().is_empty());
}

#[test]
fn a_link_to_a_file_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("target");
    fs::write(&target, spec("nvidia.com/gpu", "x", &["0"]).to_yaml()).unwrap();
    std::os::unix::fs::symlink(&target, dir.path().join("link.yaml")).unwrap();
    let registry = Registry::load(&[dir.path().into()]);
    assert!(registry.resolve(&gpu("0")).is_ok());
}

#[test]
fn broken_files_are_kept_apart_and_never_block_others() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("empty.yaml"), "").unwrap();
    fs::write(at("torn.json"), "{\"cdiVersion\": \"0.").unwrap();
    fs::write(at("latin1.yaml"), b"kind: \xe9").unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all", at("dangling.yaml")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("fifo.yaml"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    fs::write(
        at("good.yaml"),
        spec("nvidia.com/gpu", "x", &["0"]).to_yaml(),
    )
    .unwrap();
    let registry = Registry::load(&[dir.path().into()]);
    assert!(registry.resolve(&gpu("0")).is_ok());
    let broken: Vec<_> = registry
        .broken()
        .iter()
        .map(|file| file.path.clone())
        .collect();
    let expected = ["dangling", "empty", "fifo", "latin1"].map(|name| at(&format!("{name}.yaml")));
    assert_eq!(broken, [expected.as_slice(), &[at("torn.json")]].concat());
    for file in registry.broken() {
        assert_eq!(file.error.path(), file.path);
        assert!(
            file.error
                .to_string()
                .contains(&file.path.display().to_string())
        );
    }
    let ResolveError::Unknown { unreadable, .. } = registry.resolve(&gpu("7")).unwrap_err() else {
        panic!("an unknown device");
    };
    assert_eq!(unreadable.len(), 5);
}

#[test]
fn a_missing_directory_is_empty_and_an_unlistable_one_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let registry = Registry::load(&[dir.path().join("missing"), file.clone()]);
    assert_eq!(registry.files().len(), 0);
    assert_eq!(registry.dir_errors().len(), 1);
    assert_eq!(registry.dir_errors()[0].path, file);
}
