//! The policy: (container, allocation, node, terms) → decision. Pure: no I/O, no async, no clock.
//!
//! Invariant, held by a property test: no decision ever grants, injects or leaves in the OCI spec a
//! GPU outside the allocation.

mod annotations;
mod decide;
mod deny;
mod expand;
mod legacy;
mod merged;
mod mounts;
mod names;
mod reason;
mod refusal;
#[cfg(test)]
mod tests;
mod view;

pub use decide::{Admission, Decision, Injection, NodeFacts, Terms, decide};
pub use expand::ExpandError;
pub use legacy::{VISIBLE_DEVICES, VOID, WARDEN_UUIDS};
pub use merged::validate;
pub use reason::Reason;
pub use refusal::Refusal;
pub use view::{ContainerView, DeviceRule, ViewMount};

/// Why not: the code, and the cause as the second half of a sentence.
pub type Refused = (Reason, String);
