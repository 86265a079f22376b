//! The order of names in a cache. The loader finds an entry by binary search, so an entry in
//! another place than its own is one that does not exist.

use std::cmp::Ordering;

/// Compares as glibc's loader does: character by character, but runs of digits by their value, and
/// a digit above any other character. A cache is sorted *downwards* by it.
pub(super) fn library_order(left: &[u8], right: &[u8]) -> Ordering {
    let (mut left, mut right) = (left, right);
    loop {
        let a = left.first().copied().unwrap_or(0);
        let b = right.first().copied().unwrap_or(0);
        match (a.is_ascii_digit(), b.is_ascii_digit()) {
            (true, true) => {
                let (x, y) = (number(&mut left), number(&mut right));
                if x != y {
                    return x.wrapping_sub(y).cmp(&0);
                }
            }
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            // `char` is signed where the loader was built.
            _ if a != b => return signed(a).cmp(&signed(b)),
            _ if a == 0 => return Ordering::Equal,
            _ => {
                left = left.get(1..).unwrap_or_default();
                right = right.get(1..).unwrap_or_default();
            }
        }
    }
}

/// Takes the digits off the front. Wraps as the loader's arithmetic does.
fn number(text: &mut &[u8]) -> i32 {
    let mut value = 0_i32;
    while let Some((digit, rest)) = text
        .split_first()
        .filter(|(digit, _)| digit.is_ascii_digit())
    {
        value = value.wrapping_mul(10).wrapping_add(i32::from(digit - b'0'));
        *text = rest;
    }
    value
}

/// x86-64 has a signed `char`, aarch64 an unsigned one.
const fn signed(byte: u8) -> i16 {
    if cfg!(target_arch = "x86_64") {
        byte.cast_signed() as i16
    } else {
        byte as i16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_count_by_value_and_above_letters() {
        for (low, high) in [
            ("liba.so.9", "liba.so.10"),
            ("liba.so", "liba.so.1"),
            ("liba.so.1", "liba1.so"),
            ("libz.so.1", "libz3.so"),
            ("libA.so", "liba.so"),
            ("lib.so", "liba.so"),
            ("", "a"),
            ("", "1"),
            ("liba.so.007", "liba.so.8"),
        ] {
            let (low, high) = (low.as_bytes(), high.as_bytes());
            assert_eq!(library_order(low, high), Ordering::Less, "{low:?} {high:?}");
            assert_eq!(library_order(high, low), Ordering::Greater);
            assert_eq!(library_order(low, low), Ordering::Equal);
        }
    }
}
