//! Who holds what now.
//!
//! Keyed by container id, with the sandbox's id beside it and never by pod UID: a recreated static
//! pod has the UID of its predecessor, whose removal is reported after the new one runs.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use nri::api::ContainerAdjustment;

use crate::allocation::Subject;
use crate::gpu::{DeviceId, Grant};

/// What was decided for a container, until it stops.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) sandbox: String,
    pub(super) subject: Subject,
    pub(super) grant: Grant,
    /// GPUs that no other pod may have at the same time. Ids, since they are known before the
    /// driver has said which GPUs they are.
    pub(super) holds: BTreeSet<DeviceId>,
    /// Paths that were re-pointed at CreateContainer.
    pub(super) placeholders: BTreeSet<PathBuf>,
    pub(super) handling: Handling,
    /// Its GPUs were asked for by CDI name.
    pub(super) by_name: bool,
    /// What was replied at CreateContainer, for runtimes that let it be validated.
    pub(super) replied: Option<Box<ContainerAdjustment>>,
    /// Host pid of its init process, once the gate has let it pass.
    pub(super) pid: Option<u32>,
    /// Where the record comes from.
    pub(super) origin: Origin,
    /// Whether this process has put the kernel's fence up around it.
    pub(super) fenced: bool,
}

/// What is done to a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handling {
    /// What was decided is carried out, and proven at the gate.
    Enforced,
    /// Decided under `enforcement: audit`: it was not changed, and the gate only reports.
    Audited,
    /// One of the node's own components: left as it is.
    Exempt,
}

/// How much a record is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Decided at CreateContainer or at the gate.
    Decided,
    /// Looked up anew for a container that was there before this process.
    Confirmed,
    /// From the kubelet's checkpoint alone: it may hold more than that.
    Recorded,
}

/// A container of a pod, as far as the pod's fence goes.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) container: String,
    pub(super) pid: Option<u32>,
    /// None when it is not known wholly.
    pub(super) grant: Option<Grant>,
}

/// A container that passed the gate and holds a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) container: String,
    pub(super) subject: Subject,
    pub(super) pid: u32,
    pub(super) gpu: DeviceId,
}

/// A runtime does not report containers whose creation fails behind us: what was decided for them
/// is forgotten once this many wait, which costs a later start nothing but a second look-up.
const WAITING_LIMIT: usize = 256;

/// The ledger.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: HashMap<String, Entry>,
    failed_by_name: HashSet<Subject>,
}

impl Ledger {
    pub(super) fn record(&mut self, container: String, entry: Entry) {
        if self
            .entries
            .values()
            .filter(|entry| entry.pid.is_none())
            .count()
            >= WAITING_LIMIT
        {
            self.entries.retain(|_, entry| entry.pid.is_some());
        }
        self.entries.insert(container, entry);
    }

    pub(super) fn get(&self, container: &str) -> Option<&Entry> {
        self.entries.get(container)
    }

    /// Whether a container of that identity was to get its GPUs by name and never came to its start.
    /// The runtime may read other CDI directories than we do, or have CDI switched off, and nothing but
    /// the absence of the start tells us.
    pub(super) fn failed_by_name(&self, subject: &Subject) -> bool {
        let waits = |entry: &Entry| entry.by_name && entry.pid.is_none();
        self.failed_by_name.contains(subject)
            || self
                .entries
                .values()
                .any(|entry| waits(entry) && entry.subject == *subject)
    }

    pub(super) fn end(&mut self, container: &str) -> Option<Entry> {
        let entry = self.entries.remove(container)?;
        if entry.by_name && entry.pid.is_none() {
            if self.failed_by_name.len() >= WAITING_LIMIT {
                self.failed_by_name.clear();
            }
            self.failed_by_name.insert(entry.subject.clone());
        }
        Some(entry)
    }

    /// Hands everything out and forgets it: the runtime sends what exists at each connection. It may have
    /// been configured anew as well, so that names are worth another attempt.
    pub(super) fn take(&mut self) -> HashMap<String, Entry> {
        self.failed_by_name.clear();
        std::mem::take(&mut self.entries)
    }

    /// The containers of a pod that are decided on and have not ended. By the pod's UID, after which
    /// its cgroup is named.
    pub(super) fn members(&self, pod_uid: &str) -> Vec<Member> {
        let of_pod = self.entries.iter().filter(|(_, entry)| {
            entry.subject.pod_uid == pod_uid && entry.handling != Handling::Exempt
        });
        of_pod
            .map(|(container, entry)| Member {
                container: container.clone(),
                pid: entry.pid,
                grant: (entry.origin != Origin::Recorded).then(|| entry.grant.clone()),
            })
            .collect()
    }

    /// Everything that is recorded, for a look at each.
    pub(super) fn all(&self) -> Vec<(String, Entry)> {
        let entries = self.entries.iter();
        entries
            .map(|(container, entry)| (container.clone(), entry.clone()))
            .collect()
    }

    /// No container has a fence that is up to date.
    pub(super) fn forget_fences(&mut self) {
        for entry in self.entries.values_mut() {
            entry.fenced = false;
        }
    }

    /// Changes a record, unless it has ended meanwhile.
    pub(super) fn amend(&mut self, container: &str, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(container) {
            change(entry);
        }
    }

    /// Containers of *other* pods that passed the gate with one of these GPUs. Containers of one pod
    /// may follow each other on a GPU (init containers), which the kubelet plans so.
    pub(super) fn holders(&self, sandbox: &str, grant: &Grant) -> Vec<Holder> {
        let wanted: BTreeSet<_> = grant.exclusive().collect();
        let others = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.sandbox != sandbox);
        others
            .filter_map(|(container, entry)| {
                let gpu = entry.holds.iter().find(|gpu| wanted.contains(gpu))?;
                Some(Holder {
                    container: container.clone(),
                    subject: entry.subject.clone(),
                    pid: entry.pid?,
                    gpu: gpu.clone(),
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::Gpu;

    fn entry(sandbox: &str, gpu: &str, shared: bool, pid: Option<u32>) -> Entry {
        let id = DeviceId::parse(gpu).unwrap();
        let gpu = Gpu {
            id: id.clone(),
            index: 0,
            minor: 0,
            name: String::new(),
            pci: String::new(),
            nodes: Vec::new(),
        };
        let shared = if shared { [id].into() } else { BTreeSet::new() };
        let grant = Grant::new(vec![gpu], shared);
        Entry {
            sandbox: sandbox.into(),
            subject: Subject {
                pod_uid: "u".into(),
                namespace: "n".into(),
                pod: sandbox.into(),
                container: "c".into(),
            },
            holds: grant.exclusive().cloned().collect(),
            grant,
            placeholders: BTreeSet::new(),
            handling: Handling::Enforced,
            by_name: false,
            replied: None,
            pid,
            origin: Origin::Decided,
            fenced: false,
        }
    }

    fn holders(held: Entry, asks: &Entry) -> usize {
        let mut ledger = Ledger::default();
        ledger.record("a".into(), held);
        ledger.holders(&asks.sandbox, &asks.grant).len()
    }

    #[test]
    fn a_gpu_is_held_by_a_started_container_of_another_pod_only() {
        let asks = entry("new", "GPU-1", false, None);
        assert_eq!(holders(entry("old", "GPU-1", false, Some(7)), &asks), 1);
        assert_eq!(
            holders(entry("old", "GPU-1", false, None), &asks),
            0,
            "not started"
        );
        assert_eq!(
            holders(entry("new", "GPU-1", false, Some(7)), &asks),
            0,
            "same pod"
        );
        assert_eq!(
            holders(entry("old", "GPU-2", false, Some(7)), &asks),
            0,
            "other GPU"
        );
    }

    #[test]
    fn a_pod_has_its_own_containers_and_one_that_is_only_recorded_has_no_known_grant() {
        let mut ledger = Ledger::default();
        let other = Entry {
            subject: Subject {
                pod_uid: "v".into(),
                ..entry("s", "GPU-2", false, None).subject
            },
            ..entry("s", "GPU-2", false, None)
        };
        ledger.record("other".into(), other);
        ledger.record("a".into(), entry("s", "GPU-1", false, Some(7)));
        let recorded = Entry {
            origin: Origin::Recorded,
            ..entry("s", "GPU-1", false, Some(8))
        };
        ledger.record("b".into(), recorded);
        let mut members = ledger.members("u");
        members.sort_by(|a, b| a.container.cmp(&b.container));
        let known: Vec<_> = members
            .iter()
            .map(|member| (member.container.as_str(), member.grant.is_some()))
            .collect();
        assert_eq!(known, [("a", true), ("b", false)]);
        ledger.amend("b", |entry| entry.origin = Origin::Confirmed);
        assert!(
            ledger
                .members("u")
                .iter()
                .all(|member| member.grant.is_some())
        );
    }

    #[test]
    fn replicas_are_not_exclusive() {
        let asks = entry("new", "GPU-1", true, None);
        assert_eq!(holders(entry("old", "GPU-1", true, Some(7)), &asks), 0);
    }

    #[test]
    fn a_creation_by_name_that_never_starts_is_remembered_and_one_that_starts_is_not() {
        let named = |pid| Entry {
            by_name: true,
            ..entry("s", "GPU-1", false, pid)
        };
        let subject = named(None).subject;
        for removed in [false, true] {
            for (pid, failed) in [(None, true), (Some(7), false)] {
                let mut ledger = Ledger::default();
                assert!(!ledger.failed_by_name(&subject));
                ledger.record("z".into(), named(None));
                ledger.end("z");
                ledger.take();
                assert!(!ledger.failed_by_name(&subject), "a new connection");
                ledger.record("a".into(), named(pid));
                if removed {
                    ledger.end("a");
                }
                assert_eq!(ledger.failed_by_name(&subject), failed, "{pid:?} {removed}");
            }
        }
    }

    #[test]
    fn creations_that_came_to_nothing_do_not_pile_up_and_holders_stay() {
        let mut ledger = Ledger::default();
        ledger.record("held".into(), entry("old", "GPU-1", false, Some(7)));
        for n in 0..3 * WAITING_LIMIT {
            ledger.record(n.to_string(), entry("x", "GPU-2", false, None));
        }
        assert!(ledger.entries.len() <= WAITING_LIMIT + 1);
        assert!(ledger.get("held").is_some());
    }
}
