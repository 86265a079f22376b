//! Generates the NRI messages and services from `proto/nri.proto`. The parser is pure Rust: no protoc at build time.

use std::error::Error;
use std::path::PathBuf;

// The generated files begin with inner attributes, which `include!` refuses; as modules of this file they are fine.
const MOD_RS: &str = "pub mod nri;\npub mod nri_ttrpc;\n";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let out =
        PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR for build scripts")?);
    ttrpc_codegen::Codegen::new()
        .out_dir(&out)
        .input("proto/nri.proto")
        .include("proto")
        .rust_protobuf()
        .rust_protobuf_customize(ttrpc_codegen::ProtobufCustomize::default().gen_mod_rs(false))
        .customize(ttrpc_codegen::Customize {
            async_all: true,
            ..Default::default()
        })
        .run()?;
    std::fs::write(out.join("mod.rs"), MOD_RS)?;
    Ok(())
}
