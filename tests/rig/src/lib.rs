//! Placeholder.

pub mod kubelet;
