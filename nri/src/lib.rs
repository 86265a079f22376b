//! Node Resource Interface (NRI) plugins for containerd and CRI-O.
//!
//! Implement [`Plugin`], hand it to a [`Runner`]: the runner connects (or adopts the socket of a pre-launched plugin),
//! registers, answers every request in time and reconnects for ever. The crate knows the protocol and its many versions;
//! it knows nothing of what a plugin is for.
//!
//! Invariants: no request stays without an answer while the connection lives (slow and panicking handlers are answered with
//! an error, because runtimes *go on without* a plugin that does not answer); the event mask is never 0 and never holds a
//! bit that the runtime does not know; nothing that the peer sends makes this crate panic or grow without bound.
//!
//! Layers, outermost first: [`Runner`] (connect, reconnect) → session (register, serve, drain) → ttrpc (unary requests) →
//! [`mux`] (two connections on one trunk).

pub mod api;
mod events;
mod generated;
mod identity;
pub mod mux;
mod plugin;
mod refusal;
mod runner;
mod runtime;
pub mod service;
mod session;
mod status;
mod version;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;

pub use events::Events;
pub use identity::{Identity, IdentityError};
pub use plugin::{Adjusted, Plugin};
/// The protobuf implementation of the messages, so that users need not pick a matching version.
pub use protobuf;
pub use refusal::{Refusal, RefusalCode};
pub use runner::{DEFAULT_SOCKET, PrelaunchError, Runner, RunnerError};
pub use runtime::{DEFAULT_REGISTRATION_TIMEOUT, DEFAULT_REQUEST_TIMEOUT, Feature, Runtime};
pub use session::{RuntimeHandle, RuntimeHandleError, SessionError};
pub use status::Status;
