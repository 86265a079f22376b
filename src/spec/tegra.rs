//! Tegra (Jetson): the integrated GPU has no node of its own number and no UUID that a kubelet
//! would name; what it needs is what the lists of its system say.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use cdi::{ContainerEdits, Device, Spec};
use rustix::fs::FileType;

use super::build::{BuildOptions, VOID, device_node, mounts};
use super::mode::ModeSpec;
use super::refresh::SpecError;
use crate::driver::csv::{self, CsvEntry, EntryKind};
use crate::driver::{DriverError, DriverFiles, Extra, FileKind, InRoot, nvml_library};
use crate::gpu::{NvmlLibrary, character_devices, group_of};
use crate::host::Roots;

/// The lists that count, in the directory of lists.
const LISTS: [&str; 3] = ["devices.csv", "drivers.csv", "l4t.csv"];

/// Whether this host is one, and has no GPU that NVML would know.
pub fn is_tegra(roots: &Roots, nvml: &NvmlLibrary) -> bool {
    let below = |root: &Path, path: &str| root.join(path);
    let release = below(&roots.driver, "etc/nv_tegra_release").is_file();
    let family = fs::read_to_string(below(&roots.sys, "devices/soc0/family"));
    let is_it = release || family.is_ok_and(|text| text.to_ascii_lowercase().starts_with("tegra"));
    is_it && nvml.path.is_none() && nvml_library(&roots.driver, &nvml.search).is_none()
}

/// Builds the spec: one device, `0`, and `all` if it is wanted. What a list names and the host does
/// not have is left out, as the lists are those of all boards of a series.
pub fn generate_tegra(
    roots: &Roots,
    lists: &Path,
    options: &BuildOptions,
) -> Result<ModeSpec, SpecError> {
    let root = InRoot::open(&roots.driver).map_err(|source| DriverError::Root {
        root: roots.driver.clone(),
        source,
    })?;
    let entries = read(&root, lists)?;
    let mut nodes = Vec::new();
    let mut gids = BTreeSet::new();
    for entry in entries.iter().filter(|entry| entry.kind == EntryKind::Dev) {
        let pattern = entry.path.display().to_string();
        if pattern.contains('*') {
            continue;
        }
        for node in character_devices(roots, &[pattern], &[]).unwrap_or_default() {
            let mut written = device_node(&node, options);
            if let Some(gid) = group_of(roots, &node) {
                written.gid = Some(gid);
                gids.insert(gid);
            }
            nodes.push(written);
        }
    }
    if nodes.is_empty() {
        return Err(SpecError::Unavailable(format!(
            "none of the device nodes in {} is below {}",
            lists.display(),
            roots.dev.display()
        )));
    }
    let files = files(&root, &entries);
    let device = |name: &str| Device {
        name: name.to_owned(),
        container_edits: ContainerEdits {
            device_nodes: nodes.clone(),
            additional_gids: gids.iter().copied().collect(),
            ..ContainerEdits::default()
        },
        ..Device::default()
    };
    let mut devices = vec![device("0")];
    if options.all_device {
        devices.push(device("all"));
    }
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

/// All lists, sorted, each entry once.
fn read(root: &InRoot, lists: &Path) -> Result<Vec<CsvEntry>, SpecError> {
    let mut entries = BTreeSet::new();
    let mut found = false;
    for name in LISTS {
        let path = lists.join(name);
        let Ok(list) = root.file(&path) else { continue };
        let text = std::io::read_to_string(list.file).map_err(|source| DriverError::Read {
            root: root.path().to_owned(),
            path,
            source,
        })?;
        found = true;
        entries.extend(csv::parse(&text));
    }
    if !found {
        return Err(SpecError::Unavailable(format!(
            "no list of a Tegra system in {} below {}; looked for {}",
            lists.display(),
            root.path().display(),
            LISTS.join(", ")
        )));
    }
    Ok(entries.into_iter().collect())
}

fn files(root: &InRoot, entries: &[CsvEntry]) -> DriverFiles {
    let extras = entries.iter().filter_map(|entry| {
        let wanted: &[FileType] = match entry.kind {
            EntryKind::Dev => return None,
            EntryKind::Dir => &[FileType::Directory],
            EntryKind::Lib => &[FileType::RegularFile],
            // Mounted as what it leads to: no hook has to make the link.
            EntryKind::Sym => &[FileType::RegularFile, FileType::Directory],
        };
        match root.locate(&entry.path) {
            Ok((file, kind)) if wanted.contains(&kind) && file.to_str().is_some() => Some(Extra {
                file,
                path: entry.path.clone(),
                kind: if kind == FileType::Directory {
                    FileKind::Dir
                } else {
                    FileKind::Lib
                },
                writable: false,
            }),
            Ok(_) => {
                tracing::warn!(path = %entry.path.display(), "is not what its list says, and is left out");
                None
            }
            Err(error) => {
                tracing::debug!(path = %entry.path.display(), %error, "is not on this board");
                None
            }
        }
    });
    let mut taken: BTreeSet<PathBuf> = BTreeSet::new();
    DriverFiles {
        extras: extras
            .filter(|extra| taken.insert(extra.path.clone()))
            .collect(),
        ..DriverFiles::default()
    }
}
