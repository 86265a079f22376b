//! `cdi-gen` as a person or a unit runs it: the real binary over a node in a temporary directory,
//! with a stand-in `libnvidia-ml.so.1` that it finds and loads as on a host.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "helpers of tests fail the test, and say why one is skipped"
)]

#[path = "cdi_gen/check.rs"]
mod check;
#[path = "cdi_gen/commands.rs"]
mod commands;
#[path = "cdi_gen/content.rs"]
mod content;
#[path = "cdi_gen/documents.rs"]
mod documents;
#[path = "../src/driver/elf_fixture.rs"]
#[expect(dead_code, reason = "these nodes have no 32-bit libraries")]
mod elf_fixture;
#[path = "cdi_gen/faults.rs"]
mod faults;
#[path = "cdi_gen/node.rs"]
mod node;
#[path = "cdi_gen/output.rs"]
mod output;
#[path = "cdi_gen/queries.rs"]
mod queries;
#[path = "cdi_gen/sources.rs"]
mod sources;
