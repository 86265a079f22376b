//! The container's loader is told where the driver's libraries are: glibc's by its cache, musl's by
//! its list of directories.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::cache::{Cache, MAX_BYTES};
use super::cover::CoverError;
use super::elf::cache_flags;
use super::links::destination;
use super::rootfs::Rootfs;
use super::{HookError, Link, Request, Skipped};

const CACHE: &str = "/etc/ld.so.cache";

/// Programs name one of these as their interpreter.
const GLIBC_LOADERS: [&str; 3] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-linux.so.2",
];

/// musl's name of the architecture, in its loader's and its path file's name.
const MUSL_ARCH: &str = std::env::consts::ARCH;

/// Where musl looks when its path file is absent.
const MUSL_DEFAULT: &str = "/lib:/usr/local/lib:/usr/lib";

/// A path file is a few lines.
const MUSL_MAX: usize = 64 << 10;

/// A library that is there.
struct Library<'a> {
    flags: u32,
    name: &'a OsStr,
    path: PathBuf,
}

impl<'a> Library<'a> {
    /// The library at `path`, or where the link at `path` would lead if it could be made.
    fn find(root: &Rootfs, path: &'a Path, links: &[Link]) -> Option<Self> {
        let name = path.file_name()?;
        let linked = links
            .iter()
            .filter(|link| link.path == path)
            .map(|link| destination(&link.target, &link.path));
        std::iter::once(path.to_owned())
            .chain(linked)
            .find_map(|path| {
                let flags = cache_flags(root.file(&path).ok()?)?;
                Some(Self { flags, name, path })
            })
    }
}

/// Makes libraries known to the loader, each under its file name.
pub(super) fn tell(
    root: &Rootfs,
    request: &Request,
    skipped: &mut Vec<Skipped>,
) -> Result<(), HookError> {
    let libraries: Vec<_> = request
        .libraries
        .iter()
        .filter_map(|path| Library::find(root, path, &request.links))
        .collect();
    if libraries.is_empty() {
        return Ok(());
    }
    let musl = format!("/lib/ld-musl-{MUSL_ARCH}.so.1");
    let path_file = format!("/etc/ld-musl-{MUSL_ARCH}.path");
    let (file, content) = if GLIBC_LOADERS.iter().any(|path| root.has(Path::new(path))) {
        (CACHE, glibc(root, &libraries))
    } else if root.has(Path::new(&musl)) {
        let content = self::musl(root, Path::new(&path_file), &libraries);
        (path_file.as_str(), content)
    } else {
        let error = io::Error::other("the image has neither glibc's loader nor musl's");
        (CACHE, Err(error))
    };
    let mut skip = |error: &io::Error| {
        skipped.push(Skipped::new(file, error));
        Ok(())
    };
    let path = Path::new(file);
    match content {
        Ok(None) => Ok(()),
        Ok(Some(bytes)) => match root.write(path, &bytes) {
            // Some runtimes make it so before their hooks run (crun), some after (runc).
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                match root.cover(path, &bytes) {
                    // There is nothing to cover, and the first error says why nothing was made.
                    Err(CoverError::Unchanged(absent))
                        if absent.kind() == io::ErrorKind::NotFound =>
                    {
                        skip(&error)
                    }
                    Err(error) => error.or_skip(skip),
                    Ok(()) => Ok(()),
                }
            }
            Err(error) => skip(&error),
            Ok(()) => Ok(()),
        },
        Err(error) => skip(&error),
    }
}

/// The cache's new content, unless it is right already.
///
/// An absent cache is as good as an empty one: what it does not name, the loader looks for in its
/// own directories, as before. A damaged one stays as it is, since it is not ours.
fn glibc(root: &Rootfs, libraries: &[Library<'_>]) -> io::Result<Option<Vec<u8>>> {
    let path = Path::new(CACHE);
    let present = match root.read(path, MAX_BYTES) {
        Ok(present) => Some(present),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut cache = match &present {
        Some(bytes) => Cache::parse(bytes).map_err(invalid)?,
        None => Cache::default(),
    };
    for library in libraries {
        let path = library.path.as_os_str().as_encoded_bytes();
        cache.add(library.flags, library.name.as_encoded_bytes(), path);
    }
    let bytes = cache.emit().map_err(invalid)?;
    Ok(present
        .is_none_or(|present| present != bytes)
        .then_some(bytes))
}

/// The list with the directories which it lacks, if any; the image's own libraries go first.
fn musl(root: &Rootfs, file: &Path, libraries: &[Library<'_>]) -> io::Result<Option<Vec<u8>>> {
    let mut list = match root.read(file, MUSL_MAX) {
        Ok(list) => list,
        Err(error) if error.kind() == io::ErrorKind::NotFound => MUSL_DEFAULT.into(),
        Err(error) => return Err(error),
    };
    let before = list.len();
    for library in libraries {
        let Some(dir) = library.path.parent() else {
            continue;
        };
        let dir = dir.as_os_str().as_encoded_bytes();
        // Colons and newlines both divide the list.
        if !list
            .split(|byte| b":\n".contains(byte))
            .any(|has| has == dir)
        {
            if !list.is_empty() && !list.ends_with(b"\n") {
                list.push(b'\n');
            }
            list.extend_from_slice(dir);
            list.push(b'\n');
        }
    }
    Ok((list.len() != before).then_some(list))
}
