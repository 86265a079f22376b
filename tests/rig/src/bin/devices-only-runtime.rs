//! An OCI runtime for cgroup v2 trees without controllers: it drops every resource but the device
//! rules from the bundle and becomes the next runtime. Where the tree has controllers, it drops nothing.
//!
//! usage: `devices-only-runtime NEXT [argument of the OCI runtime]...`

use std::ffi::OsString;
use std::path::Path;

use anyhow::bail;
use gpu_warden_rig::oci;

const CONTROLLERS: &str = "/sys/fs/cgroup/cgroup.controllers";

fn main() -> anyhow::Result<()> {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [next, rest @ ..] = args.as_slice() else {
        bail!("usage: devices-only-runtime NEXT [argument]...");
    };
    let none = std::fs::read_to_string(CONTROLLERS).is_ok_and(|names| names.trim().is_empty());
    oci::edit_and_become(Path::new(next), rest, |bundle| {
        if none {
            oci::keep_only_device_rules(bundle)
        } else {
            Ok(())
        }
    })?;
    Ok(())
}
