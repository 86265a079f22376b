//! What `generate` writes, `check` finds no fault with.

use std::fs;

use serde_json::Value;

use crate::build::{Node, can_mknod};
use crate::describe;

/// Where specs with a hook say that its program is.
const HOOK: &str = "/usr/bin/cdi-gen";

#[test]
fn check_finds_no_fault_with_what_was_just_written_on_any_node() {
    if !can_mknod() {
        return;
    }
    let mut count = 0;
    for (name, description) in describe::all() {
        let node = Node::new(&description);
        for (suffix, spec) in &description.specs {
            let run = node.run(&spec.arguments);
            if run.stdout.is_empty() {
                continue;
            }
            count += 1;
            let what = format!("{name}-{suffix}");
            if run.stdout.contains(HOOK) {
                node.program(HOOK);
            }
            node.put("cdi/spec.yaml", run.stdout.as_bytes());
            let kind = cdi::Spec::from_yaml(&run.stdout).unwrap().kind;
            let preset = spec.arguments.iter().filter(|a| a.starts_with("--preset"));
            let output = node
                .command("check")
                .args(node.host_roots())
                .arg("--cdi-dir")
                .arg(node.path("cdi"))
                .args(["-o", "json"])
                .args(preset)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let answer: Value = serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|error| panic!("{what}: {error}: {said}"));
            let serious: Vec<_> = answer["findings"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|finding| finding["severity"] != "info")
                // A spec of something else, or of chosen devices, leaves GPUs out.
                .filter(|finding| {
                    let is_partial = kind != "nvidia.com/gpu"
                        || spec.arguments.iter().any(|a| a.starts_with("--device-id"));
                    let id = finding["id"].as_str().unwrap();
                    !(is_partial && matches!(id, "no-spec" | "gpu-unlisted"))
                })
                // Told by `generate` with its exit code 1 too.
                .filter(|finding| !(spec.exit == 1 && finding["id"] == "gpu-fault"))
                .collect();
            assert!(serious.is_empty(), "{what}: {serious:#?}");
            fs::remove_dir_all(node.path("cdi")).unwrap();
        }
    }
    assert!(count >= 25, "{count} specs");
}
