//! [`Cache`] → bytes of the newer format.

use super::{
    Cache, CacheError, EXTENSION_MAGIC, NEW_ENTRY, NEW_HEADER, NEW_MAGIC, TAG_GENERATOR, TAG_HWCAPS,
};

/// The header's note that the numbers are little-endian.
const LITTLE_ENDIAN: u8 = 2;

impl Cache<'_> {
    /// The file. Equal caches give equal bytes.
    pub(crate) fn emit(&self) -> Result<Vec<u8>, CacheError> {
        let strings_at = NEW_HEADER + self.entries.len() * NEW_ENTRY;
        let mut strings = Vec::new();
        let mut entries = Vec::with_capacity(strings_at);
        let mut intern = |text: &[u8]| {
            let at = number(strings_at + strings.len());
            strings.extend_from_slice(text);
            strings.push(0);
            at
        };
        for entry in &self.entries {
            let value = intern(entry.value)?;
            // A path usually ends in the name that is asked for.
            let key = if entry.value.ends_with(entry.key) {
                value + number(entry.value.len() - entry.key.len())?
            } else {
                intern(entry.key)?
            };
            for word in [entry.flags, key, value, entry.os_version] {
                entries.extend(word.to_le_bytes());
            }
            entries.extend(entry.hwcap.to_le_bytes());
        }
        let hwcaps = self
            .hwcaps
            .iter()
            .map(|name| intern(name))
            .collect::<Result<Vec<_>, _>>()?;

        let mut file = Vec::with_capacity(strings_at + strings.len() + 256);
        file.extend_from_slice(NEW_MAGIC);
        file.extend(number(self.entries.len())?.to_le_bytes());
        file.extend(number(strings.len())?.to_le_bytes());
        file.extend([LITTLE_ENDIAN, 0, 0, 0]);
        let extension_at = (strings_at + strings.len()).next_multiple_of(4);
        let sections = usize::from(self.generator.is_some()) + usize::from(!hwcaps.is_empty());
        let extension = if sections == 0 { 0 } else { extension_at };
        file.extend(number(extension)?.to_le_bytes());
        file.extend([0; 12]);
        file.extend(entries);
        file.extend(strings);
        if sections != 0 {
            file.resize(extension_at, 0);
            self.extension(&mut file, sections, &hwcaps)?;
        }
        Ok(file)
    }

    fn extension(
        &self,
        file: &mut Vec<u8>,
        sections: usize,
        hwcaps: &[u32],
    ) -> Result<(), CacheError> {
        file.extend(EXTENSION_MAGIC.to_le_bytes());
        file.extend(number(sections)?.to_le_bytes());
        // Numbers first: they must be aligned, the text need not.
        let mut at = file.len() + sections * 16;
        let numbers = (!hwcaps.is_empty()).then_some((TAG_HWCAPS, hwcaps.len() * 4));
        let text = self.generator.map(|text| (TAG_GENERATOR, text.len()));
        for (tag, len) in numbers.into_iter().chain(text) {
            for word in [tag, 0, number(at)?, number(len)?] {
                file.extend(word.to_le_bytes());
            }
            at += len;
        }
        for offset in hwcaps {
            file.extend(offset.to_le_bytes());
        }
        file.extend_from_slice(self.generator.unwrap_or_default());
        Ok(())
    }
}

/// Offsets have 32 bits in the file.
fn number(value: usize) -> Result<u32, CacheError> {
    u32::try_from(value).map_err(|_| CacheError::TooLarge)
}
