//! Mounts: the nodes of foreign GPUs, the places that runtimes and the kubelet obey, and directories
//! that hold either.

use std::path::{Component, Path, PathBuf};

use super::{ContainerView, NodeFacts, Reason, Refused, Terms, ViewMount, legacy};
use crate::config::{HostDirectories, Rule};
use crate::gpu::{Grant, Node};
use crate::host::{Found, Relation};

/// Refuses mounts that bring more than the grant, or power over the node.
pub(super) fn check(
    view: &ContainerView,
    grant: &Grant,
    node: NodeFacts<'_>,
    terms: Terms<'_>,
) -> Result<(), Refused> {
    for mount in &view.mounts {
        if legacy::is_volume_list(&mount.destination) {
            continue;
        }
        if is_foreign_node(mount, grant, node) {
            let cause = format!(
                "{} is a GPU node outside its allocation, on a mount of the host's {} that is not the container's own",
                mount.destination, mount.source
            );
            return Err((Reason::SharedDev, cause));
        }
        if !terms.exempt.covers(Rule::Mounts) {
            obeyed(mount)?;
            if terms.config.host_directories == HostDirectories::Refuse {
                directory(mount, grant)?;
            }
        }
    }
    Ok(())
}

fn is_foreign_node(mount: &ViewMount, grant: &Grant, node: NodeFacts<'_>) -> bool {
    match mount.found.found {
        Found::Device { major, minor } => node
            .numbers
            .classify(major, minor)
            .is_some_and(|class| !grant.permits(class)),
        // Not looked at, so the name has to do.
        Found::Unknown => is_foreign_path(Path::new(&mount.source), grant, node),
        Found::Directory(_) | Found::Other => false,
    }
}

fn obeyed(mount: &ViewMount) -> Result<(), Refused> {
    match &mount.found.relation {
        Some(Relation::Within(place)) if place.sockets || mount.writable => {
            let how = if place.sockets {
                "through which containers are made and changed, read-only or not"
            } else {
                "which decides what containers get, writable"
            };
            let cause = format!(
                "it mounts {} of the host at {} ({}), {how}",
                mount.source,
                mount.destination,
                place.path.display()
            );
            Err((Reason::ControlMount, cause))
        }
        _ => Ok(()),
    }
}

fn directory(mount: &ViewMount, grant: &Grant) -> Result<(), Refused> {
    let foreign = match &mount.found.found {
        Found::Directory(nodes) => nodes.iter().find(|(_, class)| !grant.permits(*class)),
        _ => None,
    };
    let held = match (&mount.found.relation, foreign) {
        (_, Some((path, _))) => path,
        (Some(Relation::Contains(place)), _) if mount.writable || place.sockets => &place.path,
        _ => return Ok(()),
    };
    let cause = format!(
        "it mounts the directory {} of the host at {}, which holds {}",
        mount.source,
        mount.destination,
        held.display()
    );
    Err((Reason::HostDirectory, cause))
}

/// Whether a path of the host is by its name a GPU node that the grant does not cover.
pub(super) fn is_foreign_path(path: &Path, grant: &Grant, node: NodeFacts<'_>) -> bool {
    let clean = lexically_clean(path);
    let is_among = |nodes: &[Node]| nodes.iter().any(|known| known.path == clean);
    if grant.gpus().iter().any(|gpu| is_among(&gpu.nodes)) {
        return false;
    }
    if let Ok(inventory) = node.inventory {
        if inventory.devices().any(|gpu| is_among(&gpu.nodes)) {
            return true;
        }
        if is_among(&inventory.control) {
            return grant.is_empty();
        }
    }
    is_gpu_path(&clean)
}

/// Whether a path lies in `/dev` and has a name of NVIDIA's driver.
pub(super) fn is_gpu_path(path: &Path) -> bool {
    let clean = lexically_clean(path);
    let name = |rest: &Path| rest.to_string_lossy().starts_with("nvidia");
    clean.strip_prefix("/dev").is_ok_and(name)
}

/// Resolves `.` and `..` by the text alone.
pub(super) fn lexically_clean(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            other => clean.push(other),
        }
    }
    clean
}
