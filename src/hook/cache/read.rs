//! Bytes → [`Cache`].

use super::{
    Cache, CacheError, EXTENSION_MAGIC, Entry, MAX_BYTES, MAX_STRING, NEW_ENTRY, NEW_HEADER,
    NEW_MAGIC, OLD_ENTRY, OLD_HEADER, OLD_MAGIC, TAG_GENERATOR, TAG_HWCAPS,
};

impl<'a> Cache<'a> {
    /// Reads a cache of either format. Of both in one file, the newer counts, as for the loader.
    ///
    /// Single entries that point nowhere are left out, as the loader passes over them.
    pub(crate) fn parse(file: &'a [u8]) -> Result<Self, CacheError> {
        if file.len() > MAX_BYTES {
            return Err(CacheError::TooLarge);
        }
        if file.starts_with(NEW_MAGIC) {
            return parse_new(file, 0);
        }
        if !file.starts_with(OLD_MAGIC) {
            return Err(CacheError::Magic);
        }
        let count = u32_at(file, OLD_MAGIC.len() + 1)? as usize;
        let strings = count
            .checked_mul(OLD_ENTRY)
            .and_then(|size| size.checked_add(OLD_HEADER))
            .filter(|end| *end <= file.len())
            .ok_or(CacheError::Truncated)?;
        let newer = strings.next_multiple_of(8);
        if file
            .get(newer..)
            .is_some_and(|rest| rest.starts_with(NEW_MAGIC))
        {
            return parse_new(file, newer);
        }
        let mut budget = Budget(MAX_BYTES);
        let mut cache = Self::default();
        for at in (OLD_HEADER..strings).step_by(OLD_ENTRY) {
            let key = budget.string(file, strings, u32_at(file, at + 4)?)?;
            let value = budget.string(file, strings, u32_at(file, at + 8)?)?;
            if let (Some(key), Some(value)) = (key, value) {
                cache.entries.push(Entry {
                    flags: u32_at(file, at)?,
                    key,
                    value,
                    os_version: 0,
                    hwcap: 0,
                });
            }
        }
        Ok(cache)
    }
}

/// The newer format at offset `base` of the file; its string offsets count from there.
fn parse_new(file: &[u8], base: usize) -> Result<Cache<'_>, CacheError> {
    let header = file
        .get(base..base + NEW_HEADER)
        .ok_or(CacheError::Truncated)?;
    // 0 stands for a writer which did not say, 2 for little-endian; the rest no loader here takes.
    if !matches!(header[28] & 3, 0 | 2) {
        return Err(CacheError::BigEndian);
    }
    let count = u32_at(header, 20)? as usize;
    let start = base + NEW_HEADER;
    let end = count
        .checked_mul(NEW_ENTRY)
        .and_then(|size| size.checked_add(start))
        .filter(|end| *end <= file.len())
        .ok_or(CacheError::Truncated)?;
    let mut budget = Budget(MAX_BYTES);
    let mut cache = Cache::default();
    for at in (start..end).step_by(NEW_ENTRY) {
        let key = budget.string(file, base, u32_at(file, at + 4)?)?;
        let value = budget.string(file, base, u32_at(file, at + 8)?)?;
        if let (Some(key), Some(value)) = (key, value) {
            let hwcap = u64::from(u32_at(file, at + 16)?) | u64::from(u32_at(file, at + 20)?) << 32;
            cache.entries.push(Entry {
                flags: u32_at(file, at)?,
                key,
                value,
                os_version: u32_at(file, at + 12)?,
                hwcap,
            });
        }
    }
    extension(file, u32_at(header, 32)?, &mut cache, &mut budget)?;
    Ok(cache)
}

/// The extension area; its offsets count from the start of the file.
fn extension<'a>(
    file: &'a [u8],
    offset: u32,
    cache: &mut Cache<'a>,
    budget: &mut Budget,
) -> Result<(), CacheError> {
    if offset == 0 {
        return Ok(());
    }
    let at = offset as usize;
    if u32_at(file, at)? != EXTENSION_MAGIC {
        return Err(CacheError::Truncated);
    }
    let count = u32_at(file, at + 4)? as usize;
    for index in 0..count {
        let section = at + 8 + index * 16;
        let start = u32_at(file, section + 8)? as usize;
        let size = u32_at(file, section + 12)? as usize;
        let content = start
            .checked_add(size)
            .and_then(|end| file.get(start..end))
            .ok_or(CacheError::Truncated)?;
        match u32_at(file, section)? {
            TAG_GENERATOR if content.len() <= MAX_STRING => cache.generator = Some(content),
            TAG_HWCAPS => {
                cache.hwcaps.clear();
                for name in (0..content.len()).step_by(4) {
                    let name = budget.string(file, 0, u32_at(content, name)?)?;
                    let name = name.ok_or(CacheError::Truncated)?;
                    cache.hwcaps.push(name);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, CacheError> {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map(|word| u32::from_le_bytes(*word))
        .ok_or(CacheError::Truncated)
}

/// Bytes of strings that may still be looked at. Many entries may share one long string, so a small
/// file may stand for a huge one.
struct Budget(usize);

impl Budget {
    /// A string of the file, without its terminator; none when it does not end in time.
    fn string<'a>(
        &mut self,
        file: &'a [u8],
        base: usize,
        offset: u32,
    ) -> Result<Option<&'a [u8]>, CacheError> {
        let Some(rest) = file.get(base.saturating_add(offset as usize)..) else {
            return Ok(None);
        };
        let window = rest.get(..MAX_STRING).unwrap_or(rest);
        let len = window.iter().position(|byte| *byte == 0);
        self.0 = self
            .0
            .checked_sub(len.unwrap_or(window.len()) + 1)
            .ok_or(CacheError::TooLarge)?;
        Ok(len.and_then(|len| rest.get(..len)))
    }
}
