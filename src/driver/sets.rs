//! Capability sets: the names by which users choose among the driver's files.

use std::collections::BTreeSet;

use serde::Deserialize;

/// A set of things that a container may need, as `NVIDIA_DRIVER_CAPABILITIES` calls them, and a few
/// more that are never part of `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Capability {
    /// CUDA, `OpenCL`.
    Compute,
    /// `nvidia-smi` and NVML.
    Utility,
    /// OpenGL, EGL, GBM, Vulkan.
    Graphics,
    /// Video codecs.
    Video,
    /// X.Org.
    Display,
    /// NGX.
    Ngx,
    /// 32-bit libraries of the other selected sets.
    Compat32,
    /// GSP firmware.
    Firmware,
    /// Vendor-neutral GL libraries of the host (not in `all`).
    Glvnd,
    /// Sockets of the driver's daemons (not in `all`).
    Ipc,
    /// The pipe directory of MPS (not in `all`).
    Mps,
}

/// The text names no set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is none of all, {names}", names = NAMES.map(|(name, _)| name).join(", "))]
pub struct InvalidCapability(String);

const NAMES: [(&str, Capability); 11] = [
    ("compute", Capability::Compute),
    ("utility", Capability::Utility),
    ("graphics", Capability::Graphics),
    ("video", Capability::Video),
    ("display", Capability::Display),
    ("ngx", Capability::Ngx),
    ("compat32", Capability::Compat32),
    ("firmware", Capability::Firmware),
    ("glvnd", Capability::Glvnd),
    ("ipc", Capability::Ipc),
    ("mps", Capability::Mps),
];

impl Capability {
    /// Reads names as users write them; `all` is [`Self::ALL`].
    pub fn parse(text: &str) -> Result<BTreeSet<Self>, InvalidCapability> {
        if text == "all" {
            return Ok(Self::ALL.into());
        }
        NAMES
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, capability)| BTreeSet::from([*capability]))
            .ok_or_else(|| InvalidCapability(text.chars().take(40).collect()))
    }

    /// What `all` stands for.
    pub const ALL: [Self; 8] = [
        Self::Compute,
        Self::Utility,
        Self::Graphics,
        Self::Video,
        Self::Display,
        Self::Ngx,
        Self::Compat32,
        Self::Firmware,
    ];

    /// What is taken when nobody chooses.
    pub fn defaults() -> BTreeSet<Self> {
        BTreeSet::from([Self::Compute, Self::Utility])
    }
}
