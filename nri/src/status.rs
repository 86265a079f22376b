//! Where a plugin stands with its runtime.

/// The state of a [`crate::Runner`], for readiness probes and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// No connection, or one on which nothing is agreed yet. Containers are created without the plugin.
    Connecting,
    /// `Configure` is answered; the runtime has not made the plugin active yet.
    Configured,
    /// The runtime accepted the registration and `Synchronize` is answered: the plugin is active.
    Registered,
    /// The runner has ended.
    Stopped,
}
