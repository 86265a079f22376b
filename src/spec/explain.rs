//! Why a name gives the device it gives, or none.
//!
//! Owns the answer, pure over a loaded registry: which file wins, which edits a runtime would make
//! and in which order, which definitions have no effect, and what is near a name that nobody
//! defines. Looks at no host; `check` does that.

use std::path::PathBuf;

use cdi::{ContainerEdits, QualifiedName, Registry, ResolveError};
use serde::Serialize;

use super::diff::{diff, hook_text, mount_text, node_text, rdt};

/// At most so many names are offered in place of an unknown one.
const OFFERED: usize = 12;

/// Where an edit stands in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// In the edits of the whole file, which every device of it brings.
    File,
    /// In the device's own edits.
    Device,
}

/// One thing that a runtime does to the container, in the order in which it does it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Edit {
    /// See [`Level`].
    pub level: Level,
    /// `env`, `node`, `net`, `mount`, `hook`, `rdt`, `gid`.
    pub what: &'static str,
    /// Variable, path in the container, hook phase, group.
    pub target: String,
    /// In words.
    pub detail: String,
}

/// A definition of the name that has no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loser {
    /// The file.
    pub file: PathBuf,
    /// Whether a container would get the same from it.
    pub same: bool,
}

/// The answer for one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// As asked.
    pub name: String,
    /// The file that gives the device; absent when none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Why there is none; absent when there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// In the order in which a runtime makes them.
    pub edits: Vec<Edit>,
    /// Files of directories with lower priority that define the name too.
    pub shadowed: Vec<Loser>,
    /// Names that could have been meant.
    pub instead: Vec<String>,
    /// What else one should know, one sentence each.
    pub notes: Vec<String>,
}

impl Explanation {
    /// Whether a runtime finds the device.
    pub fn resolves(&self) -> bool {
        self.file.is_some()
    }
}

/// Explains a name as a person or a pod spelled it; a text that is no name at all is explained too.
pub fn explain(registry: &Registry, text: &str) -> Explanation {
    let mut answer = Explanation {
        name: text.to_owned(),
        file: None,
        reason: None,
        edits: Vec::new(),
        shadowed: Vec::new(),
        instead: Vec::new(),
        notes: Vec::new(),
    };
    let name = match text.parse::<QualifiedName>() {
        Ok(name) => name,
        Err(error) => {
            answer.reason = Some(error.to_string());
            if text.contains("MIG-GPU-") {
                answer.notes.push(
                    "the MIG id with slashes of drivers before 470 can't be a CDI name; ask for the MIG-<uuid> that `nvidia-smi -L` prints".into(),
                );
            }
            answer.instead = near(registry, text);
            return answer;
        }
    };
    match registry.resolve(&name) {
        Ok(found) => {
            answer.file = Some(found.path.to_owned());
            push(&mut answer.edits, Level::File, &found.spec.container_edits);
            push(
                &mut answer.edits,
                Level::Device,
                &found.device.container_edits,
            );
            answer.shadowed = found
                .shadowed
                .iter()
                .map(|loser| Loser {
                    file: (*loser).to_owned(),
                    same: is_same(registry, loser, found.spec, name.device()),
                })
                .collect();
            let nodes = &found.device.container_edits.device_nodes;
            let aliases = aliases(registry, &name, nodes);
            if !aliases.is_empty() {
                answer.notes.push(format!(
                    "the same nodes under another name: {}; a container that asks for both runs hooks twice",
                    aliases.join(", ")
                ));
            }
        }
        Err(error) => {
            if matches!(error, ResolveError::Unknown { .. }) {
                answer.instead = near(registry, text);
                let kind = name.kind().to_string();
                if !registry.files().iter().any(|file| file.spec.kind == kind) {
                    answer.notes.push(format!("no file has the kind {kind}"));
                }
            }
            answer.reason = Some(error.to_string());
        }
    }
    for broken in registry.broken() {
        answer
            .notes
            .push(format!("runtimes skip a file: {}", broken.error));
    }
    for error in registry.dir_errors() {
        answer.notes.push(format!("not looked into: {error}"));
    }
    answer
}

/// Whether one device of the losing file, with its file's edits, equals the winner's.
fn is_same(registry: &Registry, loser: &std::path::Path, winner: &cdi::Spec, name: &str) -> bool {
    let alone = |spec: &cdi::Spec| {
        let mut spec = spec.clone();
        spec.devices.retain(|device| device.name == name);
        spec.cdi_version.clear();
        spec.annotations.clear();
        spec
    };
    registry
        .files()
        .iter()
        .find(|file| file.path == loser)
        .is_some_and(|file| diff(&alone(&file.spec), &alone(winner)).is_empty())
}

/// Names of the registry with the same device or the same kind, the former first.
fn near(registry: &Registry, text: &str) -> Vec<String> {
    let (kind, device) = text.split_once('=').unwrap_or(("", text));
    let mut names: Vec<_> = registry
        .devices()
        .map(|found| {
            let name = found.name;
            let same_device = name.device().eq_ignore_ascii_case(device);
            let starts = !device.is_empty() && name.device().starts_with(device);
            let same_kind = name.kind().to_string() == kind;
            let rank = match (same_device, starts, same_kind) {
                (true, ..) => 0,
                (_, true, _) => 1,
                (_, _, true) => 2,
                _ => 3,
            };
            (rank, name.to_string())
        })
        .collect();
    names.sort();
    names
        .into_iter()
        .take(OFFERED)
        .map(|(_, name)| name)
        .collect()
}

fn aliases(registry: &Registry, name: &QualifiedName, nodes: &[cdi::DeviceNode]) -> Vec<String> {
    if nodes.is_empty() {
        return Vec::new();
    }
    registry
        .devices()
        .filter(|other| {
            other.name != name
                && other.name.kind() == name.kind()
                && other.device.container_edits.device_nodes == nodes
        })
        .map(|other| other.name.to_string())
        .collect()
}

/// In the order of the Go library's injection (CDI reference, section 8).
fn push(edits: &mut Vec<Edit>, level: Level, from: &ContainerEdits) {
    let mut add = |what, target: &str, detail: String| {
        edits.push(Edit {
            level,
            what,
            target: target.to_owned(),
            detail,
        });
    };
    for entry in &from.env {
        let (name, value) = entry.split_once('=').unwrap_or((entry, ""));
        add("env", name, value.to_owned());
    }
    for node in &from.device_nodes {
        add("node", &node.path, node_text(node));
    }
    for device in &from.net_devices {
        add("net", &device.name, device.host_interface_name.clone());
    }
    for mount in &from.mounts {
        add("mount", &mount.container_path, mount_text(mount));
    }
    for hook in &from.hooks {
        add("hook", &hook.hook_name, hook_text(hook));
    }
    if let Some(settings) = &from.intel_rdt {
        add("rdt", "", rdt(settings));
    }
    for gid in &from.additional_gids {
        add(
            "gid",
            &gid.to_string(),
            "further group of the process".into(),
        );
    }
}

#[cfg(test)]
mod tests {
    use cdi::{Candidate, Spec};
    use proptest::prelude::*;

    use super::*;

    fn file(path: &str, priority: usize, device: &str, node: &str) -> Candidate {
        let text = format!(
            "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: \"{device}\"\n  containerEdits: {{deviceNodes: [{{path: {node}}}]}}\ncontainerEdits: {{env: [\"NVIDIA_VISIBLE_DEVICES=void\"], hooks: [{{hookName: createContainer, path: /h}}]}}\n"
        );
        Candidate {
            path: path.into(),
            priority,
            spec: Ok(Spec::from_yaml(&text).unwrap()),
        }
    }

    #[test]
    fn the_winner_its_edits_in_order_and_the_losers_are_told() {
        let registry = Registry::from_candidates([
            file("/etc/cdi/a.yaml", 0, "GPU-a", "/dev/nvidia1"),
            file("/run/cdi/b.yaml", 1, "GPU-a", "/dev/nvidia0"),
            file("/run/cdi/c.yaml", 1, "0", "/dev/nvidia0"),
        ]);
        let answer = explain(&registry, "nvidia.com/gpu=GPU-a");
        assert_eq!(answer.file, Some("/run/cdi/b.yaml".into()));
        assert_eq!(
            answer.shadowed,
            [Loser {
                file: "/etc/cdi/a.yaml".into(),
                same: false
            }]
        );
        let edits: Vec<_> = answer
            .edits
            .iter()
            .map(|edit| (edit.level, edit.what, edit.target.as_str()))
            .collect();
        assert_eq!(
            edits,
            [
                (Level::File, "env", "NVIDIA_VISIBLE_DEVICES"),
                (Level::File, "hook", "createContainer"),
                (Level::Device, "node", "/dev/nvidia0"),
            ]
        );
        assert!(answer.notes[0].contains("nvidia.com/gpu=0"));
    }

    #[test]
    fn a_name_that_nobody_defines_comes_with_what_could_be_meant() {
        let registry = Registry::from_candidates([
            file("/c/a.yaml", 0, "GPU-a", "/dev/nvidia1"),
            file("/c/b.yaml", 0, "all", "/dev/nvidia1"),
        ]);
        let answer = explain(&registry, "management.nvidia.com/gpu=GPU-a");
        assert!(!answer.resolves());
        assert_eq!(answer.instead[0], "nvidia.com/gpu=GPU-a");
        assert!(answer.notes[0].contains("management.nvidia.com/gpu"));
    }

    #[test]
    fn a_device_of_two_files_in_one_directory_names_both() {
        let registry = Registry::from_candidates([
            file("/c/a.yaml", 0, "GPU-a", "/dev/nvidia1"),
            file("/c/b.yaml", 0, "GPU-a", "/dev/nvidia1"),
        ]);
        let reason = explain(&registry, "nvidia.com/gpu=GPU-a").reason.unwrap();
        assert!(reason.contains("/c/a.yaml") && reason.contains("/c/b.yaml"));
    }

    #[test]
    fn what_is_no_name_is_explained_and_not_a_crash() {
        let registry = Registry::default();
        for text in [
            "",
            "0",
            "/dev/nvidia0",
            "nvidia.com/gpu=MIG-GPU-aa/1/0",
            "\u{1b}[0m",
        ] {
            assert!(explain(&registry, text).reason.is_some(), "{text:?}");
        }
        let legacy = explain(&registry, "nvidia.com/gpu=MIG-GPU-aa/1/0");
        assert!(legacy.notes[0].contains("470"));
    }

    #[test]
    fn an_equal_definition_in_another_directory_is_told_to_be_equal() {
        let registry = Registry::from_candidates([
            file("/etc/cdi/a.yaml", 0, "GPU-a", "/dev/nvidia1"),
            file("/run/cdi/b.json", 1, "GPU-a", "/dev/nvidia1"),
        ]);
        assert!(explain(&registry, "nvidia.com/gpu=GPU-a").shadowed[0].same);
    }

    proptest! {
        #[test]
        fn any_text_gets_an_answer(text in "(?s).*") {
            let registry = Registry::from_candidates([file("/c/a.yaml", 0, "GPU-a", "/dev/x")]);
            let answer = explain(&registry, &text);
            prop_assert_eq!(answer.resolves(), text == "nvidia.com/gpu=GPU-a");
            prop_assert_eq!(answer.resolves(), answer.reason.is_none());
        }
    }
}
