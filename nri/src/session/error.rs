//! Why a session failed.

use std::time::Duration;

use crate::mux::MuxError;

/// A connection to the runtime that ended other than in order.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The byte stream failed.
    #[error(transparent)]
    Trunk(#[from] MuxError),
    /// The runtime answered the registration with an error, or not at all.
    #[error("registering NRI plugin {plugin} failed: {reason}; the runtime's log says more")]
    Register {
        /// Index and name.
        plugin: String,
        /// What ttrpc says.
        reason: String,
    },
    /// The runtime closed the connection before the plugin was active.
    #[error(
        "the runtime closed the connection {0}; its log says why (plugin disabled, unknown events, an error reply of ours)"
    )]
    ClosedEarly(&'static str),
    /// The plugin answered `Configure` or `Synchronize` with an error, so the runtime does not make it active; some
    /// runtimes keep the connection open all the same.
    #[error(
        "the plugin could not be made active: a handshake request was answered with an error ({0})"
    )]
    Refused(&'static str),
    /// The runtime keeps the connection but does not go on.
    #[error("the runtime did not make the plugin active within {after:?}; it stopped {stage}")]
    Inactive {
        /// How long it was waited for.
        after: Duration,
        /// The last step that was taken.
        stage: &'static str,
    },
}
