//! The search for everything but libraries: the first directory in which a pattern matches counts.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::files::{DriverError, Extra, FindOptions, Program, is_absent, read_error};
use super::manifest::{FileEntry, FileKind};
use super::pattern::Pattern;
use super::root::InRoot;

#[derive(Debug, Default)]
pub(super) struct Others {
    pub(super) programs: Vec<Program>,
    pub(super) extras: Vec<Extra>,
    /// Names of entries of which something was found.
    pub(super) satisfied: BTreeSet<String>,
}

/// Looks for `entries`. With `running`, those of the selected capabilities; without a version, all,
/// and none may need one.
pub(super) fn find<'e>(
    root: &InRoot,
    running: Option<&str>,
    options: &FindOptions,
    entries: impl Iterator<Item = &'e FileEntry>,
) -> Result<Others, DriverError> {
    let mut found = Others::default();
    for entry in entries.filter(|entry| entry.kind != FileKind::Lib) {
        if running.is_some() && !entry.is_selected(&options.capabilities) {
            continue;
        }
        for pattern in &entry.files {
            let pattern = pattern.replace("{version}", running.unwrap_or("{version}"));
            for dir in directories(entry, options) {
                let matches = below(root, &dir, &pattern, entry.kind)?;
                if matches.is_empty() {
                    continue;
                }
                found.satisfied.insert(entry.name.clone());
                for (file, relative) in matches {
                    add(&mut found, entry, options, file, &dir, &relative);
                }
                break;
            }
        }
    }
    let mut taken = BTreeSet::new();
    found.programs.retain(|it| taken.insert(it.path.clone()));
    found.extras.retain(|it| taken.insert(it.path.clone()));
    found.programs.sort_by(|a, b| a.path.cmp(&b.path));
    found.extras.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn directories(entry: &FileEntry, options: &FindOptions) -> Vec<PathBuf> {
    let dirs = &options.manifest.directories;
    if entry.kind == FileKind::Config && !options.config_search.is_empty() {
        return options.config_search.clone();
    }
    if !entry.dirs.is_empty() {
        return entry.dirs.iter().map(PathBuf::from).collect();
    }
    match entry.kind {
        FileKind::Bin => dirs.bin.clone(),
        FileKind::Config => dirs.config.clone(),
        FileKind::Firmware => {
            let kernel = options.kernel.as_deref();
            let usual = dirs.firmware.iter().filter_map(|dir| {
                let text = dir.to_str()?;
                match kernel {
                    Some(kernel) => Some(text.replace("{kernel}", kernel).into()),
                    None => (!text.contains("{kernel}")).then(|| dir.clone()),
                }
            });
            options.firmware.iter().cloned().chain(usual).collect()
        }
        FileKind::Lib | FileKind::Socket | FileKind::Dir => Vec::new(),
    }
}

/// What of the right kind matches below a directory: the thing itself and its path below `dir`.
fn below(
    root: &InRoot,
    dir: &Path,
    pattern: &str,
    kind: FileKind,
) -> Result<Vec<(PathBuf, String)>, DriverError> {
    let (sub, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
    let relatives = if name.contains('*') {
        let listed = dir.join(sub);
        let opened = match root.dir(&listed) {
            Ok(opened) => opened,
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            Err(source) => return Err(read_error(root, &listed, source)),
        };
        let names: Vec<String> = InRoot::names(&opened)
            .map_err(|e| read_error(root, &listed, e))?
            .into_iter()
            .filter_map(|name| name.into_string().ok())
            .collect();
        Pattern::new(name)
            .among(&names)
            .map(|name| Path::new(sub).join(name).display().to_string())
            .collect()
    } else {
        vec![pattern.to_owned()]
    };
    let mut found = Vec::new();
    for relative in relatives {
        let path = dir.join(&relative);
        match is_it(root, &path, kind) {
            Ok(Some(real)) if real.to_str().is_some() => found.push((real, relative)),
            Ok(_) => {}
            Err(error) if is_absent(&error) || error.kind() == io::ErrorKind::InvalidInput => {}
            Err(source) => return Err(read_error(root, &path, source)),
        }
    }
    Ok(found)
}

/// The thing at a path, if it is of that kind.
fn is_it(root: &InRoot, path: &Path, kind: FileKind) -> io::Result<Option<PathBuf>> {
    Ok(match kind {
        FileKind::Socket | FileKind::Dir => {
            let wanted = if kind == FileKind::Dir {
                FileType::Directory
            } else {
                FileType::Socket
            };
            let (real, found) = root.locate(path)?;
            (found == wanted).then_some(real)
        }
        FileKind::Bin => {
            let found = root.file(path)?;
            let mode = found.file.metadata()?.permissions().mode();
            (mode & 0o111 != 0).then_some(found.path)
        }
        FileKind::Lib | FileKind::Firmware | FileKind::Config => Some(root.file(path)?.path),
    })
}

fn add(
    found: &mut Others,
    entry: &FileEntry,
    options: &FindOptions,
    file: PathBuf,
    dir: &Path,
    relative: &str,
) {
    let target = match entry.kind {
        FileKind::Bin => options.targets.bin.as_ref(),
        _ => None,
    };
    let path = entry
        .to
        .as_ref()
        .or(target)
        .map_or_else(|| dir.join(relative), |to| to.join(relative));
    if entry.kind == FileKind::Bin {
        found.programs.push(Program { file, path });
    } else {
        found.extras.push(Extra {
            file,
            path,
            kind: entry.kind,
            writable: entry.writable || entry.kind == FileKind::Socket,
        });
    }
}
