//! The policy: (container, allocation, node, terms) → decision. Pure: no I/O, no async, no clock.
//!
//! Invariant, held by a property test: no decision ever grants, injects or leaves in the OCI spec a
//! GPU outside the allocation.

mod decide;
mod expand;
mod legacy;
mod reason;
mod refusal;
#[cfg(test)]
mod tests;
mod view;

pub use decide::{Admission, Decision, Injection, NodeFacts, Terms, decide};
pub use expand::ExpandError;
pub use legacy::{VISIBLE_DEVICES, VOID, WARDEN_UUIDS};
pub use reason::Reason;
pub use refusal::Refusal;
pub use view::{ContainerView, ViewMount};
