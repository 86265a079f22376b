//! How a container's loader comes to know the driver's libraries: by one hook, or by mounts alone.
//!
//! Works on the finished spec, so that it does not matter how its mounts were found.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cdi::{Hook, Mount, Spec};

use crate::gpu::NodeLink;
use crate::hook::{Link, Request};

/// Below a library directory, these hold plug-ins, which programs load by path.
const PLUGIN_DIRS: [&str; 7] = [
    "dri",
    "drivers",
    "extensions",
    "gbm",
    "modules",
    "vdpau",
    "xorg",
];

/// The loader of a 64-bit program passes over what is in these.
const NARROW_DIRS: [&str; 3] = ["i386-linux-gnu", "lib32", "i686"];

/// Where the loaders of the usual distributions look without being told: Debian's and Ubuntu's in
/// the multiarch directory, those of Fedora, RHEL, SUSE and Gentoo in `lib64`, which in Arch is a
/// link to the directory where its own looks.
#[cfg(target_arch = "x86_64")]
pub const LOADER_DIRS: [&str; 2] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64"];
/// Where the loaders of the usual distributions look without being told: Debian's and Ubuntu's in
/// the multiarch directory, those of Fedora, RHEL, SUSE and Gentoo in `lib64`, which in Arch is a
/// link to the directory where its own looks.
#[cfg(target_arch = "aarch64")]
pub const LOADER_DIRS: [&str; 2] = ["/usr/lib/aarch64-linux-gnu", "/usr/lib64"];

/// What makes the libraries known in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookMode {
    /// Mounts alone: each library at each of its names, and once more in these directories of the
    /// container (absolute).
    None {
        /// See [`LOADER_DIRS`].
        loader_dirs: Vec<String>,
    },
    /// Each library is mounted once; one `createContainer` hook makes links and the loader's cache.
    One {
        /// `cdi-gen`, absolute, where the runtime on the host finds it.
        program: String,
    },
}

/// Finishes a spec that mounts each library at each of its names. `links` are those of all GPUs:
/// the hook makes those whose node is there.
pub(super) fn apply<'a>(
    spec: &mut Spec,
    links: impl Iterator<Item = &'a NodeLink>,
    mode: &HookMode,
) {
    match mode {
        HookMode::None { loader_dirs } => mirror(&mut spec.container_edits.mounts, loader_dirs),
        HookMode::One { program } => {
            let mut request = fold(&mut spec.container_edits.mounts);
            request.links.extend(links.map(|link| Link {
                target: link.target.clone(),
                path: link.path.clone(),
            }));
            request.freeze_device_files = true;
            let name = Path::new(program).file_name().unwrap_or_default();
            let own = [name.display().to_string(), "hook".to_owned()];
            spec.container_edits.hooks.push(Hook {
                hook_name: "createContainer".into(),
                path: program.clone(),
                args: own.into_iter().chain(request.arguments()).collect(),
                ..Hook::default()
            });
        }
    }
}

/// Mounts each library under the names that programs ask for in each of the directories, where no
/// mount has that path already.
fn mirror(mounts: &mut Vec<Mount>, dirs: &[String]) {
    let mut taken: BTreeSet<_> = mounts.iter().map(|m| m.container_path.clone()).collect();
    let mut asked: Vec<_> = asked_for(mounts)
        .into_iter()
        .filter(|mount| !is_narrow(&mount.container_path))
        .cloned()
        .collect();
    // Where plain `lib` is the 32-bit directory, the wide one is called `lib64`.
    asked.sort_by_key(|mount| parent_name(&mount.container_path) == "lib");
    for dir in dirs {
        for mount in &asked {
            let name = name(&mount.container_path);
            let container_path = format!("{}/{name}", dir.trim_end_matches('/'));
            if taken.insert(container_path.clone()) {
                mounts.push(Mount {
                    container_path,
                    ..mount.clone()
                });
            }
        }
    }
}

/// Leaves one mount of each library and turns its further ones into links.
fn fold(mounts: &mut Vec<Mount>) -> Request {
    let libraries = asked_for(mounts)
        .into_iter()
        .map(|mount| mount.container_path.clone().into())
        .collect();
    let mut first: BTreeMap<String, String> = BTreeMap::new();
    let mut links = Vec::new();
    mounts.retain(|mount| {
        if !is_library(&mount.container_path) {
            return true;
        }
        let Some(real) = first.get(&mount.host_path) else {
            first.insert(mount.host_path.clone(), mount.container_path.clone());
            return true;
        };
        let beside = Path::new(real).parent() == Path::new(&mount.container_path).parent();
        links.push(Link {
            target: if beside { name(real) } else { real }.to_owned(),
            path: mount.container_path.clone().into(),
        });
        false
    });
    Request {
        links,
        libraries,
        ..Request::default()
    }
}

/// The mounts under the names that programs ask for: the further ones of a library that has some,
/// else its only one.
fn asked_for(mounts: &[Mount]) -> Vec<&Mount> {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    let libraries: Vec<_> = mounts
        .iter()
        .filter(|mount| is_library(&mount.container_path))
        .map(|mount| {
            let position = count.entry(&mount.host_path).or_default();
            *position += 1;
            (*position, mount)
        })
        .collect();
    libraries
        .into_iter()
        .filter(|(position, mount)| {
            let names = count.get(mount.host_path.as_str()).copied().unwrap_or(1);
            *position > 1 || names == 1
        })
        .map(|(_, mount)| mount)
        .collect()
}

fn is_library(path: &str) -> bool {
    let name = name(path);
    name.starts_with("lib") && name.contains(".so") && !PLUGIN_DIRS.contains(&parent_name(path))
}

fn is_narrow(path: &str) -> bool {
    path.split('/').any(|part| NARROW_DIRS.contains(&part))
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

fn parent_name(path: &str) -> &str {
    path.rsplit('/').nth(1).unwrap_or_default()
}

#[cfg(test)]
#[path = "hooks_tests.rs"]
mod tests;
