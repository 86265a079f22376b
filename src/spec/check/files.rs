//! Directories, files, definitions, and the files that definitions mount.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cdi::{ContainerEdits, LoadError, Registry, ResolveError, Resolved};

use super::facts::{Facts, PathState};
use super::gather::is_bind;
use super::{CheckId, Found, Question, nodes};
use crate::driver::is_driver_version;
use crate::spec::diff::diff;

/// A file of which at least one device has effect.
pub(super) struct Live<'a> {
    /// The file.
    pub(super) path: &'a Path,
    /// Its own edits.
    pub(super) edits: &'a ContainerEdits,
    /// Its devices with effect.
    pub(super) devices: Vec<Resolved<'a>>,
}

impl<'a> Live<'a> {
    /// Edits of the file and of its devices, without repetition of the file's.
    pub(super) fn all(&self) -> impl Iterator<Item = &'a ContainerEdits> + '_ {
        let devices = self.devices.iter().map(|d| &d.device.container_edits);
        std::iter::once(self.edits).chain(devices)
    }
}

/// The files that runtimes use, with the devices that they use.
pub(super) fn live(facts: &Facts) -> Vec<Live<'_>> {
    let mut files: BTreeMap<(usize, &Path), Live<'_>> = BTreeMap::new();
    for device in facts.registry.devices() {
        files
            .entry((device.priority, device.path))
            .or_insert_with(|| Live {
                path: device.path,
                edits: &device.spec.container_edits,
                devices: Vec::new(),
            })
            .devices
            .push(device);
    }
    files.into_values().collect()
}

/// What readers can't read, or would not.
pub(super) fn directories(facts: &Facts, found: &mut Found) {
    for error in facts.registry.dir_errors() {
        found.add_file(
            CheckId::DirUnreadable,
            &error.path,
            error.source.to_string(),
        );
    }
    for file in facts.registry.broken() {
        let id = match &file.error {
            LoadError::Parse { .. } => CheckId::FileMalformed,
            LoadError::Invalid { violations, .. } => {
                for violation in violations.as_slice() {
                    found.add_file(CheckId::FileInvalid, &file.path, violation.to_string());
                }
                continue;
            }
            _ => CheckId::FileUnreadable,
        };
        found.add_file(id, &file.path, file.error.to_string());
    }
    for path in &facts.ignored {
        found.add_file(
            CheckId::FileIgnored,
            path,
            "readers take .yaml and .json only",
        );
    }
    for (path, mode) in &facts.modes {
        let is_dir = facts.dirs.contains(path);
        let (id, needed) = if is_dir {
            (CheckId::DirMode, 0o005)
        } else {
            (CheckId::FileMode, 0o004)
        };
        if mode & needed != needed {
            found.add_file(id, path, format!("its mode is {mode:04o}"));
        }
    }
}

/// Which definitions have effect, and whether consumers find what they ask for.
pub(super) fn definitions(facts: &Facts, question: &Question, found: &mut Found) {
    for conflict in facts.registry.conflicts() {
        if let ResolveError::Conflict { name, files } = conflict {
            for file in files {
                found.add(
                    CheckId::DeviceConflict,
                    name.to_string(),
                    format!("defined by {}", file.display()),
                );
            }
        }
    }
    for name in &question.expect {
        if let Err(error) = facts.registry.resolve(name) {
            found.add(
                CheckId::NameUnresolvable,
                name.to_string(),
                error.to_string(),
            );
        }
    }
    for winner in facts.registry.devices() {
        for loser in &winner.shadowed {
            let evidence = shadow(facts, &winner, loser);
            found.add_file(CheckId::DeviceShadowed, loser, evidence);
        }
    }
    for file in facts.registry.files() {
        for entry in &file.spec.container_edits.env {
            let exposes = entry
                .strip_prefix("NVIDIA_VISIBLE_DEVICES=")
                .is_some_and(|value| !matches!(value, "void" | ""));
            if exposes {
                found.add_file(CheckId::EnvVisibleDevices, &file.path, entry.clone());
            }
        }
    }
}

/// What would happen if the definition came back.
fn shadow(facts: &Facts, winner: &Resolved<'_>, loser: &Path) -> String {
    let name = winner.name;
    let by = winner.path.display();
    let Some(spec) = spec_of(&facts.registry, loser) else {
        return format!("{name} comes from {by}");
    };
    let device = spec.devices.iter().find(|d| d.name == name.device());
    let stale: BTreeSet<_> = device
        .into_iter()
        .map(|device| &device.container_edits)
        .chain([&spec.container_edits])
        .flat_map(|edits| {
            nodes::faults(facts, edits)
                .into_iter()
                .map(|(_, text)| text)
        })
        .collect();
    if let Some(first) = stale.first() {
        return format!("{name} comes from {by}; this definition is stale: {first}");
    }
    let alone = |spec: &cdi::Spec| {
        let mut spec = spec.clone();
        spec.devices.retain(|device| device.name == name.device());
        spec.cdi_version.clear();
        spec.annotations.clear();
        spec
    };
    if diff(&alone(spec), &alone(winner.spec)).is_empty() {
        format!("{name} comes from {by}, with the same content")
    } else {
        format!("{name} comes from {by}; this definition says something else")
    }
}

fn spec_of<'a>(registry: &'a Registry, path: &Path) -> Option<&'a cdi::Spec> {
    let mut files = registry.files().iter();
    files.find(|file| file.path == path).map(|file| &file.spec)
}

/// Whether what the file mounts and runs is there, and of the running driver.
pub(super) fn paths(facts: &Facts, live: &Live<'_>, found: &mut Found) {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for edits in live.all() {
        for mount in edits.mounts.iter().filter(|mount| is_bind(mount)) {
            let path = mount.host_path.as_str();
            match facts.paths.get(path) {
                Some(PathState::Absent) | None => {
                    found.add_file(
                        CheckId::MountMissing,
                        live.path,
                        format!("{path} is not there"),
                    );
                }
                Some(PathState::Present { mode }) if mode & 0o004 == 0 => {
                    found.add_file(
                        CheckId::MountUnreadable,
                        live.path,
                        format!("{path} has mode {mode:04o}"),
                    );
                }
                Some(PathState::Unknown(reason)) => {
                    found.add_file(CheckId::NotVisible, live.path, format!("{path}: {reason}"));
                }
                Some(PathState::Present { .. }) => {}
            }
            if let Some(version) = version_of(path) {
                versions.entry(version).or_default().insert(path);
            }
        }
        for hook in &edits.hooks {
            let path = hook.path.as_str();
            let evidence = match facts.paths.get(path) {
                Some(PathState::Present { mode }) if mode & 0o111 != 0 => continue,
                Some(PathState::Present { mode }) => format!("{path} has mode {mode:04o}"),
                Some(PathState::Unknown(reason)) => {
                    found.add_file(CheckId::NotVisible, live.path, format!("{path}: {reason}"));
                    continue;
                }
                Some(PathState::Absent) | None => format!("{path} is not there"),
            };
            found.add_file(CheckId::HookMissing, live.path, evidence);
        }
    }
    let Some(inventory) = facts.inventory() else {
        return;
    };
    let running = inventory.driver_version.as_str();
    for (version, paths) in versions.iter().filter(|(version, _)| **version != running) {
        found.add_file(
            CheckId::DriverVersion,
            live.path,
            format!(
                "mounts {} files of driver {version}; the running driver is {running}",
                paths.len()
            ),
        );
    }
}

/// The driver version in the name of an NVIDIA library. Other projects' libraries and NVIDIA's own
/// with a version of their own (`libnvidia-egl-gbm.so.1.1.2`) have a smaller first number.
fn version_of(path: &str) -> Option<&str> {
    let (stem, version) = path.rsplit('/').next()?.split_once(".so.")?;
    let is_driver_s = stem.contains("nv") || stem.contains("cuda");
    let major = version.split('.').next()?;
    (is_driver_s && major.len() >= 3 && is_driver_version(version)).then_some(version)
}
