//! Containers that run already when gpu-warden connects.

use std::path::PathBuf;

use tracing::{info, warn};

use super::gate::{self, Candidate};
use crate::allocation::Subject;
use crate::host::Roots;
use crate::policy::Refused;

/// Tells what running containers have beyond their allocation. Blocks on procfs and on their `/dev`.
pub(super) fn report_all(candidates: &[Candidate], roots: &Roots) {
    for candidate in candidates {
        report(&candidate.entry.subject, gate::look(candidate, roots));
    }
}

fn report(subject: &Subject, found: Result<Vec<PathBuf>, Refused>) {
    match found {
        Ok(foreign) if foreign.is_empty() => {
            info!(container = %subject, "runs already, with no GPU node outside its allocation");
        }
        Ok(foreign) => {
            warn!(container = %subject, nodes = ?foreign, "runs already, with GPU nodes outside its allocation: delete its pod, so that it is made anew");
        }
        Err((_, cause)) => {
            warn!(container = %subject, cause, "runs already, and could not be examined");
        }
    }
}
