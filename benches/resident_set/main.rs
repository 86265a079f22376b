//! How much memory the real `gpu-warden run` holds with 110 pods known, by what it is.
//!
//! The NVML library is not counted: its size is the driver's business. A target that is missed is
//! printed, and fails nothing.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

mod smaps;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use anyhow::Result;
use smaps::Memory;
use support::container::Kind;
use support::host::{Host, Warden};
use support::peer::Peer;
use support::pods;

/// CreateContainer requests in each round.
const REQUESTS: usize = 1000;
/// The target, in KiB.
const TARGET: u64 = 10 << 10;
/// Variables `BENCH_WARDEN_X=…` of the benchmark become `X=…` of the program, for experiments with
/// the allocator.
const PASSED_ON: &str = "BENCH_WARDEN_";

fn main() -> Result<()> {
    let Some(host) = Host::make()? else {
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(measure(&host))
}

async fn measure(host: &Host) -> Result<()> {
    let _kubelet = pods::kubelet(&host.kubelet_root()).await?;
    let listener = host.listen()?;
    let environment: Vec<_> = std::env::vars()
        .filter_map(|(name, value)| Some((name.strip_prefix(PASSED_ON)?.to_owned(), value)))
        .collect();
    let mut warden = host.start(&environment)?;
    println!("Memory of gpu-warden run, {} pods, KiB\n", pods::PODS);
    smaps::header();
    let mut peer = Peer::accept(&listener, "2.1.9").await?;
    warden.knows_gpus().await?;
    report("synchronized", &warden).await?;

    for id in 0..REQUESTS {
        create(&mut peer, id, true).await?;
    }
    let settled = report("after 1000 creations, each stopped again", &warden).await?;
    for id in 0..REQUESTS {
        create(&mut peer, id, false).await?;
    }
    let waiting = report("after 1000 more that came to nothing", &warden).await?;

    let most = settled.own().max(waiting.own());
    let verdict = if most < TARGET { "met" } else { "NOT met" };
    println!("\ntarget, below {TARGET} KiB without the NVML library: {verdict} ({most} KiB)");
    Ok(())
}

/// Kinds and pods in turn.
async fn create(peer: &mut Peer, id: usize, stop: bool) -> Result<()> {
    let (pod, id) = (id % pods::PODS, pods::PODS + id);
    let kind = match (pods::has_gpu(pod), pod % 4) {
        (false, _) => Kind::Plain,
        (true, 0) => Kind::Gpu,
        (true, _) => Kind::Privileged,
    };
    peer.create(pod, id, kind).await?;
    if stop {
        peer.stop(pod, id, kind).await?;
    }
    Ok(())
}

async fn report(when: &str, warden: &Warden) -> Result<Memory> {
    // What is freed after an answer was sent is freed by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let memory = Memory::of(warden.pid())?;
    memory.print(when);
    Ok(memory)
}
