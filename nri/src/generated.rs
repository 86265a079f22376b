//! The code that the build script generates from `proto/nri.proto`; [`crate::api`] and [`crate::service`] re-export it.
//!
//! Owns nothing but the include and the lint exceptions that generated code needs.

#![allow(
    clippy::all,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    unsafe_code,
    rustdoc::all
)]

include!(concat!(env!("OUT_DIR"), "/mod.rs"));
