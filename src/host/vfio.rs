//! Which vfio nodes lead to an NVIDIA device: whoever opens one may hand the whole device to a guest.
//!
//! Owns the reading of `/sys/class/vfio`, `/sys/class/vfio-dev` and the IOMMU groups. A group that is
//! not bound to a vfio driver has no node, and so no number, at that moment.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::Roots;

/// PCI vendor id of NVIDIA, as sysfs prints it.
const NVIDIA: &str = "0x10de";

/// (major, minor) of the vfio nodes of NVIDIA devices.
pub type VfioNodes = BTreeSet<(u32, u32)>;

/// sysfs could not be read.
#[derive(Debug, thiserror::Error)]
#[error("can't read {}: {source}", path.display())]
pub struct VfioError {
    path: PathBuf,
    source: io::Error,
}

/// The group nodes (`/dev/vfio/<group>`) of IOMMU groups with an NVIDIA device in them, and the device
/// nodes (`/dev/vfio/devices/vfio<n>`) of NVIDIA devices. A host without vfio has none.
pub fn nvidia_nodes(roots: &Roots) -> Result<VfioNodes, VfioError> {
    let mut nodes = VfioNodes::new();
    let groups = roots.sys.join("class/vfio");
    for name in names(&groups)? {
        let group = name.to_string_lossy();
        let group = group.strip_prefix("noiommu-").unwrap_or(&group);
        let devices = roots
            .sys
            .join("kernel/iommu_groups")
            .join(group)
            .join("devices");
        let mut nvidia = false;
        for device in names(&devices)? {
            nvidia |= is_nvidia(&devices.join(device))?;
        }
        if nvidia {
            nodes.extend(number(&groups.join(&name))?);
        }
    }
    let devices = roots.sys.join("class/vfio-dev");
    for name in names(&devices)? {
        if is_nvidia(&devices.join(&name).join("device"))? {
            nodes.extend(number(&devices.join(&name))?);
        }
    }
    Ok(nodes)
}

fn names(dir: &Path) -> Result<Vec<OsString>, VfioError> {
    let failed = |source| VfioError {
        path: dir.to_owned(),
        source,
    };
    match fs::read_dir(dir) {
        Ok(entries) => entries
            .map(|entry| Ok(entry.map_err(failed)?.file_name()))
            .collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(error)),
    }
}

fn is_nvidia(device: &Path) -> Result<bool, VfioError> {
    let vendor = read_if_there(&device.join("vendor"))?;
    Ok(vendor.is_some_and(|vendor| vendor.trim().eq_ignore_ascii_case(NVIDIA)))
}

fn number(node: &Path) -> Result<Option<(u32, u32)>, VfioError> {
    let text = read_if_there(&node.join("dev"))?;
    Ok(text.as_deref().and_then(|text| {
        let (major, minor) = text.trim().split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }))
}

/// What vanishes while it is read (a device that is unbound) is no error.
fn read_if_there(path: &Path) -> Result<Option<String>, VfioError> {
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
        Err(source) => Err(VfioError {
            path: path.to_owned(),
            source,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_group_with_an_nvidia_device_among_others_counts_and_another_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let sys = dir.path();
        for (group, node, devices) in [
            (
                "7",
                "511:3\n",
                &[("0000:3b:00.0", "0x10de"), ("0000:3b:00.1", "0x8086")][..],
            ),
            ("8", "511:4\n", &[("0000:5e:00.0", "0x8086")]),
            ("noiommu-9", "511:5\n", &[("0000:60:00.0", "0x10DE")]),
        ] {
            file(sys, &format!("class/vfio/{group}/dev"), node);
            let number = group.trim_start_matches("noiommu-");
            for (device, vendor) in devices {
                let vendor_file = format!("kernel/iommu_groups/{number}/devices/{device}/vendor");
                file(sys, &vendor_file, vendor);
            }
        }
        file(sys, "class/vfio-dev/vfio0/dev", "510:0\n");
        file(sys, "class/vfio-dev/vfio0/device/vendor", "0x10de\n");
        file(sys, "class/vfio-dev/vfio1/dev", "510:1\n");
        file(sys, "class/vfio-dev/vfio1/device/vendor", "0x8086\n");
        let roots = Roots {
            sys: sys.into(),
            ..Roots::default()
        };
        let nodes = nvidia_nodes(&roots).unwrap();
        assert_eq!(nodes, VfioNodes::from([(511, 3), (511, 5), (510, 0)]));
    }

    #[test]
    fn a_host_without_vfio_has_no_such_node() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots {
            sys: dir.path().into(),
            ..Roots::default()
        };
        assert!(nvidia_nodes(&roots).unwrap().is_empty());
    }
}
