//! An OCI runtime for a cgroup v2 tree that shares the machine with v1: it drops the resources whose
//! controllers v1 holds from the bundle, and becomes the next runtime.
//!
//! usage: `unified-runtime NEXT [argument of the OCI runtime]...`

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context as _, bail};
use gpu_warden_rig::oci;

const CONTROLLERS: &str = "/sys/fs/cgroup/cgroup.controllers";

fn main() -> anyhow::Result<()> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [next, rest @ ..] = args.as_slice() else {
        bail!("usage: unified-runtime NEXT [argument]...");
    };
    let controllers = std::fs::read_to_string(CONTROLLERS)
        .with_context(|| format!("can't read {CONTROLLERS}, so this is no cgroup v2 view"))?;
    oci::edit_and_become(Path::new(next), rest, |bundle| {
        oci::keep_settable_resources(bundle, &controllers)
    })?;
    Ok(())
}
