//! `gpu-warden`: the NRI plugin.

fn main() {}
