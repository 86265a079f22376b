//! The bpf(2) system call, as far as device programs need it. The only unsafe code of the program.
//!
//! Owns the layouts of `union bpf_attr` (`linux/bpf.h`) and the passing of pointers. Knows nothing of
//! what a program says. No library: six commands are less than a dependency.
//!
//! Invariants: every pointer given to the kernel outlives the call and points to as many bytes as
//! the call is told; a descriptor that the kernel returned is owned from that moment on.

#![expect(
    unsafe_code,
    reason = "rustix has no bpf(2), so the system call is made by number"
)]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;

use super::program::Instruction;

const PROG_LOAD: libc::c_long = 5;
const PROG_ATTACH: libc::c_long = 8;
const PROG_DETACH: libc::c_long = 9;
const PROG_GET_FD_BY_ID: libc::c_long = 13;
const OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const PROG_QUERY: libc::c_long = 16;

/// `BPF_PROG_TYPE_CGROUP_DEVICE`.
pub(super) const CGROUP_DEVICE_PROGRAM: u32 = 15;
/// `BPF_CGROUP_DEVICE`.
const CGROUP_DEVICE_ATTACH: u32 = 6;
/// `BPF_F_ALLOW_MULTI`: beside the programs that are there.
const ALLOW_MULTI: u32 = 1 << 1;
/// `BPF_F_QUERY_EFFECTIVE`.
const QUERY_EFFECTIVE: u32 = 1;
/// `BPF_OBJ_NAME_LEN`, the final NUL included.
const NAME_LENGTH: usize = 16;
/// The kernel's own limit is 64 attached programs a cgroup, and a cgroup has few ancestors.
const QUERY_LIMIT: usize = 1024;
/// The license of the program, which calls nothing that asks for another.
const LICENSE: &std::ffi::CStr = c"Apache-2.0";

/// Attributes of a command: plain words without padding, so that no byte of them is unset.
trait Attributes {}

#[repr(C)]
struct Load {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buffer: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; NAME_LENGTH],
    interface: u32,
    attach_type: u32,
}
impl Attributes for Load {}

#[repr(C)]
struct Attach {
    cgroup: u32,
    program: u32,
    event: u32,
    flags: u32,
    replace: u32,
}
impl Attributes for Attach {}

#[repr(C)]
struct Query {
    cgroup: u32,
    event: u32,
    flags: u32,
    attached_flags: u32,
    ids: u64,
    count: u32,
    reserved: u32,
}
impl Attributes for Query {}

#[repr(C)]
struct ById {
    id: u32,
    next: u32,
    flags: u32,
}
impl Attributes for ById {}

#[repr(C)]
struct GetInfo {
    object: u32,
    length: u32,
    info: u64,
}
impl Attributes for GetInfo {}

/// The first fields of `struct bpf_prog_info`; the kernel fills as much as it is given room for.
#[repr(C)]
#[derive(Default)]
struct RawInfo {
    program_type: u32,
    id: u32,
    tag: [u8; 8],
    jited_length: u32,
    translated_length: u32,
    jited: u64,
    translated: u64,
    load_time: u64,
    uid: u32,
    map_count: u32,
    maps: u64,
    name: [u8; NAME_LENGTH],
}

/// What the kernel says of a loaded program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Info {
    pub(super) id: u32,
    pub(super) program_type: u32,
    /// Digest of the instructions as they were loaded.
    pub(super) tag: [u8; 8],
    pub(super) name: String,
}

/// Loads a device program; the kernel's verifier has accepted it when this returns.
pub(super) fn load(instructions: &[Instruction], name: &str) -> Result<OwnedFd, Errno> {
    let mut attributes = Load {
        program_type: CGROUP_DEVICE_PROGRAM,
        instruction_count: u32::try_from(instructions.len()).map_err(|_| Errno::TOOBIG)?,
        instructions: address(instructions.as_ptr()),
        license: address(LICENSE.as_ptr()),
        log_level: 0,
        log_size: 0,
        log_buffer: 0,
        kernel_version: 0,
        flags: 0,
        name: padded(name)?,
        interface: 0,
        attach_type: CGROUP_DEVICE_ATTACH,
    };
    // SAFETY: `instructions` has `instruction_count` elements of the size of `struct bpf_insn`, and
    // the license ends with NUL; both are borrowed until after the call. The kernel only reads them.
    let fd = unsafe { bpf(PROG_LOAD, &mut attributes) }?;
    // SAFETY: this command returns a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a program to a cgroup beside those that are there. It stays when this process ends.
pub(super) fn attach(cgroup: &impl AsFd, program: &impl AsFd) -> Result<(), Errno> {
    let mut attributes = attach_attributes(cgroup, program, ALLOW_MULTI);
    // SAFETY: the attributes hold no pointer.
    unsafe { bpf(PROG_ATTACH, &mut attributes) }.map(drop)
}

/// Takes a program off a cgroup.
pub(super) fn detach(cgroup: &impl AsFd, program: &impl AsFd) -> Result<(), Errno> {
    let mut attributes = attach_attributes(cgroup, program, 0);
    // SAFETY: the attributes hold no pointer.
    unsafe { bpf(PROG_DETACH, &mut attributes) }.map(drop)
}

/// Ids of the device programs that are attached to a cgroup or, if `effective`, that the kernel runs
/// for the processes in it: its own and those of the cgroups above.
pub(super) fn query(cgroup: &impl AsFd, effective: bool) -> Result<Vec<u32>, Errno> {
    let mut ids = vec![0u32; QUERY_LIMIT];
    let mut attributes = Query {
        cgroup: word(cgroup),
        event: CGROUP_DEVICE_ATTACH,
        flags: if effective { QUERY_EFFECTIVE } else { 0 },
        attached_flags: 0,
        ids: address(ids.as_mut_ptr()),
        count: u32::try_from(QUERY_LIMIT).map_err(|_| Errno::TOOBIG)?,
        reserved: 0,
    };
    // SAFETY: `ids` has room for `count` words and is borrowed mutably until after the call.
    unsafe { bpf(PROG_QUERY, &mut attributes) }?;
    ids.truncate(usize::try_from(attributes.count).map_err(|_| Errno::TOOBIG)?);
    Ok(ids)
}

/// Opens a loaded program by its id.
pub(super) fn open(id: u32) -> Result<OwnedFd, Errno> {
    let mut attributes = ById {
        id,
        next: 0,
        flags: 0,
    };
    // SAFETY: the attributes hold no pointer.
    let fd = unsafe { bpf(PROG_GET_FD_BY_ID, &mut attributes) }?;
    // SAFETY: this command returns a new descriptor, which nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What the kernel says of a program.
pub(super) fn info(program: &impl AsFd) -> Result<Info, Errno> {
    let mut raw = RawInfo::default();
    let mut attributes = GetInfo {
        object: word(program),
        length: u32::try_from(size_of::<RawInfo>()).map_err(|_| Errno::TOOBIG)?,
        info: address(&raw mut raw),
    };
    // SAFETY: `info` points to `length` writable bytes, for which any content is a valid `RawInfo`;
    // the pointers in it are null, so the kernel follows none.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attributes) }?;
    let name = raw.name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(Info {
        id: raw.id,
        program_type: raw.program_type,
        tag: raw.tag,
        name: String::from_utf8_lossy(name).into_owned(),
    })
}

fn attach_attributes(cgroup: &impl AsFd, program: &impl AsFd, flags: u32) -> Attach {
    Attach {
        cgroup: word(cgroup),
        program: word(program),
        event: CGROUP_DEVICE_ATTACH,
        flags,
        replace: 0,
    }
}

/// # Safety
/// Pointers within the attributes have to be null, or valid for what `command` does with them.
unsafe fn bpf<A: Attributes>(command: libc::c_long, attributes: &mut A) -> Result<RawFd, Errno> {
    // SAFETY: the third argument is the size of what the second points to, which is borrowed mutably
    // for the call; what the attributes point to is the caller's duty.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_mut(attributes),
            size_of::<A>(),
        )
    };
    match RawFd::try_from(result) {
        Ok(fd) if fd >= 0 => Ok(fd),
        _ => Err(std::io::Error::last_os_error()
            .raw_os_error()
            .map_or(Errno::IO, Errno::from_raw_os_error)),
    }
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.expose_provenance() as u64
}

fn word(fd: &impl AsFd) -> u32 {
    fd.as_fd().as_raw_fd().cast_unsigned()
}

fn padded(name: &str) -> Result<[u8; NAME_LENGTH], Errno> {
    let mut padded = [0; NAME_LENGTH];
    padded
        .get_mut(..name.len())
        .filter(|_| name.len() < NAME_LENGTH)
        .ok_or(Errno::INVAL)?
        .copy_from_slice(name.as_bytes());
    Ok(padded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layouts_are_those_of_the_kernel() {
        assert_eq!(size_of::<Instruction>(), 8);
        assert_eq!(size_of::<Load>(), 72);
        assert_eq!(size_of::<Attach>(), 20);
        assert_eq!(size_of::<Query>(), 32);
        assert_eq!(size_of::<ById>(), 12);
        assert_eq!(size_of::<GetInfo>(), 16);
        assert_eq!(size_of::<RawInfo>(), 80);
        assert_eq!(std::mem::offset_of!(RawInfo, name), 64);
    }

    #[test]
    fn a_name_that_is_too_long_is_an_error() {
        assert_eq!(padded("gpu_warden_pod").unwrap()[..4], *b"gpu_");
        assert_eq!(padded("0123456789abcdef"), Err(Errno::INVAL));
    }
}
