//! Discover → driver files → build → write: one path for the command and the plugin's refresher.

use std::path::PathBuf;

use cdi::{Format, Outcome, Spec, WriteError, write_spec};

use super::build::{BuildOptions, build};
use crate::driver::{DriverError, DriverFiles};
use crate::gpu::{DiscoverError, Fault, Inventory, NvmlLibrary, discover};
use crate::host::Roots;

/// Everything that a refresh depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshOptions {
    /// Where the host is.
    pub roots: Roots,
    /// Which NVML library; its search directories hold for the driver's files too.
    pub nvml: NvmlLibrary,
    /// What the spec is to look like.
    pub build: BuildOptions,
    /// The file to bring up to date; its name ends in the extension of `format`.
    pub output: PathBuf,
    /// Its encoding.
    pub format: Format,
}

/// A spec and what it was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// At least one usable GPU; `faults` names those that were left out.
    pub inventory: Inventory,
    /// Valid for writing.
    pub spec: Spec,
}

/// A spec that is in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refreshed {
    /// See [`Generated::inventory`].
    pub inventory: Inventory,
    /// What the file now says.
    pub spec: Spec,
    /// Whether the file was touched; an equal one is not.
    pub outcome: Outcome,
}

/// There is no new spec; the file, if any, is what it was.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// See [`DiscoverError`].
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    /// See [`DriverError`].
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The driver works and lists nothing.
    #[error("the NVIDIA driver {driver_version} is loaded and has no GPU")]
    NoGpu {
        /// Of the running driver.
        driver_version: String,
    },
    /// The driver lists GPUs, none of which can be used.
    #[error("no GPU can be used:\n  - {}", faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  - "))]
    NoUsableGpu {
        /// One entry per GPU.
        faults: Vec<Fault>,
    },
    /// See [`WriteError`].
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl SpecError {
    /// Whether this host simply has no NVIDIA driver or GPU, so that nothing is wrong with it.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            Self::NoGpu { .. } | Self::Discover(DiscoverError::NoDriver { .. })
        )
    }
}

/// Takes the inventory and builds the spec, without writing it. Blocks for as long as the driver
/// does.
pub fn generate(
    roots: &Roots,
    nvml: &NvmlLibrary,
    options: &BuildOptions,
) -> Result<Generated, SpecError> {
    let inventory = discover(roots, nvml)?;
    if inventory.gpus.is_empty() {
        return Err(if inventory.faults.is_empty() {
            SpecError::NoGpu {
                driver_version: inventory.driver_version,
            }
        } else {
            SpecError::NoUsableGpu {
                faults: inventory.faults,
            }
        });
    }
    let files = DriverFiles::find(&roots.driver, &inventory.driver_version, &nvml.search)?;
    let spec = build(&inventory, &files, options);
    Ok(Generated { inventory, spec })
}

/// Brings the file up to date. Blocks for as long as the driver does.
pub fn refresh(options: &RefreshOptions) -> Result<Refreshed, SpecError> {
    let Generated { inventory, spec } = generate(&options.roots, &options.nvml, &options.build)?;
    let outcome = write_spec(&options.output, &spec, options.format)?;
    Ok(Refreshed {
        inventory,
        spec,
        outcome,
    })
}
