//! The files of one driver version.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::root::{InRoot, Resolved};
use super::{elf, libraries, version};

/// Programs that a GPU container may call, in the directories of [`PROGRAM_DIRS`].
const PROGRAMS: [&str; 5] = [
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
];

/// First hit counts. `PATH` plays no part: a unit and a shell would get different specs.
const PROGRAM_DIRS: [&str; 6] = [
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/bin",
    "/sbin",
];

/// The libraries whose version says which driver is installed.
const KEY_LIBRARIES: [&str; 2] = ["libcuda", "libnvidia-ml"];

/// Libraries whose file name carries another version than the driver's.
const OWN_VERSION: [&str; 1] = ["libnvidia-nvvm70.so."];

/// A shared library. All paths are absolute inside the driver root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Library {
    /// The file itself, all links resolved.
    pub file: PathBuf,
    /// Where it was found: the real directory and the versioned name.
    pub path: PathBuf,
    /// The further paths under which the loader and programs ask for it: its SONAME, and
    /// `libcuda.so` for libcuda.
    pub names: Vec<PathBuf>,
}

/// A program. All paths are absolute inside the driver root.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    /// The file itself, all links resolved.
    pub file: PathBuf,
    /// Where it was found.
    pub path: PathBuf,
}

/// What a container needs of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverFiles {
    /// The version which the libraries carry in their names.
    pub version: String,
    /// Sorted by path; no two claim the same path.
    pub libraries: Vec<Library>,
    /// Sorted by path.
    pub programs: Vec<Program>,
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
}

impl DriverFiles {
    /// Finds the files of driver `running` below `root`; `search` replaces the usual library
    /// directories (absolute, inside the root).
    pub fn find(root: &Path, running: &str, search: &[PathBuf]) -> Result<Self, DriverError> {
        if !version::is_driver_version(running) {
            return Err(DriverError::Version(running.chars().take(80).collect()));
        }
        let root = InRoot::open(root).map_err(|source| DriverError::Root {
            root: root.to_owned(),
            source,
        })?;
        let dirs = libraries::dirs(search);
        let mut libraries = Vec::new();
        let mut others = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for dir in &dirs {
            let opened = match root.dir(dir) {
                Ok(opened) => opened,
                Err(error) if is_absent(&error) => continue,
                Err(source) => return Err(read_error(&root, dir, source)),
            };
            if !seen.insert(opened.path.clone()) {
                continue;
            }
            let names = InRoot::names(&opened).map_err(|e| read_error(&root, dir, e))?;
            for name in names.iter().filter_map(|name| name.to_str()) {
                let found = version::of_library(name);
                if let Some(other) = found.filter(|found| *found != running) {
                    let stem = name.split(".so.").next().unwrap_or_default();
                    others.insert((stem.to_owned(), other.to_owned()));
                }
                let own = OWN_VERSION.iter().any(|prefix| name.starts_with(prefix));
                if found == Some(running) || own {
                    libraries.extend(library(&root, &opened, dir, name)?);
                }
            }
        }
        let has = |stem: &str| {
            let name = format!("{stem}.so.{running}");
            libraries
                .iter()
                .any(|found: &Library| found.path.file_name().is_some_and(|n| *n == *name))
        };
        // Packages are upgraded one by one, so each of the two may be the one that lags behind.
        let lagging: BTreeSet<_> = KEY_LIBRARIES
            .iter()
            .filter(|stem| !has(stem))
            .flat_map(|stem| others.iter().filter(move |(of, _)| of == *stem))
            .map(|(_, version)| version.clone())
            .collect();
        if !lagging.is_empty() {
            return Err(DriverError::Mismatch {
                running: running.to_owned(),
                found: lagging.into_iter().collect(),
                root: root.path().to_owned(),
            });
        }
        let complete = KEY_LIBRARIES.iter().any(|stem| has(stem));
        if !complete {
            return Err(DriverError::NoLibraries {
                running: running.to_owned(),
                root: root.path().to_owned(),
                searched: dirs,
            });
        }
        if !has("libcuda") {
            tracing::warn!(
                root = %root.path().display(),
                "no libcuda.so.{running} below the driver root: CUDA programs won't start with this spec"
            );
        }
        Ok(Self {
            version: running.to_owned(),
            libraries: without_clashes(libraries),
            programs: programs(&root)?,
        })
    }
}

/// One library, or none when it isn't of this machine's kind.
fn library(
    root: &InRoot,
    dir: &Resolved,
    searched: &Path,
    name: &str,
) -> Result<Option<Library>, DriverError> {
    let path = dir.path.join(name);
    let found = match root.file(&path) {
        Ok(found) => found,
        Err(error) if is_absent(&error) || error.kind() == io::ErrorKind::InvalidInput => {
            tracing::warn!(path = %path.display(), %error, "a driver library is left out");
            return Ok(None);
        }
        Err(source) => return Err(read_error(root, &path, source)),
    };
    if found.path.to_str().is_none() || path.to_str().is_none() {
        tracing::warn!(path = %path.display(), "a driver library is left out: its path is no UTF-8 text, as a spec needs");
        return Ok(None);
    }
    let elf = match elf::read(&found.file) {
        Ok(elf) => elf,
        Err(error @ (elf::ElfError::NotElf64 | elf::ElfError::Machine(_))) => {
            tracing::debug!(path = %path.display(), %error, "a driver library is left out");
            return Ok(None);
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a driver library is left out");
            return Ok(None);
        }
    };
    // The loader doesn't look into Debian's private directory; there, links lead to it from above.
    let loader_dir = [searched, &dir.path]
        .into_iter()
        .find_map(|dir| dir.to_str()?.strip_suffix("/nvidia/current"))
        .map_or(dir.path.as_path(), Path::new);
    let mut names: Vec<PathBuf> = elf
        .soname
        .into_iter()
        .map(|soname| loader_dir.join(soname))
        .collect();
    if name.starts_with("libcuda.so.") {
        names.push(loader_dir.join("libcuda.so"));
    }
    names.retain(|name| *name != path);
    Ok(Some(Library {
        file: found.path,
        path,
        names,
    }))
}

/// Two libraries may claim one name (two directories with the same driver); the first in search
/// order keeps it, so the spec never depends on the order of mounts.
fn without_clashes(libraries: Vec<Library>) -> Vec<Library> {
    let mut taken = BTreeSet::new();
    let mut kept: Vec<_> = libraries
        .into_iter()
        .filter(|library| taken.insert(library.path.clone()))
        .collect();
    for library in &mut kept {
        library.names.retain(|name| taken.insert(name.clone()));
    }
    kept.sort_by(|a, b| a.path.cmp(&b.path));
    kept
}

fn programs(root: &InRoot) -> Result<Vec<Program>, DriverError> {
    let mut found = Vec::new();
    for name in PROGRAMS {
        for dir in PROGRAM_DIRS {
            let path = Path::new(dir).join(name);
            match root.file(&path) {
                Ok(resolved) => {
                    let mode = resolved
                        .file
                        .metadata()
                        .map_err(|e| read_error(root, &path, e))?
                        .permissions()
                        .mode();
                    if mode & 0o111 != 0 && resolved.path.to_str().is_some() {
                        found.push(Program {
                            file: resolved.path,
                            path,
                        });
                        break;
                    }
                }
                Err(error) if is_absent(&error) || error.kind() == io::ErrorKind::InvalidInput => {}
                Err(source) => return Err(read_error(root, &path, source)),
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    ) || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

fn read_error(root: &InRoot, path: &Path, source: io::Error) -> DriverError {
    DriverError::Read {
        root: root.path().to_owned(),
        path: path.to_owned(),
        source,
    }
}
