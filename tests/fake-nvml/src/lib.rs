//! A `libnvidia-ml.so.1` for machines without a GPU, driven by a JSON file.
//!
//! The file is named by the environment variable `FAKE_NVML_TOPOLOGY` and read again at each
//! `nvmlInit*` and each `nvmlDeviceGetCount_v2`, so a test may change it while a program runs.
//! Without the variable, init says `DRIVER_NOT_LOADED`; with a file that can't be read or parsed,
//! it says `UNKNOWN` and writes the reason to stderr.
//!
//! `cargo build -p fake-nvml` makes `libnvidia_ml.so` in the target directory, beside the programs
//! (`target/debug`). A test finds it from the directory of `CARGO_BIN_EXE_…`, builds it when it is
//! missing, and names it with `--nvml-library` or links it into a driver root as
//! `libnvidia-ml.so.1`.
//!
//! ```json
//! {
//!   "driver_version": "570.133.20",
//!   "nvml_version": "12.570.133.20",
//!   "init_delay_ms": 0,
//!   "count": 2,
//!   "errors": { "nvmlInit_v2": "LIB_RM_VERSION_MISMATCH" },
//!   "gpus": [
//!     {
//!       "uuid": "GPU-11111111-1111-1111-1111-111111111111",
//!       "name": "NVIDIA A100-SXM4-40GB",
//!       "minor": [3, 4],
//!       "pci": "00000000:3B:00.0",
//!       "mig": 0,
//!       "mig_devices": [null, { "uuid": "MIG-…", "name": "… MIG 1g.5gb", "gi": 7, "ci": 0 }],
//!       "errors": { "nvmlDeviceGetUUID": "GPU_IS_LOST" }
//!     }
//!   ]
//! }
//! ```
//!
//! How it lies:
//! - `errors` at the top: the function always fails so. In a GPU: for that GPU;
//!   `nvmlDeviceGetHandleByIndex_v2` among them is a GPU that has no handle.
//! - An error is a number of `nvmlReturn_t` or its name without `NVML_ERROR_`. A symbol can't be
//!   taken out of a library at run time; `FUNCTION_NOT_FOUND` is what a caller sees instead.
//! - Every value of a GPU may be a list: each call takes the next, and the last stays. Reading the
//!   file again starts over only if its text changed.
//! - A text may be `{"hex": "ff00"}`: any bytes, valid UTF-8 or not.
//! - `count` may differ from the number of `gpus`. `mig` is the current and the pending mode;
//!   without it the call is `NOT_SUPPORTED`. `mig_devices` are the slots of a GPU, empty ones null; a
//!   MIG device may have `errors` of its own.

#![expect(
    unsafe_code,
    reason = "this is the C side of an ABI: exported symbols that write through a caller's pointers"
)]

mod state;
mod topology;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use state::{Answer, answer, answer_mig, init, shutdown};
use topology::{GpuField, MigDevice, code};

/// `nvmlReturn_t`.
type Return = c_uint;
/// `nvmlDevice_t`: here, the index plus one, and for a MIG device its slot plus one in the bits from
/// [`SLOT_BITS`]; never followed as a pointer.
type Handle = *mut c_void;

const SUCCESS: Return = 0;
/// More GPUs than 16 bits count are in no topology.
const SLOT_BITS: u32 = 16;

/// `nvmlPciInfo_t` as of `nvmlDeviceGetPciInfo_v3`.
#[repr(C)]
#[derive(Debug)]
pub struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

fn done(result: Result<(), Return>) -> Return {
    result.err().unwrap_or(SUCCESS)
}

/// Writes a value through a caller's pointer.
fn put<T>(out: *mut T, value: T) -> Result<(), Return> {
    if out.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    // SAFETY: NVML's contract makes the caller pass a pointer to a writable T; null is ruled out.
    unsafe { out.write(value) };
    Ok(())
}

/// Writes text and its NUL into a caller's buffer.
fn put_text(out: *mut c_char, length: c_uint, text: &[u8]) -> Result<(), Return> {
    if out.is_null() {
        return Err(code::INVALID_ARGUMENT);
    }
    let room = usize::try_from(length).map_err(|_| code::INVALID_ARGUMENT)?;
    if text.len() >= room {
        return Err(code::INSUFFICIENT_SIZE);
    }
    // SAFETY: the caller's buffer has `length` bytes by NVML's contract, and the text with its NUL
    // is not longer; the two don't overlap, as the text is owned here.
    unsafe {
        out.cast::<u8>()
            .copy_from_nonoverlapping(text.as_ptr(), text.len());
        out.add(text.len()).write(0);
    }
    Ok(())
}

/// The GPU of a handle that is no MIG device's.
fn index_of(handle: Handle) -> Result<usize, Return> {
    if mig_of(handle).is_some() {
        return Err(code::NOT_SUPPORTED);
    }
    handle.addr().checked_sub(1).ok_or(code::INVALID_ARGUMENT)
}

/// GPU and slot of a MIG device's handle.
fn mig_of(handle: Handle) -> Option<(usize, usize)> {
    let slot = (handle.addr() >> SLOT_BITS).checked_sub(1)?;
    let index = (handle.addr() & ((1 << SLOT_BITS) - 1)).checked_sub(1)?;
    Some((index, slot))
}

fn mig_number(
    function: &str,
    handle: Handle,
    field: impl Fn(&MigDevice) -> u32,
) -> Result<c_uint, Return> {
    let at = mig_of(handle).ok_or(code::INVALID_ARGUMENT)?;
    match answer_mig(function, at, |device| Answer::Number(field(device)))? {
        Answer::Number(number) => Ok(number),
        _ => Err(code::NOT_SUPPORTED),
    }
}

fn handle_of(index: usize) -> Handle {
    std::ptr::without_provenance_mut(index + 1)
}

/// The answer of one GPU, or MIG device, to one function, as text.
fn gpu_text(function: &str, handle: Handle, field: GpuField) -> Result<Vec<u8>, Return> {
    if let Some(at) = mig_of(handle) {
        let text = |device: &MigDevice| match field {
            GpuField::Uuid => Answer::Text(device.uuid.bytes()),
            GpuField::Name => device
                .name
                .as_ref()
                .map_or(Answer::Nothing, |name| Answer::Text(name.bytes())),
            _ => Answer::Nothing,
        };
        return match answer_mig(function, at, text)? {
            Answer::Text(text) => Ok(text),
            _ => Err(code::NOT_SUPPORTED),
        };
    }
    match answer(function, Some((index_of(handle)?, field)))? {
        Answer::Text(text) => Ok(text),
        _ => Err(code::NOT_SUPPORTED),
    }
}

/// The answer of one GPU to one function, as a number.
fn gpu_number(function: &str, handle: Handle, field: GpuField) -> Result<c_uint, Return> {
    match answer(function, Some((index_of(handle)?, field)))? {
        Answer::Number(number) => Ok(number),
        _ => Err(code::NOT_SUPPORTED),
    }
}

/// Exports of the library. Names and signatures are NVML's.
macro_rules! export {
    ($(fn $name:ident($($arg:ident: $kind:ty),*) $body:block)*) => {$(
        #[doc = concat!("`", stringify!($name), "`: answers as the topology file says.")]
        ///
        /// # Safety
        /// NVML's contract: pointers are null or valid for what the function writes or reads.
        // SAFETY: the symbol is NVML's own name, and this library stands in for NVML: nothing else
        // in the process defines it.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name($($arg: $kind),*) -> Return {
            fn run($($arg: $kind),*) -> Result<(), Return> $body
            done(run($($arg),*))
        }
    )*};
}

export! {
    fn nvmlInit_v2() { init("nvmlInit_v2") }
    fn nvmlInitWithFlags(_flags: c_uint) { init("nvmlInitWithFlags") }
    fn nvmlShutdown() { shutdown() }

    fn nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint) {
        match answer("nvmlSystemGetDriverVersion", None)? {
            Answer::Text(text) => put_text(version, length, &text),
            _ => Err(code::NOT_SUPPORTED),
        }
    }

    fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint) {
        match answer("nvmlSystemGetNVMLVersion", None)? {
            Answer::Text(text) => put_text(version, length, &text),
            _ => Err(code::NOT_SUPPORTED),
        }
    }

    fn nvmlDeviceGetCount_v2(count: *mut c_uint) {
        match answer("nvmlDeviceGetCount_v2", None)? {
            Answer::Number(number) => put(count, number),
            _ => Err(code::NOT_SUPPORTED),
        }
    }

    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut Handle) {
        let index = usize::try_from(index).map_err(|_| code::INVALID_ARGUMENT)?;
        answer("nvmlDeviceGetHandleByIndex_v2", Some((index, GpuField::Exists)))?;
        put(device, handle_of(index))
    }

    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut Handle) {
        if uuid.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: not null, and NVML's contract makes the caller pass a NUL-terminated string.
        let wanted = unsafe { CStr::from_ptr(uuid) };
        for index in 0.. {
            let found = answer("nvmlDeviceGetHandleByUUID", Some((index, GpuField::Uuid)));
            match found {
                Ok(Answer::Text(text)) if text == wanted.to_bytes() => {
                    return put(device, handle_of(index));
                }
                Err(code::INVALID_ARGUMENT) => break,
                _ => {}
            }
        }
        Err(code::NOT_FOUND)
    }

    fn nvmlDeviceGetIndex(device: Handle, index: *mut c_uint) {
        let at = index_of(device)?;
        answer("nvmlDeviceGetIndex", Some((at, GpuField::Exists)))?;
        put(index, c_uint::try_from(at).map_err(|_| code::INVALID_ARGUMENT)?)
    }

    fn nvmlDeviceGetUUID(device: Handle, uuid: *mut c_char, length: c_uint) {
        put_text(uuid, length, &gpu_text("nvmlDeviceGetUUID", device, GpuField::Uuid)?)
    }

    fn nvmlDeviceGetName(device: Handle, name: *mut c_char, length: c_uint) {
        put_text(name, length, &gpu_text("nvmlDeviceGetName", device, GpuField::Name)?)
    }

    fn nvmlDeviceGetMinorNumber(device: Handle, minor: *mut c_uint) {
        put(minor, gpu_number("nvmlDeviceGetMinorNumber", device, GpuField::Minor)?)
    }

    fn nvmlDeviceGetMigMode(device: Handle, current: *mut c_uint, pending: *mut c_uint) {
        let mode = gpu_number("nvmlDeviceGetMigMode", device, GpuField::Mig)?;
        put(current, mode)?;
        put(pending, mode)
    }

    fn nvmlDeviceGetMaxMigDeviceCount(device: Handle, count: *mut c_uint) {
        let slots = gpu_number("nvmlDeviceGetMaxMigDeviceCount", device, GpuField::MigSlots)?;
        put(count, slots)
    }

    fn nvmlDeviceGetMigDeviceHandleByIndex(device: Handle, slot: c_uint, mig: *mut Handle) {
        let index = index_of(device)?;
        let slot = usize::try_from(slot).map_err(|_| code::INVALID_ARGUMENT)?;
        answer_mig("nvmlDeviceGetMigDeviceHandleByIndex", (index, slot), |_| Answer::Nothing)?;
        let address = handle_of(index).addr() | ((slot + 1) << SLOT_BITS);
        put(mig, std::ptr::without_provenance_mut(address))
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig: Handle, device: *mut Handle) {
        let (index, _) = mig_of(mig).ok_or(code::INVALID_ARGUMENT)?;
        put(device, handle_of(index))
    }

    fn nvmlDeviceIsMigDeviceHandle(device: Handle, is_mig: *mut c_uint) {
        put(is_mig, c_uint::from(mig_of(device).is_some()))
    }

    fn nvmlDeviceGetGpuInstanceId(mig: Handle, id: *mut c_uint) {
        put(id, mig_number("nvmlDeviceGetGpuInstanceId", mig, |device| device.gi)?)
    }

    fn nvmlDeviceGetComputeInstanceId(mig: Handle, id: *mut c_uint) {
        put(id, mig_number("nvmlDeviceGetComputeInstanceId", mig, |device| device.ci)?)
    }

    fn nvmlDeviceGetPciInfo_v3(device: Handle, pci: *mut PciInfo) {
        let text = gpu_text("nvmlDeviceGetPciInfo_v3", device, GpuField::Pci)?;
        let mut bus_id: [c_char; 32] = [0; 32];
        for (to, from) in bus_id.iter_mut().take(31).zip(&text) {
            *to = c_char::from_ne_bytes([*from]);
        }
        let mut parts = std::str::from_utf8(&text)
            .unwrap_or_default()
            .split([':', '.'])
            .map(|part| c_uint::from_str_radix(part, 16).unwrap_or_default());
        let mut next = || parts.next().unwrap_or_default();
        put(pci, PciInfo {
            bus_id_legacy: [0; 16],
            domain: next(),
            bus: next(),
            device: next(),
            pci_device_id: 0x20B0_10DE,
            pci_subsystem_id: 0,
            bus_id,
        })
    }
}

/// `nvmlErrorString`: a constant text for every code.
// SAFETY: the symbol is NVML's own name, and this library stands in for NVML.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn nvmlErrorString(_result: c_int) -> *const c_char {
    c"fake NVML".as_ptr()
}
