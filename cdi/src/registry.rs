//! Several directories as one: which file gives a qualified device, and why another does not.
//!
//! Resolution follows the Go library, per qualified device: the later directory wins; a device that two
//! files of one directory define is gone, even when a later directory defines it once more. A broken file
//! never hides another one. [`Registry::load`] reads; everything else is pure.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::emit::Format;
use crate::model::{ContainerEdits, Device, Spec};
use crate::name::{Kind, QualifiedName};
use crate::parse::LoadError;

/// Where runtimes look, ascending in priority.
pub const DEFAULT_DIRS: [&str; 2] = ["/etc/cdi", "/var/run/cdi"];

/// A file as found, before its rules are checked.
#[derive(Debug)]
pub struct Candidate {
    /// The file.
    pub path: PathBuf,
    /// Index of its directory; a higher one wins.
    pub priority: usize,
    /// Its content.
    pub spec: Result<Spec, LoadError>,
}

/// A valid file.
#[derive(Debug)]
pub struct SpecFile {
    /// The file.
    pub path: PathBuf,
    /// Index of its directory; a higher one wins.
    pub priority: usize,
    /// Its content.
    pub spec: Spec,
}

/// A file that readers skip.
#[derive(Debug)]
pub struct BrokenFile {
    /// The file.
    pub path: PathBuf,
    /// Index of its directory.
    pub priority: usize,
    /// Why.
    pub error: LoadError,
    /// The devices that it would give, as far as it could be read.
    pub claims: BTreeSet<QualifiedName>,
}

/// A directory that exists and could not be listed.
#[derive(Debug, Error)]
#[error("list {}: {source}", path.display())]
pub struct DirError {
    /// The directory.
    pub path: PathBuf,
    /// From the system.
    pub source: io::Error,
}

/// A device of a file that a file of a later directory replaces. It comes back when that one goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shadowed<'a> {
    /// The device.
    pub name: &'a QualifiedName,
    /// The file without effect.
    pub path: &'a Path,
    /// The file that wins.
    pub by: &'a Path,
}

/// Where a device comes from.
#[derive(Debug, Clone)]
pub struct Resolved<'a> {
    /// As asked for.
    pub name: &'a QualifiedName,
    /// The file that wins.
    pub path: &'a Path,
    /// Index of its directory.
    pub priority: usize,
    /// The whole file.
    pub spec: &'a Spec,
    /// The device in it.
    pub device: &'a Device,
    /// Files of earlier directories which define the device as well.
    pub shadowed: Vec<&'a Path>,
}

/// Why a name gives no device.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResolveError {
    /// No file defines it.
    #[error("no CDI file defines `{name}`{}", unreadable_note(unreadable))]
    Unknown {
        /// The device.
        name: QualifiedName,
        /// Files that could not even be parsed, so that any of them may have been meant to.
        unreadable: Vec<PathBuf>,
    },
    /// Files of one directory both define it, so readers drop it.
    #[error("`{name}` is defined by {}; remove all but one", join(files))]
    Conflict {
        /// The device.
        name: QualifiedName,
        /// The files.
        files: Vec<PathBuf>,
    },
    /// The only files which define it are invalid.
    #[error("the file that defines `{name}` is invalid: {reason}")]
    Broken {
        /// The device.
        name: QualifiedName,
        /// The file.
        path: PathBuf,
        /// Its error, which names the file.
        reason: String,
    },
}

/// Some of the asked devices have no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct UnresolvedDevices {
    /// One for each.
    pub errors: Vec<ResolveError>,
}

fn join(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    paths.join(" and ")
}

fn unreadable_note(paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        String::new()
    } else {
        format!("; unreadable: {}", join(paths))
    }
}

/// A device in a file, as indices.
#[derive(Debug, Clone, Copy)]
struct Claim {
    file: usize,
    device: usize,
}

/// The files of all directories at one moment.
#[derive(Debug, Default)]
pub struct Registry {
    files: Vec<SpecFile>,
    broken: Vec<BrokenFile>,
    dir_errors: Vec<DirError>,
    /// Claims ascending in priority.
    index: BTreeMap<QualifiedName, Vec<Claim>>,
}

impl Registry {
    /// Reads `.json` and `.yaml` files of the directories, ascending in priority, in order of their names
    /// and without recursion. A missing directory is an empty one. Never fails: what could not be read is
    /// in [`Registry::broken`] and [`Registry::dir_errors`].
    pub fn load(dirs: &[PathBuf]) -> Self {
        let mut candidates = Vec::new();
        let mut dir_errors = Vec::new();
        for (priority, dir) in dirs.iter().enumerate() {
            match list(dir) {
                Ok(paths) => candidates.extend(paths.into_iter().map(|path| Candidate {
                    spec: Spec::from_file(&path),
                    path,
                    priority,
                })),
                Err(source) => dir_errors.push(DirError {
                    path: dir.clone(),
                    source,
                }),
            }
        }
        Self {
            dir_errors,
            ..Self::from_candidates(candidates)
        }
    }

    /// The same from files that are in memory already.
    pub fn from_candidates(candidates: impl IntoIterator<Item = Candidate>) -> Self {
        let mut registry = Self::default();
        for candidate in candidates {
            registry.add(candidate);
        }
        for claims in registry.index.values_mut() {
            claims.sort_by_key(|claim| registry.files[claim.file].priority);
        }
        registry
    }

    fn add(&mut self, candidate: Candidate) {
        let Candidate {
            path,
            priority,
            spec,
        } = candidate;
        let broken = match spec {
            Err(error) => Err((error, BTreeSet::new())),
            Ok(spec) => match spec.validate() {
                Ok(()) => Ok(spec),
                Err(violations) => {
                    let claims = names(&spec).map(|(_, name)| name).collect();
                    let path = path.clone();
                    Err((LoadError::Invalid { path, violations }, claims))
                }
            },
        };
        match broken {
            Ok(spec) => {
                let file = self.files.len();
                for (device, name) in names(&spec) {
                    let claims = self.index.entry(name).or_default();
                    claims.push(Claim { file, device });
                }
                self.files.push(SpecFile {
                    path,
                    priority,
                    spec,
                });
            }
            Err((error, claims)) => self.broken.push(BrokenFile {
                path,
                priority,
                error,
                claims,
            }),
        }
    }

    /// The valid files.
    pub fn files(&self) -> &[SpecFile] {
        &self.files
    }

    /// The files that readers skip.
    pub fn broken(&self) -> &[BrokenFile] {
        &self.broken
    }

    /// The directories that could not be listed.
    pub fn dir_errors(&self) -> &[DirError] {
        &self.dir_errors
    }

    /// All devices that resolve, in order of their names.
    pub fn devices(&self) -> impl Iterator<Item = Resolved<'_>> {
        self.index
            .iter()
            .filter(|(_, claims)| self.conflict(claims).is_empty())
            .filter_map(|(name, claims)| self.resolved(name, claims))
    }

    /// All devices that two files of one directory define.
    pub fn conflicts(&self) -> impl Iterator<Item = ResolveError> {
        self.index.iter().filter_map(|(name, claims)| {
            let files = self.conflict(claims);
            (!files.is_empty()).then(|| ResolveError::Conflict {
                name: name.clone(),
                files,
            })
        })
    }

    /// All definitions without effect because a later directory has the same device.
    pub fn shadowed(&self) -> impl Iterator<Item = Shadowed<'_>> {
        self.devices().flat_map(|resolved| {
            let Resolved {
                name,
                path: by,
                shadowed,
                ..
            } = resolved;
            shadowed
                .into_iter()
                .map(move |path| Shadowed { name, path, by })
        })
    }

    /// Which file gives the device, or why none does.
    pub fn resolve<'a>(&'a self, name: &QualifiedName) -> Result<Resolved<'a>, ResolveError> {
        let Some((known, claims)) = self.index.get_key_value(name) else {
            return Err(self.unknown(name));
        };
        let files = self.conflict(claims);
        if !files.is_empty() {
            return Err(ResolveError::Conflict {
                name: name.clone(),
                files,
            });
        }
        self.resolved(known, claims)
            .ok_or_else(|| self.unknown(name))
    }

    /// What a runtime does to a container that asks for these devices: for each in the given order, the
    /// edits of its file, once per file, then its own. A name that is given twice counts once.
    pub fn edits(&self, names: &[QualifiedName]) -> Result<ContainerEdits, UnresolvedDevices> {
        let (mut edits, mut errors) = (ContainerEdits::default(), Vec::new());
        let (mut seen, mut opened) = (BTreeSet::new(), BTreeSet::new());
        for name in names.iter().filter(|name| seen.insert(*name)) {
            match self.resolve(name) {
                Ok(resolved) => {
                    if opened.insert((resolved.priority, resolved.path)) {
                        edits.append(&resolved.spec.container_edits);
                    }
                    edits.append(&resolved.device.container_edits);
                }
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() {
            Ok(edits)
        } else {
            Err(UnresolvedDevices { errors })
        }
    }

    fn resolved<'a>(&'a self, name: &'a QualifiedName, claims: &[Claim]) -> Option<Resolved<'a>> {
        let (winner, losers) = claims.split_last()?;
        let file = &self.files[winner.file];
        Some(Resolved {
            name,
            path: &file.path,
            priority: file.priority,
            spec: &file.spec,
            device: &file.spec.devices[winner.device],
            shadowed: losers
                .iter()
                .map(|claim| self.files[claim.file].path.as_path())
                .collect(),
        })
    }

    /// The files of one directory that define one device more than once; empty when there is no conflict.
    fn conflict(&self, claims: &[Claim]) -> Vec<PathBuf> {
        let priority = |claim: &Claim| self.files[claim.file].priority;
        let same = |claim: &&Claim| {
            let mut equals = claims
                .iter()
                .filter(|other| priority(other) == priority(claim));
            equals.nth(1).is_some()
        };
        let conflicting = claims.iter().filter(same);
        conflicting
            .map(|claim| self.files[claim.file].path.clone())
            .collect()
    }

    fn unknown(&self, name: &QualifiedName) -> ResolveError {
        let name = name.clone();
        match self.broken.iter().rfind(|file| file.claims.contains(&name)) {
            Some(file) => ResolveError::Broken {
                name,
                path: file.path.clone(),
                reason: file.error.to_string(),
            },
            None => ResolveError::Unknown {
                name,
                unreadable: self
                    .broken
                    .iter()
                    .filter(|file| !matches!(file.error, LoadError::Invalid { .. }))
                    .map(|file| file.path.clone())
                    .collect(),
            },
        }
    }
}

/// The legal qualified names of a spec, with the index of the device.
fn names(spec: &Spec) -> impl Iterator<Item = (usize, QualifiedName)> {
    let kind = spec.kind.parse::<Kind>().ok();
    let devices = spec.devices.iter().enumerate();
    devices.filter_map(move |(i, device)| Some((i, kind.as_ref()?.device(&device.name).ok()?)))
}

/// The spec files of a directory, sorted. A directory with such a name is none; anything else is left to
/// the loader to judge.
fn list(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if Format::from_path(&path).is_some() && !entry.file_type()?.is_dir() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests;
