//! Flags of `cdi-gen generate` that say what a spec holds, and where its parts come from and go.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Context;
use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};

use super::absolute;
use crate::driver::{Capability, Manifest, Preset, Targets};
use crate::gpu::capability::NodeWide;
use crate::spec::{BuildOptions, DeviceSelection};

/// What goes in.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Content")]
pub struct ContentArgs {
    /// What kind of spec
    #[arg(
        long,
        alias = "discovery-mode",
        value_enum,
        env = "CDI_GEN_MODE",
        default_value = "auto"
    )]
    pub mode: Mode,
    /// Sets of driver files: compute, utility, graphics, video, display, ngx, compat32, firmware,
    /// or `all` for these; glvnd, ipc, mps only by name (repeatable)
    #[arg(
        long,
        value_name = "SET",
        env = "CDI_GEN_CAPABILITIES",
        value_delimiter = ',',
        default_value = "compute,utility",
        value_parser = capabilities
    )]
    pub capabilities: Vec<Capabilities>,
    /// Only this device: UUID, index (`0`), or parent index and slot of a MIG device (`0:1`);
    /// `none` for the driver's files alone; in mode imex a channel (repeatable)
    #[arg(
        long = "device-id",
        aliases = ["device-ids", "device", "devices"],
        value_name = "DEVICE",
        env = "CDI_GEN_DEVICE_IDS",
        value_delimiter = ','
    )]
    pub device_id: Vec<String>,
    /// Leave out DRM nodes
    #[arg(long, env = "CDI_GEN_NO_DRM", value_parser = FalseyValueParser::new())]
    pub no_drm: bool,
    /// Give MIG devices their parent's DRM nodes
    #[arg(long, env = "CDI_GEN_MIG_DRM", value_parser = FalseyValueParser::new())]
    pub mig_drm: bool,
    /// Add a device `mig-config` or `mig-monitor` (repeatable)
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        env = "CDI_GEN_MIG_CONTROL",
        value_delimiter = ','
    )]
    pub mig_control: Vec<MigControl>,
    /// Layout of a known system: gpu-operator, gke-cos, talos, nixos
    #[arg(long, value_name = "NAME", env = "CDI_GEN_PRESET", value_parser = Preset::named)]
    pub preset: Option<Preset>,
    /// List of what to look for, instead of the built-in one
    #[arg(long, value_name = "FILE", env = "CDI_GEN_MANIFEST")]
    pub manifest: Option<PathBuf>,
    /// Print the built-in list and do nothing else
    #[arg(long)]
    pub print_manifest: bool,
    /// Directory, inside the driver root, to search for settings instead of the usual ones
    /// (repeatable)
    #[arg(
        long,
        value_name = "DIR",
        env = "CDI_GEN_CONFIG_SEARCH_PATH",
        value_delimiter = ',',
        value_parser = absolute
    )]
    pub config_search_path: Vec<PathBuf>,
    /// Put libraries into this directory of the container, not where they were found
    #[arg(long, value_name = "DIR", env = "CDI_GEN_CONTAINER_LIBRARY_DIR", value_parser = absolute)]
    pub container_library_dir: Option<PathBuf>,
    /// The same for 32-bit libraries; by default beside the others
    #[arg(
        long = "container-library-dir-32",
        value_name = "DIR",
        env = "CDI_GEN_CONTAINER_LIBRARY_DIR_32",
        requires = "container_library_dir",
        value_parser = absolute
    )]
    pub container_library_dir_32: Option<PathBuf>,
    /// Put programs into this directory of the container
    #[arg(long, value_name = "DIR", env = "CDI_GEN_CONTAINER_BINARY_DIR", value_parser = absolute)]
    pub container_binary_dir: Option<PathBuf>,
    /// Directory, inside the driver root, of the lists of mode csv (repeatable)
    #[arg(
        long = "csv-dir",
        value_name = "DIR",
        env = "CDI_GEN_CSV_DIR",
        default_value = "/etc/nvidia-container-runtime/host-files-for-container.d",
        value_parser = absolute
    )]
    pub csv_dir: PathBuf,
}

/// `--mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// wsl or csv where their files are, else nvml
    Auto,
    /// GPUs and MIG devices by UUID
    Nvml,
    /// Windows Subsystem for Linux: one device
    Wsl,
    /// Tegra (Jetson): what the lists of its system name
    Csv,
    /// `GPUDirect` Storage
    Gds,
    /// InfiniBand verbs
    Mofed,
    /// `GDRCopy`
    Gdrcopy,
    /// `NVSwitch`
    Nvswitch,
    /// IMEX channels, one device each
    Imex,
    /// Everything, for administration
    Management,
}

impl Mode {
    /// Its name in the manifest, for the modes that are there.
    pub(super) fn in_manifest(self) -> Option<&'static str> {
        match self {
            Self::Auto | Self::Nvml | Self::Wsl | Self::Csv => None,
            Self::Gds => Some("gds"),
            Self::Mofed => Some("mofed"),
            Self::Gdrcopy => Some("gdrcopy"),
            Self::Nvswitch => Some("nvswitch"),
            Self::Imex => Some("imex"),
            Self::Management => Some("management"),
        }
    }
}

/// `--mig-control`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MigControl {
    /// May create and destroy instances
    Config,
    /// May watch all instances
    Monitor,
}

/// What one word of `--capabilities` stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities(BTreeSet<Capability>);

fn capabilities(text: &str) -> Result<Capabilities, String> {
    Capability::parse(text)
        .map(Capabilities)
        .map_err(|error| error.to_string())
}

impl ContentArgs {
    /// The manifest that counts: the file's or the built-in one, with the preset's directories.
    pub(super) fn manifest(&self) -> anyhow::Result<Manifest> {
        let mut manifest = match &self.manifest {
            Some(path) => Manifest::read(path)?,
            None => Manifest::builtin()?,
        };
        if let Some(preset) = &self.preset {
            preset.apply(&mut manifest.directories);
        }
        Ok(manifest)
    }

    /// Sets what these flags say.
    pub(super) fn apply(&self, options: &mut BuildOptions) -> anyhow::Result<()> {
        let preset = self.preset.clone().unwrap_or_default();
        options.capabilities = self
            .capabilities
            .iter()
            .flat_map(|set| set.0.clone())
            .collect();
        options.manifest = Some(self.manifest()?);
        options.config_search.clone_from(&self.config_search_path);
        options.targets = Targets {
            lib: self
                .container_library_dir
                .clone()
                .or(preset.container_library_dir),
            lib32: self.container_library_dir_32.clone(),
            bin: self
                .container_binary_dir
                .clone()
                .or(preset.container_binary_dir),
        };
        options.devices = DeviceSelection::parse(&self.device_id)
            .map_err(anyhow::Error::msg)
            .context("--device-id")?;
        options.drm = !self.no_drm;
        options.mig_drm = self.mig_drm;
        options.node_wide = self
            .mig_control
            .iter()
            .map(|which| match which {
                MigControl::Config => NodeWide::Config,
                MigControl::Monitor => NodeWide::Monitor,
            })
            .collect();
        Ok(())
    }
}
