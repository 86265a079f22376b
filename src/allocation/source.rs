//! Asks both sources of one kubelet and has the answers judged; the room's only I/O entry.
//!
//! Owns when the sources are read, and when once more. Invariants: PodResources answers are never
//! kept; a checkpoint only as long as its file is the same; no lock is held across a call.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::checkpoint::{Checkpoint, CheckpointError, CheckpointFile};
use super::decide::{Recorded, Reported, Verdict, decide};
use super::podresources::PodResourcesClient;
use super::{Allocation, AllocationError, Subject, resources};

/// Long enough for the kubelet to finish a write or for its socket to come back, and short against
/// the time that a container creation has.
const REREAD_AFTER: Duration = Duration::from_millis(20);

/// The kubelet of this node. One value serves any number of concurrent callers, over kubelet
/// restarts.
#[derive(Debug)]
pub struct Kubelet {
    checkpoint: Arc<CheckpointFile>,
    pods: PodResourcesClient,
}

impl Kubelet {
    /// The kubelet whose root is given, usually `/var/lib/kubelet`. Nothing is opened yet.
    pub fn new(kubelet_root: &Path) -> Self {
        Self {
            checkpoint: Arc::new(CheckpointFile::new(kubelet_root)),
            pods: PodResourcesClient::new(kubelet_root),
        }
    }

    /// What the kubelet allocated to a container, known by `deadline`.
    ///
    /// An empty allocation is proven, not assumed. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`AllocationError`]; nothing may be granted then.
    pub async fn allocation(
        &self,
        subject: &Subject,
        deadline: Instant,
    ) -> Result<Allocation, AllocationError> {
        let doubt = match self.look(subject, deadline).await {
            Verdict::Settled(answer) => return answer,
            Verdict::Reread(doubt) => doubt,
        };
        let again = Instant::now() + REREAD_AFTER;
        if again >= deadline {
            return Err(doubt);
        }
        tracing::debug!(container = %subject, pod_uid = %subject.pod_uid, %doubt, "reading the kubelet's records again");
        tokio::time::sleep_until(again.into()).await;
        match self.look(subject, deadline).await {
            Verdict::Settled(answer) => answer,
            Verdict::Reread(doubt) => Err(doubt),
        }
    }

    /// What the checkpoint alone holds for a container that runs already: enough to know who sits on
    /// which GPU, never to grant one.
    ///
    /// # Errors
    /// See [`AllocationError`].
    pub async fn recorded(
        &self,
        subject: &Subject,
        deadline: Instant,
    ) -> Result<Allocation, AllocationError> {
        let checkpoint = self.checkpoint(deadline).await;
        let checkpoint = checkpoint.map_err(|e| AllocationError::Unavailable(e.to_string()))?;
        let entries = checkpoint
            .map(|checkpoint| checkpoint.lookup(&subject.pod_uid, &subject.container))
            .unwrap_or_default();
        let gpus = resources::held(subject, &entries)?.gpus;
        Ok(Allocation {
            devices: gpus.devices,
            shared: gpus.shared,
            injected_by_runtime: false,
        })
    }

    /// The checkpoint as it is now, `None` when the kubelet has never written one.
    ///
    /// # Errors
    /// The file can't be read or parsed, or not by `deadline`.
    pub async fn checkpoint(
        &self,
        deadline: Instant,
    ) -> Result<Option<Arc<Checkpoint>>, CheckpointError> {
        let file = Arc::clone(&self.checkpoint);
        let read = tokio::task::spawn_blocking(move || file.read());
        match tokio::time::timeout_at(deadline.into(), read).await {
            Ok(Ok(result)) => result,
            Ok(Err(stopped)) => Err(CheckpointError::Read {
                path: self.checkpoint.path().to_owned(),
                source: std::io::Error::other(stopped),
            }),
            Err(_) => Err(CheckpointError::TimedOut(self.checkpoint.path().to_owned())),
        }
    }

    async fn look(&self, subject: &Subject, deadline: Instant) -> Verdict {
        let (checkpoint, report) = tokio::join!(
            self.checkpoint(deadline),
            self.pods.pod(&subject.namespace, &subject.pod, deadline),
        );
        let recorded = match checkpoint {
            Ok(Some(checkpoint)) => {
                Recorded::Entries(checkpoint.lookup(&subject.pod_uid, &subject.container))
            }
            Ok(None) => Recorded::Entries(std::collections::BTreeMap::new()),
            Err(e) => Recorded::Unreadable(e.to_string()),
        };
        let reported = match report {
            Ok(report) => Reported::Answer(report),
            Err(e) => Reported::Unreachable(e.to_string()),
        };
        decide(subject, &recorded, &reported)
    }
}
