//! The NRI service: requests in, decisions out. Everything that is decided is decided elsewhere.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use nri::api::{
    Container, ContainerAdjustment, ContainerState, ContainerUpdate, Event, PodSandbox,
};
use nri::{Adjusted, Events, Feature, Plugin, Refusal as Reply, Runtime};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::gate::{self, Candidate};
use super::ledger::{Entry, Ledger};
use super::reply::adjustment;
use super::view::{subject, view};
use crate::allocation::{Allocation, Kubelet, Subject};
use crate::config::{Config, InjectionMode};
use crate::gpu::{DeviceId, Grant, Node};
use crate::host::{Class, DeviceNumbers, Roots};
use crate::policy::{self, Admission, Decision, NodeFacts, Reason, Refusal, Terms, WARDEN_UUIDS};
use crate::watch::{NodeState, Refresh};

/// Share of the runtime's request timeout within which the kubelet has to answer. The session's own
/// deadline is at 60 %; what lies between is for deciding and replying.
const LOOKUP_SHARE: f32 = 0.45;

/// What the plugin needs of the world.
#[derive(Debug)]
pub struct Wiring {
    /// Where everything is.
    pub roots: Roots,
    /// The node's administrator's choices.
    pub config: Config,
    /// The state of the node, kept fresh by the watcher.
    pub node: watch::Receiver<Arc<NodeState>>,
    /// Asks the watcher to look at once.
    pub refresh: Refresh,
}

/// The plugin.
#[derive(Debug)]
pub struct Warden {
    kubelet: Kubelet,
    wiring: Wiring,
    ledger: Mutex<Ledger>,
    runtime: Mutex<Option<Runtime>>,
}

impl Warden {
    /// Opens nothing yet.
    pub fn new(wiring: Wiring) -> Self {
        Self {
            kubelet: Kubelet::new(&wiring.roots.kubelet),
            wiring,
            ledger: Mutex::default(),
            runtime: Mutex::default(),
        }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // Every method leaves the ledger whole, so a panic elsewhere has not torn it.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runtime_has(&self, feature: Feature) -> bool {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        runtime.as_ref().is_some_and(|runtime| runtime.has(feature))
    }

    fn lookup_deadline(&self) -> Instant {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let timeout = runtime
            .as_ref()
            .map_or(Duration::from_secs(2), |runtime| runtime.request_timeout);
        Instant::now() + timeout.mul_f32(LOOKUP_SHARE)
    }

    /// Looks the allocation up and decides.
    async fn decide(&self, subject: &Subject, container: &Container) -> Decision {
        let exempt = self.wiring.config.exempts(&subject.namespace, &subject.pod);
        let allocation = if exempt {
            Ok(Allocation::default())
        } else {
            self.kubelet
                .allocation(subject, self.lookup_deadline())
                .await
        };
        let node = Arc::clone(&self.wiring.node.borrow());
        let cdi_names = self.wiring.config.injection == InjectionMode::Auto
            && self.runtime_has(Feature::CdiDevices)
            && allocation
                .as_ref()
                .is_ok_and(|allocation| node.resolves(&allocation.devices));
        let terms = Terms {
            cdi_names,
            managed_env: &self.wiring.config.managed_env,
            exempt,
        };
        let facts = NodeFacts {
            inventory: node.inventory(),
            spec: node.spec(),
            numbers: node.numbers(),
        };
        let decision = policy::decide(subject, &view(container), &allocation, facts, terms);
        if let Decision::Refuse(Refusal {
            reason: Reason::GpuUnknown | Reason::InventoryUnavailable,
            ..
        }) = decision
        {
            self.wiring.refresh.now();
        }
        log(subject, &decision);
        decision
    }

    /// The record of a container that was not created under our eyes: decided now, from the same
    /// sources, but it can no longer be adjusted, so the gate has to find it right as it is.
    async fn late_entry(&self, pod: &PodSandbox, container: &Container) -> Result<Entry, Reply> {
        let subject = subject(pod, container);
        debug!(container = %subject, "it was not created under our eyes");
        match self.decide(&subject, container).await {
            Decision::Refuse(refusal) => Err(Reply::new(refusal.to_string())),
            decision => Ok(entry(&container.pod_sandbox_id, subject, &decision)),
        }
    }

    /// Who runs already: what must not be granted to another pod.
    ///
    /// From the kubelet's checkpoint, which forgets a force-deleted pod with the next allocation; so
    /// also from what was decided before the connection broke, and from the container itself.
    async fn rebuild(&self, pods: &[PodSandbox], containers: &[Container]) {
        let before = self.ledger().take();
        let deadline = self.lookup_deadline();
        for container in containers.iter().filter(|container| is_running(container)) {
            let Some(pod) = pods.iter().find(|pod| pod.id == container.pod_sandbox_id) else {
                continue;
            };
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
            info!(container = %subject, gpus = %ids(&holds), "runs already");
            let entry = Entry {
                sandbox: container.pod_sandbox_id.clone(),
                subject,
                grant: Grant::default(),
                holds,
                placeholders: BTreeSet::new(),
                exempt: false,
                pid: Some(container.pid),
            };
            self.ledger().record(container.id.clone(), entry);
        }
    }

    /// The GPUs that gpu-warden gave a container, by the variable that it sets or voids in each one.
    /// A container that was created while gpu-warden was away could lie there, but not without a GPU's node.
    fn given_before(&self, container: &Container) -> BTreeSet<DeviceId> {
        let node = Arc::clone(&self.wiring.node.borrow());
        let view = view(container);
        let is_gpu = |node: &Node, numbers: &DeviceNumbers| {
            matches!(
                numbers.classify(node.major, node.minor),
                Some(Class::Gpu(_))
            )
        };
        if !view
            .devices
            .iter()
            .any(|device| is_gpu(device, node.numbers()))
        {
            return BTreeSet::new();
        }
        let uuids = view.values(WARDEN_UUIDS).last().unwrap_or_default();
        uuids
            .split(',')
            .filter_map(|id| DeviceId::parse(id).ok())
            .collect()
    }
}

#[async_trait]
impl Plugin for Warden {
    fn events(&self, _runtime: &Runtime) -> Events {
        Events::CREATE_CONTAINER
            | Events::START_CONTAINER
            | Events::STOP_CONTAINER
            | Events::REMOVE_CONTAINER
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
        let decision = self.decide(&subject, &container).await;
        let adjust = match &decision {
            Decision::Refuse(refusal) => return Err(Reply::new(refusal.to_string())),
            Decision::Exempt => ContainerAdjustment::default(),
            Decision::Admit(admission) => {
                adjustment(admission, self.runtime_has(Feature::MountRemoval))
            }
        };
        self.ledger().record(
            container.id,
            entry(&container.pod_sandbox_id, subject, &decision),
        );
        Ok(Adjusted {
            adjust,
            update: Vec::new(),
        })
    }

    async fn start_container(&self, pod: PodSandbox, container: Container) -> Result<(), Reply> {
        let known = self.ledger().get(&container.id).cloned();
        let entry = match known {
            Some(entry) => entry,
            None => self.late_entry(&pod, &container).await?,
        };
        if entry.exempt {
            return Ok(());
        }
        let holders = self.ledger().holders(&entry.sandbox, &entry.grant);
        let candidate = Candidate {
            id: container.id.clone(),
            pid: container.pid,
            entry,
        };
        let node = Arc::clone(&self.wiring.node.borrow());
        let roots = self.wiring.roots.clone();
        let subject = candidate.entry.subject.clone();
        let passed = tokio::task::spawn_blocking(move || {
            gate::still_valid(&candidate.entry, node.inventory())?;
            let removed = gate::pass(&candidate, &holders, &roots)?;
            Ok((candidate, removed))
        });
        let passed = passed.await.unwrap_or_else(|error| {
            Err((
                Reason::GateFailed,
                format!("the check itself failed ({error})"),
            ))
        });
        match passed {
            Ok((Candidate { id, pid, entry }, removed)) => {
                info!(container = %subject, gpus = %names(&entry.grant), removed, "verified at the gate");
                let pid = Some(pid);
                self.ledger().record(id, Entry { pid, ..entry });
                Ok(())
            }
            Err((reason, cause)) => {
                warn!(container = %subject, %reason, cause, "refused at the gate");
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
        _pod: PodSandbox,
        container: Container,
    ) -> Result<Vec<ContainerUpdate>, Reply> {
        if let Some(entry) = self.ledger().end(&container.id) {
            debug!(container = %entry.subject, "stopped; its grant has ended");
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

fn entry(sandbox: &str, subject: Subject, decision: &Decision) -> Entry {
    let (grant, placeholders, exempt) = match decision {
        Decision::Admit(Admission { grant, repoint, .. }) => {
            (grant.clone(), repoint.clone(), false)
        }
        Decision::Exempt => (Grant::default(), BTreeSet::new(), true),
        Decision::Refuse(_) => (Grant::default(), BTreeSet::new(), false),
    };
    Entry {
        sandbox: sandbox.to_owned(),
        subject,
        holds: grant.exclusive().cloned().collect(),
        grant,
        placeholders,
        exempt,
        pid: None,
    }
}

fn is_running(container: &Container) -> bool {
    let state = container.state.enum_value_or_default();
    container.pid != 0
        && matches!(
            state,
            ContainerState::CONTAINER_RUNNING | ContainerState::CONTAINER_PAUSED
        )
}

fn names(grant: &Grant) -> String {
    ids(&grant.ids())
}

fn ids(ids: &BTreeSet<DeviceId>) -> String {
    let ids: Vec<_> = ids.iter().map(DeviceId::as_str).collect();
    ids.join(",")
}

/// The one line per decision.
fn log(subject: &Subject, decision: &Decision) {
    let Subject {
        namespace,
        pod,
        container,
        pod_uid,
    } = subject;
    match decision {
        Decision::Admit(Admission {
            reason,
            grant,
            repoint,
            ..
        }) => {
            info!(decision = "admit", %reason, namespace, pod, container, pod_uid, gpus = %names(grant), repointed = repoint.len(), "decided");
        }
        Decision::Exempt => {
            info!(decision = "exempt", reason = %Reason::Exempt, namespace, pod, container, pod_uid, "decided");
        }
        Decision::Refuse(Refusal { reason, cause, .. }) => {
            warn!(decision = "refuse", %reason, namespace, pod, container, pod_uid, cause, "decided");
        }
    }
}
