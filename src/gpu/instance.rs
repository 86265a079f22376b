//! The two numbers of a MIG device that the NVML wrapper has no call for: the ids of its GPU
//! instance and of its compute instance.

#![expect(
    unsafe_code,
    reason = "NVML's functions for instance ids are in the wrapper's raw layer only"
)]

use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};

/// The id of the GPU instance that a MIG device is part of.
pub(super) fn gpu_instance(nvml: &Nvml, device: &Device<'_>) -> Result<u32, NvmlError> {
    let function = nvml_sym(nvml.lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
    let mut id = 0;
    // SAFETY: the library is loaded and initialised for as long as `nvml` lives, and the handle is
    // one that it gave for the same session; `id` is a writable unsigned int, which is all that the
    // function writes.
    nvml_try(unsafe { function(device.handle(), &raw mut id) })?;
    Ok(id)
}

/// The id of the compute instance that a MIG device is, within its GPU instance.
pub(super) fn compute_instance(nvml: &Nvml, device: &Device<'_>) -> Result<u32, NvmlError> {
    let function = nvml_sym(nvml.lib().nvmlDeviceGetComputeInstanceId.as_ref())?;
    let mut id = 0;
    // SAFETY: as in `gpu_instance`.
    nvml_try(unsafe { function(device.handle(), &raw mut id) })?;
    Ok(id)
}
