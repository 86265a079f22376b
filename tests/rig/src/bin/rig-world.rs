//! For people: a world with containerd in it, to look around in until Ctrl-C.
//!
//! usage: `rig-world DIRECTORY-OF-CONTAINERD [v2]`

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use gpu_warden_rig::{Artifacts, CgroupView, Containerd, ContainerdFiles, World};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let bin = args
        .next()
        .context("usage: rig-world DIRECTORY-OF-CONTAINERD [v2]")?;
    let view = match args.next().as_deref() {
        None => CgroupView::Host,
        Some("v2") => CgroupView::Unified,
        Some(other) => anyhow::bail!("`{other}` is no view of the cgroups; there is only `v2`"),
    };
    let files = ContainerdFiles::at(Path::new(&bin))?;
    let world = World::builder()
        .cgroups(view)
        .start(&Artifacts::locate()?)?;
    let containerd = Containerd::start(&world, &files).await?;
    let mut out = std::io::stdout();
    writeln!(out, "directory: {}", world.base().display())?;
    writeln!(
        out,
        "enter it:  nsenter --target={} --mount --pid",
        world.holder_pid()
    )?;
    tokio::signal::ctrl_c().await?;
    drop(containerd);
    world.teardown().await?;
    Ok(())
}
