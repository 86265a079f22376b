//! The places of a host that programs with power over containers obey: whoever may write there, or
//! connect to what listens there, has any GPU for the asking (and the node with it).

use std::path::{Path, PathBuf};

/// A directory or a socket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// On the host.
    pub path: PathBuf,
    /// Whether sockets are what it is about: a read-only mount keeps nobody from connecting (measured
    /// on Linux 6.18).
    pub sockets: bool,
}

/// Files: CDI specs, OCI hooks, NVIDIA's and the runtimes' configuration, NRI plugins, static pods.
const FILES: [&str; 12] = [
    "/etc/cdi",
    "/var/run/cdi",
    "/usr/share/containers/oci/hooks.d",
    "/etc/containers/oci/hooks.d",
    "/run/containers/oci/hooks.d",
    "/etc/nvidia-container-runtime",
    "/usr/local/nvidia/toolkit",
    "/etc/containerd",
    "/etc/crio",
    "/etc/nri",
    "/opt/nri",
    "/etc/kubernetes/manifests",
];

/// Sockets: NRI, containerd, CRI-O, Docker, and where k3s, k0s and MicroK8s have theirs.
const SOCKETS: [&str; 8] = [
    "/var/run/nri",
    "/run/containerd",
    "/run/crio/crio.sock",
    "/run/docker.sock",
    "/run/k3s/containerd",
    "/run/k0s",
    "/var/snap/microk8s/common/run",
    "/run/gpu-warden",
];

impl Place {
    /// The usual places, and those that this node's flags name.
    pub fn all(
        kubelet: &Path,
        cdi_dirs: &[PathBuf],
        nri_socket: &Path,
        configuration: &[PathBuf],
    ) -> Vec<Self> {
        let files = FILES
            .iter()
            .map(PathBuf::from)
            .chain(cdi_dirs.iter().cloned())
            .chain(configuration.iter().cloned())
            .chain([kubelet.to_owned()]);
        let sockets = SOCKETS
            .iter()
            .map(PathBuf::from)
            .chain([nri_socket.to_owned()]);
        let place = |sockets| move |path| Self { path, sockets };
        let mut places: Vec<_> = sockets
            .map(place(true))
            .chain(files.map(place(false)))
            .collect();
        places.sort();
        places.dedup();
        places
    }
}
