//! Specs of other things than GPUs by UUID: `gds`, `mofed`, `gdrcopy`, `nvswitch`, `imex`,
//! `management`. What each holds is the manifest's `modes`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cdi::{ContainerEdits, Device, Kind, Spec};

use super::build::{BuildOptions, VOID, device_node, mounts};
use super::refresh::{SpecError, find_options};
use super::select::DeviceSelection;
use crate::driver::{DriverFiles, Manifest, ManifestError, ModeEntry};
use crate::gpu::{Node, NvmlLibrary, character_devices, discover};
use crate::host::Roots;

/// IMEX channels have 20 bits.
const CHANNELS: u32 = 1 << 20;

/// A spec of a mode, and what it mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModeSpec {
    /// Valid for writing.
    pub spec: Spec,
    /// What is mounted.
    pub files: DriverFiles,
}

/// The kind that a mode writes when the caller names none.
pub fn mode_kind(manifest: &Manifest, mode: &str) -> Result<Kind, SpecError> {
    let entry = entry(manifest, mode)?;
    let vendor = entry.vendor.as_deref().unwrap_or("nvidia.com");
    Kind::new(vendor, &entry.class)
        .map_err(|error| SpecError::Unavailable(format!("mode `{mode}` of the manifest: {error}")))
}

fn entry<'m>(manifest: &'m Manifest, mode: &str) -> Result<&'m ModeEntry, SpecError> {
    manifest.modes.get(mode).ok_or_else(|| {
        let known: Vec<_> = manifest.modes.keys().map(String::as_str).collect();
        SpecError::Unavailable(format!(
            "the manifest has no mode `{mode}`; it has {}",
            known.join(", ")
        ))
    })
}

/// Builds the spec of a mode. Without a node there is none, and an error that says what makes them.
pub fn generate_mode(
    roots: &Roots,
    nvml: &NvmlLibrary,
    mode: &str,
    options: &BuildOptions,
) -> Result<ModeSpec, SpecError> {
    let manifest = match &options.manifest {
        Some(manifest) => manifest.clone(),
        None => Manifest::builtin()?,
    };
    let entry = entry(&manifest, mode)?;
    let nodes = character_devices(roots, &entry.nodes, &entry.except).map_err(|error| {
        SpecError::Unavailable(format!(
            "can't look for nodes below {}: {error}",
            roots.dev.display()
        ))
    })?;
    if nodes.is_empty() {
        return Err(SpecError::Unavailable(format!(
            "no device node for mode `{mode}` below {}; looked for {}: `{}` makes them",
            roots.dev.display(),
            entry.nodes.join(", "),
            entry.remedy
        )));
    }
    let devices = match &entry.device_per_node {
        Some(prefix) => per_node(&nodes, prefix, options)?,
        None => vec![device("all", &nodes, options)],
    };
    let files = files(roots, nvml, entry, options)?;
    let mut spec = Spec {
        kind: options.kind.to_string(),
        devices,
        container_edits: ContainerEdits {
            env: vec![VOID.into()],
            mounts: mounts(&files, &options.host_driver_root),
            ..ContainerEdits::default()
        },
        ..Spec::default()
    };
    spec.set_lowest_version();
    spec.validate_for_writing()?;
    Ok(ModeSpec { spec, files })
}

fn device(name: &str, nodes: &[Node], options: &BuildOptions) -> Device {
    Device {
        name: name.to_owned(),
        container_edits: ContainerEdits {
            device_nodes: nodes
                .iter()
                .map(|node| device_node(node, options))
                .collect(),
            ..ContainerEdits::default()
        },
        ..Device::default()
    }
}

/// One device per node, named by its number. A number that was asked for and isn't there is an
/// error: half a set of channels is of no use.
fn per_node(
    nodes: &[Node],
    prefix: &str,
    options: &BuildOptions,
) -> Result<Vec<Device>, SpecError> {
    let mut numbered: Vec<(u32, &Node)> = nodes
        .iter()
        .filter_map(|node| {
            let number = node.path.file_name()?.to_str()?.strip_prefix(prefix)?;
            let parsed: u32 = number.parse().ok().filter(|n| *n < CHANNELS)?;
            (parsed.to_string() == number).then_some((parsed, node))
        })
        .collect();
    numbered.sort_by_key(|(number, _)| *number);
    if let DeviceSelection::Only(asked) = &options.devices {
        let have: BTreeSet<_> = numbered.iter().map(|(n, _)| n.to_string()).collect();
        if let Some(missing) = asked.iter().find(|asked| !have.contains(*asked)) {
            return Err(SpecError::UnknownDevice {
                asked: missing.chars().take(80).collect(),
                have: have.into_iter().collect(),
            });
        }
        numbered.retain(|(number, _)| asked.contains(&number.to_string()));
    }
    Ok(numbered
        .into_iter()
        .map(|(number, node)| device(&number.to_string(), std::slice::from_ref(node), options))
        .collect())
}

fn files(
    roots: &Roots,
    nvml: &NvmlLibrary,
    entry: &ModeEntry,
    options: &BuildOptions,
) -> Result<DriverFiles, SpecError> {
    let find = find_options(roots, nvml, options, &entry.capabilities)
        .map_err(|error: ManifestError| SpecError::from(error))?;
    let own = DriverFiles::find_extras(&roots.driver, &entry.files, &find)?;
    if entry.capabilities.is_empty() {
        return Ok(own);
    }
    let version = discover(roots, nvml)?.driver_version;
    let mut files = DriverFiles::find_with(&roots.driver, &version, &find)?;
    let taken: BTreeSet<PathBuf> = files
        .extras
        .iter()
        .map(|extra| extra.path.clone())
        .collect();
    files.extras.extend(
        own.extras
            .into_iter()
            .filter(|extra| !taken.contains(&extra.path)),
    );
    Ok(files)
}
