//! `cdi-gen hook` and specs without one: hostile root file systems, and real containers of runc in
//! which a program asks the loader for `libcuda.so.1`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

#[path = "hook/attacks.rs"]
mod attacks;
#[path = "hook/container.rs"]
mod container;
#[path = "hook/cost.rs"]
mod cost;
#[path = "../src/driver/elf_fixture.rs"]
#[expect(dead_code, reason = "these images have no 32-bit libraries")]
mod elf_fixture;
#[path = "hook/image.rs"]
mod image;
#[path = "hook/modes.rs"]
mod modes;
#[path = "hook/rootfs.rs"]
mod rootfs;
#[path = "hook/steps.rs"]
mod steps;
