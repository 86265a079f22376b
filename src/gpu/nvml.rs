//! The inventory's first source: the driver's own library.
//!
//! Owns the loading of `libnvidia-ml.so.1` and the walk over its GPUs. An error of one GPU becomes
//! that GPU's fault; a symbol that an old driver lacks means "unsupported".
//!
//! Calls block for as long as the driver wants (a GPU without persistence mode is initialised by
//! the first call), so nothing that must answer in time may wait for this module.

use std::path::{Path, PathBuf};

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::survey::{MigSighting, Sighting, Survey, check_minor, clean_name, is_display_only};
use super::{DeviceId, Fault, PciAddress, Source, instance};
use crate::driver;

/// The name under which the loader knows the library.
const LOADER_NAME: &str = "libnvidia-ml.so.1";

/// More GPUs than this are no count but a lie; those beyond minor 253 are left out one by one.
const MOST_GPUS: u32 = 4096;

/// No GPU can be cut into more parts (seven instances of today's, each of seven).
const MOST_MIG: u32 = 64;

/// Which NVML library to load.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NvmlLibrary {
    /// This file and no other.
    pub path: Option<PathBuf>,
    /// Directories to search below the driver root instead of the usual ones
    /// ([`driver::LIBRARY_DIRS`]); absolute, inside the root.
    pub search: Vec<PathBuf>,
}

/// Why NVML gave no survey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Silence {
    /// There is no library. What was looked for, in words.
    NoLibrary(Vec<String>),
    /// There is one, and it does not answer.
    Broken(String),
}

impl NvmlLibrary {
    /// The library to load: a path, or the loader's name when none lies below the root.
    fn locate(&self, driver_root: &Path) -> Result<PathBuf, Silence> {
        match &self.path {
            Some(path) if path.exists() => Ok(path.clone()),
            Some(path) => Err(Silence::NoLibrary(vec![format!(
                "the NVML library {}, as it was named",
                path.display()
            )])),
            None => Ok(driver::nvml_library(driver_root, &self.search)
                .unwrap_or_else(|| LOADER_NAME.into())),
        }
    }

    fn searched(&self, driver_root: &Path) -> Vec<String> {
        let dirs = if self.search.is_empty() {
            driver::LIBRARY_DIRS.join(", ")
        } else {
            let dirs: Vec<_> = self
                .search
                .iter()
                .map(|d| d.display().to_string())
                .collect();
            dirs.join(", ")
        };
        vec![
            format!(
                "{LOADER_NAME} below the driver root {} in {dirs}",
                driver_root.display()
            ),
            format!("{LOADER_NAME} where the dynamic loader looks"),
        ]
    }
}

/// A session that can be ended even if the library lacks `nvmlShutdown`, which the wrapper's own
/// `Drop` takes for granted.
struct Session(Option<Nvml>);

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(nvml) = self.0.take()
            && nvml.lib().nvmlShutdown.is_err()
        {
            std::mem::forget(nvml);
        }
    }
}

/// Asks NVML. `version_hint` is the kernel module's version, for a library that won't tell its own.
pub(super) fn survey(
    driver_root: &Path,
    library: &NvmlLibrary,
    version_hint: Option<&str>,
) -> Result<Survey, Silence> {
    let path = library.locate(driver_root)?;
    let nvml = Nvml::builder()
        .lib_path(path.as_os_str())
        .init()
        .map_err(|error| match error {
            NvmlError::LibloadingError(error) if is_absent(&error.to_string()) => {
                Silence::NoLibrary(library.searched(driver_root))
            }
            error => Silence::Broken(format!("NVML ({}) does not start: {error}", path.display())),
        })?;
    let session = Session(Some(nvml));
    let Some(nvml) = session.0.as_ref() else {
        return Err(Silence::Broken("NVML is gone".into()));
    };
    let broken =
        |what: &str| Silence::Broken(format!("NVML ({}) does not answer: {what}", path.display()));
    let driver_version = match nvml.sys_driver_version() {
        Ok(version) if driver::is_driver_version(&version) => version,
        other => {
            let said = match other {
                Ok(version) => format!("driver version `{}`", clean_name(&version)),
                Err(error) => format!("driver version: {error}"),
            };
            let hint = version_hint.ok_or_else(|| broken(&said))?;
            tracing::warn!(%said, hint, "NVML tells no driver version; the kernel module's is used");
            hint.to_owned()
        }
    };
    let count = nvml
        .device_count()
        .map_err(|error| broken(&format!("count of GPUs: {error}")))?;
    if count > MOST_GPUS {
        return Err(broken(&format!("{count} GPUs can't be")));
    }
    let gpus = (0..count)
        .filter_map(|index| sight(nvml, index).transpose())
        .collect();
    Ok(Survey {
        source: Source::Nvml,
        driver_version,
        gpus,
    })
}

/// Whether the loader says that it has no such library, rather than that it can't use it (glibc's
/// words; the locale is never set in this process).
fn is_absent(error: &str) -> bool {
    error.starts_with(&format!("{LOADER_NAME}: cannot open shared object file"))
}

/// One GPU; none when it is a mere display adapter.
fn sight(nvml: &Nvml, index: u32) -> Result<Option<Sighting>, Fault> {
    let mut label = index.to_string();
    let sighting = nvml
        .device_by_index(index)
        .map_err(|error| format!("NVML gives no handle: {error}"))
        .and_then(|device| describe(nvml, &device, index, &mut label));
    sighting.map_err(|reason| Fault { gpu: label, reason })
}

fn describe(
    nvml: &Nvml,
    device: &Device<'_>,
    index: u32,
    label: &mut String,
) -> Result<Option<Sighting>, String> {
    let failed = |what: &str, error: &NvmlError| format!("NVML does not tell its {what}: {error}");
    // The address first: it names the GPU best in the messages that follow.
    let pci = match device.pci_info() {
        Ok(info) => Some(
            PciAddress::parse(&info.bus_id)
                .ok_or_else(|| format!("`{}` is no PCI address", clean_name(&info.bus_id)))?,
        ),
        Err(error) if is_unsupported(&error) => {
            tracing::warn!(index, %error, "NVML tells no PCI address; its DRM nodes are left out");
            None
        }
        Err(error) => return Err(failed("PCI address", &error)),
    };
    if let Some(pci) = pci {
        *label = format!("{index} ({pci})");
    }
    let name = match device.name() {
        Ok(name) => clean_name(&name),
        Err(error) if is_unsupported(&error) || matches!(error, NvmlError::Utf8Error(_)) => {
            "unknown GPU".into()
        }
        Err(error) => return Err(failed("name", &error)),
    };
    if is_display_only(&name) {
        tracing::debug!(index, name, "a display adapter is skipped");
        return Ok(None);
    }
    let uuid = device.uuid().map_err(|error| failed("UUID", &error))?;
    let id = DeviceId::parse(&uuid).map_err(|error| error.to_string())?;
    if !id.as_str().starts_with("GPU-") || id.as_str() != uuid {
        return Err(format!("`{}` is no UUID of a whole GPU", clean_name(&uuid)));
    }
    let has_mig = match device.mig_mode() {
        Ok(mode) if mode.current == 0 => false,
        Ok(mode) if mode.current == 1 => true,
        Ok(mode) => {
            return Err(format!(
                "its MIG mode is {}, which is unknown",
                mode.current
            ));
        }
        Err(error) if is_unsupported(&error) => false,
        Err(error) => return Err(failed("MIG mode", &error)),
    };
    let minor = device
        .minor_number()
        .map_err(|error| failed("minor number", &error))?;
    Ok(Some(Sighting {
        index,
        id,
        minor: check_minor(minor)?,
        name,
        pci,
        mig: has_mig
            .then(|| mig_devices(nvml, device, index))
            .transpose()?,
    }))
}

/// The MIG devices of a GPU. Slots may be empty; what is wrong with one is that one's fault.
fn mig_devices(
    nvml: &Nvml,
    device: &Device<'_>,
    index: u32,
) -> Result<Vec<Result<MigSighting, Fault>>, String> {
    let slots = device.mig_device_count().map_err(|error| {
        format!("MIG is enabled on it, and NVML does not count its MIG devices: {error}")
    })?;
    if slots > MOST_MIG {
        return Err(format!(
            "MIG is enabled on it, and {slots} MIG devices can't be"
        ));
    }
    let sight = |slot| match device.mig_device_by_index(slot) {
        Ok(mig) => Some(describe_mig(nvml, &mig, slot)),
        Err(NvmlError::NotFound | NvmlError::InvalidArg) => None,
        Err(error) => Some(Err(format!("NVML gives no handle: {error}"))),
    };
    Ok((0..slots)
        .filter_map(|slot| {
            let found = sight(slot)?;
            Some(found.map_err(|reason| Fault {
                gpu: format!("{index}:{slot}"),
                reason,
            }))
        })
        .collect())
}

/// Of a profile nothing is asked but its name, so one that this program doesn't know is as good as
/// any.
fn describe_mig(nvml: &Nvml, mig: &Device<'_>, slot: u32) -> Result<MigSighting, String> {
    let failed = |what: &str, error: &NvmlError| format!("NVML does not tell its {what}: {error}");
    let uuid = mig.uuid().map_err(|error| failed("UUID", &error))?;
    let id = DeviceId::parse(&uuid).map_err(|error| error.to_string())?;
    if !id.is_mig() || id.as_str() != uuid {
        return Err(format!(
            "`{}` is no UUID of a MIG device",
            clean_name(&uuid)
        ));
    }
    Ok(MigSighting {
        slot,
        id,
        name: mig
            .name()
            .map_or_else(|_| "unknown MIG device".into(), |name| clean_name(&name)),
        gi: instance::gpu_instance(nvml, mig).map_err(|error| failed("GPU instance", &error))?,
        ci: instance::compute_instance(nvml, mig)
            .map_err(|error| failed("compute instance", &error))?,
    })
}

fn is_unsupported(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::NotSupported | NvmlError::FunctionNotFound | NvmlError::FailedToLoadSymbol(_)
    )
}
