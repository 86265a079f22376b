//! The plugin's own handler: from the decoded request to the adjustment, lookups included.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use gpu_warden::config::SettingsSource;
use gpu_warden::host::Roots;
use gpu_warden::plugin::{Warden, Wiring};
use gpu_warden::watch::{Schedule, Watcher};
use nri::Plugin as _;
use nri::api::ConfigureRequest;

use super::support::container::creation;
use super::support::sample::{self, Sample};
use super::support::{node, pods};
use super::{CALLS, CASES, Case, ROUND, WARM_UP};

/// Threads of `gpu-warden run`.
const WORKERS: usize = 2;

/// Whether all cases keep the target.
pub(crate) fn run() -> Result<bool> {
    // Log lines are made as in the program, and thrown away.
    let logs = tracing_subscriber::fmt()
        .with_writer(std::io::sink)
        .finish();
    tracing::subscriber::set_global_default(logs)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()?;
    sample::header("handler alone");
    // On a worker, as the session calls it.
    runtime.block_on(async { tokio::spawn(cases()).await? })
}

async fn cases() -> Result<bool> {
    let root = tempfile::tempdir()?;
    let _kubelet = pods::kubelet(root.path()).await?;
    let mut kept = true;
    for case in &CASES {
        kept &= time(case, root.path()).await?.print(case.name);
    }
    Ok(kept)
}

async fn time(case: &Case, kubelet_root: &std::path::Path) -> Result<Sample> {
    let (warden, _watcher) = warden(kubelet_root)?;
    let configure = ConfigureRequest {
        runtime_name: "containerd".into(),
        runtime_version: case.containerd.into(),
        ..Default::default()
    };
    let refused = |refusal: nri::Refusal| anyhow::anyhow!("refused: {}", refusal.message());
    warden
        .configure(&(&configure).into(), "")
        .await
        .map_err(refused)?;
    let mut times = Vec::with_capacity(CALLS);
    for call in 0..WARM_UP + CALLS {
        if call % ROUND == 0 {
            let (running, containers) = pods::running();
            warden
                .synchronize(running, containers)
                .await
                .map_err(refused)?;
        }
        let (pod, container) = creation(case.pod(call), pods::PODS + call, case.kind);
        let (sandbox, id) = (pod.clone(), container.id.clone());
        let start = Instant::now();
        let answer = warden.create_container(pod, container).await;
        let took = start.elapsed();
        case.check(&answer.map_err(refused)?.adjust)?;
        if call >= WARM_UP {
            times.push(took);
        }
        // It ends, as containers do; else the ledger would fill with a node that never was.
        let ended = nri::api::Container {
            id,
            ..Default::default()
        };
        warden
            .stop_container(sandbox, ended)
            .await
            .map_err(refused)?;
    }
    Ok(Sample::new(times))
}

fn warden(kubelet_root: &std::path::Path) -> Result<(Warden, Watcher)> {
    let state = node::state();
    let publish = tokio::sync::watch::Sender::new(Arc::new(state.clone()));
    let node = publish.subscribe();
    let schedule = Schedule {
        directories: Vec::new(),
        poll: Duration::from_secs(3600),
        debounce: Duration::from_secs(1),
        every_event: false,
    };
    let watcher = Watcher::start(schedule, publish, move || state.clone())?;
    let settings = SettingsSource::open(None, Vec::new())?.now();
    let wiring = Wiring {
        roots: Roots {
            kubelet: kubelet_root.to_owned(),
            ..Roots::default()
        },
        settings: tokio::sync::watch::Sender::new(Arc::new(settings)).subscribe(),
        own_pod_uid: None,
        places: Vec::new(),
        node,
        refresh: watcher.refresh(),
    };
    Ok((Warden::new(wiring), watcher))
}
