//! What the ELF headers of a library say: class, machine, SONAME.
//!
//! Reads headers and the dynamic segment only, through a cache over the file: a driver library is
//! up to hundreds of megabytes. Sections are never needed (stripped files have none).

use std::fs::File;

use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _};
use object::read::{ReadCache, StringTable};
use object::{Endianness, ReadRef as _};

/// No dynamic segment of a real library comes near this; it bounds what a torn header makes us read.
const DYNAMIC_MAX: u64 = 1 << 20;

/// A file of this machine's kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Elf {
    /// `DT_SONAME`, when there is one that can be a file name.
    pub(super) soname: Option<String>,
}

/// Why a file is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ElfError {
    /// No ELF file of 64 bits; 32-bit libraries lie beside their 64-bit namesakes.
    #[error("not a 64-bit ELF file")]
    NotElf64,
    /// Built for another architecture.
    #[error("built for ELF machine {0}, not for this one")]
    Machine(u16),
    /// Headers which contradict the file.
    #[error("damaged ELF file: {0}")]
    Damaged(String),
}

#[cfg(target_arch = "x86_64")]
const MACHINE: elf::Machine = elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: elf::Machine = elf::EM_AARCH64;

/// Reads the headers of a file.
pub(super) fn read(file: &File) -> Result<Elf, ElfError> {
    let cache = ReadCache::new(file);
    let header = FileHeader64::<Endianness>::parse(&cache).map_err(|_| ElfError::NotElf64)?;
    let endian = header.endian().map_err(|error| damaged(&error))?;
    let machine = header.e_machine(endian);
    if machine != MACHINE {
        return Err(ElfError::Machine(machine.0));
    }
    let segments = header
        .program_headers(endian, &cache)
        .map_err(|error| damaged(&error))?;
    let Some(dynamic) = segments
        .iter()
        .find(|segment| segment.p_type(endian) == elf::PT_DYNAMIC)
    else {
        return Ok(Elf { soname: None });
    };
    if dynamic.p_filesz(endian) > DYNAMIC_MAX {
        return Err(ElfError::Damaged("its dynamic segment is too large".into()));
    }
    let entries = dynamic
        .dynamic(endian, &cache)
        .map_err(|error| damaged(&error))?
        .unwrap_or_default();
    let value = |tag| {
        entries
            .iter()
            .take_while(|entry| entry.d_tag(endian) != elf::DT_NULL)
            .find(|entry| entry.d_tag(endian) == tag)
            .map(|entry| entry.d_val(endian))
    };
    let (Some(soname), Some(strings), Some(size)) = (
        value(elf::DT_SONAME),
        value(elf::DT_STRTAB),
        value(elf::DT_STRSZ),
    ) else {
        return Ok(Elf { soname: None });
    };
    let offset = segments
        .iter()
        .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
        .find_map(|segment| {
            let into = strings.checked_sub(segment.p_vaddr(endian))?;
            (into < segment.p_filesz(endian)).then(|| segment.p_offset(endian).checked_add(into))?
        })
        .ok_or_else(|| ElfError::Damaged("its string table is in no segment".into()))?;
    let end = offset
        .checked_add(size)
        .filter(|end| (&cache).len().is_ok_and(|len| *end <= len))
        .ok_or_else(|| ElfError::Damaged("its string table is cut off".into()))?;
    let name = u32::try_from(soname)
        .ok()
        .and_then(|soname| StringTable::new(&cache, offset, end).get(soname).ok())
        .ok_or_else(|| ElfError::Damaged("its SONAME is outside the string table".into()))?;
    Ok(Elf {
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
    use crate::driver::elf_fixture::library;

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
        let mut narrow = library(Some("libcuda.so.1"));
        narrow[4] = 1;
        assert_eq!(read_bytes(&narrow), Err(ElfError::NotElf64));
        let mut foreign = library(Some("libcuda.so.1"));
        foreign[18..20].copy_from_slice(&21_u16.to_le_bytes());
        assert_eq!(read_bytes(&foreign), Err(ElfError::Machine(21)));
        assert_eq!(read_bytes(b"#!/bin/sh\n"), Err(ElfError::NotElf64));
        assert_eq!(read_bytes(b""), Err(ElfError::NotElf64));
    }

    #[test]
    fn this_very_program_can_be_read() {
        let file = File::open("/proc/self/exe").unwrap();
        assert!(read(&file).is_ok());
    }

    proptest! {
        #[test]
        fn a_torn_or_scribbled_file_never_panics(
            cut in 0_usize..600,
            scribbles in prop::collection::vec((0_usize..600, any::<u8>()), 0..8),
        ) {
            let mut bytes = library(Some("libcuda.so.1"));
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
