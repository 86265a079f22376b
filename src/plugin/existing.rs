//! Containers that run already when gpu-warden connects.

use tracing::{debug, info, warn};

use super::gate::{self, Candidate};
use super::ledger::Origin;
use super::service::Warden;

impl Warden {
    /// Tells what a container that was there before this process has beyond its allocation, which has
    /// to be known by now: before, all of its GPUs would look foreign.
    pub(super) async fn report_existing(&self, id: &str) {
        let Some(entry) = self.ledger().get(id).cloned() else {
            return;
        };
        let Some(pid) = entry.pid.filter(|_| entry.origin == Origin::Confirmed) else {
            return;
        };
        let subject = entry.subject.clone();
        let candidate = Candidate {
            id: id.to_owned(),
            pid,
            entry,
            devices: Vec::new(),
        };
        let roots = self.wiring.roots.clone();
        let looked = tokio::task::spawn_blocking(move || gate::look(&candidate, &roots));
        match looked.await {
            Ok(Ok(foreign)) if foreign.is_empty() => {
                info!(container = %subject, "runs already, with no GPU node outside its allocation");
            }
            Ok(Ok(foreign)) => {
                warn!(container = %subject, nodes = ?foreign, "runs already, with GPU nodes outside its allocation: delete its pod, so that it is made anew");
            }
            Ok(Err((_, cause))) => {
                warn!(container = %subject, cause, "runs already, and could not be examined");
            }
            Err(error) => debug!(container = %subject, %error, "the look was stopped"),
        }
    }
}
