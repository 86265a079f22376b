//! Discover → driver files → build → write: one path for the command and the plugin's refresher.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cdi::{Format, Outcome, Spec, WriteError, write_spec};

use super::build::{BuildOptions, add_node_wide, build};
use super::select::DeviceSelection;
use crate::driver::{Capability, DriverError, DriverFiles, FindOptions, Manifest, ManifestError};
use crate::gpu::{DiscoverError, Fault, Inventory, NvmlLibrary, discover_with, node_wide};
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
    /// At least one usable device, if any was to be chosen; `faults` names those that were left
    /// out.
    pub inventory: Inventory,
    /// What is mounted.
    pub files: DriverFiles,
    /// Valid for writing.
    pub spec: Spec,
}

/// A spec that is in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refreshed {
    /// See [`Generated::inventory`].
    pub inventory: Inventory,
    /// What is mounted.
    pub files: DriverFiles,
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
    /// See [`ManifestError`].
    #[error(transparent)]
    Manifest(#[from] ManifestError),
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
    /// Control nodes that the manifest requires can't be used.
    #[error("required device nodes can't be used:\n  - {}", nodes.join("\n  - "))]
    ControlNodes {
        /// Path, reason and remedy of each.
        nodes: Vec<String>,
    },
    /// A device that was asked for is not there.
    #[error("there is no device `{asked}`; there are: {}", have.join(", "))]
    UnknownDevice {
        /// As the caller named it.
        asked: String,
        /// UUIDs of the usable ones.
        have: Vec<String>,
    },
    /// Something that was asked for by name is not on this host.
    #[error("{0}")]
    Unavailable(String),
    /// The spec breaks rules of CDI: the options name a path that readers would refuse.
    #[error("the spec would be invalid: {0}")]
    Invalid(#[from] cdi::Violations),
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
    let find = find_options(roots, nvml, options, &options.capabilities)?;
    let wanted: Vec<&Path> = find
        .manifest
        .nodes
        .iter()
        .filter(|node| !node.capabilities.is_disjoint(&options.capabilities))
        .map(|node| node.path.as_path())
        .collect();
    let mut inventory = discover_with(roots, nvml, &wanted)?;
    let libraries_only = options.devices == DeviceSelection::None;
    if inventory.devices().next().is_none() && !libraries_only {
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
    if !libraries_only {
        require_control_nodes(&find.manifest, &inventory, &options.capabilities)?;
    }
    if let Err(asked) = options.devices.apply(&mut inventory) {
        let have = inventory.devices().map(|gpu| gpu.id.to_string()).collect();
        return Err(SpecError::UnknownDevice { asked, have });
    }
    let files = DriverFiles::find_with(&roots.driver, &inventory.driver_version, &find)?;
    let mut spec = build(&inventory, &files, options);
    for which in &options.node_wide {
        let (node, mode) = node_wide(roots, *which).map_err(|reason| {
            SpecError::Unavailable(format!("there is no device mig-{which}: {reason}"))
        })?;
        add_node_wide(&mut spec, *which, &node, mode);
    }
    spec.validate_for_writing()?;
    Ok(Generated {
        inventory,
        files,
        spec,
    })
}

/// Brings the file up to date. Blocks for as long as the driver does.
pub fn refresh(options: &RefreshOptions) -> Result<Refreshed, SpecError> {
    let Generated {
        inventory,
        files,
        spec,
    } = generate(&options.roots, &options.nvml, &options.build)?;
    let outcome = write_spec(&options.output, &spec, options.format)?;
    Ok(Refreshed {
        inventory,
        files,
        spec,
        outcome,
    })
}

/// How the driver's files are looked for, with the kernel's own word on firmware.
pub(super) fn find_options(
    roots: &Roots,
    nvml: &NvmlLibrary,
    options: &BuildOptions,
    capabilities: &BTreeSet<Capability>,
) -> Result<FindOptions, ManifestError> {
    let manifest = match &options.manifest {
        Some(manifest) => manifest.clone(),
        None => Manifest::builtin()?,
    };
    let line = |path: PathBuf| {
        let text = fs::read_to_string(path).ok()?;
        let text = text.trim();
        (!text.is_empty() && !text.contains("..")).then(|| text.to_owned())
    };
    // A preset's directories are in the manifest already, those of 32-bit libraries too.
    let library_search = if nvml.search == manifest.directories.lib {
        Vec::new()
    } else {
        nvml.search.clone()
    };
    let wants_firmware = capabilities.contains(&Capability::Firmware);
    let kernel = wants_firmware.then(|| line(roots.proc.join("sys/kernel/osrelease")));
    let firmware =
        wants_firmware.then(|| line(roots.sys.join("module/firmware_class/parameters/path")));
    Ok(FindOptions {
        capabilities: capabilities.clone(),
        library_search,
        config_search: options.config_search.clone(),
        targets: options.targets.clone(),
        kernel: kernel.flatten().filter(|kernel| !kernel.contains('/')),
        firmware: firmware
            .flatten()
            .map(PathBuf::from)
            .filter(|path| path.is_absolute()),
        ..FindOptions::new(manifest)
    })
}

/// Without these a container starts and its programs fail, which is worse than no spec.
fn require_control_nodes(
    manifest: &Manifest,
    inventory: &Inventory,
    capabilities: &BTreeSet<Capability>,
) -> Result<(), SpecError> {
    let mut nodes = Vec::new();
    for fault in &inventory.control_faults {
        let Some(entry) = manifest.nodes.iter().find(|node| node.path == fault.path) else {
            continue;
        };
        let said = format!(
            "{}: {}; remove what lies there, if anything, and run `{}`",
            fault.path.display(),
            fault.reason,
            entry.remedy
        );
        if entry.required_for.is_disjoint(capabilities) {
            tracing::warn!("the spec goes without {said}");
        } else {
            nodes.push(said);
        }
    }
    if nodes.is_empty() {
        return Ok(());
    }
    Err(SpecError::ControlNodes { nodes })
}
