//! MIG capabilities: which device node opens which part of a GPU.
//!
//! Owns the files by which the kernel module says so. `/proc/driver/nvidia/capabilities` comes first:
//! it tells minor and mode, and needs no node on the host; `/proc/driver/nvidia-caps/mig-minors` of
//! drivers that don't show it tells the minor alone.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use super::Node;
use super::procfs;

/// A capability's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Minor on the major of `nvidia-caps`.
    pub minor: u32,
    /// Permission bits that the kernel module wants it to have, where it says so.
    pub mode: Option<u32>,
}

/// A capability that holds for the whole node and is part of no GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeWide {
    /// May create and destroy instances.
    Config,
    /// May watch all instances.
    Monitor,
}

impl fmt::Display for NodeWide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Config => "config",
            Self::Monitor => "monitor",
        })
    }
}

/// Reads an `access` file: `DeviceFileMinor`, `DeviceFileMode` in decimal; other lines are skipped.
/// None without a minor that can be one (20 bits).
pub fn parse_access(text: &str) -> Option<Access> {
    let value = |key: &str| -> Option<u32> {
        text.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            (found.trim() == key).then(|| value.trim().parse().ok())?
        })
    };
    Some(Access {
        minor: value("DeviceFileMinor").filter(|minor| *minor < 1 << 20)?,
        mode: value("DeviceFileMode").filter(|mode| *mode <= 0o777),
    })
}

/// Reads a `mig-minors` file: lines of `<capability> <minor>`. Of a repeated capability the first
/// counts; other lines are skipped.
pub fn parse_mig_minors(text: &str) -> BTreeMap<String, u32> {
    let mut minors = BTreeMap::new();
    for line in text.lines() {
        let Some((key, minor)) = line.trim().split_once(' ') else {
            continue;
        };
        if let Ok(minor) = minor.trim().parse::<u32>()
            && minor < 1 << 20
        {
            minors.entry(key.to_owned()).or_insert(minor);
        }
    }
    minors
}

/// The capabilities of this host.
#[derive(Debug)]
pub(super) struct Capabilities<'r> {
    proc: &'r Path,
    major: Option<u32>,
    minors: BTreeMap<String, u32>,
}

impl<'r> Capabilities<'r> {
    /// `major` is that of `nvidia-caps`.
    pub(super) fn read(proc: &'r Path, major: Option<u32>) -> Self {
        let file = proc.join("driver/nvidia-caps/mig-minors");
        Self {
            proc,
            major,
            minors: fs::read_to_string(file)
                .map(|text| parse_mig_minors(&text))
                .unwrap_or_default(),
        }
    }

    /// The nodes of a GPU instance and of a compute instance in it, with their modes, on the GPU of
    /// that minor.
    pub(super) fn of_mig(
        &self,
        gpu: u32,
        gi: u32,
        ci: u32,
    ) -> Result<[(Node, Option<u32>); 2], String> {
        let whole = self.find(
            &format!("gpu{gpu}/mig/gi{gi}/access"),
            &format!("gpu{gpu}/gi{gi}/access"),
        )?;
        let compute = self.find(
            &format!("gpu{gpu}/mig/gi{gi}/ci{ci}/access"),
            &format!("gpu{gpu}/gi{gi}/ci{ci}/access"),
        )?;
        let own = [whole.0.minor, compute.0.minor];
        if own[0] == own[1] {
            return Err(format!(
                "its GPU instance and its compute instance have one capability, {}",
                own[0]
            ));
        }
        // A part of one GPU never opens what is above all of them.
        for which in [NodeWide::Config, NodeWide::Monitor] {
            let minor = self.node_wide(which).map(|(node, _)| node.minor);
            if minor.is_ok_and(|minor| own.contains(&minor)) {
                return Err(format!("its capability is the node-wide one, {which}"));
            }
        }
        Ok([whole, compute])
    }

    pub(super) fn node_wide(&self, which: NodeWide) -> Result<(Node, Option<u32>), String> {
        self.find(&format!("mig/{which}"), &which.to_string())
    }

    fn find(&self, file: &str, key: &str) -> Result<(Node, Option<u32>), String> {
        let major = self
            .major
            .ok_or("the host has no capabilities: /proc/devices lists no nvidia-caps")?;
        let path = procfs::dir(self.proc).join("capabilities").join(file);
        let Access { minor, mode } = match fs::read_to_string(&path) {
            Ok(text) => parse_access(&text)
                .ok_or_else(|| format!("{} tells no minor", path.display()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Access {
                minor: *self.minors.get(key).ok_or_else(|| {
                    format!(
                        "the kernel module shows no capability of it: neither {} nor `{key}` in mig-minors",
                        path.display()
                    )
                })?,
                mode: None,
            },
            Err(error) => return Err(format!("can't read {}: {error}", path.display())),
        };
        let node = Node {
            path: format!("/dev/nvidia-caps/nvidia-cap{minor}").into(),
            major,
            minor,
        };
        Ok((node, mode))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ACCESS: &str = "DeviceFileMinor: 12\nDeviceFileMode: 292\nDeviceFileModify: 1\n";

    #[test]
    fn an_access_file_tells_minor_and_mode() {
        assert_eq!(
            parse_access(ACCESS),
            Some(Access {
                minor: 12,
                mode: Some(0o444)
            })
        );
        for text in [
            "",
            "DeviceFileMinor: -1",
            "DeviceFileMinor: 1048576",
            "Minor: 3",
        ] {
            assert_eq!(parse_access(text), None, "{text}");
        }
    }

    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    const GI: &str = "driver/nvidia/capabilities/gpu2/mig/gi1/access";
    const CI: &str = "driver/nvidia/capabilities/gpu2/mig/gi1/ci0/access";

    #[test]
    fn the_module_s_own_files_come_before_the_list() {
        let dir = host(&[
            (GI, ACCESS),
            (CI, "DeviceFileMinor: 13\n"),
            (
                "driver/nvidia-caps/mig-minors",
                "gpu2/gi1/access 99\ngpu2/gi1/ci0/access 98\n",
            ),
        ]);
        let [gi, ci] = Capabilities::read(dir.path(), Some(238))
            .of_mig(2, 1, 0)
            .unwrap();
        assert_eq!((gi.0.major, gi.0.minor, gi.1), (238, 12, Some(0o444)));
        assert_eq!((ci.0.minor, ci.1), (13, None));
        assert_eq!(ci.0.path, Path::new("/dev/nvidia-caps/nvidia-cap13"));
    }

    #[test]
    fn the_list_serves_where_there_are_no_files() {
        let dir = host(&[(
            "driver/nvidia-caps/mig-minors",
            "config 1\nmonitor 2\ngpu2/gi1/access 30\ngpu2/gi1/ci0/access 31\n",
        )]);
        let capabilities = Capabilities::read(dir.path(), Some(238));
        let [gi, ci] = capabilities.of_mig(2, 1, 0).unwrap();
        assert_eq!((gi.0.minor, ci.0.minor), (30, 31));
        assert_eq!(
            capabilities.node_wide(NodeWide::Monitor).unwrap().0.minor,
            2
        );
        assert!(capabilities.of_mig(0, 1, 0).unwrap_err().contains("gpu0"));
    }

    #[test]
    fn capabilities_that_open_more_than_their_part_are_refused() {
        for (gi, ci, words) in [
            (
                "DeviceFileMinor: 13",
                "DeviceFileMinor: 13",
                "one capability",
            ),
            ("DeviceFileMinor: 1", "DeviceFileMinor: 13", "config"),
            ("DeviceFileMinor: 12", "DeviceFileMinor: 2", "monitor"),
            ("nonsense", "DeviceFileMinor: 13", "tells no minor"),
        ] {
            let dir = host(&[
                (GI, gi),
                (CI, ci),
                (
                    "driver/nvidia/capabilities/mig/config",
                    "DeviceFileMinor: 1\n",
                ),
                (
                    "driver/nvidia/capabilities/mig/monitor",
                    "DeviceFileMinor: 2\n",
                ),
            ]);
            let error = Capabilities::read(dir.path(), Some(238))
                .of_mig(2, 1, 0)
                .unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        let bare = host(&[]);
        let error = Capabilities::read(bare.path(), None)
            .of_mig(0, 1, 0)
            .unwrap_err();
        assert!(error.contains("nvidia-caps"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,200}") {
            let _ = parse_access(&text);
            prop_assert!(parse_mig_minors(&text).values().all(|minor| *minor < 1 << 20));
        }
    }
}
