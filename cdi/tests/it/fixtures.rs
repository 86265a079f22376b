//! One file per version, with what that version brought.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cdi::{Registry, Spec, Version};

use crate::second_reader;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

#[test]
fn every_version_loads_and_needs_exactly_what_it_declares() {
    for (name, version) in [
        ("0.3.0.yaml", Version::V0_3_0),
        ("0.4.0.yaml", Version::V0_4_0),
        ("0.5.0.yaml", Version::V0_5_0),
        ("0.6.0.yaml", Version::V0_6_0),
        ("0.7.0.yaml", Version::V0_7_0),
        ("1.1.0.json", Version::V1_1_0),
    ] {
        let spec = Spec::load(&fixture(name)).unwrap();
        assert_eq!(spec.minimum_version(), version, "{name}");
        assert_eq!(spec.cdi_version.parse(), Ok(version), "{name}");
    }
}

#[test]
fn a_version_below_the_one_that_brought_a_feature_is_refused() {
    for (name, earlier) in [
        ("0.4.0.yaml", "0.3.0"),
        ("0.5.0.yaml", "0.4.0"),
        ("0.6.0.yaml", "0.5.0"),
        ("0.7.0.yaml", "0.6.0"),
        ("1.1.0.json", "1.0.0"),
    ] {
        let mut spec = Spec::load(&fixture(name)).unwrap();
        earlier.clone_into(&mut spec.cdi_version);
        let violations = spec.validate().unwrap_err();
        assert_eq!(violations.as_slice().len(), 1, "{name}: {violations}");
        assert_eq!(violations.as_slice()[0].place, "cdiVersion");
    }
}

#[test]
fn both_readers_find_the_same_devices_in_the_fixtures() {
    let dir = fixture("");
    let ours = Registry::load(std::slice::from_ref(&dir));
    assert!(ours.broken().is_empty(), "{:?}", ours.broken());
    let names: BTreeSet<_> = ours.devices().map(|found| found.name.to_string()).collect();
    assert_eq!(names.len(), 8);
    let theirs = second_reader::load(&[&dir]);
    assert_eq!(theirs.keys().cloned().collect::<BTreeSet<_>>(), names);
}

#[test]
fn fields_of_a_fixture_arrive_where_they_belong() {
    let spec = Spec::load(&fixture("0.3.0.yaml")).unwrap();
    let node = &spec.devices[0].container_edits.device_nodes[0];
    assert_eq!(
        (node.path.as_str(), node.major, node.minor, node.file_mode),
        ("/dev/nvidia0", Some(195), None, Some(0o666))
    );
    let cap = &spec.devices[1].container_edits.device_nodes[1];
    assert_eq!(
        (cap.kind.as_deref(), cap.major, cap.minor),
        (Some("c"), Some(235), Some(12))
    );
    let hook = &spec.container_edits.hooks[0];
    assert_eq!((hook.args.len(), hook.timeout), (4, Some(10)));
    assert_eq!(spec.container_edits.mounts[0].options.len(), 5);
}
