//! Whole nodes of many kinds, each described by one file in `fixtures/nodes`, and the spec that
//! `cdi-gen` makes of it: golden, loaded by a second reader, and still right when something lies.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "helpers of tests fail the test, and say why one is skipped"
)]

#[path = "nodes/build.rs"]
mod build;
#[path = "nodes/check.rs"]
mod check;
#[path = "nodes/describe.rs"]
mod describe;
#[path = "../src/driver/elf_fixture.rs"]
mod elf_fixture;
#[path = "nodes/golden.rs"]
mod golden;
#[path = "nodes/hostile.rs"]
mod hostile;
#[path = "nodes/reader.rs"]
mod reader;
#[path = "nodes/variants.rs"]
mod variants;
