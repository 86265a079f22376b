//! Reads versions as runtimes report them: `1.7.24~ds1`, `2.1.9+unknown`, `2.4.0-beta+unknown`, `v2.0.1`.
//!
//! Owns the reading and the order. A packager's suffix does not lower a version; an alpha, beta or release candidate does:
//! it is before its release.

/// Major, minor and patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Release {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) patch: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) release: Release,
    prerelease: bool,
}

impl Version {
    /// `None` where the text does not begin with `MAJOR.MINOR`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix(['v', 'V']).unwrap_or(text);
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (numbers, suffix) = text.split_at(end);
        let mut numbers = numbers
            .trim_end_matches('.')
            .split('.')
            .map(str::parse::<u32>);
        let major = numbers.next()?.ok()?;
        let minor = numbers.next()?.ok()?;
        let patch = numbers.next().unwrap_or(Ok(0)).ok()?;
        let prerelease = suffix.split(['-', '.', '~', '+']).any(is_prerelease_tag);
        Some(Self {
            release: Release {
                major,
                minor,
                patch,
            },
            prerelease,
        })
    }

    pub(crate) fn is_at_least(self, wanted: Release) -> bool {
        self.release > wanted || (self.release == wanted && !self.prerelease)
    }
}

fn is_prerelease_tag(segment: &str) -> bool {
    let name = segment.trim_end_matches(|c: char| c.is_ascii_digit());
    ["alpha", "beta", "rc", "dev", "pre"].contains(&name.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Option<(u32, u32, u32, bool)> {
        Version::parse(text).map(|v| {
            (
                v.release.major,
                v.release.minor,
                v.release.patch,
                v.prerelease,
            )
        })
    }

    #[test]
    fn versions_as_reported_parse() {
        for (text, expected) in [
            ("1.7.24~ds1", (1, 7, 24, false)),
            ("2.1.9+unknown", (2, 1, 9, false)),
            ("2.4.0-beta+unknown", (2, 4, 0, true)),
            ("v2.0.1", (2, 0, 1, false)),
            ("v2.1.0-12-gabcdef0.m", (2, 1, 0, false)),
            ("2.2.0~rc1+ds1", (2, 2, 0, true)),
            ("1.7.28-0ubuntu1~24.04.1", (1, 7, 28, false)),
            ("1.34", (1, 34, 0, false)),
            ("1.35.0-dev", (1, 35, 0, true)),
            ("v0.12.2", (0, 12, 2, false)),
        ] {
            assert_eq!(parsed(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn text_without_major_and_minor_is_no_version() {
        for text in [
            "",
            "unknown",
            "(devel)",
            "2",
            "v",
            ".1.2",
            "99999999999.1.1",
            "v0..2",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "\\PC*") {
            let _ = Version::parse(&text);
        }
    }
}
