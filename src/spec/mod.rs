//! Inventory + driver files → CDI spec, and the one function that brings a spec file up to date.
//!
//! Owns what a GPU device is made of: which nodes, mounts and variables, and in which form, so that
//! nothing in the file goes stale while the driver stays. Knows no container and no allocation.
//!
//! Invariants: a device without its own node is never written; a file is replaced whole or not at
//! all, and not without at least one device.

mod build;
pub mod check;
pub mod diff;
pub mod explain;
mod finding;
mod hooks;
mod mode;
mod refresh;
mod select;
mod tegra;
mod wsl;

pub use build::{BuildOptions, NameStrategy, add_node_wide, build};
pub use finding::{Finding, Severity, is_negative};
pub use hooks::{HookMode, LOADER_DIRS};
pub use mode::{ModeSpec, generate_mode, mode_kind};
pub use refresh::{Generated, RefreshOptions, Refreshed, SpecError, generate, refresh};
pub use select::DeviceSelection;
pub use tegra::{generate_tegra, is_tegra};
pub use wsl::{generate_wsl, is_wsl};
