//! What the host has at the sources of a container's mounts.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nri::api::{Container, Mount, PodSandbox};
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

/// Whether the container runs in the host's pid namespace: it has none of its own, or joins that of a
/// sandbox which has none (containerd writes `hostPID` so, with the path of the sandbox's namespace).
/// What can't be looked at counts as the host's.
pub(super) fn has_host_pids(container: &Container, proc_root: &Path) -> bool {
    let mut namespaces = container.linux.namespaces.iter();
    let Some(own) = namespaces.find(|namespace| namespace.type_ == "pid") else {
        return true;
    };
    if own.path.is_empty() {
        return false;
    }
    let path = Path::new(&own.path);
    let joined = proc_root.join(path.strip_prefix("/proc").unwrap_or(path));
    let of = |path: &Path| std::fs::read_link(path).ok();
    let host = of(&proc_root.join("1/ns/pid"));
    host.is_none() || of(&joined).is_none_or(|joined| Some(joined) == host)
}

/// A UID that is no single name would make another directory the pod's own.
fn is_component(uid: &str) -> bool {
    !uid.is_empty() && uid != "." && uid != ".." && !uid.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use nri::api::{LinuxContainer, LinuxNamespace};
    use nri::protobuf::MessageField;

    use super::*;

    fn has(proc_root: &Path, namespace: Option<&str>) -> bool {
        let namespaces = namespace.map(|path| LinuxNamespace {
            type_: "pid".into(),
            path: path.into(),
            ..Default::default()
        });
        let container = Container {
            linux: MessageField::some(LinuxContainer {
                namespaces: namespaces.into_iter().collect(),
                ..Default::default()
            }),
            ..Default::default()
        };
        has_host_pids(&container, proc_root)
    }

    #[test]
    fn the_hosts_pids_are_told_from_those_of_the_pod_by_the_namespace_itself() {
        let root = tempfile::tempdir().unwrap();
        for (pid, namespace) in [("1", "pid:[1]"), ("7", "pid:[1]"), ("8", "pid:[2]")] {
            let directory = root.path().join(pid).join("ns");
            std::fs::create_dir_all(&directory).unwrap();
            std::os::unix::fs::symlink(namespace, directory.join("pid")).unwrap();
        }
        let root = root.path();
        assert!(has(root, None), "none of its own");
        assert!(!has(root, Some("")), "one of its own");
        assert!(has(root, Some("/proc/7/ns/pid")), "a sandbox in the host's");
        assert!(!has(root, Some("/proc/8/ns/pid")), "a sandbox in its own");
        assert!(has(root, Some("/proc/9/ns/pid")), "gone");
        assert!(has(&root.join("none"), Some("/proc/8/ns/pid")), "unknown");
    }
}
