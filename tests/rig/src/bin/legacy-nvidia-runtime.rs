//! Stand-in for the legacy NVIDIA container runtime: an OCI runtime that adds the GPUs named by
//! `NVIDIA_VISIBLE_DEVICES` to the bundle and becomes the next runtime.
//!
//! usage: `legacy-nvidia-runtime CONFIG NEXT [argument of the OCI runtime]...`

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context as _, bail};
use gpu_warden_rig::oci;

fn main() -> anyhow::Result<()> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [config, next, rest @ ..] = args.as_slice() else {
        bail!("usage: legacy-nvidia-runtime CONFIG NEXT [argument]...");
    };
    let text = std::fs::read(config).with_context(|| format!("can't read {}", config.display()))?;
    let node: oci::LegacyConfig = serde_json::from_slice(&text)
        .with_context(|| format!("{} is no configuration of this runtime", config.display()))?;
    oci::edit_and_become(Path::new(next), rest, |bundle| {
        oci::inject_by_environment(bundle, &node)
    })?;
    Ok(())
}
