//! A directory that looks like an installed NVIDIA driver: the files that a spec generator looks for.

use std::path::Path;

use crate::Failure;

/// Version that the file names carry, and that a topology should state.
pub const DRIVER_VERSION: &str = "570.133.20";

const LIBRARIES: [&str; 6] = [
    "libcuda.so",
    "libnvidia-ml.so",
    "libnvidia-ptxjitcompiler.so",
    "libnvidia-nvvm.so",
    "libnvidia-opencl.so",
    "libnvcuvid.so",
];

/// Writes libraries, the `.so.1` links that a driver package has, and the binaries.
pub(super) fn write(root: &Path) -> Result<(), Failure> {
    let libraries = root.join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
    let binaries = root.join("usr/bin");
    for dir in [&libraries, &binaries] {
        std::fs::create_dir_all(dir).map_err(Failure::file("create", dir))?;
    }
    for name in LIBRARIES {
        let file = format!("{name}.{DRIVER_VERSION}");
        let path = libraries.join(&file);
        std::fs::write(&path, shared_object(&format!("{name}.1")))
            .map_err(Failure::file("write", &path))?;
        let link = libraries.join(format!("{name}.1"));
        std::os::unix::fs::symlink(&file, &link).map_err(Failure::file("link", &link))?;
    }
    for name in ["nvidia-smi", "nvidia-cuda-mps-control"] {
        let path = binaries.join(name);
        std::fs::write(&path, "#!/bin/sh\n").map_err(Failure::file("write", &path))?;
    }
    Ok(())
}

/// The smallest ELF shared object that has a SONAME: file header, one loaded and one dynamic segment.
fn shared_object(soname: &str) -> Vec<u8> {
    const HEADER: u64 = 64;
    const SEGMENT: u64 = 56;
    const DYNAMIC_ENTRY: u64 = 16;
    let machine: u16 = if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    };
    let strings = format!("\0{soname}\0");
    let dynamic_at = HEADER + 2 * SEGMENT;
    let dynamic_size = 4 * DYNAMIC_ENTRY;
    let strings_at = dynamic_at + dynamic_size;
    let strings_size = strings.len() as u64;
    let size = strings_at + strings_size;

    let mut out = Vec::from(*b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    let half = |out: &mut Vec<u8>, v: u16| out.extend_from_slice(&v.to_le_bytes());
    let word = |out: &mut Vec<u8>, v: u32| out.extend_from_slice(&v.to_le_bytes());
    let long = |out: &mut Vec<u8>, v: u64| out.extend_from_slice(&v.to_le_bytes());
    half(&mut out, 3); // ET_DYN
    half(&mut out, machine);
    word(&mut out, 1);
    for v in [0, HEADER, 0] {
        long(&mut out, v);
    }
    word(&mut out, 0);
    for v in [64, 56, 2, 64, 0, 0] {
        half(&mut out, v);
    }
    for (kind, at, size) in [(1_u32, 0, size), (2, dynamic_at, dynamic_size)] {
        word(&mut out, kind);
        word(&mut out, 4);
        for v in [at, at, at, size, size, 8] {
            long(&mut out, v);
        }
    }
    // DT_STRTAB, DT_STRSZ, DT_SONAME, DT_NULL
    for v in [5, strings_at, 10, strings_size, 14, 1, 0, 0] {
        long(&mut out, v);
    }
    out.extend_from_slice(strings.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_has_libraries_with_their_links_and_an_elf_header() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path()).unwrap();
        let lib = dir
            .path()
            .join(format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH));
        let target = std::fs::read_link(lib.join("libcuda.so.1")).unwrap();
        assert_eq!(target, Path::new("libcuda.so.570.133.20"));
        let elf = std::fs::read(lib.join(target)).unwrap();
        assert!(elf.starts_with(b"\x7fELF"));
        assert!(elf.ends_with(b"libcuda.so.1\0"));
    }
}
