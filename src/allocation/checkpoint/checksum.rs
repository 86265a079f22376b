//! The kubelet's checksum over its device-manager checkpoint.
//!
//! FNV-1a (32 bits) over the text that Go's reflection printer makes of the data, so it depends on
//! the kubelet's type names: a mismatch means "another kubelet version", not "corrupt".

use std::fmt::{self, Write};

use super::model::{Data, DeviceIds, Entry};

/// The checksum that kubelets since 1.20 write for `data`; `None` for the older layout with flat
/// id lists, whose text form is another one.
pub(super) fn checksum(data: &Data) -> Option<u32> {
    let mut hash = Fnv1a::default();
    data_text(&mut hash, data).ok()?;
    Some(hash.0)
}

fn data_text(out: &mut Fnv1a, data: &Data) -> fmt::Result {
    out.write_str("(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)")?;
    list(out, data.pod_device_entries.as_deref(), entry_text)?;
    out.write_str(" RegisteredDevices:(map[string][]string)")?;
    match &data.registered_devices {
        None => out.write_str("<nil>")?,
        Some(map) => map_text(out, map.iter())?,
    }
    out.write_char('}')
}

fn entry_text(out: &mut Fnv1a, entry: &Entry) -> fmt::Result {
    write!(
        out,
        "{{PodUID:(string){} ContainerName:(string){} ResourceName:(string){} DeviceIDs:(checkpoint.DevicesPerNUMA)",
        entry.pod_uid, entry.container_name, entry.resource_name
    )?;
    match &entry.device_ids {
        DeviceIds::Flat(_) => return Err(fmt::Error),
        DeviceIds::Null => out.write_str("<nil>")?,
        DeviceIds::PerNuma(map) => map_text(out, map.iter())?,
    }
    out.write_str(" AllocResp:([]uint8)")?;
    list(
        out,
        entry.alloc_resp.as_ref().map(|r| r.0.as_slice()),
        |out, byte| write!(out, "{byte}"),
    )?;
    out.write_char('}')
}

fn map_text<'a, K: fmt::Display>(
    out: &mut Fnv1a,
    map: impl Iterator<Item = (K, &'a Option<Vec<String>>)>,
) -> fmt::Result {
    out.write_str("map[")?;
    for (n, (key, ids)) in map.enumerate() {
        if n > 0 {
            out.write_char(' ')?;
        }
        write!(out, "{key}:")?;
        list(out, ids.as_deref(), |out, id| out.write_str(id))?;
    }
    out.write_char(']')
}

fn list<T>(
    out: &mut Fnv1a,
    items: Option<&[T]>,
    each: impl Fn(&mut Fnv1a, &T) -> fmt::Result,
) -> fmt::Result {
    let Some(items) = items else {
        return out.write_str("<nil>");
    };
    out.write_char('[')?;
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            out.write_char(' ')?;
        }
        each(out, item)?;
    }
    out.write_char(']')
}

struct Fnv1a(u32);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0x811c_9dc5)
    }
}

impl Write for Fnv1a {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a_of_32_bits() {
        for (text, expected) in [
            ("", 0x811c_9dc5_u32),
            ("a", 0xe40c_292c),
            ("foobar", 0xbf9c_f968),
        ] {
            let mut hash = Fnv1a::default();
            hash.write_str(text).unwrap();
            assert_eq!(hash.0, expected, "{text:?}");
        }
    }
}
