//! Device nodes in a container: finding them, taking foreign ones away, and proving what is left.
//!
//! Owns everything that changes a container from outside. Decides nothing about who gets what.
//! The kernel's own device filter (cgroup programs) will stand in this room too: the gate calls
//! [`guard`], so that whatever is added here holds before the first instruction runs.

mod dev;
mod plan;

use std::collections::BTreeSet;

pub use dev::{ContainerDev, DevError, FoundNode};
pub use plan::{Breach, Expectation, PLACEHOLDER};

use crate::host::Process;

/// Why a container can't be let run.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// Its `/dev` could not be examined or changed.
    #[error(transparent)]
    Dev(#[from] DevError),
    /// It was examined, and is not what was granted.
    #[error(transparent)]
    Breach(#[from] Breach),
}

/// Makes a container that has not run yet hold exactly what `expectation` says, and proves it by
/// looking again. Returns the number of nodes taken away.
///
/// Narrows only. On an error the container must not be started.
pub fn guard(
    process: &Process,
    host_filesystems: &BTreeSet<(u32, u32)>,
    expectation: &Expectation<'_>,
) -> Result<usize, GuardError> {
    let dev = ContainerDev::open(process, host_filesystems)?;
    let nodes = dev.nodes()?;
    let remove = expectation.to_remove(&nodes)?;
    for node in &remove {
        dev.unlink(node)?;
    }
    expectation.verify(&dev.nodes()?)?;
    Ok(remove.len())
}
