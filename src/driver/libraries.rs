//! Where libraries are looked for when nobody says otherwise, and the NVML library among them.

use std::path::{Path, PathBuf};

use super::elf::{self, Width};
use super::root::InRoot;
use super::scan;

/// Library directories of every layout that needs no option, in order of preference: multiarch,
/// `lib64`, plain `lib` (Arch, Gentoo), each with Debian's `nvidia/current`. Several may be one
/// directory under two names; the ELF headers, not the names, tell 32 from 64 bits.
pub const LIBRARY_DIRS: [&str; 14] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/usr/lib64/nvidia/current",
    "/usr/lib/nvidia/current",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib64",
    "/lib",
    "/lib/x86_64-linux-gnu/nvidia/current",
    "/lib/aarch64-linux-gnu/nvidia/current",
];

/// The library that NVML is loaded from.
const NVML: &str = "libnvidia-ml.so.1";

/// Where `libnvidia-ml.so.1` of this machine's kind is below a driver root: a path that this
/// process can open, with every link resolved inside the root. `search` replaces the usual
/// directories and the root's loader cache. None when there is none, or no such root.
pub fn nvml_library(root: &Path, search: &[PathBuf]) -> Option<PathBuf> {
    let root = InRoot::open(root).ok()?;
    let in_dir = |dir: &Path| {
        let found = root.file(&dir.join(NVML)).ok()?;
        let elf = elf::read(&found.file).ok()?;
        let inside = found.path.strip_prefix("/").ok()?;
        (elf.width == Width::Bits64).then(|| root.path().join(inside))
    };
    if !search.is_empty() {
        return search.iter().find_map(|dir| in_dir(dir));
    }
    LIBRARY_DIRS
        .iter()
        .find_map(|dir| in_dir(Path::new(dir)))
        .or_else(|| scan::cached_dirs(&root).iter().find_map(|dir| in_dir(dir)))
}
