//! What the host has at the sources of a container's mounts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nri::api::{Mount, PodSandbox};
use tracing::warn;

use super::view::Sources;
use crate::host::{DeviceNumbers, HostView, Place, Roots};

/// Looks at every source. Blocks on the host's file systems. What can't be looked at is left out: the
/// policy then goes by the path alone, and the gate by what is in the container.
pub(super) fn sources(
    pod: &PodSandbox,
    mounts: &[Mount],
    places: &[Place],
    roots: &Roots,
    search: Option<&DeviceNumbers>,
) -> Sources {
    let wanted: BTreeSet<&String> = mounts
        .iter()
        .map(|mount| &mount.source)
        .filter(|source| source.starts_with('/'))
        .collect();
    if wanted.is_empty() {
        return Sources::new();
    }
    let own: Vec<PathBuf> = Some(roots.kubelet.join("pods").join(&pod.uid))
        .filter(|_| is_component(&pod.uid))
        .into_iter()
        .collect();
    let view = match HostView::open(&roots.proc, places, &own, &pod.id) {
        Ok(view) => view,
        Err(error) => {
            warn!(%error, "what is mounted can't be looked at");
            return Sources::new();
        }
    };
    let look = |source: &String| (source.clone(), view.look(Path::new(source), search));
    wanted.into_iter().map(look).collect()
}

/// A UID that is no single name would make another directory the pod's own.
fn is_component(uid: &str) -> bool {
    !uid.is_empty() && uid != "." && uid != ".." && !uid.contains(['/', '\0'])
}
