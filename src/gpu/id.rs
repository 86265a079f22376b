//! Device ids as NVML and the kubelet write them.

use std::fmt;

/// The id of a GPU (`GPU-<uuid>`) or of a MIG device (`MIG-<uuid>`), never of a replica of one.
///
/// Text form as NVML returns it; compared byte for byte.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(String);

/// The text is no GPU or MIG id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no GPU or MIG device id")]
pub struct InvalidDeviceId(pub String);

impl DeviceId {
    /// Reads an id as it stands in kubelet records: a replica suffix (`::3`, time-slicing and MPS)
    /// is cut at the first `::`, since replicas share the one device.
    ///
    /// The rest must be `GPU-` or `MIG-` and then at most 128 of `[0-9a-zA-Z-]`; the slash form
    /// of drivers before 470 is refused, as it can't be a CDI device name either.
    pub fn parse(text: &str) -> Result<Self, InvalidDeviceId> {
        let id = text.split_once("::").map_or(text, |(id, _)| id);
        let tail = id.strip_prefix("GPU-").or_else(|| id.strip_prefix("MIG-"));
        match tail {
            Some(tail)
                if (1..=128).contains(&tail.len())
                    && tail.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                    && !tail.ends_with('-') =>
            {
                Ok(Self(id.to_owned()))
            }
            _ => Err(InvalidDeviceId(text.chars().take(160).collect())),
        }
    }

    /// Whether the kubelet's text names a replica (time-slicing, MPS), so that several containers
    /// may rightly hold the device at once.
    pub fn is_replica(text: &str) -> bool {
        text.contains("::")
    }

    /// Whether it names a MIG device.
    pub fn is_mig(&self) -> bool {
        self.0.starts_with("MIG-")
    }

    /// The text form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelet_ids_parse_and_replicas_share_their_gpu() {
        let plain = DeviceId::parse("GPU-12345678-1234-1234-1234-123456780000").unwrap();
        let replica = DeviceId::parse("GPU-12345678-1234-1234-1234-123456780000::4").unwrap();
        assert_eq!(plain, replica);
        assert!(DeviceId::is_replica("GPU-1::4"));
        assert!(DeviceId::parse("MIG-0f0f").is_ok());
    }

    #[test]
    fn what_cannot_be_a_cdi_device_name_is_refused() {
        for text in [
            "",
            "GPU-",
            "0",
            "all",
            "MIG-GPU-aa/1/0",
            "GPU-é",
            "GPU-a b",
            "GPU-a\n",
            "GPU-a-",
            "::1",
        ] {
            assert!(DeviceId::parse(text).is_err(), "{text:?}");
        }
        let long = format!("GPU-{}", "a".repeat(200));
        assert!(DeviceId::parse(&long).is_err());
    }
}
