//! The Container Device Interface: model, strict parser, validation, resolution, canonical writer.
//!
//! A reader goes [`Registry::load`] → [`Registry::resolve`] or [`Registry::edits`]; a generator fills a
//! [`Spec`], calls [`Spec::set_lowest_version`] and hands it to [`write_spec`].
//!
//! The crate knows the document and the directories. It knows no GPU, touches no container and never
//! looks at a device node; what a runtime does with an edit is described, not done, here.

mod de;
mod edits;
mod emit;
pub mod file_name;
pub mod model;
mod name;
mod parse;
mod registry;
mod validate;
mod version;
mod write;

pub use emit::Format;
pub use model::{ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec};
pub use name::{Grammar, Kind, NameError, Part, QualifiedName};
pub use parse::{LoadError, MAX_BYTES, ParseError};
pub use registry::{
    BrokenFile, Candidate, DEFAULT_DIRS, DirError, Registry, ResolveError, Resolved, Shadowed,
    SpecFile, UnresolvedDevices,
};
pub use validate::{Rule, Violation, Violations};
pub use version::{UnknownVersion, Version};
pub use write::{Outcome, RemoveOutcome, WriteError, remove_spec, write_spec};
