//! The container's loader is told where the driver's libraries are: glibc's by its cache, musl's by
//! its list of directories.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use super::cache::{Cache, MAX_BYTES};
use super::elf::cache_flags;
use super::links::destination;
use super::rootfs::Rootfs;
use super::{Link, Request, Skipped};

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
pub(super) fn tell(root: &Rootfs, request: &Request, skipped: &mut Vec<Skipped>) {
    let libraries: Vec<_> = request
        .libraries
        .iter()
        .filter_map(|path| Library::find(root, path, &request.links))
        .collect();
    if libraries.is_empty() {
        return;
    }
    let musl = format!("/lib/ld-musl-{MUSL_ARCH}.so.1");
    let done = if GLIBC_LOADERS.iter().any(|path| root.has(Path::new(path))) {
        glibc(root, &libraries).map_err(|error| (CACHE.to_owned(), error))
    } else if root.has(Path::new(&musl)) {
        let file = format!("/etc/ld-musl-{MUSL_ARCH}.path");
        self::musl(root, Path::new(&file), &libraries).map_err(|error| (file, error))
    } else {
        let error = io::Error::other("the image has neither glibc's loader nor musl's");
        Err((CACHE.to_owned(), error))
    };
    if let Err((file, error)) = done {
        skipped.push(Skipped::new(file, &error));
    }
}

/// An absent cache is as good as an empty one: what it does not name, the loader looks for in its
/// own directories, as before. A damaged one stays as it is, since it is not ours.
fn glibc(root: &Rootfs, libraries: &[Library<'_>]) -> io::Result<()> {
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
    if present.is_some_and(|present| present == bytes) {
        return Ok(());
    }
    root.write(path, &bytes)
}

/// Appends the directories which the list lacks; the image's own libraries go first.
fn musl(root: &Rootfs, file: &Path, libraries: &[Library<'_>]) -> io::Result<()> {
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
    if list.len() == before {
        return Ok(());
    }
    root.write(file, &list)
}
