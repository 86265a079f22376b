//! Generates the CRI messages that the rig speaks, with a pure Rust parser: no protoc at build time.

fn main() {
    println!("cargo::rerun-if-changed=proto");
    protobuf_codegen::Codegen::new()
        .pure()
        .include("proto")
        .input("proto/cri.proto")
        .cargo_out_dir("proto")
        .run_from_script();
}
