//! Driver versions as NVIDIA writes them.

/// Whether the text is a driver version such as `570.133.20` or `535.54`: two to four groups of
/// digits. Anything else could name a path or a pattern, so it is never used to build one.
pub fn is_driver_version(text: &str) -> bool {
    let groups: Vec<_> = text.split('.').collect();
    (2..=4).contains(&groups.len())
        && groups.iter().all(|group| {
            (1..=6).contains(&group.len()) && group.bytes().all(|byte| byte.is_ascii_digit())
        })
}

/// The version in a library's file name: `libcuda.so.570.133.20` → `570.133.20`. None for
/// SONAME-like suffixes (`.so.1`).
pub(super) fn of_library(name: &str) -> Option<&str> {
    let (stem, version) = name.split_once(".so.")?;
    (stem.starts_with("lib") && is_driver_version(version)).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_groups_of_digits() {
        for text in ["570.133.20", "390.157", "535.54.03", "1.2.3.4"] {
            assert!(is_driver_version(text), "{text}");
        }
        for text in [
            "",
            "570",
            "570.",
            ".570",
            "*.*",
            "570.133/../..",
            "570.1a",
            "1.2.3.4.5",
            "1234567.1",
            "570.133 ",
        ] {
            assert!(!is_driver_version(text), "{text:?}");
        }
    }

    #[test]
    fn a_library_name_tells_its_version() {
        assert_eq!(of_library("libcuda.so.570.133.20"), Some("570.133.20"));
        for name in ["libcuda.so.1", "libcuda.so", "cuda.so.570.1", "lib.so.x.y"] {
            assert_eq!(of_library(name), None, "{name}");
        }
    }
}
