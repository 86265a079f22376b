//! Which DRM minors belong to NVIDIA cards, and which DRM nodes belong to one PCI device.
//!
//! Owns the reading of `/sys/class/drm` and `/sys/bus/pci/devices/<address>/drm`. Says nothing of
//! whether a node exists below `/dev`, and never tells a card's vendor by its name.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Roots;

/// PCI vendor id of NVIDIA, as sysfs prints it.
const NVIDIA: &str = "0x10de";

/// A DRM entry of sysfs: the name of its node below `/dev/dri`, and its numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DrmEntry {
    /// Such as `card0` or `renderD128`.
    pub name: String,
    /// Device major number.
    pub major: u32,
    /// Device minor number.
    pub minor: u32,
}

/// sysfs could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DrmError {
    /// A directory could not be listed.
    #[error("can't list {}", path.display())]
    List {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A file could not be read.
    #[error("can't read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// The minors, on the DRM major, of every node whose card has NVIDIA's PCI vendor id.
///
/// A host without DRM has none. An entry that vanishes while it is read (hot-unplug) is no error.
pub fn nvidia_minors(roots: &Roots) -> Result<BTreeSet<u32>, DrmError> {
    let class = roots.sys.join("class/drm");
    let mut minors = BTreeSet::new();
    for entry in entries(&class)? {
        let vendor = read_if_there(&class.join(&entry.name).join("device/vendor"))?;
        if vendor.is_some_and(|vendor| vendor.trim().eq_ignore_ascii_case(NVIDIA)) {
            minors.insert(entry.minor);
        }
    }
    Ok(minors)
}

/// The DRM entries of one PCI device, sorted by name; none when the card drives no DRM device.
///
/// `pci` is the address as sysfs spells it; the caller has checked that it is one.
pub fn of_pci_device(roots: &Roots, pci: &str) -> Result<Vec<DrmEntry>, DrmError> {
    entries(&roots.sys.join("bus/pci/devices").join(pci).join("drm"))
}

fn entries(dir: &Path) -> Result<Vec<DrmEntry>, DrmError> {
    let list = |source| DrmError::List {
        path: dir.to_owned(),
        source,
    };
    let mut found = Vec::new();
    let listing = match fs::read_dir(dir) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(list(error)),
    };
    for entry in listing {
        let Ok(name) = entry.map_err(list)?.file_name().into_string() else {
            continue;
        };
        if !is_node_name(&name) {
            continue;
        }
        if let Some((major, minor)) =
            read_if_there(&dir.join(&name).join("dev"))?.and_then(|text| parse_dev(&text))
        {
            found.push(DrmEntry { name, major, minor });
        }
    }
    found.sort();
    Ok(found)
}

/// Connectors (`card0-HDMI-A-1`) and `version` lie beside the devices; they have no node.
fn is_node_name(name: &str) -> bool {
    ["card", "renderD", "controlD"].iter().any(|prefix| {
        name.strip_prefix(prefix).is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
        })
    })
}

fn parse_dev(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn read_if_there(path: &Path) -> Result<Option<String>, DrmError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) =>
        {
            Ok(None)
        }
        Err(source) => Err(DrmError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn roots(sys: &Path) -> Roots {
        Roots {
            sys: sys.into(),
            ..Roots::default()
        }
    }

    #[test]
    fn only_nodes_of_nvidia_cards_count() {
        let dir = tempfile::tempdir().unwrap();
        for (name, dev, vendor) in [
            ("card0", "226:0\n", "0x1a03\n"),
            ("card1", "226:1\n", "0x10de\n"),
            ("renderD128", "226:128\n", "0x10DE\n"),
            ("renderD129", "226:129\n", "0x1002\n"),
            ("card1-HDMI-A-1", "226:77\n", "0x10de\n"),
            ("card7", "nonsense", "0x10de\n"),
        ] {
            put(dir.path(), &format!("class/drm/{name}/dev"), dev);
            put(
                dir.path(),
                &format!("class/drm/{name}/device/vendor"),
                vendor,
            );
        }
        put(dir.path(), "class/drm/card3/dev", "226:3\n");
        put(dir.path(), "class/drm/version", "drm 1.1.0 20060810\n");
        let minors = nvidia_minors(&roots(dir.path())).unwrap();
        assert_eq!(minors, BTreeSet::from([1, 128]));
    }

    #[test]
    fn a_host_without_drm_has_none() {
        let dir = tempfile::tempdir().unwrap();
        assert!(nvidia_minors(&roots(dir.path())).unwrap().is_empty());
        assert!(
            of_pci_device(&roots(dir.path()), "0000:3b:00.0")
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn the_entries_of_a_card_are_sorted() {
        let dir = tempfile::tempdir().unwrap();
        let drm = "bus/pci/devices/0000:3b:00.0/drm";
        put(dir.path(), &format!("{drm}/renderD129/dev"), "226:129\n");
        put(dir.path(), &format!("{drm}/card2/dev"), "226:2\n");
        let found = of_pci_device(&roots(dir.path()), "0000:3b:00.0").unwrap();
        let names: Vec<_> = found.iter().map(|e| (e.name.as_str(), e.minor)).collect();
        assert_eq!(names, [("card2", 2), ("renderD129", 129)]);
    }
}
