//! Which device nodes exist, checked by number.
//!
//! A node whose name and numbers disagree is never taken: after a reload of a module its dynamic
//! major may belong to another driver, and a container would get that driver's device.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{ControlFault, Node, NodeLink, PciAddress};
use crate::driver::Pattern;
use crate::host::devices::{Class, DRM_MAJOR, DeviceNumbers, NVIDIA_MAJOR};
use crate::host::{Roots, drm};

/// Shared by all GPUs, in the order of the spec.
pub const CONTROL_NODES: [&str; 4] = [
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
];

/// What lies at a path.
enum Found {
    Node(Node),
    Nothing,
    Other(String),
}

/// Looks at the path itself: a link could lead to any device.
fn look(roots: &Roots, path: &Path) -> Found {
    let host = roots.dev.join(path.strip_prefix("/").unwrap_or(path));
    match fs::symlink_metadata(&host) {
        Ok(meta) if meta.file_type().is_char_device() => Found::Node(Node {
            path: path.to_owned(),
            major: rustix::fs::major(meta.rdev()),
            minor: rustix::fs::minor(meta.rdev()),
        }),
        Ok(_) => Found::Other(format!("{} is no character device", host.display())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Found::Nothing,
        Err(error) => Found::Other(format!("can't look at {}: {error}", host.display())),
    }
}

/// The GPU's own node first, then its DRM nodes by path.
///
/// The own node is required, and the error says what to do; DRM nodes that don't exist or have
/// other numbers than sysfs says are left out.
pub(super) fn of_gpu(
    roots: &Roots,
    minor: u32,
    pci: Option<PciAddress>,
) -> Result<Vec<Node>, String> {
    let path = format!("/dev/nvidia{minor}");
    let own = match look(roots, Path::new(&path)) {
        Found::Node(node) if (node.major, node.minor) == (NVIDIA_MAJOR, minor) => node,
        Found::Node(node) => {
            return Err(format!(
                "its node {path} is {}:{}, not {NVIDIA_MAJOR}:{minor}: remove it and run nvidia-modprobe -c {minor}",
                node.major, node.minor
            ));
        }
        Found::Nothing => {
            return Err(format!(
                "its node {path} is missing below {}: nvidia-modprobe -c {minor} creates it",
                roots.dev.display()
            ));
        }
        Found::Other(reason) => return Err(format!("its node can't be used: {reason}")),
    };
    let mut nodes = vec![own];
    let Some(pci) = pci else { return Ok(nodes) };
    let entries = drm::of_pci_device(roots, &pci.to_string()).unwrap_or_else(|error| {
        tracing::warn!(%pci, %error, "the DRM nodes of a GPU are left out");
        Vec::new()
    });
    for entry in entries {
        let path = format!("/dev/dri/{}", entry.name);
        match look(roots, Path::new(&path)) {
            Found::Node(node)
                if (node.major, node.minor) == (entry.major, entry.minor)
                    && node.major == DRM_MAJOR =>
            {
                nodes.push(node);
            }
            Found::Node(node) => tracing::warn!(
                %path, major = node.major, minor = node.minor,
                "a DRM node is left out: sysfs says {}:{}", entry.major, entry.minor
            ),
            Found::Nothing => tracing::debug!(%path, "a DRM node does not exist"),
            Found::Other(reason) => tracing::warn!(%path, %reason, "a DRM node is left out"),
        }
    }
    Ok(nodes)
}

/// The control nodes that exist and whose numbers are a control node's, and what is wrong with the
/// others.
pub(super) fn control(
    roots: &Roots,
    numbers: &DeviceNumbers,
    paths: &[&Path],
) -> (Vec<Node>, Vec<ControlFault>) {
    let mut nodes = Vec::new();
    let mut faults = Vec::new();
    for path in paths {
        let reason = match look(roots, path) {
            Found::Node(node)
                if numbers.classify(node.major, node.minor) == Some(Class::Control) =>
            {
                nodes.push(node);
                continue;
            }
            Found::Node(node) => format!(
                "its numbers, {}:{}, are not the running driver's",
                node.major, node.minor
            ),
            Found::Nothing => format!("it is missing below {}", roots.dev.display()),
            Found::Other(reason) => reason,
        };
        tracing::debug!(path = %path.display(), reason, "a control node can't be used");
        faults.push(ControlFault {
            path: path.to_path_buf(),
            reason,
        });
    }
    (nodes, faults)
}

/// The links of udev that name DRM nodes by the GPU's PCI address. A link is taken only if it leads
/// to one of `own`.
pub(super) fn links(roots: &Roots, pci: &str, own: &[Node]) -> Vec<NodeLink> {
    let dir = Path::new("/dev/dri/by-path");
    ["card", "render"]
        .into_iter()
        .filter_map(|kind| {
            let path = dir.join(format!("pci-{pci}-{kind}"));
            let host = roots.dev.join(path.strip_prefix("/").unwrap_or(&path));
            let target = fs::read_link(host)
                .ok()?
                .into_os_string()
                .into_string()
                .ok()?;
            let name = target.strip_prefix("../")?;
            let node = own.iter().find(|node| {
                node.major == DRM_MAJOR && node.path == Path::new("/dev/dri").join(name)
            })?;
            Some(NodeLink {
                node: node.path.clone(),
                path,
                target,
            })
        })
        .collect()
}

/// The groups of DRM nodes, by path; see [`group_of`].
pub(super) fn groups<'n>(
    roots: &Roots,
    nodes: impl Iterator<Item = &'n Node>,
) -> BTreeMap<PathBuf, u32> {
    nodes
        .filter(|node| node.major == DRM_MAJOR)
        .filter_map(|node| Some((node.path.clone(), group_of(roots, node)?)))
        .collect()
}

/// The group of a node that others than its group can't open. Root's is none: being in it lifts no
/// restriction that a container's user is under.
pub fn group_of(roots: &Roots, node: &Node) -> Option<u32> {
    let host = roots
        .dev
        .join(node.path.strip_prefix("/").unwrap_or(&node.path));
    let meta = fs::symlink_metadata(host).ok()?;
    let is_open = meta.mode() & 0o006 == 0o006;
    (meta.gid() != 0 && !is_open).then(|| meta.gid())
}

/// Every character device whose path matches a pattern (`*` in its last component) and none of
/// `except`; sorted, each once. What is no character device is no match; a directory that does not
/// exist has none.
pub fn character_devices(
    roots: &Roots,
    patterns: &[String],
    except: &[String],
) -> io::Result<Vec<Node>> {
    let mut found = Vec::new();
    for pattern in patterns {
        let (dir, name) = pattern.rsplit_once('/').unwrap_or(("", pattern));
        let listed = roots.dev.join(dir.trim_start_matches('/'));
        let mut names = Vec::new();
        match fs::read_dir(&listed) {
            Ok(entries) => {
                for entry in entries {
                    names.extend(entry?.file_name().into_string());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        }
        names.sort();
        for name in Pattern::new(name).among(&names) {
            let path = format!("{dir}/{name}");
            if except
                .iter()
                .any(|except| Pattern::new(except).matches(&path))
            {
                continue;
            }
            if let Found::Node(node) = look(roots, Path::new(&path)) {
                found.push(node);
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}
