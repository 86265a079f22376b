//! Who holds what now.
//!
//! Keyed by container id, with the sandbox's id beside it and never by pod UID: a recreated static
//! pod has the UID of its predecessor, whose removal is reported after the new one runs.

use std::collections::{BTreeSet, HashMap};
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
    /// Paths that were re-pointed at CreateContainer.
    pub(super) placeholders: BTreeSet<PathBuf>,
    pub(super) exempt: bool,
    /// Decided under `enforcement: audit`: it was not changed, and the gate only reports.
    pub(super) audit: bool,
    /// What was replied at CreateContainer, for runtimes that let it be validated.
    pub(super) replied: Option<Box<ContainerAdjustment>>,
    /// Host pid of its init process, once the gate has let it pass.
    pub(super) pid: Option<u32>,
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
const WAITING_LIMIT: usize = 1024;

/// The ledger.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    entries: HashMap<String, Entry>,
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

    pub(super) fn end(&mut self, container: &str) -> Option<Entry> {
        self.entries.remove(container)
    }

    /// Forgets everything: the runtime sends what exists at each connection.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
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
                let gpu = entry.grant.exclusive().find(|gpu| wanted.contains(gpu))?;
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
        Entry {
            sandbox: sandbox.into(),
            subject: Subject {
                pod_uid: "u".into(),
                namespace: "n".into(),
                pod: sandbox.into(),
                container: "c".into(),
            },
            grant: Grant::new(
                vec![gpu],
                if shared { [id].into() } else { BTreeSet::new() },
            ),
            placeholders: BTreeSet::new(),
            exempt: false,
            audit: false,
            replied: None,
            pid,
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
    fn replicas_are_not_exclusive() {
        let asks = entry("new", "GPU-1", true, None);
        assert_eq!(holders(entry("old", "GPU-1", true, Some(7)), &asks), 0);
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
