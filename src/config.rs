//! The configuration file: what the node's administrator decides. `nri-config/gpu-warden.yaml` is
//! the commented default, `nri-config/gpu-warden.schema.json` its schema.
//!
//! Owns the reading and checking of the file; [`Settings`] keeps it current. Refuses keys that it
//! does not know: a misspelt key would otherwise mean the default without a word.

mod choices;
mod exemption;
mod settings;

use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use choices::{Enforcement, Existing, HostDirectories, InjectionMode, Rule, Treatment};
pub use exemption::{Exempt, PodIdentity};
use exemption::{Exemption, FileExemption};
pub use settings::{Settings, SettingsSource};

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
    /// An exemption from nothing is a mistake: left out, `from` means everything.
    #[error(
        "the configuration exempts pods {1:?} of namespace {0:?} from an empty list: name rules, or leave `from` out to exempt from everything"
    )]
    FromNothing(String, String),
    /// A value that is understood, and that this version can't carry out.
    #[error("the configuration has `{key}: {value}`, which is not supported: {remedy}")]
    Unsupported {
        /// The key.
        key: &'static str,
        /// Its value.
        value: &'static str,
        /// What to do instead.
        remedy: &'static str,
    },
    /// A name that no environment variable can have.
    #[error("the configuration manages the variable {0:?}, which is no name of a variable")]
    VariableName(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct File {
    enforcement: Enforcement,
    exemptions: Vec<FileExemption>,
    privileged: Treatment,
    #[serde(rename = "hostPID")]
    host_pid: Treatment,
    host_directories: HostDirectories,
    existing: Existing,
    managed_env: Vec<String>,
    injection: InjectionMode,
}

/// A checked configuration.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Who is left as it is, and from what; asked by [`Config::exempt`].
    pub exemptions: Vec<Exemption>,
    /// Whether decisions are carried out.
    pub enforcement: Enforcement,
    /// Privileged containers.
    pub privileged: Treatment,
    /// Containers in the host's pid namespace.
    pub host_pid: Treatment,
    /// Directories of the host that hold GPU nodes, or what the runtime obeys.
    pub host_directories: HostDirectories,
    /// Containers that run already.
    pub existing: Existing,
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
        let file = file.unwrap_or_default();
        let is_name = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
        if let Some(name) = file.managed_env.iter().find(|name| !is_name(name)) {
            return Err(ConfigError::VariableName(name.clone()));
        }
        let exemptions = file.exemptions.into_iter().map(Exemption::check);
        Ok(Self {
            exemptions: exemptions.collect::<Result<_, _>>()?,
            enforcement: file.enforcement,
            privileged: file.privileged,
            host_pid: file.host_pid,
            host_directories: file.host_directories,
            existing: supported(file.existing)?,
            managed_env: file.managed_env,
            injection: file.injection,
        })
    }

    /// What a pod is exempt from: the node's own GPU components have to see every GPU.
    pub fn exempt(&self, pod: PodIdentity<'_>) -> Exempt {
        let mut exempt = Exempt::default();
        for exemption in &self.exemptions {
            exemption.apply(pod, &mut exempt);
        }
        exempt
    }
}

/// What this version can do to containers that run already.
fn supported(existing: Existing) -> Result<Existing, ConfigError> {
    let (value, remedy) = match existing {
        Existing::Report | Existing::Fence => return Ok(existing),
        Existing::Stop => (
            "stop",
            "NRI has no call that stops a container; use `report`, and delete the pods that it names",
        ),
    };
    Err(ConfigError::Unsupported {
        key: "existing",
        value,
        remedy,
    })
}

#[cfg(test)]
mod tests;
