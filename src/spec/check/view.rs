//! From a path as a spec writes it to the place where this process sees it.

use std::path::{Path, PathBuf};

use crate::host::Roots;

/// How the host looks from here: a spec names paths of the host, and a container sees them under
/// its own mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostView {
    /// Where things are for this process.
    pub roots: Roots,
    /// The driver root on the host.
    pub host_driver_root: PathBuf,
    /// The directory that contains `dev`, on the host.
    pub host_dev_root: PathBuf,
}

/// Where to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Below this root, with links resolved inside it: the root is the host's.
    InRoot(PathBuf, PathBuf),
    /// At this path.
    Here(PathBuf),
    /// It can't be seen from here.
    Nowhere,
}

impl HostView {
    /// Where a device node of the host is.
    pub(super) fn node(&self, path: &str) -> Place {
        match strip(path, &self.host_dev_root) {
            Some(rest) if rest.starts_with("dev") => Place::Here(self.roots.dev.join(rest)),
            _ => self.file(path),
        }
    }

    /// Where a file of the host is.
    pub(super) fn file(&self, path: &str) -> Place {
        let is_host = self.roots.driver == self.host_driver_root;
        match strip(path, &self.host_driver_root) {
            _ if is_host => Place::Here(path.into()),
            Some(rest) if self.host_driver_root == Path::new("/") => {
                Place::InRoot(self.roots.driver.clone(), rest)
            }
            Some(rest) => Place::Here(self.roots.driver.join(rest)),
            None => Place::Nowhere,
        }
    }
}

fn strip(path: &str, root: &Path) -> Option<PathBuf> {
    Path::new(path).strip_prefix(root).ok().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(driver: &str, host_driver: &str, dev: &str, host_dev: &str) -> HostView {
        HostView {
            roots: Roots {
                driver: driver.into(),
                dev: dev.into(),
                ..Roots::default()
            },
            host_driver_root: host_driver.into(),
            host_dev_root: host_dev.into(),
        }
    }

    #[test]
    fn on_the_host_every_path_is_itself() {
        for root in ["/", "/run/nvidia/driver"] {
            let view = view(root, root, "/", "/");
            assert_eq!(view.file("/usr/bin/h"), Place::Here("/usr/bin/h".into()));
            assert_eq!(view.node("/dev/x"), Place::Here("/dev/x".into()));
        }
    }

    #[test]
    fn in_a_container_paths_are_moved_below_its_mounts() {
        let view = view("/driver-root", "/run/nvidia/driver", "/host", "/");
        assert_eq!(
            view.file("/run/nvidia/driver/usr/lib/x"),
            Place::Here("/driver-root/usr/lib/x".into())
        );
        assert_eq!(view.file("/usr/bin/h"), Place::Nowhere);
        assert_eq!(view.node("/dev/x"), Place::Here("/host/dev/x".into()));
    }

    #[test]
    fn the_host_s_root_elsewhere_keeps_its_links_inside() {
        let view = view("/host", "/", "/host", "/");
        assert_eq!(
            view.file("/usr/lib/x"),
            Place::InRoot("/host".into(), "usr/lib/x".into())
        );
    }
}
