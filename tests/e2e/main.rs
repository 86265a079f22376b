//! End to end: gpu-warden as an NRI plugin of real containerd, asked from inside real containers.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod founding_case;
mod node;
