//! Minimal shared objects for tests, built byte by byte so that no compiler is needed: one
//! `PT_LOAD` over the whole file and a dynamic segment with the SONAME. They have no sections, as a
//! thoroughly stripped library has none.

/// Not 0, so that a reader which takes addresses for offsets is found out.
const BASE: u64 = 0x10_0000;

/// The sizes and the machine of one ELF class.
struct Layout {
    wide: bool,
    machine: u16,
    header: u16,
    segment: u16,
}

/// The bytes of a 64-bit shared object of this machine's kind.
pub(crate) fn library(soname: Option<&str>) -> Vec<u8> {
    let machine = if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    };
    build(
        &Layout {
            wide: true,
            machine,
            header: 64,
            segment: 56,
        },
        soname,
    )
}

/// The bytes of a 32-bit shared object of this machine's older sibling.
pub(crate) fn library_32(soname: Option<&str>) -> Vec<u8> {
    let machine = if cfg!(target_arch = "aarch64") { 40 } else { 3 };
    build(
        &Layout {
            wide: false,
            machine,
            header: 52,
            segment: 32,
        },
        soname,
    )
}

fn build(layout: &Layout, soname: Option<&str>) -> Vec<u8> {
    let word_size: u64 = if layout.wide { 8 } else { 4 };
    let put = |out: &mut Vec<u8>, word: u64| {
        let length = if layout.wide { 8 } else { 4 };
        out.extend(&word.to_le_bytes()[..length]);
    };
    let header = u64::from(layout.header);
    let dynamic_at = header + 2 * u64::from(layout.segment);
    let dynamic_len = 4 * 2 * word_size;
    let strings_at = dynamic_at + dynamic_len;
    let mut strings = vec![0];
    strings.extend(soname.unwrap_or("none").bytes());
    strings.push(0);
    let total = strings_at + strings.len() as u64;

    let class = if layout.wide { 2 } else { 1 };
    let mut out = vec![
        0x7f, b'E', b'L', b'F', class, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    out.extend(3_u16.to_le_bytes());
    out.extend(layout.machine.to_le_bytes());
    out.extend(1_u32.to_le_bytes());
    for word in [0, header, 0] {
        put(&mut out, word);
    }
    out.extend(0_u32.to_le_bytes());
    let section = if layout.wide { 64 } else { 40 };
    for half in [layout.header, layout.segment, 2, section, 0, 0] {
        out.extend(half.to_le_bytes());
    }
    for (kind, at, len) in [(1_u32, 0, total), (2, dynamic_at, dynamic_len)] {
        out.extend(kind.to_le_bytes());
        // The flags stand second in the wide form, second to last in the narrow one.
        if layout.wide {
            out.extend(4_u32.to_le_bytes());
        }
        for word in [at, BASE + at, BASE + at, len, len] {
            put(&mut out, word);
        }
        if !layout.wide {
            out.extend(4_u32.to_le_bytes());
        }
        put(&mut out, word_size);
    }
    let soname_tag: u64 = if soname.is_some() { 14 } else { 0 };
    for (tag, value) in [
        (5, BASE + strings_at),
        (10, strings.len() as u64),
        (soname_tag, 1),
        (0, 0),
    ] {
        put(&mut out, tag);
        put(&mut out, value);
    }
    out.extend(strings);
    out
}
