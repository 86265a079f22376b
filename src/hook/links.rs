//! Symbolic links: further names of libraries, and of DRM nodes by PCI address.

use std::path::{Component, Path, PathBuf};

use super::rootfs::Rootfs;
use super::{Link, Skipped};

/// Makes each link whose target is there. One spec names the links of all GPUs, and a container has
/// some of them; so an absent target is no event.
pub(super) fn make(root: &Rootfs, links: &[Link], skipped: &mut Vec<Skipped>) {
    for Link { target, path } in links {
        if !root.has(&destination(target, path)) {
            continue;
        }
        if let Err(error) = root.link(target, path) {
            let step = format!("the link {} to {target}", path.display());
            skipped.push(Skipped::new(step, &error));
        }
    }
}

/// Where a link leads. By its text: the directory of the link need not be there yet.
pub(super) fn destination(target: &str, link: &Path) -> PathBuf {
    let mut path = link.parent().unwrap_or(Path::new("/")).to_owned();
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir => {
                path.pop();
            }
            other => path.push(other),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_counts_from_the_directory_of_its_link() {
        let link = Path::new("/dev/dri/by-path/x");
        for (target, expected) in [
            ("../card0", "/dev/dri/card0"),
            ("y", "/dev/dri/by-path/y"),
            ("./y", "/dev/dri/by-path/y"),
            ("/usr/lib/z", "/usr/lib/z"),
            ("../../../../../z", "/z"),
        ] {
            assert_eq!(destination(target, link), Path::new(expected));
        }
    }
}
