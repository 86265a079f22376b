//! Which spec `cdi-gen generate` makes: mode, preset and flags come together here.

use std::path::PathBuf;

use anyhow::Context;
use cdi::Kind;

use super::content::Mode;
use super::generate::GenerateArgs;
use crate::driver::DriverFiles;
use crate::gpu::{Inventory, NvmlLibrary};
use crate::host::Roots;
use crate::spec::{
    BuildOptions, Generated, ModeSpec, generate, generate_mode, generate_tegra, generate_wsl,
    is_tegra, is_wsl, mode_kind,
};

/// A spec, and what is known of its making.
pub(super) struct Made {
    pub(super) spec: cdi::Spec,
    pub(super) files: DriverFiles,
    /// Of GPUs; the other modes have none.
    pub(super) inventory: Option<Inventory>,
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
        let mut roots = self.roots.roots();
        if let Some(preset) = &self.content.preset {
            if let (None, Some(root)) = (&self.roots.driver_root, &preset.driver_root) {
                roots.driver.clone_from(root);
            }
            if self.roots.dev_root.is_none() {
                let dev = preset.dev_root.as_ref();
                // A driver root that was named has its own nodes, unless somebody says otherwise.
                let own = self.roots.driver_root.is_some();
                roots.dev = dev.filter(|_| !own).unwrap_or(&roots.driver).clone();
            }
        }
        roots
    }

    pub(super) fn nvml(&self) -> NvmlLibrary {
        NvmlLibrary {
            search: self.content_search(),
            ..self.roots.nvml()
        }
    }

    /// Library directories instead of the usual ones: flags, then the preset. With 32-bit
    /// libraries wanted, a preset's directories of those come through the manifest.
    pub(super) fn content_search(&self) -> Vec<PathBuf> {
        let named = self.roots.library_search_path.clone();
        match &self.content.preset {
            Some(preset) if named.is_empty() => preset.library_dirs().to_vec(),
            _ => named,
        }
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
