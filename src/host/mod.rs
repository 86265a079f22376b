//! The only room that touches procfs, cgroupfs and device numbers. Every path starts below an
//! explicit root, so that tests, containers and driver containers can move it.

mod roots;

pub use roots::Roots;
