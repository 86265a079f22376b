//! What a world left behind on the machine: directories, mounts, processes, cgroups, device nodes.
//!
//! Found by the world's mark, a name that nothing else on the machine has.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Long enough for the kernel to release the cgroups of processes that just died.
const PATIENCE: Duration = Duration::from_secs(5);

/// What identifies a world after its end.
#[derive(Debug, Clone)]
pub struct Traces {
    base: PathBuf,
    mark: String,
    host_nodes: BTreeSet<String>,
}

impl Traces {
    /// Of the world at `base`, whose last component is its mark. To be taken before it starts.
    pub(super) fn of(base: &Path) -> Self {
        let mark = base.file_name().unwrap_or_default();
        Self {
            base: base.to_owned(),
            mark: mark.to_string_lossy().into_owned(),
            host_nodes: gpu_nodes_of_host(),
        }
    }

    /// The name that its directory and its cgroups carry.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// Removes its cgroups, children first; they are empty once its processes are dead.
    pub(super) fn remove_cgroups(&self) {
        let until = Instant::now() + PATIENCE;
        for root in cgroup_mounts() {
            let top = root.join(&self.mark);
            while top.exists() && Instant::now() < until {
                remove_tree_of_cgroups(&top);
                if top.exists() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
    }

    /// Everything of the world that is still there, in words. Empty after a proper end.
    pub fn leftovers(&self) -> Vec<String> {
        let mut found = Vec::new();
        if self.base.exists() {
            found.push(format!("directory {}", self.base.display()));
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let of_world = |line: &&str| line.contains(&self.mark) || line.contains(" rig-");
        found.extend(
            mounts
                .lines()
                .filter(of_world)
                .map(|line| format!("mount {line}")),
        );
        for root in cgroup_mounts() {
            let top = root.join(&self.mark);
            if top.exists() {
                found.push(format!("cgroup {}", top.display()));
            }
        }
        found.extend(self.processes());
        let new = gpu_nodes_of_host();
        let new = new.difference(&self.host_nodes);
        found.extend(new.map(|node| format!("device node {node}")));
        found
    }

    fn processes(&self) -> Vec<String> {
        let own = std::process::id();
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| *pid != own)
            .filter_map(|pid| {
                let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
                let (line, groups) = (read("cmdline"), read("cgroup"));
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                let groups = String::from_utf8_lossy(&groups);
                let of_world = line.contains(&self.mark) || groups.contains(&self.mark);
                of_world.then(|| format!("process {pid} ({})", line.trim()))
            })
            .collect()
    }
}

/// Mount points of every cgroup hierarchy of this machine, v1 and v2.
pub(super) fn cgroup_mounts() -> Vec<PathBuf> {
    mounts_of(&["cgroup", "cgroup2"])
}

/// Whether the unified hierarchy is mounted anywhere.
pub(super) fn has_unified() -> bool {
    !mounts_of(&["cgroup2"]).is_empty()
}

fn mounts_of(types: &[&str]) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut found: Vec<PathBuf> = mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let point = words.nth(1)?;
            types.contains(&words.next()?).then(|| point.into())
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

fn remove_tree_of_cgroups(top: &Path) {
    for entry in fs::read_dir(top).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree_of_cgroups(&entry.path());
        }
    }
    // A busy one is tried again, and what stays is reported as a leftover.
    let _ = fs::remove_dir(top);
}

fn gpu_nodes_of_host() -> BTreeSet<String> {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with("nvidia"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_and_a_process_that_stay_are_found() {
        let dir = tempfile::Builder::new()
            .prefix("gw-left-")
            .tempdir()
            .unwrap();
        let traces = Traces::of(dir.path());
        let mut child = std::process::Command::new("sh")
            .args(["-c", "read x", traces.mark()])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // The mark is in its arguments, once it has become `sh`.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        let mut found = traces.leftovers();
        while !found.iter().any(|line| line.starts_with("process"))
            && std::time::Instant::now() < end
        {
            found = traces.leftovers();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(
            found.iter().any(|line| line.starts_with("directory")),
            "{found:?}"
        );
        assert!(
            found.iter().any(|line| line.starts_with("process")),
            "{found:?}"
        );
        drop(dir);
        assert_eq!(traces.leftovers(), Vec::<String>::new());
    }
}
