//! Generates the kubelet's message types with a pure Rust parser: no protoc at build time.

fn main() {
    println!("cargo::rerun-if-changed=proto");
    protobuf_codegen::Codegen::new()
        .pure()
        .include("proto")
        .inputs(["proto/podresources.proto", "proto/deviceplugin.proto"])
        .cargo_out_dir("proto")
        .run_from_script();
}
