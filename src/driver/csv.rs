//! The lists of Tegra systems: which files of the host a GPU container needs.
//!
//! One entry a line, `type, path`; the types are `dev`, `dir`, `lib`, `sym`. A line that is none is
//! skipped, as NVIDIA's own tools do.

use std::path::{Component, Path, PathBuf};

/// What an entry names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A device node.
    Dev,
    /// A directory.
    Dir,
    /// A file.
    Lib,
    /// A symbolic link.
    Sym,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CsvEntry {
    /// See [`EntryKind`].
    pub kind: EntryKind,
    /// Absolute, without `..`.
    pub path: PathBuf,
}

/// Reads a list.
pub fn parse(text: &str) -> Vec<CsvEntry> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<CsvEntry> {
    let (kind, path) = line.split_once(',')?;
    let kind = match kind.trim() {
        "dev" => EntryKind::Dev,
        "dir" => EntryKind::Dir,
        "lib" => EntryKind::Lib,
        "sym" => EntryKind::Sym,
        _ => return None,
    };
    let path = Path::new(path.trim());
    let is_clean = path.is_absolute()
        && path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        && !path.to_string_lossy().contains(|c: char| c.is_control());
    is_clean.then(|| CsvEntry {
        kind,
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn entries_are_read_and_bad_lines_skipped() {
        let text = "dev, /dev/nvmap\n# comment\nlib,/usr/lib/x.so\nfoo, /a\nsym, rel\n\
                    dir , /lib/firmware/tegra\nlib, /a/../b\nlib\n";
        let found: Vec<_> = parse(text)
            .into_iter()
            .map(|entry| (entry.kind, entry.path.display().to_string()))
            .collect();
        assert_eq!(
            found,
            [
                (EntryKind::Dev, "/dev/nvmap".into()),
                (EntryKind::Lib, "/usr/lib/x.so".into()),
                (EntryKind::Dir, "/lib/firmware/tegra".into()),
            ]
        );
    }

    proptest! {
        #[test]
        fn no_text_panics_or_leaves_the_root(text in "(?s).{0,200}") {
            prop_assert!(parse(&text).iter().all(|entry| entry.path.is_absolute()));
        }
    }
}
