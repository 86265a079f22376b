//! The search for libraries: directories, names, ELF headers.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::elf::{self, ElfError, Width};
use super::files::{DriverError, FindOptions, Library, Targets, is_absent, read_error};
use super::manifest::{FileEntry, FileKind};
use super::pattern::Pattern;
use super::root::{InRoot, Resolved};
use super::sets::Capability;
use super::{ldcache, version};

/// The loader's cache, inside the root.
const CACHE: &str = "/etc/ld.so.cache";
/// Real ones have some hundred kilobytes.
const CACHE_MAX: u64 = 1 << 24;

/// What a search gave.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) libraries: Vec<Library>,
    /// Entries of which a library of this machine's width was found.
    pub(super) satisfied: BTreeSet<String>,
    /// Stems of libraries of the running version.
    pub(super) present: BTreeSet<String>,
    /// Stem and version of libraries of other versions.
    pub(super) others: BTreeSet<(String, String)>,
    pub(super) searched: Vec<PathBuf>,
    /// What can't be taken, in words.
    pub(super) rejected: Vec<String>,
}

/// A directory that was listed.
struct Place {
    dir: Resolved,
    searched: PathBuf,
    /// Below the library directory; none for a place of its own.
    sub: Option<String>,
    names: Vec<String>,
}

pub(super) fn libraries(
    root: &InRoot,
    running: &str,
    options: &FindOptions,
) -> Result<Scan, DriverError> {
    let mut scan = Scan::default();
    let mut places = library_places(root, running, options, &mut scan)?;
    let usual = places.len();
    let mut of_template: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut matched: BTreeMap<(usize, String), Vec<&FileEntry>> = BTreeMap::new();
    let mut claimed: BTreeSet<(usize, String)> = BTreeSet::new();
    let mut entries: Vec<_> = options
        .manifest
        .files
        .iter()
        .filter(|entry| entry.kind == FileKind::Lib)
        .collect();
    entries.sort_by_key(|entry| entry.otherwise);
    for entry in entries {
        let selected = entry.is_selected(&options.capabilities);
        let mut at: Vec<usize> = Vec::new();
        if entry.dirs.is_empty() {
            at.extend(0..usual);
        } else if selected {
            for template in &entry.dirs {
                if !of_template.contains_key(template.as_str()) {
                    let found = template_places(root, running, template, &mut places, usual)?;
                    of_template.insert(template, found);
                }
                at.extend(&of_template[template.as_str()]);
            }
        }
        for pattern in &entry.files {
            let pattern = Pattern::new(&pattern.replace("{version}", running));
            for place in &at {
                for name in pattern.among(&places[*place].names) {
                    let key = (*place, name.clone());
                    if entry.otherwise && claimed.contains(&key) {
                        continue;
                    }
                    if selected {
                        matched.entry(key.clone()).or_default().push(entry);
                    }
                    if !entry.otherwise {
                        claimed.insert(key);
                    }
                }
            }
        }
    }
    let mut found = Vec::new();
    for ((place, name), entries) in matched {
        let Some((library, width)) =
            library(root, &places[place], &name, &entries, options, &mut scan)?
        else {
            continue;
        };
        if width == Width::Bits64 {
            scan.satisfied
                .extend(entries.iter().map(|entry| entry.name.clone()));
        }
        found.push(library);
    }
    scan.libraries = without_clashes(found);
    Ok(scan)
}

/// The directories of libraries, in order of preference, each once.
fn library_places(
    root: &InRoot,
    running: &str,
    options: &FindOptions,
    scan: &mut Scan,
) -> Result<Vec<Place>, DriverError> {
    let dirs = &options.manifest.directories;
    let narrow = options.capabilities.contains(&Capability::Compat32);
    let named: Vec<PathBuf> = if options.library_search.is_empty() {
        let narrow = dirs.lib32.iter().filter(|_| narrow);
        dirs.lib.iter().chain(narrow).cloned().collect()
    } else {
        options.library_search.clone()
    };
    let cached = if options.library_search.is_empty() {
        cached_dirs(root)
    } else {
        Vec::new()
    };
    scan.searched.clone_from(&named);
    let mut places = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, dir) in named.iter().chain(&cached).enumerate() {
        let Some(place) = list(root, dir, Some(String::new()))? else {
            continue;
        };
        if !seen.insert(place.dir.path.clone()) {
            continue;
        }
        // The cache names directories of other packages too (CUDA's compatibility libraries).
        if at >= named.len() {
            if !has_driver(&place, running) {
                continue;
            }
            scan.searched.push(dir.clone());
        }
        for name in &place.names {
            let stem = name.split(".so.").next().unwrap_or_default().to_owned();
            match version::of_library(name) {
                Some(found) if found == running => {
                    scan.present.insert(stem);
                }
                Some(other) => {
                    scan.others.insert((stem, other.to_owned()));
                }
                None => {}
            }
        }
        places.push(place);
    }
    Ok(places)
}

/// Where a template leads, appended to the places.
fn template_places(
    root: &InRoot,
    running: &str,
    template: &str,
    places: &mut Vec<Place>,
    usual: usize,
) -> Result<Vec<usize>, DriverError> {
    let dirs: Vec<(PathBuf, Option<String>)> = match template.strip_prefix("{lib}") {
        Some(rest) => {
            let sub = rest.trim_start_matches('/');
            places[..usual]
                .iter()
                .filter(|place| has_driver(place, running))
                .map(|place| (place.dir.path.join(sub), Some(sub.to_owned())))
                .collect()
        }
        None => vec![(template.into(), None)],
    };
    let mut found = Vec::new();
    for (dir, sub) in dirs {
        if let Some(place) = list(root, &dir, sub)? {
            places.push(place);
            found.push(places.len() - 1);
        }
    }
    Ok(found)
}

fn has_driver(place: &Place, running: &str) -> bool {
    place
        .names
        .iter()
        .any(|name| version::of_library(name) == Some(running))
}

fn list(root: &InRoot, dir: &Path, sub: Option<String>) -> Result<Option<Place>, DriverError> {
    let opened = match root.dir(dir) {
        Ok(opened) => opened,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(source) => return Err(read_error(root, dir, source)),
    };
    let names = InRoot::names(&opened).map_err(|e| read_error(root, dir, e))?;
    Ok(Some(Place {
        names: names
            .into_iter()
            .filter_map(|name| name.into_string().ok())
            .collect(),
        dir: opened,
        searched: dir.to_owned(),
        sub,
    }))
}

/// The directories of NVIDIA's libraries in the root's own loader cache.
pub(super) fn cached_dirs(root: &InRoot) -> Vec<PathBuf> {
    let bytes = match root.file(Path::new(CACHE)) {
        Ok(found) => {
            let mut bytes = Vec::new();
            match found.file.take(CACHE_MAX).read_to_end(&mut bytes) {
                Ok(_) => bytes,
                Err(error) => {
                    tracing::warn!(%error, "the loader cache {CACHE} of the driver root can't be read");
                    return Vec::new();
                }
            }
        }
        Err(error) => {
            tracing::debug!(%error, "the driver root has no loader cache");
            return Vec::new();
        }
    };
    match ldcache::parse(&bytes) {
        Ok(entries) => {
            let mut seen = BTreeSet::new();
            entries
                .into_iter()
                .filter(|entry| {
                    entry.name.starts_with("libcuda.so")
                        || entry.name.starts_with("libnvidia-")
                        || entry.name.contains("_nvidia.so")
                })
                .filter_map(|entry| Some(entry.path.parent()?.to_owned()))
                .filter(|dir| seen.insert(dir.clone()))
                .collect()
        }
        Err(error) => {
            tracing::warn!(%error, "the loader cache {CACHE} of the driver root is ignored");
            Vec::new()
        }
    }
}

/// One library, or none when it isn't of this machine's kind.
fn library(
    root: &InRoot,
    place: &Place,
    name: &str,
    entries: &[&FileEntry],
    options: &FindOptions,
    scan: &mut Scan,
) -> Result<Option<(Library, Width)>, DriverError> {
    let path = place.dir.path.join(name);
    let mut reject = |why: &str| {
        tracing::warn!(path = %path.display(), "a driver library is left out: {why}");
        scan.rejected.push(format!("{}: {why}", path.display()));
        Ok(None)
    };
    let found = match root.file(&path) {
        Ok(found) => found,
        Err(error) if is_absent(&error) || error.kind() == io::ErrorKind::InvalidInput => {
            return reject(&error.to_string());
        }
        Err(source) => return Err(read_error(root, &path, source)),
    };
    if found.path.to_str().is_none() || path.to_str().is_none() {
        return reject("its path is no UTF-8 text, as a spec needs");
    }
    let elf = match elf::read(&found.file) {
        Ok(elf) => elf,
        Err(error @ (ElfError::NotElf | ElfError::Machine(_))) => {
            tracing::debug!(path = %path.display(), %error, "a driver library is left out");
            return Ok(None);
        }
        Err(error) => return reject(&error.to_string()),
    };
    if elf.width == Width::Bits32 && !options.capabilities.contains(&Capability::Compat32) {
        return Ok(None);
    }
    let (dir, base) = directories(place, elf.width, &options.targets);
    let own = dir.join(name);
    let mut names: Vec<PathBuf> = elf.soname.into_iter().map(|name| base.join(name)).collect();
    names.extend(
        entries
            .iter()
            .flat_map(|entry| &entry.names)
            .map(|n| base.join(n)),
    );
    names.extend(links(root, place, name, &found.path).map(|name| base.join(name)));
    let mut seen = BTreeSet::from([own.clone()]);
    names.retain(|name| seen.insert(name.clone()));
    let library = Library {
        file: found.path,
        path: own,
        names,
    };
    Ok(Some((library, elf.width)))
}

/// Where a library goes, and where the loader is to find its further names.
fn directories(place: &Place, width: Width, targets: &Targets) -> (PathBuf, PathBuf) {
    let real = &place.dir.path;
    if let (Some(lib), Some(sub)) = (&targets.lib, &place.sub) {
        let dir = match (width, &targets.lib32) {
            (Width::Bits64, _) => lib.clone(),
            (Width::Bits32, Some(narrow)) => narrow.clone(),
            (Width::Bits32, None) => beside(lib),
        };
        let dir = if sub.is_empty() { dir } else { dir.join(sub) };
        return (dir.clone(), dir);
    }
    // The loader doesn't look into Debian's private directory; there, links lead to it from above.
    let base = [&place.searched, real]
        .into_iter()
        .find_map(|dir| dir.to_str()?.strip_suffix("/nvidia/current"))
        .map_or(real.as_path(), Path::new);
    (real.clone(), base.to_owned())
}

/// `lib` beside `lib64`, as both are on the search path of CUDA images; a directory below otherwise.
fn beside(lib: &Path) -> PathBuf {
    lib.to_str()
        .and_then(|lib| lib.strip_suffix("64"))
        .map_or_else(|| lib.join("32"), PathBuf::from)
}

/// The links beside a library that lead to it, such as `libcuda.so`.
fn links<'p>(
    root: &InRoot,
    place: &'p Place,
    name: &str,
    file: &Path,
) -> impl Iterator<Item = &'p String> {
    let stem = name.split_once(".so").map_or(name, |(stem, _)| stem);
    Pattern::new(&format!("{stem}.so*"))
        .among(&place.names)
        .filter(|other| {
            *other != name
                && root
                    .locate(&place.dir.path.join(other))
                    .is_ok_and(|(real, _)| real == file)
        })
        .collect::<Vec<_>>()
        .into_iter()
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
