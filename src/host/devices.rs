//! Device numbers: what a node is, told by major and minor, never by its name.
//!
//! Owns the parsing of `/proc/devices` and the classification that the gate, the fence and the
//! inventory share. Refuses to look at paths: a container may call `195:3` whatever it likes.
//!
//! Invariant: a number that NVIDIA's driver could own is never classified as nothing, so what is
//! unknown on a known major is treated like a GPU that nobody was granted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;

use super::Roots;
use super::drm::{self, DrmError};

/// The static major of GPU and control nodes (`linux/major.h` reserves it; NVIDIA's module
/// registers it by number).
pub const NVIDIA_MAJOR: u32 = 195;
/// Minor of `/dev/nvidia-modeset` on [`NVIDIA_MAJOR`].
pub const MODESET_MINOR: u32 = 254;
/// Minor of `/dev/nvidiactl` on [`NVIDIA_MAJOR`].
pub const CTL_MINOR: u32 = 255;
/// The static major of DRM nodes (`linux/major.h`).
pub const DRM_MAJOR: u32 = 226;

/// What a character device node is, as far as GPUs go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The whole-GPU node of that minor (`/dev/nvidia<minor>`).
    Gpu(u32),
    /// Needed beside any GPU, and reaching none alone: `nvidiactl`, `nvidia-modeset`, `nvidia-uvm*`.
    Control,
    /// The MIG capability of that minor (1 and 2 are the node-wide `config` and `monitor`).
    Capability(u32),
    /// A DRM node, of that minor, of an NVIDIA card.
    Drm(u32),
    /// An IMEX channel (memory shared between nodes).
    Channel,
    /// An `NVSwitch` node.
    Switch,
    /// An `NVLink` management node.
    Link,
    /// `GPUDirect` Storage (`nvidia-fs*`) or `GDRCopy` (`gdrdrv`): reaches GPU memory.
    Companion,
}

/// A driver of `/proc/devices` that has to do with GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// `nvidia`, `nvidia-frontend` and the names that newer drivers list beside them.
    Nvidia,
    /// `nvidia-uvm`.
    Uvm,
    /// `nvidia-caps`.
    Caps,
    /// `nvidia-caps-imex-channels`.
    ImexChannels,
    /// `nvidia-nvswitch`.
    NvSwitch,
    /// `nvidia-nvlink`.
    NvLink,
    /// `nvidia-fs`, `gdrdrv`.
    Companion,
}

impl Family {
    fn of(name: &str) -> Option<Self> {
        match name {
            "nvidia" | "nvidia-frontend" | "nvidiactl" | "nvidia-modeset" => Some(Self::Nvidia),
            "nvidia-uvm" => Some(Self::Uvm),
            "nvidia-caps" => Some(Self::Caps),
            "nvidia-caps-imex-channels" => Some(Self::ImexChannels),
            "nvidia-nvswitch" => Some(Self::NvSwitch),
            "nvidia-nvlink" => Some(Self::NvLink),
            "gdrdrv" => Some(Self::Companion),
            _ => name
                .strip_prefix("nvidia-fs")?
                .bytes()
                .all(|byte| byte.is_ascii_digit())
                .then_some(Self::Companion),
        }
    }
}

/// `/proc/devices` or the DRM class could not be read, so no node can be told from another.
#[derive(Debug, thiserror::Error)]
pub enum NumbersError {
    /// The file could not be read.
    #[error("can't read {}, so GPU nodes can't be told by their numbers", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The file has no section of character devices.
    #[error("{} lists no character devices: is the proc root right?", path.display())]
    NotDevices {
        /// The file.
        path: PathBuf,
    },
    /// See [`DrmError`].
    #[error(transparent)]
    Drm(#[from] DrmError),
}

/// The numbers of this host, at one moment: dynamic majors change when a module is reloaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNumbers {
    majors: BTreeMap<u32, Family>,
    drm_minors: BTreeSet<u32>,
}

impl DeviceNumbers {
    /// Reads `devices` below the proc root and the DRM class below the sys root.
    pub fn read(roots: &Roots) -> Result<Self, NumbersError> {
        let path = roots.proc.join("devices");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(NumbersError::Read { path, source }),
        };
        let drm_minors = drm::nvidia_minors(roots)?;
        Self::parse(&text, drm_minors).ok_or(NumbersError::NotDevices { path })
    }

    /// Without a look at the host: the major that NVIDIA's module registers by number, and no other.
    pub fn fixed() -> Self {
        Self {
            majors: BTreeMap::from([(NVIDIA_MAJOR, Family::Nvidia)]),
            drm_minors: BTreeSet::new(),
        }
    }

    /// From the text of `/proc/devices` and the DRM minors of NVIDIA cards.
    ///
    /// None when the text has no section of character devices. Lines that are no
    /// `<major> <name>` are skipped; 195 counts whether listed or not, as its nodes work as soon
    /// as the module loads.
    pub fn parse(text: &str, drm_minors: BTreeSet<u32>) -> Option<Self> {
        let mut lines = text.lines();
        lines.find(|line| line.trim() == "Character devices:")?;
        let mut majors = Self::fixed().majors;
        for line in lines.take_while(|line| line.trim() != "Block devices:") {
            let Some((major, name)) = line.trim().split_once(' ') else {
                continue;
            };
            if let (Ok(major), Some(family)) = (major.parse(), Family::of(name.trim())) {
                majors.entry(major).or_insert(family);
            }
        }
        Some(Self { majors, drm_minors })
    }

    /// What the node of those numbers is; none when it has nothing to do with NVIDIA GPUs.
    pub fn classify(&self, major: u32, minor: u32) -> Option<Class> {
        if let Some(family) = self.majors.get(&major) {
            return Some(match family {
                Family::Nvidia if matches!(minor, MODESET_MINOR | CTL_MINOR) => Class::Control,
                Family::Nvidia => Class::Gpu(minor),
                Family::Uvm => Class::Control,
                Family::Caps => Class::Capability(minor),
                Family::ImexChannels => Class::Channel,
                Family::NvSwitch => Class::Switch,
                Family::NvLink => Class::Link,
                Family::Companion => Class::Companion,
            });
        }
        (major == DRM_MAJOR && self.drm_minors.contains(&minor)).then_some(Class::Drm(minor))
    }

    /// The major of a family; the lowest, should it have several.
    pub fn major(&self, family: Family) -> Option<u32> {
        self.majors()
            .find_map(|(major, found)| (found == family).then_some(major))
    }

    /// Every major that belongs to NVIDIA wholly, ascending. DRM's is not among them: it is shared
    /// with other vendors' cards.
    pub fn majors(&self) -> impl Iterator<Item = (u32, Family)> + '_ {
        self.majors.iter().map(|(major, family)| (*major, *family))
    }

    /// The DRM minors of NVIDIA cards, on [`DRM_MAJOR`].
    pub fn drm_minors(&self) -> &BTreeSet<u32> {
        &self.drm_minors
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GPU_HOST: &str = "Character devices:\n  1 mem\n195 nvidia\n195 nvidia-modeset\n\
        195 nvidiactl\n226 drm\n234 nvidia-nvlink\n235 nvidia-caps-imex-channels\n\
        236 nvidia-nvswitch\n237 nvidia-uvm\n238 nvidia-caps\n239 gdrdrv\n240 nvidia-fs\n\
        241 nvidia-fsx\n508 nvidia-fs0\n\nBlock devices:\n259 blkext\n300 nvidia-uvm\n";

    fn host() -> DeviceNumbers {
        DeviceNumbers::parse(GPU_HOST, BTreeSet::from([1, 128])).unwrap()
    }

    #[test]
    fn each_number_is_what_proc_devices_says() {
        let table = [
            (195, 0, Some(Class::Gpu(0))),
            (195, 253, Some(Class::Gpu(253))),
            (195, 254, Some(Class::Control)),
            (195, 255, Some(Class::Control)),
            (195, 300, Some(Class::Gpu(300))),
            (237, 0, Some(Class::Control)),
            (237, 1, Some(Class::Control)),
            (238, 12, Some(Class::Capability(12))),
            (235, 0, Some(Class::Channel)),
            (236, 255, Some(Class::Switch)),
            (234, 0, Some(Class::Link)),
            (239, 0, Some(Class::Companion)),
            (240, 3, Some(Class::Companion)),
            (508, 0, Some(Class::Companion)),
            (226, 1, Some(Class::Drm(1))),
            (226, 128, Some(Class::Drm(128))),
            (226, 0, None),
            (241, 0, None),
            (300, 0, None),
            (1, 3, None),
        ];
        for (major, minor, class) in table {
            assert_eq!(host().classify(major, minor), class, "{major}:{minor}");
        }
    }

    #[test]
    fn major_195_counts_without_a_loaded_driver() {
        let bare = DeviceNumbers::parse("Character devices:\n  1 mem\n", BTreeSet::new()).unwrap();
        assert_eq!(bare.classify(195, 2), Some(Class::Gpu(2)));
        assert_eq!(bare.major(Family::Uvm), None);
    }

    #[test]
    fn the_old_frontend_name_is_the_same_family() {
        let old = DeviceNumbers::parse(
            "Character devices:\n195 nvidia-frontend\n510 nvidia-uvm\n",
            BTreeSet::new(),
        )
        .unwrap();
        assert_eq!(old.major(Family::Nvidia), Some(NVIDIA_MAJOR));
        assert_eq!(old.major(Family::Uvm), Some(510));
    }

    #[test]
    fn a_driver_that_claims_major_195_under_another_name_changes_nothing() {
        let odd = DeviceNumbers::parse("Character devices:\n195 nvidia-caps\n", BTreeSet::new());
        assert_eq!(odd.unwrap().classify(195, 1), Some(Class::Gpu(1)));
    }

    #[test]
    fn a_file_that_is_no_proc_devices_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            proc: dir.path().into(),
            sys: dir.path().into(),
            ..Roots::default()
        };
        let missing = DeviceNumbers::read(&roots).unwrap_err().to_string();
        assert!(missing.contains("devices"), "{missing}");
        fs::write(dir.path().join("devices"), "").unwrap();
        assert!(matches!(
            DeviceNumbers::read(&roots),
            Err(NumbersError::NotDevices { .. })
        ));
    }

    #[test]
    fn this_kernel_s_own_file_parses() {
        let text = fs::read_to_string("/proc/devices").unwrap();
        assert!(DeviceNumbers::parse(&text, BTreeSet::new()).is_some());
    }

    proptest! {
        #[test]
        fn no_text_panics_and_195_is_never_nothing(text in ".*", minor: u32) {
            let text = format!("Character devices:\n{text}");
            let numbers = DeviceNumbers::parse(&text, BTreeSet::new()).unwrap();
            prop_assert!(numbers.classify(NVIDIA_MAJOR, minor).is_some());
        }
    }
}
