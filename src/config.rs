//! The configuration file: what the node's administrator decides. `nri-config/gpu-warden.yaml` is
//! the commented default.

use std::path::{Path, PathBuf};

use globset::{Glob, GlobMatcher};
use serde::Deserialize;

/// The configuration could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("cannot read the configuration {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// It is no valid configuration; unknown keys are refused.
    #[error("the configuration {origin} is not valid: {source}")]
    Parse {
        /// File or `from the runtime`.
        origin: String,
        /// Place and reason.
        source: serde_yaml::Error,
    },
    /// A pattern is not valid.
    #[error("the configuration has an invalid pod pattern: {0}")]
    Pattern(#[from] globset::Error),
    /// An exemption without a namespace would hold for everybody.
    #[error("the configuration exempts pods {0:?} in an empty namespace: name the namespace")]
    NoNamespace(String),
}

/// How a grant is brought in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InjectionMode {
    /// By CDI name where the runtime resolves it to our spec, else by our own expansion.
    #[default]
    Auto,
    /// Always by our own expansion.
    Expanded,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct File {
    exemptions: Vec<FileExemption>,
    managed_env: Vec<String>,
    injection: InjectionMode,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileExemption {
    namespace: String,
    pods: String,
}

/// A checked configuration.
#[derive(Debug, Clone, Default)]
pub struct Config {
    exemptions: Vec<(String, GlobMatcher)>,
    /// Environment variables to neutralise beside NVIDIA's own (`swarm-resource` names).
    pub managed_env: Vec<String>,
    /// How a grant is brought in.
    pub injection: InjectionMode,
}

impl Config {
    /// The shipped default, which holds where no file is named.
    pub fn shipped() -> Result<Self, ConfigError> {
        Self::parse(
            include_str!("../nri-config/gpu-warden.yaml"),
            "shipped with gpu-warden",
        )
    }

    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Checks a text; `origin` says in errors where it came from. An empty text is the default.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ConfigError> {
        let file: Option<File> =
            serde_yaml::from_str(text).map_err(|source| ConfigError::Parse {
                origin: origin.to_owned(),
                source,
            })?;
        let File {
            exemptions,
            managed_env,
            injection,
        } = file.unwrap_or_default();
        let exemptions = exemptions.into_iter().map(|exemption| {
            if exemption.namespace.is_empty() {
                return Err(ConfigError::NoNamespace(exemption.pods));
            }
            Ok((
                exemption.namespace,
                Glob::new(&exemption.pods)?.compile_matcher(),
            ))
        });
        Ok(Self {
            exemptions: exemptions.collect::<Result<_, _>>()?,
            managed_env,
            injection,
        })
    }

    /// Whether a pod is left as it is: one of the node's own GPU components.
    pub fn exempts(&self, namespace: &str, pod: &str) -> bool {
        self.exemptions
            .iter()
            .any(|(exempt, pods)| exempt == namespace && pods.is_match(pod))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exemption_needs_both_namespace_and_name() {
        let config = Config::parse(
            "exemptions: [{namespace: gpu-operator, pods: 'nvidia-*'}]",
            "test",
        )
        .unwrap();
        assert!(config.exempts("gpu-operator", "nvidia-dcgm-x"));
        assert!(!config.exempts("default", "nvidia-dcgm-x"));
        assert!(!config.exempts("gpu-operator", "mine"));
    }

    #[test]
    fn an_empty_text_exempts_nobody() {
        for text in ["", "# only a comment\n", "{}"] {
            assert!(
                !Config::parse(text, "test")
                    .unwrap()
                    .exempts("kube-system", "nvidia-device-plugin")
            );
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for text in [
            "exempt: []",
            "injection: maybe",
            "exemptions: [{pods: '*'}]",
            "exemptions: [{namespace: '', pods: '*'}]",
            "exemptions: [{namespace: a, pods: '[' }]",
            "]",
        ] {
            assert!(Config::parse(text, "test").is_err(), "{text}");
        }
    }

    #[test]
    fn the_shipped_default_is_valid_and_exempts_the_device_plugin() {
        let config = Config::shipped().unwrap();
        assert!(config.exempts("kube-system", "nvidia-device-plugin-daemonset-7xk2p"));
        assert!(!config.exempts("default", "nvidia-device-plugin-daemonset-7xk2p"));
    }
}
