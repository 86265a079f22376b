//! Where things are.

use std::path::PathBuf;

/// The roots below which all paths of the host are looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// Where the driver's files are (`/` on a plain host, `/run/nvidia/driver` under the GPU Operator).
    pub driver: PathBuf,
    /// The directory that *contains* `dev`.
    pub dev: PathBuf,
    /// Usually `/sys`.
    pub sys: PathBuf,
    /// Usually `/proc`, of the host's pid namespace.
    pub proc: PathBuf,
    /// Usually `/var/lib/kubelet`.
    pub kubelet: PathBuf,
    /// Usually `/sys/fs/cgroup`: where the host's cgroup hierarchies are mounted.
    pub cgroup: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self {
            driver: "/".into(),
            dev: "/".into(),
            sys: "/sys".into(),
            proc: "/proc".into(),
            kubelet: "/var/lib/kubelet".into(),
            cgroup: "/sys/fs/cgroup".into(),
        }
    }
}
