//! What the benchmarks share: a node of 110 pods and 8 GPUs, as values, as messages, and as a host
//! in a temporary directory; the runtime's side of NRI; and the statistics.
//!
//! Owns no measurement: what is timed, and what is left out of the time, stands in each benchmark.

#![allow(dead_code, reason = "each benchmark uses its part")]

pub(crate) mod container;
#[path = "../../src/driver/elf_fixture.rs"]
mod elf_fixture;
pub(crate) mod host;
pub(crate) mod node;
pub(crate) mod peer;
pub(crate) mod pods;
pub(crate) mod sample;
