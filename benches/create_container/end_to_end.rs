//! The real `gpu-warden run`, over its socket: from the runtime's write of the request's first byte
//! to the last byte of the answer, framing, ttrpc and the other process's wake-up included.

use std::time::Instant;

use anyhow::Result;
use nri::api::CreateContainerResponse;
use nri::protobuf::Message as _;

use super::support::host::Host;
use super::support::peer::{Peer, create_request, payload};
use super::support::pods;
use super::support::sample::{self, Sample};
use super::{CALLS, CASES, Case, ROUND, WARM_UP};

/// Whether all cases keep the target; true too where the program can't be run.
pub(crate) fn run() -> Result<bool> {
    let Some(host) = Host::make()? else {
        return Ok(true);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    sample::header("end to end, the real program");
    runtime.block_on(cases(&host))
}

async fn cases(host: &Host) -> Result<bool> {
    let _kubelet = pods::kubelet(&host.kubelet_root()).await?;
    let mut kept = true;
    for case in &CASES {
        let listener = host.listen()?;
        let mut warden = host.start(&[])?;
        let mut peer = Peer::accept(&listener, case.containerd).await?;
        warden.knows_gpus().await?;
        kept &= time(case, &mut peer).await?.print(case.name);
    }
    Ok(kept)
}

async fn time(case: &Case, peer: &mut Peer) -> Result<Sample> {
    let mut times = Vec::with_capacity(CALLS);
    for call in 0..WARM_UP + CALLS {
        if call % ROUND == 0 {
            peer.synchronize().await?;
        }
        let (pod, id) = (case.pod(call), pods::PODS + call);
        let message = peer.encode("CreateContainer", &create_request(pod, id, case.kind))?;
        let start = Instant::now();
        let answer = peer.exchange(message).await?;
        let took = start.elapsed();
        let answer = CreateContainerResponse::parse_from_bytes(&payload(&answer)?)?;
        case.check(&answer.adjust)?;
        if call >= WARM_UP {
            times.push(took);
        }
        peer.stop(pod, id, case.kind).await?;
    }
    Ok(Sample::new(times))
}
