//! The gate: the check at StartContainer, on the container that the OCI runtime has built and that
//! has not run yet. It judges by what is there, whoever put it there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::ledger::{Entry, Holder};
use crate::fence::{self, Breach, ContainerDev, Expectation, FoundNode, GuardError};
use crate::gpu::Inventory;
use crate::host::{DeviceNumbers, NumbersError, Process, ProcessError, Roots};
use crate::policy::{Reason, Refused};

/// A container at the gate.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) id: String,
    pub(super) pid: u32,
    pub(super) entry: Entry,
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

/// Lets the container pass, or says why not. Blocks on procfs and on the container's `/dev`;
/// returns how many foreign nodes were taken away.
pub(super) fn pass(
    candidate: &Candidate,
    holders: &[Holder],
    roots: &Roots,
) -> Result<usize, Refused> {
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
    let expectation = Expectation {
        grant: &candidate.entry.grant,
        placeholders: &candidate.entry.placeholders,
        numbers: &numbers,
    };
    fence::guard(
        &process,
        &host_filesystems(roots).map_err(failed)?,
        &expectation,
    )
    .map_err(|error| match error {
        GuardError::Breach(breach @ Breach::Shared { .. }) => {
            (Reason::SharedDev, breach.to_string())
        }
        GuardError::Breach(breach) => (Reason::GateBreach, breach.to_string()),
        GuardError::Dev(error) => (Reason::GateFailed, error.to_string()),
    })
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
            Some(now) if now.minor == gpu.minor => continue,
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

/// A stop that was not reported (gpu-warden was away) must not hold a GPU for ever.
fn is_alive(holder: &Holder, proc_root: &Path) -> bool {
    Process::open(proc_root, holder.pid)
        .and_then(|process| process.is_in_container(&holder.container))
        .unwrap_or(false)
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
