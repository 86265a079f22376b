//! Fences outside the gate: of a pod when its containers come and go, and of containers that were
//! there before this process.
//!
//! Owns no decision: what a container may have comes from the same sources as at CreateContainer. A
//! container whose allocation can't be learnt is left as it is and looked at again.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use nri::api::PodSandbox;
use tracing::{debug, info, warn};

use super::gate;
use super::ledger::{Entry, Handling, Origin};
use super::service::{Warden, lock, names};
use crate::config::Existing;
use crate::fence::{Enclosure, Fence, FenceError, Fenced};
use crate::gpu::Grant;
use crate::host::{DeviceNumbers, NumbersError, Process, ProcessError};

/// Why a fence outside the gate could not be put up.
#[derive(Debug, thiserror::Error)]
enum FencingError {
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Numbers(#[from] NumbersError),
    #[error(transparent)]
    Fence(#[from] FenceError),
    #[error("the sandbox has no process that could lead to its cgroup")]
    NoProcess,
    #[error("the work was stopped: {0}")]
    Stopped(#[from] tokio::task::JoinError),
}

impl Warden {
    /// Brings a pod's fence, if it has one, to what its containers may open together now. A failure is
    /// logged: the gate draws it again, and refuses if that fails.
    pub(super) async fn redraw_pod(&self, pod: &PodSandbox) {
        let (fence, ledger) = (Arc::clone(&self.fence), Arc::clone(&self.ledger));
        let roots = self.wiring.roots.clone();
        let (id, uid, pid) = (pod.id.clone(), pod.uid.clone(), pod.pid);
        let redrawn = tokio::task::spawn_blocking(move || {
            if pid == 0 {
                return Err(FencingError::NoProcess);
            }
            let _turn = fence.turn();
            let members = lock(&ledger).members(&uid);
            let Some(union) = gate::union("", &Grant::default(), &members, &roots.proc) else {
                return Ok(false);
            };
            let process = Process::open(&roots.proc, pid)?;
            let numbers = DeviceNumbers::read(&roots)?;
            Ok(fence.redraw_pod(&process, &id, &uid, &union, &numbers)?)
        });
        let redrawn = match redrawn.await {
            Ok(redrawn) => redrawn,
            Err(error) => Err(error.into()),
        };
        match redrawn {
            Ok(changed) => {
                debug!(pod = %pod.name, changed, "the pod's fence follows its containers");
            }
            // A pod that is being torn down has no process any more, nor needs a fence.
            Err(error) => debug!(pod = %pod.name, %error, "the pod's fence was not redrawn"),
        }
    }

    /// Puts fences up around running containers that lack one, as soon as their allocation is known,
    /// and around all when a driver's numbers change. Never returns.
    pub async fn keep_fences(self: Arc<Self>) {
        let mut node = self.wiring.node.clone();
        let mut settings = self.wiring.settings.clone();
        let mut told = HashSet::new();
        let mut numbers = None;
        loop {
            let now = node.borrow_and_update().numbers().clone();
            if numbers.as_ref().is_some_and(|before| *before != now) {
                info!("the drivers' device numbers changed: all fences are put up again");
                self.ledger().forget_fences();
            }
            numbers = Some(now);
            self.fence_running(&mut told).await;
            tokio::select! {
                changed = node.changed() => if changed.is_err() { return },
                changed = settings.changed() => if changed.is_err() { return },
                () = self.unfenced.notified() => {}
            }
        }
    }

    async fn fence_running(&self, told: &mut HashSet<String>) {
        let entries = self.ledger().all();
        told.retain(|id| entries.iter().any(|(container, _)| container == id));
        for (id, entry) in entries {
            if entry.origin == Origin::Recorded && entry.handling != Handling::Exempt {
                self.confirm(&id, &entry, told).await;
            }
        }
        let all = self.ledger().all();
        for (id, entry) in all.iter().filter(|(_, entry)| entry.fenced) {
            self.recheck(id, entry).await;
        }
        let existing = self.settings().config.existing;
        // After all of them: a pod's fence takes the union of what is known.
        let lacking: BTreeMap<_, _> = self
            .ledger()
            .all()
            .into_iter()
            .filter(|(_, entry)| lacks_fence(entry, existing))
            .collect();
        for (id, entry) in lacking {
            let gpus = names(&entry.grant);
            match self.enclose(&id, &entry).await {
                Ok(Some(fenced)) => {
                    self.ledger().amend(&id, |entry| entry.fenced = true);
                    info!(container = %entry.subject, gpus, fence = %fenced, "a running container was fenced");
                }
                Ok(None) => debug!(container = %entry.subject, "it runs no more"),
                Err(error) if told.insert(id) => {
                    warn!(container = %entry.subject, %error, "a running container has no fence");
                }
                Err(error) => debug!(container = %entry.subject, %error, "still no fence"),
            }
        }
    }

    /// A fence that has gone is put up again with those that were lacking.
    async fn recheck(&self, id: &str, entry: &Entry) {
        let held = self
            .with(id, entry, |fence, enclosure, numbers| {
                fence.holds(enclosure, numbers)
            })
            .await;
        match held {
            Ok(Some(true) | None) => {}
            Ok(Some(false)) => {
                warn!(container = %entry.subject, gpus = names(&entry.grant), "the fence of a running container was taken down");
                self.ledger().amend(id, |entry| entry.fenced = false);
            }
            Err(error) => {
                warn!(container = %entry.subject, %error, "the fence of a running container can't be checked");
            }
        }
    }

    /// Learns what a container that was there before us may have, from all of the kubelet's sources.
    async fn confirm(&self, id: &str, entry: &Entry, told: &mut HashSet<String>) {
        let subject = &entry.subject;
        let looked_up = self
            .kubelet
            .allocation(subject, self.lookup_deadline())
            .await;
        let node = Arc::clone(&self.wiring.node.borrow());
        let grant = looked_up.map_err(|e| e.to_string()).and_then(|allocation| {
            let inventory = node.inventory().map_err(str::to_owned)?;
            let gpus = allocation.devices.iter().map(|id| {
                let gpu = inventory.gpu(id).cloned();
                gpu.ok_or_else(|| format!("its GPU {id} is not among the node's"))
            });
            let gpus = gpus.collect::<Result<_, _>>()?;
            Ok(Grant::new(gpus, allocation.shared))
        });
        match grant {
            Ok(grant) => {
                self.ledger().amend(id, |entry| {
                    if entry.origin == Origin::Recorded {
                        entry.holds.extend(grant.exclusive().cloned());
                        entry.grant = grant;
                        entry.origin = Origin::Confirmed;
                    }
                });
                self.report_existing(id).await;
            }
            Err(error) if told.insert(id.to_owned()) => {
                warn!(container = %subject, %error, "a running container is left without a fence until its allocation is known");
            }
            Err(error) => debug!(container = %subject, %error, "its allocation is still not known"),
        }
    }

    async fn enclose(&self, id: &str, entry: &Entry) -> Result<Option<Fenced>, FencingError> {
        self.with(id, entry, |fence, enclosure, numbers| {
            fence.enclose(enclosure, numbers)
        })
        .await
    }

    /// Runs `work` on a container and the union of its pod; none when it runs no more.
    async fn with<T: Send + 'static>(
        &self,
        id: &str,
        entry: &Entry,
        work: impl FnOnce(&Fence, &Enclosure<'_>, &DeviceNumbers) -> Result<T, FenceError>
        + Send
        + 'static,
    ) -> Result<Option<T>, FencingError> {
        let (fence, ledger) = (Arc::clone(&self.fence), Arc::clone(&self.ledger));
        let roots = self.wiring.roots.clone();
        let (id, entry) = (id.to_owned(), entry.clone());
        let worked = tokio::task::spawn_blocking(move || {
            let Some(pid) = entry.pid.filter(|pid| gate::runs(*pid, &id, &roots.proc)) else {
                return Ok(None);
            };
            let _turn = fence.turn();
            let members = lock(&ledger).members(&entry.subject.pod_uid);
            let union = gate::union(&id, &entry.grant, &members, &roots.proc);
            let process = Process::open(&roots.proc, pid)?;
            let enclosure = Enclosure {
                process: &process,
                id: &id,
                pod_uid: &entry.subject.pod_uid,
                grant: &entry.grant,
                pod: union.as_ref(),
            };
            let numbers = DeviceNumbers::read(&roots)?;
            Ok(Some(work(&fence, &enclosure, &numbers)?))
        });
        worked.await?
    }
}

fn lacks_fence(entry: &Entry, existing: Existing) -> bool {
    let ours = match entry.origin {
        Origin::Decided => true,
        Origin::Confirmed => existing == Existing::Fence,
        Origin::Recorded => false,
    };
    ours && entry.handling == Handling::Enforced && !entry.fenced && entry.pid.is_some()
}
