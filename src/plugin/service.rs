//! The NRI service: requests in, decisions out. Everything that is decided is decided elsewhere.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use nri::api::{
    Container, ContainerAdjustment, ContainerState, ContainerUpdate, Event, PodSandbox,
    ValidateContainerAdjustmentRequest,
};
use nri::{Adjusted, Events, Feature, Plugin, Refusal as Reply, Runtime};
use tokio::sync::{Notify, watch};
use tracing::{debug, info, warn};

use super::decision::is_audit;
use super::gate::{self, Candidate};
use super::ledger::{Entry, Handling, Ledger, Origin};
use super::reply::adjustment;
use super::view::{nodes, subject};
use crate::allocation::{Kubelet, Subject};
use crate::config::Settings;
use crate::fence::Fence;
use crate::gpu::{DeviceId, Grant, Node};
use crate::host::{Class, Place, Roots};
use crate::policy::{Admission, Decision, Injection, Reason, Refusal, WARDEN_UUIDS};
use crate::watch::{NodeState, Refresh};

/// Share of the runtime's request timeout within which the kubelet has to answer. The session's own
/// deadline is at 60 %; what lies between is for deciding and replying.
const LOOKUP_SHARE: f32 = 0.45;

/// What the plugin needs of the world.
#[derive(Debug)]
pub struct Wiring {
    /// Where everything is.
    pub roots: Roots,
    /// The node's administrator's choices, and what the node's NVIDIA runtime listens to; kept fresh
    /// by a watcher of its own.
    pub settings: watch::Receiver<Arc<Settings>>,
    /// UID of the pod that this process runs in, which is exempt.
    pub own_pod_uid: Option<String>,
    /// What a container must not mount: the places that the runtime and the kubelet obey.
    pub places: Vec<Place>,
    /// The state of the node, kept fresh by the watcher.
    pub node: watch::Receiver<Arc<NodeState>>,
    /// Asks the watcher to look at once.
    pub refresh: Refresh,
}

/// The plugin.
#[derive(Debug)]
pub struct Warden {
    pub(super) kubelet: Kubelet,
    pub(super) wiring: Wiring,
    pub(super) ledger: Arc<Mutex<Ledger>>,
    pub(super) fence: Arc<Fence>,
    /// Told when there may be running containers without a fence.
    pub(super) unfenced: Notify,
    runtime: Mutex<Option<Runtime>>,
}

impl Warden {
    /// Opens nothing yet.
    pub fn new(wiring: Wiring) -> Self {
        Self {
            kubelet: Kubelet::new(&wiring.roots.kubelet),
            fence: Arc::new(Fence::new(wiring.roots.clone())),
            wiring,
            ledger: Arc::default(),
            unfenced: Notify::new(),
            runtime: Mutex::default(),
        }
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        lock(&self.ledger)
    }

    pub(super) fn runtime_has(&self, feature: Feature) -> bool {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        runtime.as_ref().is_some_and(|runtime| runtime.has(feature))
    }

    pub(super) fn lookup_deadline(&self) -> Instant {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let timeout = runtime
            .as_ref()
            .map_or(Duration::from_secs(2), |runtime| runtime.request_timeout);
        Instant::now() + timeout.mul_f32(LOOKUP_SHARE)
    }

    /// The record of a container that was not created under our eyes: decided now, from the same
    /// sources, but it can no longer be adjusted, so the gate has to find it right as it is.
    async fn late_entry(&self, pod: &PodSandbox, container: &Container) -> Result<Entry, Reply> {
        let subject = subject(pod, container);
        debug!(container = %subject, "it was not created under our eyes");
        let settings = self.settings();
        let audit = is_audit(&settings);
        match self.decide(&subject, pod, container, &settings).await {
            Decision::Refuse(refusal) if !audit => Err(Reply::new(refusal.to_string())),
            decision => Ok(entry(&container.pod_sandbox_id, subject, &decision, audit)),
        }
    }

    /// Who runs already: what must not be granted to another pod.
    ///
    /// From the kubelet's checkpoint, which forgets a force-deleted pod with the next allocation; so
    /// also from what was decided before the connection broke, and from the container itself.
    async fn rebuild(&self, pods: &[PodSandbox], containers: &[Container]) {
        let before = self.ledger().take();
        let deadline = self.lookup_deadline();
        let settings = self.settings();
        for container in containers.iter().filter(|container| exists(container)) {
            let Some(pod) = pods.iter().find(|pod| pod.id == container.pod_sandbox_id) else {
                continue;
            };
            let pid = is_running(container).then_some(container.pid);
            // Decided here, and where it was when the connection broke.
            if let Some(entry) = before
                .get(&container.id)
                .filter(|entry| entry.origin == Origin::Decided && entry.pid == pid)
            {
                self.ledger().record(container.id.clone(), entry.clone());
                continue;
            }
            let subject = subject(pod, container);
            let mut holds = self.given_before(container);
            if let Some(entry) = before.get(&container.id) {
                holds.extend(entry.holds.iter().cloned());
            }
            match self.kubelet.recorded(&subject, deadline).await {
                Ok(allocation) => {
                    holds.extend(allocation.devices.difference(&allocation.shared).cloned());
                }
                Err(error) => {
                    warn!(container = %subject, %error, "the kubelet's record of a running container can't be read");
                }
            }
            info!(container = %subject, gpus = %ids(&holds), "is there already; it was not verified by this process");
            let entry = Entry {
                sandbox: container.pod_sandbox_id.clone(),
                subject,
                grant: Grant::default(),
                holds,
                placeholders: BTreeSet::new(),
                handling: if self.exempt(pod, &settings).is_whole() {
                    Handling::Exempt
                } else {
                    handling(is_audit(&settings))
                },
                by_name: false,
                replied: None,
                pid,
                origin: Origin::Recorded,
                fenced: false,
            };
            self.ledger().record(container.id.clone(), entry);
        }
    }

    /// The gate under `enforcement: audit`: looks, tells, and touches nothing.
    async fn report(&self, candidate: Candidate) {
        let roots = self.wiring.roots.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let found = gate::look(&candidate, &roots);
            (candidate, found)
        });
        let Ok((Candidate { id, pid, entry, .. }, found)) = looked.await else {
            return;
        };
        let subject = &entry.subject;
        match found {
            Ok(foreign) if foreign.is_empty() => {
                info!(container = %subject, enforcement = "audit", "has no GPU node outside its allocation");
            }
            Ok(foreign) => {
                warn!(container = %subject, enforcement = "audit", nodes = ?foreign, "starts with GPU nodes outside its allocation");
            }
            Err((reason, cause)) => {
                warn!(container = %subject, enforcement = "audit", %reason, cause, "could not be examined");
            }
        }
        let pid = Some(pid);
        self.ledger().record(id, Entry { pid, ..entry });
    }

    /// The GPUs that gpu-warden gave a container, by the variable that it sets or voids in each one.
    /// A container that was created while gpu-warden was away could lie there, but not without a GPU's node.
    fn given_before(&self, container: &Container) -> BTreeSet<DeviceId> {
        let node = Arc::clone(&self.wiring.node.borrow());
        let is_gpu = |device: &Node| {
            let class = node.numbers().classify(device.major, device.minor);
            matches!(class, Some(Class::Gpu(_)))
        };
        if !nodes(&container.linux.devices).iter().any(is_gpu) {
            return BTreeSet::new();
        }
        let value = |entry: &String| {
            let (key, value) = entry.split_once('=')?;
            (key == WARDEN_UUIDS).then(|| value.to_owned())
        };
        let uuids = container
            .env
            .iter()
            .rev()
            .find_map(value)
            .unwrap_or_default();
        uuids
            .split(',')
            .filter_map(|id| DeviceId::parse(id).ok())
            .collect()
    }
}

#[async_trait]
impl Plugin for Warden {
    fn events(&self, runtime: &Runtime) -> Events {
        let validation = if runtime.has(Feature::Validation) {
            Events::VALIDATE_CONTAINER_ADJUSTMENT
        } else {
            Events::NONE
        };
        Events::CREATE_CONTAINER
            | Events::START_CONTAINER
            | Events::STOP_CONTAINER
            | Events::REMOVE_CONTAINER
            | validation
    }

    async fn configure(&self, runtime: &Runtime, _config: &str) -> Result<(), Reply> {
        info!(runtime = %runtime.name, version = %runtime.version, timeout = ?runtime.request_timeout, "configured");
        *self.runtime.lock().unwrap_or_else(PoisonError::into_inner) = Some(runtime.clone());
        Ok(())
    }

    async fn synchronize(
        &self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
    ) -> Result<Vec<ContainerUpdate>, Reply> {
        self.rebuild(&pods, &containers).await;
        self.unfenced.notify_one();
        info!(
            pods = pods.len(),
            containers = containers.len(),
            "synchronized"
        );
        Ok(Vec::new())
    }

    async fn create_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<Adjusted, Reply> {
        let subject = subject(&pod, &container);
        let settings = self.settings();
        let audit = is_audit(&settings);
        let decision = self.decide(&subject, &pod, &container, &settings).await;
        let adjust = match &decision {
            _ if audit => ContainerAdjustment::default(),
            Decision::Refuse(refusal) => return Err(Reply::new(refusal.to_string())),
            Decision::Exempt => ContainerAdjustment::default(),
            Decision::Admit(admission) => {
                adjustment(admission, self.runtime_has(Feature::MountRemoval))
            }
        };
        let replied = self
            .runtime_has(Feature::Validation)
            .then(|| Box::new(adjust.clone()));
        let entry = Entry {
            replied,
            ..entry(&container.pod_sandbox_id, subject, &decision, audit)
        };
        let widens = !entry.grant.is_empty() && !audit;
        self.ledger().record(container.id, entry);
        if widens {
            self.redraw_pod(&pod).await;
        }
        Ok(Adjusted {
            adjust,
            update: Vec::new(),
        })
    }

    async fn validate_container_adjustment(
        &self,
        request: ValidateContainerAdjustmentRequest,
    ) -> Result<(), Reply> {
        let subject = subject(&request.pod, &request.container);
        let settings = self.settings();
        let Err((reason, cause)) = self.judge_merged(&request, &subject, &settings).await else {
            return Ok(());
        };
        if is_audit(&settings) {
            warn!(container = %subject, %reason, cause, enforcement = "audit", "would be refused at validation");
            return Ok(());
        }
        warn!(container = %subject, %reason, cause, "refused at validation");
        let refusal = Refusal {
            subject,
            reason,
            cause,
        };
        Err(Reply::new(refusal.to_string()))
    }

    async fn start_container(&self, pod: PodSandbox, container: Container) -> Result<(), Reply> {
        let known = self.ledger().get(&container.id).cloned();
        let entry = match known {
            Some(entry) if entry.origin == Origin::Decided => entry,
            _ => self.late_entry(&pod, &container).await?,
        };
        if entry.handling == Handling::Exempt {
            return Ok(());
        }
        let candidate = Candidate {
            id: container.id.clone(),
            pid: container.pid,
            entry,
            devices: nodes(&container.linux.devices),
        };
        let node = Arc::clone(&self.wiring.node.borrow());
        let roots = self.wiring.roots.clone();
        let (ledger, fence) = (Arc::clone(&self.ledger), Arc::clone(&self.fence));
        let subject = candidate.entry.subject.clone();
        if candidate.entry.handling == Handling::Audited {
            self.report(candidate).await;
            return Ok(());
        }
        let passed = tokio::task::spawn_blocking(move || {
            let started = Instant::now();
            gate::still_valid(&candidate.entry, node.inventory())?;
            let _turn = fence.turn();
            // Both within the turn: of two starts at once, the second has to see the first as a holder.
            let holders = lock(&ledger).holders(&candidate.entry.sandbox, &candidate.entry.grant);
            let members = lock(&ledger).members(&candidate.entry.subject.pod_uid);
            let guarded = gate::pass(&candidate, &holders, &members, &fence, &roots)?;
            let Candidate { id, pid, entry, .. } = candidate;
            let gpus = names(&entry.grant);
            let passed = Entry {
                pid: Some(pid),
                fenced: true,
                ..entry
            };
            // Before the next container's turn, whose pod may be the same.
            lock(&ledger).record(id, passed);
            Ok((gpus, guarded, started.elapsed()))
        });
        let passed = passed.await.unwrap_or_else(|error| {
            Err((
                Reason::GateFailed,
                format!("the check itself failed ({error})"),
            ))
        });
        match passed {
            Ok((gpus, guarded, took)) => {
                info!(container = %subject, gpus, removed = guarded.removed, fence = %guarded.fenced, ?took, "verified at the gate");
                Ok(())
            }
            Err((reason, cause)) => {
                // It will never run, so its pod's fence has no room for it.
                self.ledger().end(&container.id);
                warn!(container = %subject, %reason, cause, "refused at the gate");
                if matches!(reason, Reason::GpuUnknown | Reason::InventoryUnavailable) {
                    self.wiring.refresh.now();
                }
                let refusal = Refusal {
                    subject,
                    reason,
                    cause,
                };
                Err(Reply::new(refusal.to_string()))
            }
        }
    }

    async fn stop_container(
        &self,
        pod: PodSandbox,
        container: Container,
    ) -> Result<Vec<ContainerUpdate>, Reply> {
        let ended = self.ledger().end(&container.id);
        if let Some(entry) = ended {
            debug!(container = %entry.subject, "stopped; its grant has ended");
            if !entry.grant.is_empty() {
                self.redraw_pod(&pod).await;
            }
        }
        Ok(Vec::new())
    }

    async fn event(
        &self,
        event: Event,
        _pod: PodSandbox,
        container: Option<Container>,
    ) -> Result<(), Reply> {
        // Normally long gone; this one was created and never started.
        if let (Event::REMOVE_CONTAINER, Some(container)) = (event, container) {
            self.ledger().end(&container.id);
        }
        Ok(())
    }
}

fn handling(audit: bool) -> Handling {
    if audit {
        Handling::Audited
    } else {
        Handling::Enforced
    }
}

fn entry(sandbox: &str, subject: Subject, decision: &Decision, audit: bool) -> Entry {
    let by_name = matches!(
        decision,
        Decision::Admit(Admission {
            inject: Injection::Names(_),
            ..
        })
    );
    let (grant, placeholders, handling) = match decision {
        Decision::Admit(Admission { grant, repoint, .. }) => {
            (grant.clone(), repoint.clone(), handling(audit))
        }
        Decision::Exempt => (Grant::default(), BTreeSet::new(), Handling::Exempt),
        Decision::Refuse(_) => (Grant::default(), BTreeSet::new(), handling(audit)),
    };
    Entry {
        sandbox: sandbox.to_owned(),
        subject,
        holds: grant.exclusive().cloned().collect(),
        grant,
        placeholders,
        handling,
        by_name,
        replied: None,
        pid: None,
        origin: Origin::Decided,
        fenced: false,
    }
}

pub(super) fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    // Every method leaves the ledger whole, so a panic elsewhere has not torn it.
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether it runs, or is built and may be started.
fn exists(container: &Container) -> bool {
    is_running(container)
        || container.state.enum_value_or_default() == ContainerState::CONTAINER_CREATED
}

fn is_running(container: &Container) -> bool {
    let state = container.state.enum_value_or_default();
    container.pid != 0
        && matches!(
            state,
            ContainerState::CONTAINER_RUNNING | ContainerState::CONTAINER_PAUSED
        )
}

pub(super) fn names(grant: &Grant) -> String {
    ids(&grant.ids())
}

fn ids(ids: &BTreeSet<DeviceId>) -> String {
    let ids: Vec<_> = ids.iter().map(DeviceId::as_str).collect();
    ids.join(",")
}
