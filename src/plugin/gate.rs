//! The gate: the check at StartContainer, on the container that the OCI runtime has built and that
//! has not run yet. It judges by what is there, whoever put it there.

use std::collections::BTreeSet;
use std::path::Path;

use super::ledger::{Entry, Holder};
use crate::fence::{self, Breach, Expectation, GuardError};
use crate::gpu::Inventory;
use crate::host::{DeviceNumbers, NumbersError, Process, ProcessError, Roots};
use crate::policy::Reason;

/// A container at the gate.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) id: String,
    pub(super) pid: u32,
    pub(super) entry: Entry,
}

/// Why it may not pass: the code, and the cause as the second half of a sentence.
pub(super) type Refused = (Reason, String);

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
        let cause = format!(
            "process {} is not in a cgroup of container {}",
            candidate.pid, candidate.id
        );
        return Err((Reason::GateFailed, cause));
    }
    // Read anew for each start: a module that was loaded a moment ago has brought new majors.
    let numbers = DeviceNumbers::read(roots)
        .map_err(|e: NumbersError| (Reason::GateFailed, e.to_string()))?;
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

/// A stop that was not reported (gpu-warden was away) must not hold a GPU for ever. But only what is
/// known to be gone is gone: a failure to look (no more file descriptors) frees nothing.
fn is_alive(holder: &Holder, proc_root: &Path) -> bool {
    Process::open(proc_root, holder.pid)
        .and_then(|process| process.is_in_container(&holder.container))
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
