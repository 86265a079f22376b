//! The NRI service of gpu-warden: requests → policy → replies, the gate, and who holds what now.
//!
//! Invariants: a container passes the gate only after it was verified; no lock is held across a
//! call to the kubelet; whatever goes wrong becomes an error reply, never silence.

mod decision;
mod existing;
mod fencing;
mod gate;
mod ledger;
mod lookup;
mod reply;
mod service;
mod validate;
mod view;

pub use service::{Warden, Wiring};
