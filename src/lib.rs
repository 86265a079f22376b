//! gpu-warden: what the kubelet allocated is exactly what the container can open.
//!
//! The rooms, each with one job, are listed in `docs/architecture.md`.

pub mod allocation;
pub mod cli;
pub mod driver;
pub mod gpu;
pub mod host;
pub mod spec;
