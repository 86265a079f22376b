//! gpu-warden: what the kubelet allocated is exactly what the container can open.
//!
//! The rooms, each with one job, are listed in `docs/architecture.md`.

pub mod allocation;
pub mod cli;
pub mod config;
pub mod driver;
pub mod fence;
pub mod gpu;
pub mod hook;
pub mod host;
pub mod plugin;
pub mod policy;
pub mod readiness;
pub mod spec;
pub mod telemetry;
pub mod watch;
