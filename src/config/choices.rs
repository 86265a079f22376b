//! The values that single keys of the configuration may have.

use serde::Deserialize;

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

/// Whether decisions are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Enforcement {
    /// They are.
    #[default]
    Enforce,
    /// They are only told: nothing is changed, nothing refused.
    Audit,
}

/// What happens to a container that asks for more power than most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Treatment {
    /// It runs, guarded like any other.
    #[default]
    Allow,
    /// It is refused if the kubelet allocated a GPU to it.
    RefuseWithGpu,
    /// It is refused.
    Refuse,
}

impl Treatment {
    /// Whether a container is refused, which has a GPU or not.
    pub fn refuses(self, has_gpu: bool) -> bool {
        match self {
            Self::Allow => false,
            Self::RefuseWithGpu => has_gpu,
            Self::Refuse => true,
        }
    }
}

/// What happens to a hostPath directory that holds GPU nodes or a directory which runtimes obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostDirectories {
    /// Nothing at CreateContainer: the gate judges by what is in the container.
    #[default]
    Gate,
    /// The container is refused.
    Refuse,
}

/// What happens to containers that run already when gpu-warden connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Existing {
    /// They are examined, and what they have beyond their allocation is told.
    Report,
    /// That, and the kernel's filter is put on those whose allocation is known.
    #[default]
    Fence,
    /// They are stopped.
    Stop,
}

/// A rule from which an exemption can exempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum Rule {
    /// `privileged`.
    #[serde(rename = "privileged")]
    Privileged,
    /// `hostPID`.
    #[serde(rename = "hostPID")]
    HostPid,
    /// Mounts of what the runtime and the kubelet obey, and `hostDirectories`.
    #[serde(rename = "mounts")]
    Mounts,
}
