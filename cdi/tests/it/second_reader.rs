//! `container-device-interface`, the independent Rust port, as an oracle: it loads what we write and sees
//! in it what we meant.

use std::collections::BTreeMap;
use std::path::Path;

use cdi::{Format, QualifiedName, Registry, Spec, write_spec};
use container_device_interface::cache::Cache;
use container_device_interface::spec_dirs::with_spec_dirs;
use serde_json::Value;

/// All devices that the other reader resolves, as JSON; panics when it refuses any file.
pub(crate) fn load(dirs: &[&Path]) -> BTreeMap<String, Value> {
    let dirs: Vec<_> = dirs.iter().map(|dir| dir.to_str().unwrap()).collect();
    let mut cache = Cache::default();
    with_spec_dirs(&dirs)(&mut cache);
    cache.refresh().expect("the second reader loads every file");
    let devices = cache.devices.iter();
    devices
        .map(|(name, device)| {
            let device = serde_json::to_value(&device.cdi_device).unwrap();
            (name.clone(), device)
        })
        .collect()
}

/// Writes the spec in both formats and compares what the two readers make of either file.
pub(crate) fn assert_same_reading(spec: &Spec) {
    for format in [Format::Yaml, Format::Json] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("spec.{}", format.extension()));
        write_spec(&path, spec, format).unwrap();

        let ours = Registry::load(&[dir.path().into()]);
        let theirs = load(&[dir.path()]);
        assert_eq!(theirs.len(), spec.devices.len());
        for (name, device) in &theirs {
            let name: QualifiedName = name.parse().unwrap();
            let resolved = ours.resolve(&name).unwrap();
            assert_eq!(&serde_json::to_value(resolved.device).unwrap(), device);
            assert_eq!(resolved.spec, spec);
        }
    }
}

#[test]
fn the_second_reader_agrees_on_which_directory_wins() {
    let (low, high) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (dir, mark) in [(&low, "low"), (&high, "high")] {
        let text = format!(
            "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: '0'\n  containerEdits: {{env: [A={mark}]}}\n"
        );
        let spec = Spec::from_yaml(&text).unwrap();
        write_spec(&dir.path().join("a.yaml"), &spec, Format::Yaml).unwrap();
    }
    let theirs = load(&[low.path(), high.path()]);
    let ours = Registry::load(&[low.path().into(), high.path().into()]);
    let name = "nvidia.com/gpu=0";
    assert_eq!(theirs[name]["containerEdits"]["env"][0], "A=high");
    let edits = ours.edits(&[name.parse().unwrap()]).unwrap();
    assert_eq!(edits.env, ["A=high"]);
}
