//! PCI addresses: NVML and procfs write them in several widths, sysfs in one.

use std::fmt;

/// The address of a PCI function. Its text form is the one of sysfs: `0000:3b:00.0`, and a domain
/// of `0x10000` and above unpadded (`10000:01:00.0`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// PCI domain (segment); 32 bits wide behind some bridges.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Slot, below 32.
    pub device: u8,
    /// Function, below 8.
    pub function: u8,
}

impl PciAddress {
    /// Reads `domain:bus:device.function`, hexadecimal in either case, the domain in one to eight
    /// digits. None for anything else, so that the text can't name another place in sysfs.
    pub fn parse(text: &str) -> Option<Self> {
        let (domain, rest) = text.split_once(':')?;
        let (bus, rest) = rest.split_once(':')?;
        let (device, function) = rest.split_once('.')?;
        let address = Self {
            domain: hex(domain, 8)?,
            bus: u8::try_from(hex(bus, 2)?).ok()?,
            device: u8::try_from(hex(device, 2)?).ok()?,
            function: u8::try_from(hex(function, 1)?).ok()?,
        };
        (address.device < 32 && address.function < 8).then_some(address)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

fn hex(text: &str, digits: usize) -> Option<u32> {
    ((1..=digits).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .then(|| u32::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_width_becomes_the_spelling_of_sysfs() {
        for (text, sysfs) in [
            ("00000000:3B:00.0", "0000:3b:00.0"),
            ("0000:07:00.0", "0000:07:00.0"),
            ("0002:01:1F.7", "0002:01:1f.7"),
            ("00010000:01:00.0", "10000:01:00.0"),
            ("ABCDEF01:01:00.0", "abcdef01:01:00.0"),
        ] {
            assert_eq!(PciAddress::parse(text).unwrap().to_string(), sysfs);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "3b:00.0",
            "0000:3b:00",
            "0000:3b:20.0",
            "0000:3b:00.8",
            "0000:13b:00.0",
            "000000000:3b:00.0",
            "+000:3b:00.0",
            "../..:3b:00.0",
            "0000:3b:00.0/..",
        ] {
            assert_eq!(PciAddress::parse(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn the_text_form_reads_back(domain: u32, bus: u8, device in 0_u8..32, function in 0_u8..8) {
            let address = PciAddress { domain, bus, device, function };
            prop_assert_eq!(PciAddress::parse(&address.to_string()), Some(address));
        }

        #[test]
        fn no_text_panics_or_escapes(text in ".*") {
            if let Some(address) = PciAddress::parse(&text) {
                prop_assert!(!address.to_string().contains('/'));
            }
        }
    }
}
