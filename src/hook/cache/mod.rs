//! glibc's `ld.so.cache` as bytes: read, add libraries, write. Pure; opens no file.
//!
//! Owns the two binary formats (`ld.so-1.7.0` and `glibc-ld.so.cache1.1`, alone or one after the
//! other) and the order in which the loader's binary search expects entries. Runs no `ldconfig`,
//! and looks at no library.
//!
//! Invariants: what it writes is the newer format alone, which every loader since glibc 2.2 reads;
//! entries that it did not add keep their flags, hardware capabilities and relative order; any
//! input ends in a cache or an error, within a bound on time and memory.

mod order;
mod read;
#[cfg(test)]
mod tests;
mod write;

use order::library_order;

/// The older header, up to its number of entries.
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
/// Size of the older header, padding included.
const OLD_HEADER: usize = 16;
/// Size of an entry of the older format: flags, key, value.
const OLD_ENTRY: usize = 12;
/// The newer header and its version.
const NEW_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// Size of the newer header.
const NEW_HEADER: usize = 48;
/// Size of an entry of the newer format: flags, key, value, OS version, hardware capabilities.
const NEW_ENTRY: usize = 24;
/// Magic of the extension area behind the strings (glibc 2.33 and newer).
const EXTENSION_MAGIC: u32 = 0xeaa4_2174;
/// Extension section with the name and version of the program that wrote the cache.
const TAG_GENERATOR: u32 = 0;
/// Extension section with the names of the `glibc-hwcaps` directories that entries refer to.
const TAG_HWCAPS: u32 = 1;

/// A cache as large as this belongs to no image; ten thousand libraries need one megabyte.
pub(crate) const MAX_BYTES: usize = 16 << 20;
/// No path of the kernel is longer.
const MAX_STRING: usize = 4096;

/// One line of `ldconfig -p`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// Kind of library and architecture; the loader compares it with its own.
    pub(crate) flags: u32,
    /// The name that a program asks for.
    pub(crate) key: &'a [u8],
    /// The file, absolute.
    pub(crate) value: &'a [u8],
    /// Unused since glibc 2.36; kept.
    pub(crate) os_version: u32,
    /// Capabilities that the processor needs, or an index into [`Cache::hwcaps`].
    pub(crate) hwcap: u64,
}

/// A whole cache.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Cache<'a> {
    entries: Vec<Entry<'a>>,
    hwcaps: Vec<&'a [u8]>,
    generator: Option<&'a [u8]>,
}

/// The bytes are no cache that a loader of this machine would use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CacheError {
    /// Neither header.
    #[error("it is no ld.so.cache")]
    Magic,
    /// Written for a machine of the other byte order.
    #[error("it is for a big-endian machine")]
    BigEndian,
    /// The header speaks of more than there is.
    #[error("it is cut off")]
    Truncated,
    /// More than a real image has.
    #[error("it is larger than any real one")]
    TooLarge,
}

impl<'a> Cache<'a> {
    /// The entries, in the order of the file.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> &[Entry<'a>] {
        &self.entries
    }

    /// Adds a library without hardware requirements, in place of all of the same name and kind: of
    /// two driver versions only the running one works, however specific the other's directory is.
    pub(crate) fn add(&mut self, flags: u32, key: &'a [u8], value: &'a [u8]) {
        self.entries
            .retain(|entry| entry.key != key || entry.flags != flags);
        let at = self
            .entries
            .partition_point(|entry| library_order(entry.key, key).is_gt());
        let entry = Entry {
            flags,
            key,
            value,
            os_version: 0,
            hwcap: 0,
        };
        self.entries.insert(at, entry);
    }
}
