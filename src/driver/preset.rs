//! Layouts of known systems, as data.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::manifest::Directories;

const PRESETS: &str = include_str!("presets.yaml");

/// Where a system keeps its driver. What is not set is as on any host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Preset {
    /// What it is for.
    pub about: String,
    /// Root of the driver's files.
    #[serde(default)]
    pub driver_root: Option<PathBuf>,
    /// Directory that contains `dev`.
    #[serde(default)]
    pub dev_root: Option<PathBuf>,
    /// The driver root as the runtime on the host sees it.
    #[serde(default)]
    pub host_driver_root: Option<String>,
    #[serde(default)]
    lib: Vec<PathBuf>,
    #[serde(default)]
    lib32: Vec<PathBuf>,
    #[serde(default)]
    bin: Vec<PathBuf>,
    #[serde(default)]
    config: Vec<PathBuf>,
    /// Where libraries go in the container.
    #[serde(default)]
    pub container_library_dir: Option<PathBuf>,
    /// Where programs go in the container.
    #[serde(default)]
    pub container_binary_dir: Option<PathBuf>,
}

/// There is no such preset.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PresetError {
    /// The name is none of the known ones.
    #[error("`{name}` is no preset; there are {}", known.join(", "))]
    Unknown {
        /// As asked for.
        name: String,
        /// All names.
        known: Vec<String>,
    },
    /// The built-in file is damaged.
    #[error("the built-in presets can't be read: {0}")]
    Form(String),
}

impl Preset {
    /// The preset of that name.
    pub fn named(name: &str) -> Result<Self, PresetError> {
        let mut all: BTreeMap<String, Self> =
            serde_yaml::from_str(PRESETS).map_err(|error| PresetError::Form(error.to_string()))?;
        all.remove(name).ok_or_else(|| PresetError::Unknown {
            name: name.chars().take(40).collect(),
            known: all.into_keys().collect(),
        })
    }

    /// Library directories that take the place of the usual ones, for NVML too.
    pub fn library_dirs(&self) -> &[PathBuf] {
        &self.lib
    }

    /// Puts the preset's directories in the place of a manifest's.
    pub fn apply(&self, directories: &mut Directories) {
        for (own, target) in [
            (&self.lib, &mut directories.lib),
            (&self.lib32, &mut directories.lib32),
            (&self.bin, &mut directories.bin),
            (&self.config, &mut directories.config),
        ] {
            if !own.is_empty() {
                target.clone_from(own);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_reads_and_has_absolute_directories() {
        for name in ["gpu-operator", "gke-cos", "talos", "nixos"] {
            let preset = Preset::named(name).unwrap();
            let mut dirs = Directories::default();
            preset.apply(&mut dirs);
            for dir in dirs.lib.iter().chain(&dirs.bin).chain(&dirs.config) {
                assert!(dir.is_absolute(), "{name}: {}", dir.display());
            }
        }
        let error = Preset::named("plan9").unwrap_err().to_string();
        assert!(
            error.contains("gke-cos") && error.contains("plan9"),
            "{error}"
        );
    }
}
