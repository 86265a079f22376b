//! Which spec `cdi-gen generate` makes: mode, preset and flags come together here.

use std::path::PathBuf;

use anyhow::Context;
use cdi::Kind;

use super::content::Mode;
use super::exit::Exit;
use super::generate::{GenerateArgs, report};
use crate::driver::DriverFiles;
use crate::gpu::{Inventory, NvmlLibrary};
use crate::host::Roots;
use crate::spec::{
    BuildOptions, DeviceSelection, Generated, ModeSpec, generate, generate_mode, generate_tegra,
    generate_wsl, is_tegra, is_wsl, mode_kind,
};

/// A spec, and what is known of its making.
pub(super) struct Made {
    pub(super) spec: cdi::Spec,
    pub(super) files: DriverFiles,
    /// Of GPUs; the other modes have none.
    pub(super) inventory: Option<Inventory>,
}

impl Made {
    /// Names on stderr what was left out, and says how the run ends if nothing else goes wrong.
    pub(super) fn exit(&self, chosen: &DeviceSelection) -> Exit {
        let inventory = self.inventory.as_ref();
        inventory.map_or(Exit::Done, |inventory| report(inventory, chosen))
    }
}

impl GenerateArgs {
    /// Builds the spec that the mode asks for.
    pub(super) fn make(&self, build: &BuildOptions) -> anyhow::Result<Made> {
        let (roots, nvml) = (self.roots(), self.nvml());
        let mode = match self.content.mode {
            Mode::Auto if is_wsl(&roots) => Mode::Wsl,
            Mode::Auto if is_tegra(&roots, &nvml) => Mode::Csv,
            mode => mode,
        };
        let ModeSpec { spec, files } = match (mode, mode.in_manifest()) {
            (Mode::Wsl, _) => generate_wsl(&roots, &self.content_search(), build)?,
            (Mode::Csv, _) => generate_tegra(&roots, &self.content.csv_dir, build)?,
            (_, Some(name)) => generate_mode(&roots, &nvml, name, build)?,
            (_, None) => {
                let Generated {
                    inventory,
                    files,
                    spec,
                } = generate(&roots, &nvml, build)?;
                return Ok(Made {
                    spec,
                    files,
                    inventory: Some(inventory),
                });
            }
        };
        Ok(Made {
            spec,
            files,
            inventory: None,
        })
    }

    /// The roots that count: flags, then the preset.
    pub(super) fn roots(&self) -> Roots {
        self.roots.roots_with(self.content.preset.as_ref())
    }

    pub(super) fn nvml(&self) -> NvmlLibrary {
        self.roots.nvml_with(self.content.preset.as_ref())
    }

    /// Library directories instead of the usual ones.
    pub(super) fn content_search(&self) -> Vec<PathBuf> {
        self.nvml().search
    }

    /// What was named, else the mode's own.
    pub(super) fn kind(&self) -> anyhow::Result<Kind> {
        let own = match self.content.mode.in_manifest() {
            Some(mode) => mode_kind(&self.content.manifest()?, mode)?,
            None => Kind::new("nvidia.com", "gpu")?,
        };
        let vendor = self.vendor.as_deref().unwrap_or(own.vendor());
        let class = self.class.as_deref().unwrap_or(own.class());
        Kind::new(vendor, class).context("--vendor and --class")
    }
}
