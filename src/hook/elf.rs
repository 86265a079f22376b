//! The first bytes of a library: for which loader it is.

use std::io::Read;

/// Bytes up to the end of `e_machine`.
const HEAD: usize = 20;

const EM_386: u16 = 3;
const EM_X86_64: u16 = 62;
const EM_AARCH64: u16 = 183;

/// glibc's flags of a cache entry: a library for glibc itself, with the architecture above.
const LIBC6: u32 = 0x0003;
const X86_64: u32 = 0x0300;
const AARCH64: u32 = 0x0a00;

/// The flags that the loader of such a library looks for; none when it is no library of a kind that
/// the driver has.
pub(super) fn cache_flags(mut file: impl Read) -> Option<u32> {
    let mut head = [0; HEAD];
    file.read_exact(&mut head).ok()?;
    let [0x7f, b'E', b'L', b'F', class, 1, ..] = head else {
        return None;
    };
    match (class, u16::from_le_bytes([head[18], head[19]])) {
        (1, EM_386) => Some(LIBC6),
        (2, EM_X86_64) => Some(X86_64 | LIBC6),
        (2, EM_AARCH64) => Some(AARCH64 | LIBC6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(class: u8, order: u8, machine: u16) -> Vec<u8> {
        let mut head = vec![0x7f, b'E', b'L', b'F', class, order];
        head.resize(18, 0);
        head.extend(machine.to_le_bytes());
        head
    }

    #[test]
    fn the_kinds_that_the_driver_has_are_told_apart() {
        for (class, order, machine, flags) in [
            (2, 1, EM_X86_64, Some(0x0303)),
            (2, 1, EM_AARCH64, Some(0x0a03)),
            (1, 1, EM_386, Some(0x0003)),
            (1, 1, EM_X86_64, None),
            (2, 2, EM_X86_64, None),
            (2, 1, 21, None),
        ] {
            let head = head(class, order, machine);
            assert_eq!(cache_flags(&head[..]), flags, "{class} {order} {machine}");
        }
        assert_eq!(cache_flags(&b""[..]), None);
        assert_eq!(cache_flags(&[0x7f, b'E', b'L', b'F'][..]), None);
    }
}
