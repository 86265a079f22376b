//! What a source says of the GPUs, before anything is checked against the host.

use super::{DeviceId, Fault, PciAddress, Source};

/// One GPU as its source describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sighting {
    /// Position in the source's order.
    pub(super) index: u32,
    /// UUID.
    pub(super) id: DeviceId,
    /// Minor of its node.
    pub(super) minor: u32,
    /// Product name, cleaned for terminals.
    pub(super) name: String,
    /// None when the source can't tell (a driver too old for the call).
    pub(super) pci: Option<PciAddress>,
    /// Its MIG devices, when MIG is enabled: the whole GPU is then not to be had.
    pub(super) mig: Option<Vec<Result<MigSighting, Fault>>>,
}

/// One MIG device as its source describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MigSighting {
    /// Position among its parent's.
    pub(super) slot: u32,
    /// UUID.
    pub(super) id: DeviceId,
    /// Name with the profile, cleaned for terminals.
    pub(super) name: String,
    /// GPU instance.
    pub(super) gi: u32,
    /// Compute instance.
    pub(super) ci: u32,
}

/// All that one source says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Survey {
    /// Who says it.
    pub(super) source: Source,
    /// A valid driver version.
    pub(super) driver_version: String,
    /// One entry per GPU that the source lists.
    pub(super) gpus: Vec<Result<Sighting, Fault>>,
}

/// Nodes of whole GPUs have the minors below `nvidia-modeset`'s.
pub(super) fn check_minor(minor: u32) -> Result<u32, String> {
    if minor < crate::host::devices::MODESET_MINOR {
        Ok(minor)
    } else {
        Err(format!("minor {minor} can't be a GPU's: they end at 253"))
    }
}

/// A product name goes to terminals and files: printable ASCII only, of bounded length.
pub(super) fn clean_name(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_ascii_graphic() || *c == ' ')
        .take(96)
        .collect::<String>()
        .trim()
        .to_owned()
}

/// Display adapters of DGX stations, which NVML lists but CUDA can't use (the names that
/// `nvidia-ctk` skips too).
pub(super) fn is_display_only(name: &str) -> bool {
    matches!(name, "DGX Display" | "NVIDIA DGX Display")
}
