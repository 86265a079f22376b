//! A whole runner against a runtime that is played: message by message, byte by byte, or from recordings.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod bounds;
#[path = "../common/mod.rs"]
mod common;
mod deadlines;
mod events;
mod handshake;
mod hostile;
mod lifetime;
mod prelaunched;
mod probe;
mod replay;
mod synchronization;
mod ttrpc_peer;
