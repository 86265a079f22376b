//! `cdi-gen hook`: what a GPU container needs beyond nodes and mounts, done by one process between
//! the runtime's mounts and the container's first instruction.
//!
//! Owns the links, the loader's `ld.so.cache` (or musl's path file) and `ModifyDeviceFiles: 0` of
//! one container. It is an OCI `createContainer` hook: it runs in the container's namespaces, before
//! `pivot_root`, with the host's files still at `/`. It finds nothing out about GPUs; what to do is
//! in its arguments, which the spec's author wrote.
//!
//! Invariants: it opens every path of the container below an open descriptor of the root file
//! system, resolved there by the kernel, and writes only to that file system itself or the
//! container's own `/dev`, never through a mount; an image decides at most that a step is skipped,
//! never what becomes of the host or of this process; a second run changes nothing.

mod cache;
mod cover;
mod elf;
mod links;
mod loader;
mod params;
mod request;
mod rootfs;
mod state;

use std::io;
use std::path::PathBuf;

use rootfs::Rootfs;

pub use request::{Link, Request};
pub use state::Container;

/// A step that was not taken; the container works without it, as far as its image allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("skipped {step}: {reason}")]
pub struct Skipped {
    /// What would have been done, with its object.
    pub step: String,
    /// Why not.
    pub reason: String,
}

impl Skipped {
    fn new(step: impl Into<String>, reason: &impl ToString) -> Self {
        Self {
            step: step.into(),
            reason: reason.to_string(),
        }
    }
}

/// The container must not start.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// An argument that this version knows, with a value that it does not understand.
    #[error(
        "the argument `{argument}` is wrong: {reason}; write the spec anew with `cdi-gen generate`"
    )]
    Argument {
        /// As it was given.
        argument: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// What the runtime says on stdin can't be read.
    #[error("can't read the container's state on stdin: {0}")]
    State(String),
    /// The container's configuration can't be read.
    #[error("can't read the container's configuration {}: {reason}", path.display())]
    Config {
        /// Of the bundle.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The root file system can't be opened.
    #[error("can't open the container's root file system {}", path.display())]
    Root {
        /// On the host.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A mount that was needed for a moment stays, and hides files of the container.
    #[error("can't remove a temporary mount from the container")]
    Detach {
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// Takes every step that the request names, in the container that the runtime described.
///
/// Changes the working directory of the process when a file has to be mounted. Returns the steps
/// that were not possible here, in order; an error means that the container must not start.
pub fn run(request: &Request, container: &Container) -> Result<Vec<Skipped>, HookError> {
    let mut skipped: Vec<_> = request
        .unknown
        .iter()
        .map(|argument| {
            Skipped::new(
                format!("`{argument}`"),
                &"this cdi-gen does not know it; the spec was written by a newer one",
            )
        })
        .collect();
    let root = Rootfs::open(&container.root).map_err(|source| HookError::Root {
        path: container.root.clone(),
        source,
    })?;
    if root.is_the_host_s() {
        skipped.push(Skipped::new(
            "everything",
            &"the container's root file system is the host's own",
        ));
        return Ok(skipped);
    }
    links::make(&root, &request.links, &mut skipped);
    loader::tell(&root, request, &mut skipped)?;
    if request.freeze_device_files {
        params::freeze(&root, container, &mut skipped)?;
    }
    Ok(skipped)
}
