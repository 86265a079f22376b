//! Which device nodes exist, checked by number.
//!
//! A node whose name and numbers disagree is never taken: after a reload of a module its dynamic
//! major may belong to another driver, and a container would get that driver's device.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::{Node, PciAddress};
use crate::host::devices::{Class, DRM_MAJOR, DeviceNumbers, NVIDIA_MAJOR};
use crate::host::{Roots, drm};

/// Shared by all GPUs, in the order of the spec.
const CONTROL: [&str; 4] = [
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

/// The control nodes that exist and whose numbers are a control node's.
pub(super) fn control(roots: &Roots, numbers: &DeviceNumbers) -> Vec<Node> {
    let mut nodes = Vec::new();
    for path in CONTROL {
        match look(roots, Path::new(path)) {
            Found::Node(node)
                if numbers.classify(node.major, node.minor) == Some(Class::Control) =>
            {
                nodes.push(node);
            }
            Found::Node(node) => tracing::warn!(
                path,
                major = node.major,
                minor = node.minor,
                "a control node is left out: its numbers are not the running driver's; \
                 remove it and run nvidia-modprobe -u"
            ),
            Found::Nothing => tracing::debug!(path, "a control node does not exist"),
            Found::Other(reason) => tracing::warn!(path, %reason, "a control node is left out"),
        }
    }
    for (path, remedy) in [
        ("/dev/nvidiactl", "nvidia-modprobe"),
        ("/dev/nvidia-uvm", "nvidia-modprobe -u"),
    ] {
        if !nodes.iter().any(|node| node.path == Path::new(path)) {
            tracing::warn!(
                path,
                "CUDA needs this node, and the spec goes without it; `{remedy}` creates it"
            );
        }
    }
    nodes
}
