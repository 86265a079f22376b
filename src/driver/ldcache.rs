//! The dynamic loader's cache (`/etc/ld.so.cache`): which library lies in which directory.
//!
//! Owns the format, as glibc writes it since 2.2: an optional table in the format of libc5, then
//! the one that counts, behind the text `glibc-ld.so.cache1.1`. The cache of a root is that root's
//! own, whatever wrote it; every number in it is checked before it is followed.

use std::path::PathBuf;

const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
/// Magic with its padding, then the count.
const OLD_HEADER: usize = 16;
const OLD_ENTRY: usize = 12;
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// Magic, count, length of the strings, flags and padding, offset of extensions, three unused words.
const HEADER: usize = 48;
const ENTRY: usize = 24;
/// Low byte of an entry's flags for an ELF library of libc 6.
const ELF_LIBC6: u32 = 3;
/// Real caches have some thousand.
const MOST_ENTRIES: usize = 1 << 18;

/// One library of the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEntry {
    /// What programs ask for, such as `libcuda.so.1`.
    pub name: String,
    /// Where it is, absolute inside the root that the cache belongs to.
    pub path: PathBuf,
}

/// The bytes are no cache.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// The magic text is not where it has to be.
    #[error("no loader cache of the format glibc-ld.so.cache1.1")]
    Magic,
    /// It ends before its table does.
    #[error("its table has {entries} entries, and the file ends before")]
    Cut {
        /// As the header says.
        entries: u32,
    },
}

/// Reads a cache. Entries of other kinds, with a relative path, or whose text is outside the file or
/// no UTF-8 are skipped.
pub fn parse(bytes: &[u8]) -> Result<Vec<CacheEntry>, CacheError> {
    let cache = new_table(bytes)?;
    let entries = word(cache, MAGIC.len()).ok_or(CacheError::Magic)?;
    let cut = CacheError::Cut { entries };
    let count = usize::try_from(entries).map_err(|_| cut.clone())?;
    if count > MOST_ENTRIES {
        return Err(cut);
    }
    let table = cache.get(HEADER..HEADER + count * ENTRY).ok_or(cut)?;
    Ok(table
        .chunks_exact(ENTRY)
        .filter_map(|entry| {
            if word(entry, 0)? & 0xff != ELF_LIBC6 {
                return None;
            }
            let path = PathBuf::from(text(cache, word(entry, 8)?)?);
            let name = text(cache, word(entry, 4)?)?.to_owned();
            path.is_absolute().then_some(CacheEntry { name, path })
        })
        .collect())
}

/// Offsets of text count from here.
fn new_table(bytes: &[u8]) -> Result<&[u8], CacheError> {
    let start = if bytes.starts_with(OLD_MAGIC) {
        let count = word(bytes, OLD_HEADER - 4).ok_or(CacheError::Magic)?;
        usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(OLD_ENTRY))
            .and_then(|size| size.checked_add(OLD_HEADER))
            .and_then(|end| end.checked_next_multiple_of(8))
            .ok_or(CacheError::Magic)?
    } else {
        0
    };
    let table = bytes.get(start..).ok_or(CacheError::Magic)?;
    if !table.starts_with(MAGIC) {
        return Err(CacheError::Magic);
    }
    Ok(table)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn text(cache: &[u8], at: u32) -> Option<&str> {
    let rest = cache.get(usize::try_from(at).ok()?..)?;
    // A path is never longer than the kernel's PATH_MAX.
    let end = rest.iter().take(4096).position(|byte| *byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

/// A cache for tests.
#[cfg(test)]
pub(crate) fn fixture(entries: &[(&str, &str)], with_old: bool) -> Vec<u8> {
    let mut old = Vec::new();
    if with_old {
        old.extend(OLD_MAGIC);
        old.push(0);
        old.extend(1_u32.to_le_bytes());
        old.extend([0; OLD_ENTRY]);
        old.resize(old.len().next_multiple_of(8), 0);
    }
    let count = entries.len();
    let mut strings = Vec::new();
    let mut table = Vec::new();
    let base = HEADER + count * ENTRY;
    let mut add = |text: &str| {
        let at = u32::try_from(base + strings.len()).unwrap();
        strings.extend(text.bytes());
        strings.push(0);
        at
    };
    for (name, path) in entries {
        table.extend(0x0303_u32.to_le_bytes());
        table.extend(add(name).to_le_bytes());
        table.extend(add(path).to_le_bytes());
        table.extend([0; 12]);
    }
    let mut out = old;
    out.extend(MAGIC);
    out.extend(u32::try_from(count).unwrap().to_le_bytes());
    out.extend(u32::try_from(strings.len()).unwrap().to_le_bytes());
    out.extend([0; 20]);
    out.extend(table);
    out.extend(strings);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn entries_are_read_behind_the_old_table_too() {
        for with_old in [false, true] {
            let bytes = fixture(
                &[
                    ("libcuda.so.1", "/usr/lib/libcuda.so.1"),
                    ("libc.so.6", "relative"),
                ],
                with_old,
            );
            let entries = parse(&bytes).unwrap();
            assert_eq!(entries.len(), 1);
            assert_eq!(entries[0].name, "libcuda.so.1");
            assert_eq!(entries[0].path, PathBuf::from("/usr/lib/libcuda.so.1"));
        }
    }

    #[test]
    fn what_is_no_cache_is_told_so() {
        assert_eq!(parse(b""), Err(CacheError::Magic));
        assert_eq!(
            parse(b"ld.so-1.7.0\0\xff\xff\xff\xff"),
            Err(CacheError::Magic)
        );
        let mut cut = fixture(&[("a", "/a")], false);
        cut[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(parse(&cut), Err(CacheError::Cut { entries: u32::MAX }));
    }

    #[test]
    fn the_cache_of_a_glibc_host_is_read() {
        // Where there is one: a musl host has none.
        if let Ok(bytes) = std::fs::read("/etc/ld.so.cache") {
            let entries = parse(&bytes).unwrap();
            assert!(entries.iter().any(|entry| entry.name == "libc.so.6"));
        }
    }

    proptest! {
        #[test]
        fn scribbled_bytes_never_panic_and_give_absolute_paths_only(
            cut in 0_usize..400,
            scribbles in prop::collection::vec((0_usize..400, any::<u8>()), 0..12),
            with_old: bool,
        ) {
            let mut bytes = fixture(&[("libcuda.so.1", "/l/libcuda.so.1"), ("x", "/y")], with_old);
            for (at, byte) in scribbles {
                if let Some(target) = bytes.get_mut(at) {
                    *target = byte;
                }
            }
            bytes.truncate(cut);
            if let Ok(entries) = parse(&bytes) {
                prop_assert!(entries.iter().all(|entry| entry.path.is_absolute()));
            }
        }
    }
}
