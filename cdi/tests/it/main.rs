//! The crate from outside: fixtures, a second reader, hostile input, several processes.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper of a test fails the test"
)]

mod fixtures;
mod hostile;
mod processes;
mod properties;
mod second_reader;
mod strategies;
