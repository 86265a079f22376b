//! The inventory's second source: what the kernel module shows below `/proc/driver/nvidia`.
//!
//! Works while NVML is broken, for whole GPUs only. It has no NVML index; GPUs are counted in the
//! order of their PCI addresses, as NVML counts them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::survey::{Sighting, Survey, check_minor, clean_name, is_display_only};
use super::{DeviceId, Fault, Gpu, PciAddress, Source};
use crate::driver;

/// What one `information` file says, unchecked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Information {
    model: Option<String>,
    uuid: Option<String>,
    bus: Option<String>,
    minor: Option<String>,
    excluded: Option<String>,
}

impl Information {
    /// Reads `Key: value` lines; unknown keys are skipped, of a repeated key the first counts.
    pub(super) fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let slot = match key.trim() {
                "Model" => &mut found.model,
                "GPU UUID" => &mut found.uuid,
                "Bus Location" => &mut found.bus,
                "Device Minor" => &mut found.minor,
                "GPU Excluded" => &mut found.excluded,
                _ => continue,
            };
            slot.get_or_insert_with(|| value.trim().to_owned());
        }
        found
    }
}

/// The kernel module's version, from the text of `/proc/driver/nvidia/version`.
///
/// The line tells of the proprietary or the open module in different words; the version is its
/// first word that has the form of one.
pub(super) fn parse_version(text: &str) -> Option<&str> {
    text.lines()
        .find(|line| line.starts_with("NVRM version:"))?
        .split_whitespace()
        .find(|word| driver::is_driver_version(word))
}

/// The directory that the module owns.
pub(super) fn dir(proc: &Path) -> PathBuf {
    proc.join("driver/nvidia")
}

/// The running module's version; none without a module or when its file is not understood.
pub(super) fn version(proc: &Path) -> Option<String> {
    let text = fs::read_to_string(dir(proc).join("version")).ok()?;
    parse_version(&text).map(str::to_owned)
}

/// Asks the kernel module. None when it is not loaded; an error, in words, when it lists nothing
/// that can be used.
pub(super) fn survey(proc: &Path) -> Option<Result<Survey, String>> {
    let root = dir(proc);
    if !root.is_dir() {
        return None;
    }
    let Some(driver_version) = version(proc) else {
        return Some(Err(format!(
            "{} tells no driver version",
            root.join("version").display()
        )));
    };
    let gpus = root.join("gpus");
    let listing = match fs::read_dir(&gpus).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
        Ok(listing) => listing,
        Err(error) => return Some(Err(format!("can't list {}: {error}", gpus.display()))),
    };
    let mut addresses: Vec<_> = listing
        .iter()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .map(|name| (PciAddress::parse(&name), name))
        .collect();
    addresses.sort();
    let gpus = addresses
        .into_iter()
        .zip(0..)
        .filter_map(|((_, name), index)| {
            let file = gpus.join(&name).join("information");
            let sighting = fs::read_to_string(&file)
                .map_err(|error| format!("can't read {}: {error}", file.display()))
                .and_then(|text| sight(&Information::parse(&text), index))
                .and_then(|sighting| without_mig(proc, sighting));
            sighting
                .map_err(|reason| Fault {
                    gpu: format!("{index} ({})", clean_name(&name)),
                    reason,
                })
                .transpose()
        })
        .collect();
    Some(Ok(Survey {
        source: Source::Procfs,
        driver_version,
        gpus,
    }))
}

/// How the kernel module contradicts what is believed of a GPU; none when it does not, or is silent.
///
/// Costs one small file, where asking NVML can take seconds: after a reload of the driver GPUs may have
/// exchanged their minors, and the nodes, which stay, tell nobody.
pub fn contradiction(proc: &Path, gpu: &Gpu) -> Option<String> {
    let directory = dir(proc).join("gpus").join(&gpu.pci);
    let text = fs::read_to_string(directory.join("information")).ok()?;
    let now = Information::parse(&text);
    let minor: Option<u32> = now.minor.and_then(|minor| minor.parse().ok());
    // Not known before the GPU is initialised.
    let uuid = now.uuid.and_then(|uuid| DeviceId::parse(&uuid).ok());
    if let Some(minor) = minor.filter(|minor| *minor != gpu.minor) {
        return Some(format!(
            "its GPU {} is /dev/nvidia{minor} now, and no longer /dev/nvidia{}",
            gpu.id, gpu.minor
        ));
    }
    let uuid = uuid.filter(|uuid| *uuid != gpu.id)?;
    Some(format!(
        "at {}, where its GPU {} was, there is {uuid} now",
        gpu.pci, gpu.id
    ))
}

/// One GPU; none when it is a mere display adapter.
pub(super) fn sight(info: &Information, index: u32) -> Result<Option<Sighting>, String> {
    let name = clean_name(info.model.as_deref().unwrap_or("unknown GPU"));
    if is_display_only(&name) {
        return Ok(None);
    }
    if info.excluded.as_deref().is_some_and(|text| text != "No") {
        return Err("the driver excludes it (module option NVreg_ExcludedGpus)".into());
    }
    let uuid = info.uuid.as_deref().unwrap_or_default();
    let id = DeviceId::parse(uuid)
        .ok()
        .filter(|id| id.as_str().starts_with("GPU-") && id.as_str() == uuid)
        .ok_or_else(|| {
            format!(
                "the kernel module knows no UUID of it (`{}`): it is not initialised; nvidia-persistenced or one nvidia-smi call does that",
                clean_name(uuid)
            )
        })?;
    let minor = info.minor.as_deref().unwrap_or_default();
    let minor = minor
        .parse()
        .map_err(|_| format!("`{}` is no device minor", clean_name(minor)))
        .and_then(check_minor)?;
    let bus = info.bus.as_deref().unwrap_or_default();
    let pci =
        PciAddress::parse(bus).ok_or_else(|| format!("`{}` is no PCI address", clean_name(bus)))?;
    Ok(Some(Sighting {
        index,
        id,
        minor,
        name,
        pci: Some(pci),
        mig: None,
    }))
}

/// A GPU with MIG instances shows them below `capabilities`; the whole GPU is then not to be had.
fn without_mig(proc: &Path, sighting: Option<Sighting>) -> Result<Option<Sighting>, String> {
    let Some(sighting) = sighting else {
        return Ok(None);
    };
    let mig = dir(proc).join(format!("capabilities/gpu{}/mig", sighting.minor));
    match fs::read_dir(&mig).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
        Ok(entries)
            if entries
                .iter()
                .any(|entry| entry.file_name().as_encoded_bytes().starts_with(b"gi")) =>
        {
            Err("MIG is enabled on it, and only NVML tells the UUIDs of MIG devices".into())
        }
        Ok(_) => Ok(Some(sighting)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(sighting)),
        Err(error) => Err(format!("can't list {}: {error}", mig.display())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A100: &str = "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 123\n\
        GPU UUID: \t GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c\nVideo BIOS: \t 92.00.19.00.01\n\
        Bus Type: \t PCIe\nDMA Size: \t 47 bits\nDMA Mask: \t 0x7fffffffffff\n\
        Bus Location: \t 0000:07:00.0\nDevice Minor: \t 3\nGPU Firmware: \t 570.133.20\n\
        GPU Excluded:\t No\n";

    #[test]
    fn the_kernel_module_contradicts_only_what_it_knows_otherwise() {
        let proc = tempfile::tempdir().unwrap();
        let gpu = Gpu {
            id: DeviceId::parse("GPU-a").unwrap(),
            index: 0,
            minor: 1,
            name: String::new(),
            pci: "0000:3b:00.0".into(),
            nodes: Vec::new(),
        };
        assert_eq!(contradiction(proc.path(), &gpu), None, "no module");
        let directory = dir(proc.path()).join("gpus/0000:3b:00.0");
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("information");
        for (text, contradicts) in [
            ("GPU UUID: GPU-a\nDevice Minor: 1\n", false),
            ("GPU UUID: GPU-????????-????\nDevice Minor: 1\n", false),
            ("", false),
            ("GPU UUID: GPU-a\nDevice Minor: 0\n", true),
            ("GPU UUID: GPU-????????-????\nDevice Minor: 0\n", true),
            ("GPU UUID: GPU-b\nDevice Minor: 1\n", true),
        ] {
            fs::write(&file, text).unwrap();
            let found = contradiction(proc.path(), &gpu);
            assert_eq!(found.is_some(), contradicts, "{text:?}: {found:?}");
        }
        let elsewhere = Gpu {
            pci: String::new(),
            ..gpu
        };
        assert_eq!(contradiction(proc.path(), &elsewhere), None);
    }

    #[test]
    fn an_information_file_becomes_a_sighting() {
        let sighting = sight(&Information::parse(A100), 1).unwrap().unwrap();
        assert_eq!(
            sighting.id.as_str(),
            "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"
        );
        assert_eq!((sighting.index, sighting.minor), (1, 3));
        assert_eq!(sighting.name, "NVIDIA A100-SXM4-40GB");
        assert_eq!(sighting.pci.unwrap().to_string(), "0000:07:00.0");
    }

    #[test]
    fn each_flaw_is_told_in_words() {
        for (from, to, words) in [
            (
                "GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c",
                "GPU-????????-????",
                "not initialised",
            ),
            ("Excluded:\t No", "Excluded:\t Yes", "excludes it"),
            ("Minor: \t 3", "Minor: \t 255", "253"),
            ("Minor: \t 3", "Minor: \t -1", "no device minor"),
            ("0000:07:00.0", "../../x", "no PCI address"),
        ] {
            let text = A100.replace(from, to);
            assert_ne!(text, A100);
            let reason = sight(&Information::parse(&text), 0).unwrap_err();
            assert!(reason.contains(words), "{reason}");
        }
    }

    #[test]
    fn both_modules_tell_their_version() {
        for text in [
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\nGCC version:  gcc version 12.2.0\n",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.54.03  Release Build  (dvs-builder@U16)\n",
        ] {
            assert_eq!(parse_version(text), Some("535.54.03"));
        }
        assert_eq!(parse_version("GCC version:  gcc version 12.2.0\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).*") {
            let _ = sight(&Information::parse(&text), 0);
            let _ = parse_version(&text);
        }
    }
}
