//! File name patterns: `*` stands for any characters, everything else for itself.

/// A pattern for one file name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// What stands before, between and behind the wildcards; never empty.
    parts: Vec<String>,
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        Self {
            parts: text.split('*').map(str::to_owned).collect(),
        }
    }

    /// What every match begins with.
    pub(crate) fn prefix(&self) -> &str {
        self.parts.first().map_or("", String::as_str)
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        let [first, middle @ .., last] = self.parts.as_slice() else {
            return self.parts.first().is_some_and(|only| only == name);
        };
        let Some(mut rest) = name.strip_prefix(first.as_str()) else {
            return false;
        };
        for part in middle {
            match rest.split_once(part.as_str()) {
                Some((_, behind)) => rest = behind,
                None => return false,
            }
        }
        rest.ends_with(last.as_str())
    }

    /// Those of sorted names that match.
    pub(crate) fn among<'n>(&self, names: &'n [String]) -> impl Iterator<Item = &'n String> {
        let from = names.partition_point(|name| name.as_str() < self.prefix());
        names[from..]
            .iter()
            .take_while(|name| name.starts_with(self.prefix()))
            .filter(|name| self.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wildcards_stand_for_any_characters() {
        for (pattern, name, expected) in [
            ("libcuda.so.1", "libcuda.so.1", true),
            ("libcuda.so.1", "libcuda.so.11", false),
            ("libcuda.so.1", "xlibcuda.so.1", false),
            ("lib*.so.570.1", "libcuda.so.570.1", true),
            ("lib*.so.570.1", "libcuda.so.570.10", false),
            ("gbm.so.*.*", "gbm.so.1.1.2", true),
            ("gbm.so.*.*", "gbm.so.1", false),
            ("a*a", "a", false),
            ("*", "", true),
        ] {
            assert_eq!(
                Pattern::new(pattern).matches(name),
                expected,
                "{pattern} {name}"
            );
        }
    }

    proptest! {
        #[test]
        fn among_finds_what_matches_finds(
            mut names in prop::collection::vec("[ab.]{0,5}", 0..12),
            pattern in "[ab.*]{0,4}",
        ) {
            names.sort();
            names.dedup();
            let pattern = Pattern::new(&pattern);
            let found: Vec<_> = pattern.among(&names).collect();
            let all: Vec<_> = names.iter().filter(|name| pattern.matches(name)).collect();
            prop_assert_eq!(found, all);
        }
    }
}
