//! The files of one driver version: what was found, and why there may be nothing.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::manifest::{FileEntry, FileKind, Manifest, ManifestError};
use super::root::InRoot;
use super::sets::Capability;
use super::{others, scan, version};

/// The libraries whose version says which driver is installed.
const KEY_LIBRARIES: [&str; 2] = ["libcuda", "libnvidia-ml"];

/// What is looked for, where, and where it goes in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindOptions {
    /// What there is to look for.
    pub manifest: Manifest,
    /// Which of it.
    pub capabilities: BTreeSet<Capability>,
    /// Library directories instead of the manifest's and the loader cache's; absolute, inside the
    /// root.
    pub library_search: Vec<PathBuf>,
    /// Directories of settings instead of the manifest's; likewise.
    pub config_search: Vec<PathBuf>,
    /// Where things go in the container.
    pub targets: Targets,
    /// Release of the running kernel, for firmware.
    pub kernel: Option<String>,
    /// A firmware directory that the kernel was told to look into first.
    pub firmware: Option<PathBuf>,
}

/// Directories in the container; where one is not set, each file goes to where it was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Targets {
    /// Of libraries.
    pub lib: Option<PathBuf>,
    /// Of 32-bit libraries; beside those of 64 bits when only `lib` is set.
    pub lib32: Option<PathBuf>,
    /// Of programs.
    pub bin: Option<PathBuf>,
}

impl FindOptions {
    /// The default sets, in the usual places, to where they were found.
    pub fn new(manifest: Manifest) -> Self {
        Self {
            manifest,
            capabilities: Capability::defaults(),
            library_search: Vec::new(),
            config_search: Vec::new(),
            targets: Targets::default(),
            kernel: None,
            firmware: None,
        }
    }
}

/// A shared library. All paths are absolute; `file` is inside the driver root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Library {
    /// The file itself, all links resolved.
    pub file: PathBuf,
    /// Where it goes: by default the real directory and the versioned name under which it was
    /// found.
    pub path: PathBuf,
    /// The further paths under which the loader and programs ask for it: its SONAME, the links that
    /// lie beside it, and the names that the manifest adds.
    pub names: Vec<PathBuf>,
}

/// A program. All paths are absolute; `file` is inside the driver root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    /// The file itself, all links resolved.
    pub file: PathBuf,
    /// Where it goes.
    pub path: PathBuf,
}

/// Anything else that is mounted. All paths are absolute; `file` is inside the driver root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extra {
    /// The thing itself, all links resolved.
    pub file: PathBuf,
    /// Where it goes.
    pub path: PathBuf,
    /// What it is.
    pub kind: FileKind,
    /// Whether the container may write to it.
    pub writable: bool,
}

/// An entry of the manifest of which nothing was found, and that is no failure.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Absent {
    /// The entry's name.
    pub name: String,
    /// Its patterns.
    pub files: Vec<String>,
}

/// What a container needs of the driver.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriverFiles {
    /// The version which the libraries carry in their names.
    pub version: String,
    /// Sorted by path; no two claim the same path.
    pub libraries: Vec<Library>,
    /// Sorted by path.
    pub programs: Vec<Program>,
    /// Sorted by path.
    pub extras: Vec<Extra>,
    /// In the manifest's order.
    pub absent: Vec<Absent>,
}

/// The files are not there, or not those of the running driver.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The root can't be opened.
    #[error("can't open the driver root {}: is the driver container running and its root mounted?", root.display())]
    Root {
        /// The root.
        root: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A directory or file below the root can't be read.
    #[error("can't read {} below the driver root {}", path.display(), root.display())]
    Read {
        /// The root.
        root: PathBuf,
        /// Inside the root.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The version is no version, so no file can be looked for.
    #[error("`{0}` is no driver version")]
    Version(String),
    /// See [`ManifestError`].
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The running driver and the files are not of one version.
    #[error(
        "the running driver is {running}, but below {} lie files of {}: finish the upgrade (reload the kernel modules or reboot), or name the right driver root",
        root.display(),
        found.join(", ")
    )]
    Mismatch {
        /// What the driver says.
        running: String,
        /// The versions found instead.
        found: Vec<String>,
        /// The root.
        root: PathBuf,
    },
    /// No driver library at all.
    #[error(
        "no driver library (lib*.so.{running}) below {} in {}: name its directory with --library-search-path",
        root.display(),
        searched.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoLibraries {
        /// What the driver says.
        running: String,
        /// The root.
        root: PathBuf,
        /// The directories, inside the root.
        searched: Vec<PathBuf>,
    },
    /// Something that the manifest requires.
    #[error(
        "required files are missing below {}: {}",
        root.display(),
        missing.iter().chain(rejected).map(String::as_str).collect::<Vec<_>>().join("; ")
    )]
    Missing {
        /// The root.
        root: PathBuf,
        /// Entries of the manifest with their patterns, in words.
        missing: Vec<String>,
        /// What lies there and can't be taken, in words.
        rejected: Vec<String>,
    },
}

impl DriverFiles {
    /// Finds what the built-in manifest names for the default capabilities; `search` replaces the
    /// usual library directories (absolute, inside the root).
    pub fn find(root: &Path, running: &str, search: &[PathBuf]) -> Result<Self, DriverError> {
        let options = FindOptions {
            library_search: search.to_vec(),
            ..FindOptions::new(Manifest::builtin()?)
        };
        Self::find_with(root, running, &options)
    }

    /// Finds the files of driver `running` below `root`.
    pub fn find_with(
        root: &Path,
        running: &str,
        options: &FindOptions,
    ) -> Result<Self, DriverError> {
        if !version::is_driver_version(running) {
            return Err(DriverError::Version(running.chars().take(80).collect()));
        }
        let root = open(root)?;
        let scan = scan::libraries(&root, running, options)?;
        let has = |stem: &str| scan.present.contains(stem);
        // Packages are upgraded one by one, so each of the two may be the one that lags behind.
        let lagging: BTreeSet<_> = KEY_LIBRARIES
            .iter()
            .filter(|stem| !has(stem))
            .flat_map(|stem| scan.others.iter().filter(move |(of, _)| of == *stem))
            .map(|(_, version)| version.clone())
            .collect();
        if !lagging.is_empty() {
            return Err(DriverError::Mismatch {
                running: running.to_owned(),
                found: lagging.into_iter().collect(),
                root: root.path().to_owned(),
            });
        }
        if !KEY_LIBRARIES.iter().any(|stem| has(stem)) {
            return Err(DriverError::NoLibraries {
                running: running.to_owned(),
                root: root.path().to_owned(),
                searched: scan.searched,
            });
        }
        let entries = options.manifest.files.iter();
        let rest = others::find(&root, Some(running), options, entries.clone())?;
        let mut missing = Vec::new();
        let mut absent = Vec::new();
        for entry in entries.filter(|entry| entry.is_selected(&options.capabilities)) {
            if scan.satisfied.contains(&entry.name) || rest.satisfied.contains(&entry.name) {
                continue;
            }
            if entry.required_for.is_disjoint(&options.capabilities) {
                absent.push(Absent::of(entry, running));
            } else {
                let Absent { name, files } = Absent::of(entry, running);
                missing.push(format!("{name} ({})", files.join(", ")));
            }
        }
        if !missing.is_empty() {
            return Err(DriverError::Missing {
                root: root.path().to_owned(),
                missing,
                rejected: scan.rejected,
            });
        }
        Ok(Self {
            version: running.to_owned(),
            libraries: scan.libraries,
            programs: rest.programs,
            extras: rest.extras,
            absent,
        })
    }

    /// Finds `entries` alone, none of which depends on a driver version.
    pub fn find_extras(
        root: &Path,
        entries: &[FileEntry],
        options: &FindOptions,
    ) -> Result<Self, DriverError> {
        let root = open(root)?;
        let found = others::find(&root, None, options, entries.iter())?;
        Ok(Self {
            programs: found.programs,
            extras: found.extras,
            ..Self::default()
        })
    }
}

impl Absent {
    fn of(entry: &FileEntry, running: &str) -> Self {
        Self {
            name: entry.name.clone(),
            files: entry
                .files
                .iter()
                .map(|file| file.replace("{version}", running))
                .collect(),
        }
    }
}

fn open(root: &Path) -> Result<InRoot, DriverError> {
    InRoot::open(root).map_err(|source| DriverError::Root {
        root: root.to_owned(),
        source,
    })
}

/// Whether nothing lies there: a dangling link and a loop lead nowhere.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    ) || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

pub(super) fn read_error(root: &InRoot, path: &Path, source: io::Error) -> DriverError {
    DriverError::Read {
        root: root.path().to_owned(),
        path: path.to_owned(),
        source,
    }
}
