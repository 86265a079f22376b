//! Inventory + driver files → CDI spec, and the one function that brings a spec file up to date.
//!
//! Owns what a GPU device is made of: which nodes, mounts and variables, and in which form, so that
//! nothing in the file goes stale while the driver stays. Knows no container and no allocation.
//!
//! Invariants: a device without its own node is never written; a file is replaced whole or not at
//! all, and not without at least one device.

mod build;
mod hooks;
mod refresh;

pub use build::{BuildOptions, NameStrategy, build};
pub use hooks::{HookMode, LOADER_DIRS};
pub use refresh::{Generated, RefreshOptions, Refreshed, SpecError, generate, refresh};
