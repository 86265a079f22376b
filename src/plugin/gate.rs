//! The gate: the check at StartContainer, on the container that the OCI runtime has built and that
//! has not run yet. It judges by what is there, whoever put it there.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use super::ledger::{Entry, Holder, Member};
use crate::fence::{
    self, Breach, ContainerDev, Enclosure, Expectation, Fence, FoundNode, GuardError, Guarded,
};
use crate::gpu::{self, Grant, Inventory, Node};
use crate::host::{DeviceNumbers, NumbersError, Process, ProcessError, Roots};
use crate::policy::{Reason, Refused};

/// A container at the gate.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) id: String,
    pub(super) pid: u32,
    pub(super) entry: Entry,
    /// Character devices of the OCI spec as it is now.
    pub(super) devices: Vec<Node>,
}

/// What enforcement would do to a container, without doing it: the foreign nodes that it has, or why
/// that can't be told.
pub(super) fn look(candidate: &Candidate, roots: &Roots) -> Result<Vec<PathBuf>, Refused> {
    let process = Process::open(&roots.proc, candidate.pid).map_err(failed)?;
    if !process.is_in_container(&candidate.id).map_err(failed)? {
        return Err(stranger(candidate));
    }
    let numbers = numbers(roots)?;
    let is_foreign = |node: &FoundNode| {
        let class = numbers.classify(node.major, node.minor);
        class.is_some_and(|class| !candidate.entry.grant.permits(class))
    };
    let nodes = ContainerDev::open(&process, &host_filesystems(roots).map_err(failed)?)
        .and_then(|dev| dev.nodes())
        .map_err(|error| (Reason::GateFailed, error.to_string()))?;
    let foreign = nodes.into_iter().filter(is_foreign);
    Ok(foreign.map(|node| node.path).collect())
}

/// Lets the container pass, or says why not. Blocks on procfs, on cgroups and on the container's
/// `/dev`; says what was done to it.
pub(super) fn pass(
    candidate: &Candidate,
    holders: &[Holder],
    members: &[Member],
    fence: &Fence,
    roots: &Roots,
) -> Result<Guarded, Refused> {
    if let Some(holder) = holders.iter().find(|holder| is_alive(holder, &roots.proc)) {
        let cause = format!(
            "its GPU {} is still in use by container {}",
            holder.gpu, holder.subject
        );
        return Err((Reason::GpuHeld, cause));
    }
    let process = Process::open(&roots.proc, candidate.pid).map_err(failed)?;
    // A pid that was given to another process since the message was sent is no container of that id.
    if !process.is_in_container(&candidate.id).map_err(failed)? {
        return Err(stranger(candidate));
    }
    let numbers = numbers(roots)?;
    for gpu in candidate.entry.grant.gpus() {
        if let Some(cause) = gpu::contradiction(&roots.proc, gpu) {
            return Err((Reason::GpuUnknown, cause));
        }
    }
    if let Some(node) = foreign_elsewhere(candidate, &numbers) {
        let cause = format!(
            "{} ({}:{}) is a GPU node outside its allocation, and outside /dev",
            node.path.display(),
            node.major,
            node.minor
        );
        return Err((Reason::GateBreach, cause));
    }
    let expectation = Expectation {
        grant: &candidate.entry.grant,
        placeholders: &candidate.entry.placeholders,
        numbers: &numbers,
    };
    let pod = union(&candidate.id, &candidate.entry.grant, members, &roots.proc);
    let enclosure = Enclosure {
        process: &process,
        id: &candidate.id,
        pod_uid: &candidate.entry.subject.pod_uid,
        grant: &candidate.entry.grant,
        pod: pod.as_ref(),
    };
    fence::guard(
        fence,
        &enclosure,
        &host_filesystems(roots).map_err(failed)?,
        &expectation,
    )
    .map_err(|error| match error {
        GuardError::Breach(breach @ Breach::Shared { .. }) => {
            (Reason::SharedDev, breach.to_string())
        }
        GuardError::Breach(breach) => (Reason::GateBreach, breach.to_string()),
        GuardError::Dev(error) => (Reason::GateFailed, error.to_string()),
        GuardError::Fence(error) => (Reason::FenceFailed, error.to_string()),
    })
}

/// What a device plugin has put elsewhere than in `/dev`, which is all that is searched. At
/// CreateContainer it is re-pointed, so this is one that was created while gpu-warden was away.
fn foreign_elsewhere<'a>(candidate: &'a Candidate, numbers: &DeviceNumbers) -> Option<&'a Node> {
    let in_dev = |path: &Path| {
        path.starts_with("/dev") && !path.components().any(|part| part == Component::ParentDir)
    };
    let is_foreign = |node: &Node| {
        let class = numbers.classify(node.major, node.minor);
        class.is_some_and(|class| !candidate.entry.grant.permits(class))
    };
    let mut elsewhere = candidate.devices.iter().filter(|node| !in_dev(&node.path));
    elsewhere.find(|node| is_foreign(node))
}

fn stranger(candidate: &Candidate) -> Refused {
    let cause = format!(
        "process {} is not in a cgroup of container {}",
        candidate.pid, candidate.id
    );
    (Reason::GateFailed, cause)
}

/// Read anew for each start: a module that was loaded a moment ago has brought new majors.
fn numbers(roots: &Roots) -> Result<DeviceNumbers, Refused> {
    DeviceNumbers::read(roots).map_err(|e: NumbersError| (Reason::GateFailed, e.to_string()))
}

/// Whether every granted GPU still has the number that was decided on.
pub(super) fn still_valid(
    entry: &Entry,
    inventory: Result<&Inventory, &str>,
) -> Result<(), Refused> {
    for gpu in entry.grant.gpus() {
        let inventory = inventory.map_err(|why| {
            let cause = format!("the GPUs of this node are not known now ({why})");
            (Reason::InventoryUnavailable, cause)
        })?;
        let cause = match inventory.gpu(&gpu.id) {
            Some(now)
                if now.minor == gpu.minor && now.required_nodes().eq(gpu.required_nodes()) =>
            {
                continue;
            }
            Some(now) if now.minor == gpu.minor => {
                format!("the device nodes of its GPU {} have new numbers", gpu.id)
            }
            Some(now) => format!(
                "its GPU {} changed from /dev/nvidia{} to /dev/nvidia{}",
                gpu.id, gpu.minor, now.minor
            ),
            None => format!("its GPU {} has left the node", gpu.id),
        };
        return Err((Reason::GpuUnknown, cause));
    }
    Ok(())
}

/// What a pod's containers may open together: those that run, those that are about to, and the one of
/// that id with its grant. None when one of them is not known.
pub(super) fn union(
    id: &str,
    grant: &Grant,
    members: &[Member],
    proc_root: &Path,
) -> Option<Grant> {
    let mut grants = vec![grant];
    for member in members.iter().filter(|member| member.container != id) {
        // A stop that was missed: the GPU may be another pod's by now.
        if member
            .pid
            .is_some_and(|pid| !runs(pid, &member.container, proc_root))
        {
            continue;
        }
        grants.push(member.grant.as_ref()?);
    }
    Some(Grant::union(grants))
}

/// A stop that was not reported (gpu-warden was away) must not hold a GPU for ever.
fn is_alive(holder: &Holder, proc_root: &Path) -> bool {
    runs(holder.pid, &holder.container, proc_root)
}

/// Whether that process is one of that container still. Only what is known to be gone is gone: a
/// failure to look (no more file descriptors) frees nothing.
pub(super) fn runs(pid: u32, container: &str, proc_root: &Path) -> bool {
    Process::open(proc_root, pid)
        .and_then(|process| process.is_in_container(container))
        .unwrap_or_else(|error| !error.is_absence())
}

/// Every superblock that is mounted on the host side: in gpu-warden's own mount namespace, which is
/// the host's under systemd, and in that of the host's init, which is not ours in a pod.
fn host_filesystems(roots: &Roots) -> Result<BTreeSet<(u32, u32)>, ProcessError> {
    let mut mounts = Process::open(&roots.proc, 1)?.mounts()?;
    mounts.extend(Process::own(Path::new("/proc"))?.mounts()?);
    Ok(mounts.into_iter().map(|mount| mount.device).collect())
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn failed(error: ProcessError) -> Refused {
    (Reason::GateFailed, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::Subject;
    use crate::gpu::DeviceId;

    #[test]
    fn a_holder_is_gone_only_when_it_is_known_to_be_gone() {
        let proc = tempfile::tempdir().unwrap();
        let cgroup = proc.path().join("7/cgroup");
        let holder = Holder {
            container: "c0ffee".into(),
            subject: Subject {
                pod_uid: "u".into(),
                namespace: "n".into(),
                pod: "p".into(),
                container: "c".into(),
            },
            pid: 7,
            gpu: DeviceId::parse("GPU-1").unwrap(),
        };
        let alive = || is_alive(&holder, proc.path());
        assert!(!alive(), "no such pid");
        std::fs::create_dir(proc.path().join("7")).unwrap();
        std::fs::write(&cgroup, "0::/kubepods/pod1/c0ffee\n").unwrap();
        assert!(alive());
        std::fs::write(&cgroup, "0::/kubepods/pod1/decade\n").unwrap();
        assert!(!alive(), "its pid was given to another container's process");
        std::fs::remove_file(&cgroup).unwrap();
        std::fs::create_dir(&cgroup).unwrap();
        assert!(alive(), "it can't be looked at");
    }
}
