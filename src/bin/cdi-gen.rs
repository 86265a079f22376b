//! `cdi-gen`: Container Device Interface specs for the GPUs of this node.

fn main() {}
