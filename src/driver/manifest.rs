//! The manifest: what a spec is to hold, as data.
//!
//! Owns the form of the file and its strictness. Looks at no host; [`super::DriverFiles`] does.
//!
//! Invariants: every directory is absolute and every other path relative, none has a `..`, and
//! only the last component of a pattern has a wildcard, so that no entry can name a place outside
//! the root or make the search walk a tree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

use super::sets::Capability;

/// The manifest that is compiled in.
const BUILTIN: &str = include_str!("manifest.yaml");

/// The form that this version reads.
const VERSION: u32 = 1;

/// A larger file is no manifest.
const MAX_BYTES: u64 = 1 << 20;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Manifest {
    /// Always 1.
    version: u32,
    /// Where each kind of file is looked for.
    pub directories: Directories,
    /// Control nodes.
    pub nodes: Vec<NodeEntry>,
    /// Files of the driver.
    pub files: Vec<FileEntry>,
    /// Other kinds of specs.
    #[serde(default)]
    pub modes: BTreeMap<String, ModeEntry>,
}

/// Directories, absolute inside the driver root, in order of preference.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Directories {
    /// Of libraries.
    pub lib: Vec<PathBuf>,
    /// Searched as well when 32-bit libraries are wanted.
    #[serde(default)]
    pub lib32: Vec<PathBuf>,
    /// Of programs.
    pub bin: Vec<PathBuf>,
    /// Of settings.
    pub config: Vec<PathBuf>,
    /// Of firmware; `{kernel}` is the running kernel's release.
    #[serde(default)]
    pub firmware: Vec<PathBuf>,
}

/// A control node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NodeEntry {
    /// Absolute.
    pub path: PathBuf,
    /// With which sets it comes.
    pub capabilities: BTreeSet<Capability>,
    /// For which of them nothing works without it.
    #[serde(default)]
    pub required_for: BTreeSet<Capability>,
    /// The command that creates it.
    pub remedy: String,
}

/// What kind of thing an entry names, hence where it is looked for and how it is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A shared library of this machine's kind.
    Lib,
    /// An executable file.
    Bin,
    /// A firmware image.
    Firmware,
    /// A file that libraries read.
    Config,
    /// A socket of a daemon.
    Socket,
    /// A directory.
    Dir,
}

/// Files that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FileEntry {
    /// What people call it.
    pub name: String,
    /// See [`FileKind`].
    pub kind: FileKind,
    /// With which sets it comes; an entry of a mode has none.
    #[serde(default)]
    pub capabilities: BTreeSet<Capability>,
    /// For which of them at least one of the files must be there.
    #[serde(default)]
    pub required_for: BTreeSet<Capability>,
    /// Patterns below the directories.
    pub files: Vec<String>,
    /// Directories instead of the kind's own.
    #[serde(default, rename = "in")]
    pub dirs: Vec<String>,
    /// Directory in the container, onto which the pattern's path is joined; the place where the file
    /// was found otherwise.
    #[serde(default)]
    pub to: Option<PathBuf>,
    /// Further names, relative to the library's directory in the container.
    #[serde(default)]
    pub names: Vec<String>,
    /// Counts only for files that no other entry matches.
    #[serde(default)]
    pub otherwise: bool,
    /// Mounted read-write; sockets are in any case.
    #[serde(default)]
    pub writable: bool,
}

/// A spec of other nodes than GPUs by UUID.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ModeEntry {
    /// Vendor of its kind, unless the caller names one.
    #[serde(default)]
    pub vendor: Option<String>,
    /// Class of its kind, unless the caller names one.
    pub class: String,
    /// Patterns of character devices.
    pub nodes: Vec<String>,
    /// Patterns of those that it leaves out.
    #[serde(default)]
    pub except: Vec<String>,
    /// One device per node, named by what follows this text in the node's name; else one device
    /// `all`.
    #[serde(default)]
    pub device_per_node: Option<String>,
    /// Sets of driver files that come with it.
    #[serde(default)]
    pub capabilities: BTreeSet<Capability>,
    /// Further files.
    #[serde(default)]
    pub files: Vec<FileEntry>,
    /// What creates the nodes.
    pub remedy: String,
}

/// There is no usable manifest.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file can't be read.
    #[error("can't read the manifest {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// It is no YAML of that form.
    #[error("{name} is no manifest: {reason}")]
    Form {
        /// The file, or what stands for it.
        name: String,
        /// Where and why.
        reason: String,
    },
}

impl Manifest {
    /// The one that is compiled in.
    pub fn builtin() -> Result<Self, ManifestError> {
        Self::parse("the built-in manifest", BUILTIN)
    }

    /// Its text, to start one's own from.
    pub fn builtin_text() -> &'static str {
        BUILTIN
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ManifestError> {
        let read = |source| ManifestError::Read {
            path: path.to_owned(),
            source,
        };
        if fs::metadata(path).map_err(read)?.len() > MAX_BYTES {
            return Err(read(io::Error::other("it is larger than 1 MiB")));
        }
        let text = fs::read_to_string(path).map_err(read)?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Reads the text of the manifest called `name`.
    pub fn parse(name: &str, text: &str) -> Result<Self, ManifestError> {
        let form = |reason: String| ManifestError::Form {
            name: name.to_owned(),
            reason,
        };
        let manifest: Self = serde_yaml::from_str(text).map_err(|error| form(error.to_string()))?;
        manifest.check().map_err(form)?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!(
                "its version is {}, and this program reads {VERSION}",
                self.version
            ));
        }
        let Directories {
            lib,
            lib32,
            bin,
            config,
            firmware,
        } = &self.directories;
        for dir in [lib, lib32, bin, config, firmware].into_iter().flatten() {
            absolute(dir)?;
        }
        for node in &self.nodes {
            absolute(&node.path)?;
            subset(
                &node.path.display().to_string(),
                &node.required_for,
                &node.capabilities,
            )?;
        }
        for file in &self.files {
            file.check()?;
            if file.capabilities.is_empty() {
                return Err(format!("`{}` comes with no capability", file.name));
            }
        }
        for (name, mode) in &self.modes {
            for pattern in mode.nodes.iter().chain(&mode.except) {
                absolute(Path::new(pattern))?;
                one_wildcard_component(pattern)?;
            }
            if mode.nodes.is_empty() {
                return Err(format!("mode `{name}` has no nodes"));
            }
            mode.files.iter().try_for_each(FileEntry::check)?;
        }
        Ok(())
    }
}

impl FileEntry {
    fn check(&self) -> Result<(), String> {
        let name = &self.name;
        if self.files.is_empty() {
            return Err(format!("`{name}` names no files"));
        }
        for pattern in &self.files {
            relative(Path::new(pattern))?;
            one_wildcard_component(pattern)?;
        }
        for dir in &self.dirs {
            let rest = dir.strip_prefix("{lib}");
            if rest.is_some() && self.kind != FileKind::Lib {
                return Err(format!("`{name}`: {{lib}} is for libraries"));
            }
            absolute(Path::new(rest.unwrap_or(dir))).or_else(|error| match rest {
                Some("") => Ok(()),
                _ => Err(error),
            })?;
        }
        self.to.iter().try_for_each(|to| absolute(to))?;
        for further in &self.names {
            relative(Path::new(further))?;
        }
        if !self.names.is_empty() && self.kind != FileKind::Lib {
            return Err(format!("`{name}`: further names are for libraries"));
        }
        subset(name, &self.required_for, &self.capabilities)
    }

    /// Whether it is part of a selection.
    pub(super) fn is_selected(&self, capabilities: &BTreeSet<Capability>) -> bool {
        !self.capabilities.is_disjoint(capabilities)
    }
}

fn subset(
    name: &str,
    required: &BTreeSet<Capability>,
    all: &BTreeSet<Capability>,
) -> Result<(), String> {
    match required.difference(all).next() {
        None => Ok(()),
        Some(other) => Err(format!(
            "`{name}` is required for {other:?}, with which it does not come"
        )),
    }
}

fn absolute(path: &Path) -> Result<(), String> {
    let clean = path
        .components()
        .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if path.is_absolute() && clean {
        return Ok(());
    }
    Err(format!(
        "`{}` is no absolute path without `..`",
        path.display()
    ))
}

fn relative(path: &Path) -> Result<(), String> {
    let mut parts = path.components().peekable();
    if parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_))) {
        return Ok(());
    }
    Err(format!(
        "`{}` is no relative path without `..`",
        path.display()
    ))
}

fn one_wildcard_component(pattern: &str) -> Result<(), String> {
    match pattern.rsplit_once('/') {
        Some((dir, _)) if dir.contains('*') => {
            Err(format!("`{pattern}` has a wildcard in a directory"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_manifest_is_valid_and_searches_where_nvml_is_searched() {
        let manifest = Manifest::builtin().unwrap();
        let dirs: Vec<_> = manifest
            .directories
            .lib
            .iter()
            .map(|d| d.to_str().unwrap())
            .collect();
        assert_eq!(dirs, super::super::LIBRARY_DIRS);
        for mode in ["gds", "mofed", "gdrcopy", "nvswitch", "imex", "management"] {
            assert!(manifest.modes.contains_key(mode), "{mode}");
        }
    }

    #[test]
    fn a_manifest_with_a_flaw_is_refused_with_the_flaw_s_name() {
        for (from, to, words) in [
            ("version: 1\n", "version: 2\n", "version is 2"),
            ("version: 1\n", "version: 1\nextra: 1\n", "extra"),
            ("kind: lib\n", "kind: libs\n", "libs"),
            (
                "required-for: [compute]\n  files",
                "required-for: [video]\n  files",
                "Video",
            ),
            (
                "required-for: [compute]\n  files",
                "required: true\n  files",
                "required",
            ),
            ("bin: [/usr/bin", "bin: [usr/bin", "usr/bin"),
            ("bin: [/usr/bin", "bin: [/usr/../bin", ".."),
            ("files: [nvidia-smi", "files: [/nvidia-smi", "/nvidia-smi"),
            (
                "files: [nvidia-smi",
                "files: [../nvidia-smi",
                "../nvidia-smi",
            ),
            ("nvidia/{version}/gsp*.bin", "*/x.bin", "wildcard"),
            ("to: /usr/share", "to: usr/share", "usr/share"),
            ("names: [libcuda.so]", "names: [/libcuda.so]", "/libcuda.so"),
            ("in: [/run, /var/run]", "in: [\"{lib}/x\"]", "for libraries"),
            ("[/dev/gdrdrv]", "[gdrdrv]", "gdrdrv"),
        ] {
            let text = BUILTIN.replacen(from, to, 1);
            assert_ne!(text, BUILTIN, "{from}");
            let error = Manifest::parse("m.yaml", &text).unwrap_err().to_string();
            assert!(
                error.contains("m.yaml") && error.contains(words),
                "{words}: {error}"
            );
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Manifest::read(Path::new("/nonexistent/m.yaml")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/m.yaml"));
    }
}
