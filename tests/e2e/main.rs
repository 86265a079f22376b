//! End to end: real containerd 1.7 and 2.x, real runc, real cgroups, a stand-in kubelet and a
//! stand-in legacy NVIDIA runtime. What a container can open, the kernel says.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unreachable_pub,
    reason = "a failed step is a failed test"
)]

mod attacks;
mod deployed;
mod fence;
mod founding;
mod gate;
mod lifecycle;
mod recipe;
mod refusals;
mod support;
