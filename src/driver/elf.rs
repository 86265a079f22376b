//! What the ELF headers of a library say: class, machine, SONAME.
//!
//! Reads headers and the dynamic segment only, through a cache over the file: a driver library is
//! up to hundreds of megabytes. Sections are never needed (stripped files have none).

use std::fs::File;

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader, ProgramHeader as _};
use object::read::{ReadCache, StringTable};
use object::{Endianness, ReadRef as _};

/// No dynamic segment of a real library comes near this; it bounds what a torn header makes us read.
const DYNAMIC_MAX: u64 = 1 << 20;

/// How wide a library's addresses are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Width {
    /// This machine's own.
    Bits64,
    /// Of its older sibling, whose programs it can run.
    Bits32,
}

/// A file of this machine's kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Elf {
    /// See [`Width`].
    pub(super) width: Width,
    /// `DT_SONAME`, when there is one that can be a file name.
    pub(super) soname: Option<String>,
}

/// Why a file is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ElfError {
    /// No ELF file at all, such as a linker script.
    #[error("not an ELF file")]
    NotElf,
    /// Built for another architecture.
    #[error("built for ELF machine {0}, not for this one")]
    Machine(u16),
    /// Headers which contradict the file.
    #[error("damaged ELF file: {0}")]
    Damaged(String),
}

#[cfg(target_arch = "x86_64")]
const MACHINES: (elf::Machine, elf::Machine) = (elf::EM_X86_64, elf::EM_386);
#[cfg(target_arch = "aarch64")]
const MACHINES: (elf::Machine, elf::Machine) = (elf::EM_AARCH64, elf::EM_ARM);

/// Reads the headers of a file.
pub(super) fn read(file: &File) -> Result<Elf, ElfError> {
    let cache = ReadCache::new(file);
    if let Ok(header) = FileHeader64::<Endianness>::parse(&cache) {
        read_as(header, &cache, MACHINES.0, Width::Bits64)
    } else if let Ok(header) = FileHeader32::<Endianness>::parse(&cache) {
        read_as(header, &cache, MACHINES.1, Width::Bits32)
    } else {
        Err(ElfError::NotElf)
    }
}

fn read_as<H: FileHeader<Endian = Endianness>>(
    header: &H,
    cache: &ReadCache<&File>,
    wanted: elf::Machine,
    width: Width,
) -> Result<Elf, ElfError> {
    let nameless = Elf {
        width,
        soname: None,
    };
    let endian = header.endian().map_err(|error| damaged(&error))?;
    let machine = header.e_machine(endian);
    if machine != wanted {
        return Err(ElfError::Machine(machine.0));
    }
    let segments = header
        .program_headers(endian, cache)
        .map_err(|error| damaged(&error))?;
    let Some(dynamic) = segments
        .iter()
        .find(|segment| segment.p_type(endian) == elf::PT_DYNAMIC)
    else {
        return Ok(nameless);
    };
    if dynamic.p_filesz(endian).into() > DYNAMIC_MAX {
        return Err(ElfError::Damaged("its dynamic segment is too large".into()));
    }
    let entries = dynamic
        .dynamic(endian, cache)
        .map_err(|error| damaged(&error))?
        .unwrap_or_default();
    let value = |tag| {
        entries
            .iter()
            .take_while(|entry| entry.d_tag(endian) != elf::DT_NULL)
            .find(|entry| entry.d_tag(endian) == tag)
            .map(|entry| -> u64 { entry.d_val(endian).into() })
    };
    let (Some(soname), Some(strings), Some(size)) = (
        value(elf::DT_SONAME),
        value(elf::DT_STRTAB),
        value(elf::DT_STRSZ),
    ) else {
        return Ok(nameless);
    };
    let offset = segments
        .iter()
        .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
        .find_map(|segment| {
            let into = strings.checked_sub(segment.p_vaddr(endian).into())?;
            (into < segment.p_filesz(endian).into())
                .then(|| segment.p_offset(endian).into().checked_add(into))?
        })
        .ok_or_else(|| ElfError::Damaged("its string table is in no segment".into()))?;
    let end = offset
        .checked_add(size)
        .filter(|end| cache.len().is_ok_and(|len| *end <= len))
        .ok_or_else(|| ElfError::Damaged("its string table is cut off".into()))?;
    let name = u32::try_from(soname)
        .ok()
        .and_then(|soname| StringTable::new(cache, offset, end).get(soname).ok())
        .ok_or_else(|| ElfError::Damaged("its SONAME is outside the string table".into()))?;
    Ok(Elf {
        width,
        soname: std::str::from_utf8(name)
            .ok()
            .filter(|name| is_file_name(name))
            .map(str::to_owned),
    })
}

/// A SONAME becomes a path in a container, so it must not be able to name any other place.
fn is_file_name(name: &str) -> bool {
    (1..=255).contains(&name.len())
        && name.contains(".so")
        && !name.starts_with('.')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte))
}

fn damaged(error: &object::read::Error) -> ElfError {
    ElfError::Damaged(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;
    use crate::driver::elf_fixture::{library, library_32};

    fn read_bytes(bytes: &[u8]) -> Result<Elf, ElfError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        read(&file)
    }

    #[test]
    fn the_soname_is_read_through_segments_alone() {
        let elf = read_bytes(&library(Some("libcuda.so.1"))).unwrap();
        assert_eq!(elf.soname.as_deref(), Some("libcuda.so.1"));
        assert_eq!(read_bytes(&library(None)).unwrap().soname, None);
    }

    #[test]
    fn a_soname_that_is_no_file_name_is_ignored() {
        for name in ["../../etc/x.so", "/a.so", "a b.so", "", ".so", "lib\n.so"] {
            let elf = read_bytes(&library(Some(name))).unwrap();
            assert_eq!(elf.soname, None, "{name:?}");
        }
    }

    #[test]
    fn other_classes_and_machines_are_told_apart() {
        let narrow = read_bytes(&library_32(Some("libcuda.so.1"))).unwrap();
        assert_eq!(narrow.width, Width::Bits32);
        assert_eq!(narrow.soname.as_deref(), Some("libcuda.so.1"));
        let wide = read_bytes(&library(Some("libcuda.so.1"))).unwrap();
        assert_eq!(wide.width, Width::Bits64);
        let mut foreign = library(Some("libcuda.so.1"));
        foreign[18..20].copy_from_slice(&21_u16.to_le_bytes());
        assert_eq!(read_bytes(&foreign), Err(ElfError::Machine(21)));
        assert_eq!(read_bytes(b"#!/bin/sh\n"), Err(ElfError::NotElf));
        assert_eq!(read_bytes(b""), Err(ElfError::NotElf));
    }

    #[test]
    fn this_very_program_can_be_read() {
        let file = File::open("/proc/self/exe").unwrap();
        assert!(read(&file).is_ok());
    }

    proptest! {
        #[test]
        fn a_torn_or_scribbled_file_never_panics(
            narrow: bool,
            cut in 0_usize..600,
            scribbles in prop::collection::vec((0_usize..600, any::<u8>()), 0..8),
        ) {
            let mut bytes = if narrow { library_32 } else { library }(Some("libcuda.so.1"));
            for (at, byte) in scribbles {
                if let Some(target) = bytes.get_mut(at) {
                    *target = byte;
                }
            }
            bytes.truncate(cut);
            let _ = read_bytes(&bytes);
        }
    }
}
