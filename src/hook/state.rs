//! Which container: the OCI state on stdin, and the configuration in the bundle that it names.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::HookError;

/// No runtime's state or configuration comes near this.
const MAX_BYTES: u64 = 16 << 20;

/// The container that is being made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its root file system, absolute on the host.
    pub root: PathBuf,
    /// Whether the runtime will hide parts of the container's procfs.
    pub procfs_masked: bool,
}

/// OCI runtime specification, "State".
#[derive(Deserialize)]
struct State {
    bundle: PathBuf,
}

/// The part of OCI's `config.json` that matters here.
#[derive(Deserialize)]
struct Config {
    root: Root,
    linux: Option<Linux>,
}

#[derive(Deserialize)]
struct Root {
    path: PathBuf,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Linux {
    #[serde(default)]
    masked_paths: Option<Vec<String>>,
}

impl Container {
    /// Reads the state, to its end, and then the bundle's configuration.
    pub fn read(state: impl Read) -> Result<Self, HookError> {
        let text = bounded(state).map_err(HookError::State)?;
        let state: State =
            serde_json::from_slice(&text).map_err(|error| HookError::State(error.to_string()))?;
        if !state.bundle.is_absolute() {
            let bundle = state.bundle.display();
            return Err(HookError::State(format!(
                "the bundle `{bundle}` is no absolute path"
            )));
        }
        let path = state.bundle.join("config.json");
        let config = config(&path).map_err(|reason| HookError::Config { path, reason })?;
        Ok(Self {
            root: state.bundle.join(config.root.path),
            procfs_masked: config
                .linux
                .and_then(|linux| linux.masked_paths)
                .is_some_and(|paths| paths.iter().any(|path| path.starts_with("/proc/"))),
        })
    }
}

fn config(path: &Path) -> Result<Config, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    serde_json::from_slice(&bounded(file)?).map_err(|error| error.to_string())
}

fn bounded(source: impl Read) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    source
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("it is longer than {MAX_BYTES} bytes"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(config: &Value) -> Result<Container, HookError> {
        let bundle = tempfile::tempdir().unwrap();
        std::fs::write(bundle.path().join("config.json"), config.to_string()).unwrap();
        let state = json!({"ociVersion": "1.0.2", "bundle": bundle.path()}).to_string();
        let mut container = Container::read(state.as_bytes())?;
        if let Ok(inside) = container.root.strip_prefix(bundle.path()) {
            container.root = inside.to_owned();
        }
        Ok(container)
    }

    #[test]
    fn the_root_is_the_bundle_s_and_may_be_relative() {
        let relative = read(&json!({"root": {"path": "rootfs"}})).unwrap();
        assert_eq!(relative.root, Path::new("rootfs"));
        assert!(!relative.procfs_masked);
        let absolute = read(&json!({
            "root": {"path": "/r", "readonly": true},
            "linux": {"maskedPaths": ["/sys/firmware", "/proc/acpi"]},
        }))
        .unwrap();
        assert_eq!(absolute.root, Path::new("/r"));
        assert!(absolute.procfs_masked);
        for unmasked in [json!(null), json!([]), json!(["/sys/firmware"])] {
            let config = json!({"root": {"path": "/r"}, "linux": {"maskedPaths": unmasked}});
            assert!(!read(&config).unwrap().procfs_masked, "{config}");
        }
    }

    #[test]
    fn states_and_configurations_without_sense_are_errors() {
        for state in ["", "{}", "[]", r#"{"bundle": 1}"#, r#"{"bundle": "b"}"#] {
            let error = Container::read(state.as_bytes()).unwrap_err();
            assert!(matches!(error, HookError::State(_)), "{state}: {error}");
        }
        let absent = Container::read(&br#"{"bundle": "/nowhere"}"#[..]).unwrap_err();
        assert!(absent.to_string().contains("/nowhere/config.json"));
        assert!(matches!(
            read(&json!({"root": null})),
            Err(HookError::Config { .. })
        ));
        let endless = Container::read(std::io::repeat(b' ')).unwrap_err();
        assert!(matches!(endless, HookError::State(_)));
    }
}
