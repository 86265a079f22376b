//! From a request to a decision: what the node, the kubelet and the configuration say about one
//! container, handed to the policy; and the one log line that tells it.

use std::sync::Arc;

use nri::Feature;
use nri::api::{Container, Mount, PodSandbox};
use tracing::{info, warn};

use super::lookup;
use super::service::{Warden, names};
use super::view::{Sources, view};
use crate::allocation::{Allocation, Subject};
use crate::config::{Enforcement, Exempt, HostDirectories, InjectionMode, PodIdentity, Settings};
use crate::policy::{self, Admission, Decision, NodeFacts, Reason, Refusal, Terms};

impl Warden {
    pub(super) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.wiring.settings.borrow())
    }

    pub(super) fn exempt(&self, pod: &PodSandbox, settings: &Settings) -> Exempt {
        let own = self.wiring.own_pod_uid.as_deref();
        if own.is_some_and(|own| !own.is_empty() && own == pod.uid) {
            return Exempt::wholly();
        }
        settings.config.exempt(PodIdentity {
            namespace: &pod.namespace,
            name: &pod.name,
            labels: &pod.labels,
        })
    }

    /// What the host has at the sources of these mounts.
    pub(super) async fn sources(
        &self,
        pod: &PodSandbox,
        mounts: &[Mount],
        settings: &Settings,
    ) -> Sources {
        let (pod, mounts) = (pod.clone(), mounts.to_vec());
        let (places, roots) = (self.wiring.places.clone(), self.wiring.roots.clone());
        let node = Arc::clone(&self.wiring.node.borrow());
        let searches = settings.config.host_directories == HostDirectories::Refuse;
        let look = tokio::task::spawn_blocking(move || {
            let search = searches.then(|| node.numbers());
            lookup::sources(&pod, &mounts, &places, &roots, search)
        });
        look.await.unwrap_or_else(|error| {
            warn!(%error, "what is mounted can't be looked at");
            Sources::new()
        })
    }

    /// Looks the allocation up and decides.
    pub(super) async fn decide(
        &self,
        subject: &Subject,
        pod: &PodSandbox,
        container: &Container,
        settings: &Settings,
    ) -> Decision {
        let exempt = self.exempt(pod, settings);
        let (allocation, sources) = if exempt.is_whole() {
            (Ok(Allocation::default()), Sources::new())
        } else {
            tokio::join!(
                self.kubelet.allocation(subject, self.lookup_deadline()),
                self.sources(pod, &container.mounts, settings)
            )
        };
        let node = Arc::clone(&self.wiring.node.borrow());
        let cdi_names = settings.config.injection == InjectionMode::Auto
            && self.runtime_has(Feature::CdiDevices)
            && allocation
                .as_ref()
                .is_ok_and(|allocation| node.resolves(&allocation.devices))
            && !self.ledger().failed_by_name(subject);
        let terms = Terms {
            cdi_names,
            device_rules: self.runtime_has(Feature::DeviceRules),
            config: &settings.config,
            toolkit: &settings.toolkit,
            exempt: &exempt,
        };
        let facts = NodeFacts {
            inventory: node.inventory(),
            spec: node.spec(),
            numbers: node.numbers(),
        };
        let mut view = view(pod, container, &sources);
        view.host_pid = lookup::has_host_pids(container, &self.wiring.roots.proc);
        let decision = policy::decide(subject, &view, &allocation, facts, terms);
        if let Decision::Refuse(Refusal {
            reason: Reason::GpuUnknown | Reason::InventoryUnavailable,
            ..
        }) = decision
        {
            self.wiring.refresh.now();
        }
        log(subject, &decision, is_audit(settings));
        decision
    }
}

pub(super) fn is_audit(settings: &Settings) -> bool {
    settings.config.enforcement == Enforcement::Audit
}

/// The one line per decision; under `enforcement: audit` it says what would be done.
fn log(subject: &Subject, decision: &Decision, audit: bool) {
    let Subject {
        namespace,
        pod,
        container,
        pod_uid,
    } = subject;
    let enforcement = if audit { "audit" } else { "enforce" };
    match decision {
        Decision::Admit(admission) => {
            let Admission { reason, grant, .. } = admission;
            info!(
                decision = "admit", %reason, enforcement, namespace, pod, container, pod_uid,
                gpus = %names(grant),
                env = admission.env.len(),
                repointed = admission.repoint.len(),
                mounts_dropped = admission.drop_mounts.len(),
                annotations_dropped = admission.drop_annotations.len(),
                denied = admission.deny.len(),
                "decided"
            );
        }
        Decision::Exempt => {
            info!(decision = "exempt", reason = %Reason::Exempt, enforcement, namespace, pod, container, pod_uid, "decided");
        }
        Decision::Refuse(Refusal { reason, cause, .. }) => {
            warn!(decision = "refuse", %reason, enforcement, namespace, pod, container, pod_uid, cause, "decided");
        }
    }
}
