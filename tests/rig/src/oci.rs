//! Edits of an OCI bundle's `config.json`, as the runtime wrappers in `src/bin` make them before they
//! become the real runc.
//!
//! Owns the two stand-ins' behaviour as pure functions: the legacy NVIDIA runtime, which believes the
//! environment, and a filter for cgroup v2 trees whose controllers are taken by v1.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Failure;
use crate::world::{Gpu, Node};

/// Where a device list by volume mounts is.
const VOLUME_LIST: &str = "/var/run/nvidia-container-devices/";

/// What the legacy runtime's stand-in knows of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegacyConfig {
    /// Its GPUs; an index in the environment is a position in this list.
    pub gpus: Vec<Gpu>,
    /// Nodes that come with any GPU: `nvidiactl`, `nvidia-uvm`, …
    pub control: Vec<Node>,
}

/// Adds the nodes that `NVIDIA_VISIBLE_DEVICES` names to the container, whoever wrote that variable;
/// or those of a list of volume mounts, which counts for more (as where the real one is told to
/// accept them).
///
/// Of duplicates the last counts; `void`, `none`, an empty value and absence mean nothing. An unknown
/// name is an error, as the real one makes it.
pub fn inject_by_environment(config: &mut Value, node: &LegacyConfig) -> Result<(), String> {
    let visible = config["process"]["env"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.as_str()?.strip_prefix("NVIDIA_VISIBLE_DEVICES="))
        .next_back()
        .unwrap_or_default()
        .to_owned();
    let mounted: Vec<&str> = config["mounts"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|mount| mount["source"] == "/dev/null")
        .filter_map(|mount| mount["destination"].as_str()?.strip_prefix(VOLUME_LIST))
        .collect();
    let visible = if mounted.is_empty() {
        visible
    } else {
        mounted.join(",")
    };
    let gpus: Vec<&Gpu> = match visible.as_str() {
        "" | "void" | "none" => return Ok(()),
        "all" => node.gpus.iter().collect(),
        list => list
            .split(',')
            .map(|name| find(node, name).ok_or_else(|| format!("unknown device `{name}`")))
            .collect::<Result<_, _>>()?,
    };
    for gpu in gpus {
        add(config, &gpu.node())?;
    }
    for control in &node.control {
        add(config, control)?;
    }
    Ok(())
}

fn find<'a>(node: &'a LegacyConfig, name: &str) -> Option<&'a Gpu> {
    match name.parse::<usize>() {
        Ok(index) => node.gpus.get(index),
        Err(_) => node.gpus.iter().find(|gpu| gpu.uuid == name),
    }
}

fn add(config: &mut Value, node: &Node) -> Result<(), String> {
    let Node { path, major, minor } = node;
    let linux = config
        .get_mut("linux")
        .and_then(Value::as_object_mut)
        .ok_or("config.json has no `linux` section")?;
    let devices = list(linux.entry("devices"))?;
    if !devices.iter().any(|device| device["path"] == path.as_str()) {
        devices.push(json!({
            "path": path, "type": "c", "major": major, "minor": minor,
            "fileMode": 0o666, "uid": 0, "gid": 0,
        }));
    }
    let resources = linux
        .entry("resources")
        .or_insert_with(|| json!({}))
        .as_object_mut()
        .ok_or("`linux.resources` is no object")?;
    list(resources.entry("devices"))?.push(json!({
        "allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm",
    }));
    Ok(())
}

fn list(entry: serde_json::map::Entry<'_>) -> Result<&mut Vec<Value>, String> {
    let value = entry.or_insert_with(|| json!([]));
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut().ok_or("a list is no list".to_owned())
}

/// Drops from `linux.resources` what needs a controller that the unified tree lacks, since v1 has it.
///
/// `controllers` is the text of the root's `cgroup.controllers`. Device rules need none on v2.
pub fn keep_settable_resources(config: &mut Value, controllers: &str) -> Result<(), String> {
    let resources = config
        .pointer_mut("/linux/resources")
        .and_then(Value::as_object_mut)
        .ok_or("config.json has no `linux.resources`")?;
    let has = |name: &str| controllers.split_whitespace().any(|word| word == name);
    resources.retain(|key, value| match key.as_str() {
        "devices" => true,
        "cpu" => {
            if let (false, Some(cpu)) = (has("cpuset"), value.as_object_mut()) {
                cpu.remove("cpus");
                cpu.remove("mems");
            }
            has("cpu")
        }
        "blockIO" => has("io"),
        "hugepageLimits" => has("hugetlb"),
        other => has(other),
    });
    Ok(())
}

/// The bundle that a `create` or `run` is about; nothing for every other call of the runtime.
pub fn bundle_of(args: &[OsString]) -> Option<PathBuf> {
    let word = |arg: &OsString| arg.to_str().map(str::to_owned);
    let words: Vec<String> = args.iter().filter_map(word).collect();
    words.iter().find(|arg| *arg == "create" || *arg == "run")?;
    let bundle = words.iter().enumerate().find_map(|(at, arg)| {
        if arg == "--bundle" || arg == "-b" {
            return words.get(at + 1).cloned();
        }
        arg.strip_prefix("--bundle=").map(str::to_owned)
    });
    Some(bundle.unwrap_or_else(|| ".".to_owned()).into())
}

/// Becomes `next` with these arguments, after `edit` has had its way with the bundle, where there is
/// one. Returns only if that failed.
pub fn edit_and_become(
    next: &Path,
    args: &[OsString],
    edit: impl FnOnce(&mut Value) -> Result<(), String>,
) -> Result<std::convert::Infallible, Failure> {
    if let Some(bundle) = bundle_of(args) {
        let path = bundle.join("config.json");
        let text = std::fs::read(&path).map_err(Failure::file("read", &path))?;
        let mut config = serde_json::from_slice(&text)
            .map_err(|e| Failure::unexpected(path.display().to_string(), e))?;
        edit(&mut config).map_err(|e| Failure::unexpected(path.display().to_string(), e))?;
        std::fs::write(&path, config.to_string()).map_err(Failure::file("write", &path))?;
    }
    let source = std::process::Command::new(next).args(args).exec();
    Err(Failure::Spawn {
        program: next.display().to_string(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> LegacyConfig {
        LegacyConfig {
            gpus: vec![Gpu::numbered(0), Gpu::numbered(1)],
            control: vec![Node::new("/dev/nvidiactl", 195, 255)],
        }
    }

    fn nodes_for(env: &[&str]) -> Result<Vec<String>, String> {
        let mut config = json!({ "process": { "env": env }, "linux": {} });
        inject_by_environment(&mut config, &node())?;
        let devices = config["linux"]["devices"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let rules = config["linux"]["resources"]["devices"]
            .as_array()
            .map_or(0, Vec::len);
        assert_eq!(devices.len(), rules);
        let path = |device: &Value| device["path"].as_str().unwrap_or_default().to_owned();
        Ok(devices.iter().map(path).collect())
    }

    #[test]
    fn a_list_of_volume_mounts_counts_for_more_than_the_variable() {
        let listed = |source: &str| {
            let name = Gpu::numbered(1).uuid;
            let mut config = json!({
                "process": { "env": ["NVIDIA_VISIBLE_DEVICES=0"] },
                "mounts": [{ "destination": format!("{VOLUME_LIST}{name}"), "source": source }],
                "linux": {},
            });
            inject_by_environment(&mut config, &node()).unwrap();
            config["linux"]["devices"][0]["path"].clone()
        };
        assert_eq!(listed("/dev/null"), "/dev/nvidia1");
        assert_eq!(listed("/dev/zero"), "/dev/nvidia0");
    }

    #[test]
    fn the_legacy_runtime_believes_the_last_value_of_the_variable() {
        let uuid = format!("NVIDIA_VISIBLE_DEVICES={}", Gpu::numbered(1).uuid);
        for (env, expected) in [
            (
                &["NVIDIA_VISIBLE_DEVICES=all"][..],
                &["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"][..],
            ),
            (
                &["NVIDIA_VISIBLE_DEVICES=1"],
                &["/dev/nvidia1", "/dev/nvidiactl"],
            ),
            (&[uuid.as_str()], &["/dev/nvidia1", "/dev/nvidiactl"]),
            (
                &["NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_VISIBLE_DEVICES=0"],
                &["/dev/nvidia0", "/dev/nvidiactl"],
            ),
            (
                &["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_VISIBLE_DEVICES=void"],
                &[],
            ),
            (&["NVIDIA_VISIBLE_DEVICES="], &[]),
            (&["PATH=/bin"], &[]),
        ] {
            assert_eq!(nodes_for(env).unwrap(), expected, "{env:?}");
        }
        assert!(nodes_for(&["NVIDIA_VISIBLE_DEVICES=GPU-gone"]).is_err());
    }

    #[test]
    fn only_create_and_run_have_a_bundle_to_edit() {
        let args = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let bundle = |text: &str| bundle_of(&args(text));
        assert_eq!(
            bundle("--root /r create --bundle /b --pid-file /p id"),
            Some("/b".into())
        );
        assert_eq!(bundle("create -b /b id"), Some("/b".into()));
        assert_eq!(bundle("create --bundle=/b id"), Some("/b".into()));
        assert_eq!(bundle("run id"), Some(".".into()));
        assert_eq!(bundle("--root /r delete --force id"), None);
        assert_eq!(bundle("--version"), None);
    }

    #[test]
    fn the_v2_filter_keeps_device_rules_and_what_has_a_controller() {
        let given = json!({ "linux": { "resources": {
            "devices": [1], "cpu": { "shares": 2, "cpus": "0" }, "memory": {}, "hugepageLimits": [],
        } } });
        for (controllers, kept) in [
            ("", json!({ "devices": [1] })),
            (
                "hugetlb misc\n",
                json!({ "devices": [1], "hugepageLimits": [] }),
            ),
            (
                "cpu memory",
                json!({ "devices": [1], "cpu": { "shares": 2 }, "memory": {} }),
            ),
        ] {
            let mut config = given.clone();
            keep_settable_resources(&mut config, controllers).unwrap();
            assert_eq!(config["linux"]["resources"], kept, "{controllers}");
        }
        assert!(keep_settable_resources(&mut json!({}), "").is_err());
    }
}
