//! Device nodes in a container and the kernel's device filter around it: taking foreign nodes away,
//! putting the fence up, and proving what is left.
//!
//! Owns everything that changes a container from outside. Decides nothing about who gets what.
//! [`guard`] is what the gate calls, so that all of it holds before the first instruction runs.

mod bpf;
mod dev;
mod enclose;
mod filter;
mod plan;
mod program;
mod rules;
mod trial;
mod v1;
mod v2;

use std::collections::BTreeSet;

pub use dev::{ContainerDev, DevError, FoundNode};
pub use enclose::{Enclosure, Fence, FenceError, Fenced};
pub use filter::{Denied, Filter};
pub use plan::{Breach, Expectation, PLACEHOLDER};
pub use program::TooMany;
pub use rules::MalformedRule;
pub use trial::TrialError;
pub use v1::V1Error;
pub use v2::{CONTAINER_PROGRAM, POD_PROGRAM, V2Error};

/// Why a container can't be let run.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The kernel's device filter could not be put up, or did not hold.
    #[error(transparent)]
    Fence(#[from] FenceError),
    /// Its `/dev` could not be examined or changed.
    #[error(transparent)]
    Dev(#[from] DevError),
    /// It was examined, and is not what was granted.
    #[error(transparent)]
    Breach(#[from] Breach),
}

/// What the gate did to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guarded {
    /// Number of nodes taken away.
    pub removed: usize,
    /// The fence around it.
    pub fenced: Fenced,
}

/// Makes a container that has not run yet hold exactly what `expectation` says, and proves it by
/// looking again.
///
/// The kernel's filter first: while nodes are taken away, nothing that is left can be opened either.
/// Narrows only. On an error the container must not be started.
pub fn guard(
    fence: &Fence,
    enclosure: &Enclosure<'_>,
    host_filesystems: &BTreeSet<(u32, u32)>,
    expectation: &Expectation<'_>,
) -> Result<Guarded, GuardError> {
    let fenced = fence.enclose(enclosure, expectation.numbers)?;
    let dev = ContainerDev::open(enclosure.process, host_filesystems)?;
    let nodes = dev.nodes()?;
    let remove = expectation.to_remove(&nodes)?;
    for node in &remove {
        dev.unlink(node)?;
    }
    expectation.verify(&dev.nodes()?)?;
    Ok(Guarded {
        removed: remove.len(),
        fenced,
    })
}
