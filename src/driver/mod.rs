//! The driver's files below a root: which libraries, programs and settings a container needs, and
//! where they are.
//!
//! What to look for is data, the manifest. Owns the search below the driver root and everything
//! read from the files found (class, machine, SONAME). Never follows a link out of the root, never looks at `PATH` or at its own
//! library directories, and knows nothing of CDI.
//!
//! Invariant: every path it returns is absolute *inside* the root; the caller alone knows at which
//! prefix the host sees that root.

pub mod csv;
mod elf;
#[cfg(test)]
#[path = "elf_fixture.rs"]
pub(crate) mod elf_fixture;
mod files;
pub mod ldcache;
mod libraries;
mod manifest;
mod others;
mod pattern;
mod preset;
mod root;
mod scan;
mod sets;
#[cfg(test)]
mod tests;
mod version;

pub use files::{Absent, DriverError, DriverFiles, Extra, FindOptions, Library, Program, Targets};
pub use libraries::{LIBRARY_DIRS, nvml_library};
pub use manifest::{
    Directories, FileEntry, FileKind, Manifest, ManifestError, ModeEntry, NodeEntry,
};
pub(crate) use pattern::Pattern;
pub use preset::{Preset, PresetError};
pub use root::{InRoot, Resolved};
pub use sets::{Capability, InvalidCapability};
pub use version::is_driver_version;
