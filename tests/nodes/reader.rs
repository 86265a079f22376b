//! The golden specs as another reader sees them.

use std::fs;
use std::path::Path;

use container_device_interface::cache::{new_cache, with_auto_refresh};
use container_device_interface::spec_dirs::with_spec_dirs;

use crate::build::{Node, can_mknod};
use crate::describe;

#[test]
fn another_reader_loads_every_golden_spec_with_all_of_its_devices() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/nodes");
    for entry in fs::read_dir(golden).unwrap() {
        let path = entry.unwrap().path();
        let dir = tempfile::tempdir().unwrap();
        fs::copy(&path, dir.path().join("spec.yaml")).unwrap();
        let dir = dir.path().display().to_string();
        let cache = new_cache(vec![with_spec_dirs(&[&dir]), with_auto_refresh(false)]);
        let found = cache.lock().unwrap().list_devices();
        let spec = cdi::Spec::from_yaml(&fs::read_to_string(&path).unwrap()).unwrap();
        spec.validate_for_writing().unwrap();
        let mut own: Vec<_> = spec
            .devices
            .iter()
            .map(|device| format!("{}={}", spec.kind, device.name))
            .collect();
        own.sort();
        assert_eq!(found, own, "{}", path.display());
    }
}

/// Injection looks at the host's nodes, so here the host's roots are the node's own directories.
#[test]
fn another_reader_injects_every_device_of_every_node() {
    if !can_mknod() {
        return;
    }
    for (name, description) in describe::all() {
        let node = Node::new(&description);
        for (suffix, spec) in description.specs.iter().filter(|(_, spec)| spec.exit < 2) {
            let dir = node.path("cdi");
            let _ = fs::remove_dir_all(&dir);
            let output = node
                .generate()
                .args(&spec.arguments)
                .arg("--output")
                .arg(dir.join("spec.yaml"))
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(spec.exit), "{name}-{suffix}");
            let text = fs::read_to_string(dir.join("spec.yaml")).unwrap();
            let own = cdi::Spec::from_yaml(&text).unwrap();
            let cache = new_cache(vec![
                with_spec_dirs(&[&dir.display().to_string()]),
                with_auto_refresh(false),
            ]);
            let mut cache = cache.lock().unwrap();
            for device in &own.devices {
                #[expect(
                    clippy::default_trait_access,
                    reason = "the type's crate is no dependency of ours; inference names it"
                )]
                let mut oci = Default::default();
                let qualified = format!("{}={}", own.kind, device.name);
                cache
                    .inject_devices(Some(&mut oci), vec![qualified.clone()])
                    .unwrap_or_else(|error| panic!("{name}-{suffix} {qualified}: {error}"));
                let linux = oci.linux().clone().unwrap_or_default();
                let injected = linux.devices().clone().unwrap_or_default();
                let nodes = device.container_edits.device_nodes.iter();
                for node in nodes.chain(&own.container_edits.device_nodes) {
                    assert!(
                        injected.iter().any(|found| {
                            found.path().display().to_string() == node.path
                                && node.major.is_none_or(|major| found.major() == major)
                        }),
                        "{name}-{suffix} {qualified}: {}",
                        node.path
                    );
                }
            }
        }
    }
}
