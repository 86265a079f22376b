//! The Container Device Interface: model, strict parser, validation, resolution, canonical writer.
//!
//! A reader goes [`Registry::load`] → [`Registry::resolve`] or [`Registry::edits`]; a generator fills a
//! [`Spec`], calls [`Spec::set_lowest_version`] and hands it to [`write_spec`].
//!
//! The crate knows the document and the directories. It knows no GPU, touches no container and never
//! looks at a device node; what a runtime does with an edit is described, not done, here.
//!
//! ```
//! use cdi::{Format, Outcome, QualifiedName, Registry, Spec, file_name, write_spec};
//!
//! let mut spec = Spec::from_yaml(
//!     "cdiVersion: 1.0.0
//! kind: nvidia.com/gpu
//! devices:
//! - name: GPU-1
//!   containerEdits:
//!     deviceNodes: [{path: /dev/nvidia0}]",
//! )?;
//! spec.set_lowest_version();
//! assert_eq!(spec.cdi_version, "0.3.0");
//!
//! let dir = tempfile::tempdir()?;
//! let path = dir.path().join(file_name::default_name(&spec.kind.parse()?, Format::Yaml));
//! assert_eq!(write_spec(&path, &spec, Format::Yaml)?, Outcome::Written);
//! assert_eq!(write_spec(&path, &spec, Format::Yaml)?, Outcome::Unchanged);
//!
//! let registry = Registry::load(&[dir.path().into()]);
//! let gpu: QualifiedName = "nvidia.com/gpu=GPU-1".parse()?;
//! assert_eq!(registry.resolve(&gpu)?.path, path);
//! assert_eq!(registry.edits(&[gpu])?.device_nodes[0].path, "/dev/nvidia0");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
