//! A minimal shared object for tests, built byte by byte so that no compiler is needed: one
//! `PT_LOAD` over the whole file and a dynamic segment with the SONAME. It has no sections, as a
//! thoroughly stripped library has none.

/// The bytes of a 64-bit shared object of this machine's kind.
pub(crate) fn library(soname: Option<&str>) -> Vec<u8> {
    const HEADER: u64 = 64;
    const SEGMENT: u64 = 56;
    // Not 0, so that a reader which takes addresses for offsets is found out.
    const BASE: u64 = 0x10_0000;
    let machine: u16 = if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    };
    let dynamic_at = HEADER + 2 * SEGMENT;
    let dynamic_len = 4 * 16;
    let strings_at = dynamic_at + dynamic_len;
    let mut strings = vec![0];
    strings.extend(soname.unwrap_or("none").bytes());
    strings.push(0);
    let total = strings_at + strings.len() as u64;

    let mut out = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    out.extend(3_u16.to_le_bytes());
    out.extend(machine.to_le_bytes());
    out.extend(1_u32.to_le_bytes());
    for word in [0, HEADER, 0] {
        out.extend(word.to_le_bytes());
    }
    out.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 2, 64, 0, 0] {
        out.extend(half.to_le_bytes());
    }
    for (kind, at, len) in [(1_u32, 0, total), (2, dynamic_at, dynamic_len)] {
        out.extend(kind.to_le_bytes());
        out.extend(4_u32.to_le_bytes());
        for word in [at, BASE + at, BASE + at, len, len, 8] {
            out.extend(word.to_le_bytes());
        }
    }
    let soname_tag: u64 = if soname.is_some() { 14 } else { 0 };
    for (tag, value) in [
        (5, BASE + strings_at),
        (10, strings.len() as u64),
        (soname_tag, 1),
        (0, 0),
    ] {
        out.extend(tag.to_le_bytes());
        out.extend(value.to_le_bytes());
    }
    out.extend(strings);
    out
}
