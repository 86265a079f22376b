//! The driver's files below a root: which libraries and programs a container needs, and where
//! they are.
//!
//! Owns the search below the driver root and everything read from the files found (class,
//! machine, SONAME). Never follows a link out of the root, never looks at `PATH` or at its own
//! library directories, and knows nothing of CDI.
//!
//! Invariant: every path it returns is absolute *inside* the root; the caller alone knows at which
//! prefix the host sees that root.

mod elf;
#[cfg(test)]
#[path = "elf_fixture.rs"]
pub(crate) mod elf_fixture;
mod files;
mod libraries;
mod root;
#[cfg(test)]
mod tests;
mod version;

pub use files::{DriverError, DriverFiles, Library, Program};
pub use libraries::{LIBRARY_DIRS, nvml_library};
pub use root::{InRoot, Resolved};
pub use version::is_driver_version;
