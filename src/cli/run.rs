//! `gpu-warden run`: the plugin and the refresher, until a signal ends them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use cdi::Kind;
use clap::Args;
use nri::{Identity, Runner};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};

use super::{RootArgs, heap};
use crate::config::{Settings, SettingsSource};
use crate::host::{DeviceNumbers, Place, Roots, USUAL_PATHS};
use crate::plugin::{Warden, Wiring};
use crate::readiness::{self, Readiness};
use crate::spec::BuildOptions;
use crate::telemetry::{self, LogFormat};
use crate::watch::{Look, NodeState, Schedule, Watcher};

/// Two threads answer requests: NRI calls are serial, and one must be free to answer in time.
const WORKERS: usize = 2;

/// Arguments of `gpu-warden run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    roots: RootArgs,

    /// The driver root as the runtime on the host sees it [default: the driver root]
    #[arg(long, env = "GPU_WARDEN_HOST_DRIVER_ROOT", value_name = "DIR")]
    host_driver_root: Option<String>,

    /// The dev root as the runtime on the host sees it [default: the dev root]
    #[arg(long, env = "GPU_WARDEN_HOST_DEV_ROOT", value_name = "DIR")]
    host_dev_root: Option<String>,

    /// Directory of the kubelet, as the kubelet's own `--root-dir`
    #[arg(
        long,
        env = "GPU_WARDEN_KUBELET_ROOT",
        default_value = "/var/lib/kubelet",
        value_name = "DIR"
    )]
    kubelet_root: PathBuf,

    /// Where the cgroup hierarchies of the host are mounted
    #[arg(
        long,
        env = "GPU_WARDEN_CGROUP_ROOT",
        default_value = "/sys/fs/cgroup",
        value_name = "DIR"
    )]
    cgroup_root: PathBuf,

    /// Directories that the runtime reads CDI specs from, lowest priority first; the spec is kept in the last one
    #[arg(long = "cdi-dir", env = "GPU_WARDEN_CDI_DIRS", value_delimiter = ',',
          default_values = ["/etc/cdi", "/var/run/cdi"], value_name = "DIR")]
    cdi_dirs: Vec<PathBuf>,

    /// The runtime's NRI socket
    #[arg(long, env = "GPU_WARDEN_NRI_SOCKET", default_value = nri::DEFAULT_SOCKET, value_name = "PATH")]
    nri_socket: PathBuf,

    /// Name of the plugin, as a runtime's `required_plugins` lists it
    #[arg(
        long,
        env = "GPU_WARDEN_PLUGIN_NAME",
        default_value = "gpu-warden",
        value_name = "NAME"
    )]
    plugin_name: String,

    /// Index of the plugin, two digits: runs after every plugin with a lower one, so that it sees what they injected
    #[arg(
        long,
        env = "GPU_WARDEN_PLUGIN_INDEX",
        default_value = "99",
        value_name = "NN"
    )]
    plugin_index: String,

    /// Configuration file, read again when it changes; without one, the default that is shipped as
    /// nri-config/gpu-warden.yaml
    #[arg(long, env = "GPU_WARDEN_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,

    /// NVIDIA's config.toml, of which those that exist are read; with none, every name that it could
    /// have given to a variable is neutralised
    #[arg(long = "nvidia-runtime-config", env = "GPU_WARDEN_NVIDIA_RUNTIME_CONFIG", value_delimiter = ',',
          default_values = USUAL_PATHS, value_name = "FILE")]
    nvidia_runtime_configs: Vec<PathBuf>,

    /// UID of the pod that this runs in, which is left as it is (downward API: metadata.uid)
    #[arg(long, env = "GPU_WARDEN_OWN_POD_UID", value_name = "UID")]
    own_pod_uid: Option<String>,

    /// Socket at which the state is told to `gpu-warden ready`
    #[arg(long, env = "GPU_WARDEN_STATUS_SOCKET", default_value = readiness::DEFAULT_SOCKET, value_name = "PATH")]
    status_socket: PathBuf,

    /// Seconds after which GPUs and configuration are looked at even when no file event came
    #[arg(long, env = "GPU_WARDEN_POLL_INTERVAL", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..), value_name = "SECONDS")]
    poll_interval: u64,

    /// Milliseconds of quiet to wait for after a file event
    #[arg(
        long,
        env = "GPU_WARDEN_DEBOUNCE",
        default_value_t = 300,
        value_name = "MILLISECONDS"
    )]
    debounce: u64,

    /// Form of the log
    #[arg(long, env = "GPU_WARDEN_LOG_FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,

    /// Level, or a list of target=level
    #[arg(
        long,
        env = "GPU_WARDEN_LOG_LEVEL",
        default_value = "info",
        value_name = "FILTER"
    )]
    log_level: String,
}

impl RunArgs {
    /// Runs until SIGTERM or SIGINT, or, when the runtime has started us, until it closes the connection.
    pub fn exec(self) -> anyhow::Result<()> {
        heap::share();
        let _flush = telemetry::init(self.log_format, &self.log_level)?;
        let (settings, _settings_watcher) = self.watch_settings()?;
        let roots = Roots {
            kubelet: self.kubelet_root.clone(),
            cgroup: self.cgroup_root.clone(),
            ..self.roots.roots_with(None)
        };
        let numbers = DeviceNumbers::read(&roots)?;
        let publish = watch::Sender::new(Arc::new(NodeState::unknown(
            "the first look is under way",
            numbers,
        )));
        let node = publish.subscribe();
        let mut look = Look::new(
            roots.clone(),
            self.roots.nvml_with(None),
            self.build_options()?,
            self.cdi_dirs.clone(),
        )?;
        let schedule = Schedule {
            directories: look.directories(),
            every_event: false,
            ..self.schedule()
        };
        let watcher = Watcher::start(schedule, publish, move || look.take())?;
        let wiring = Wiring {
            places: self.places(&roots),
            roots,
            settings: settings.clone(),
            own_pod_uid: self.own_pod_uid.clone(),
            node: node.clone(),
            refresh: watcher.refresh(),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .enable_all()
            .build()
            .context("the async runtime can't be started")?;
        let ended = runtime.block_on(self.serve(Arc::new(Warden::new(wiring)), settings, node));
        // Every request is answered by now; a check that hangs in a file system must not hold the
        // process, since containers are created unguarded until its successor runs.
        runtime.shutdown_background();
        ended
    }

    fn schedule(&self) -> Schedule {
        Schedule {
            directories: Vec::new(),
            poll: Duration::from_secs(self.poll_interval),
            debounce: Duration::from_millis(self.debounce),
            every_event: true,
        }
    }

    /// Reads the settings, and keeps reading them until the watcher is dropped.
    fn watch_settings(&self) -> anyhow::Result<(watch::Receiver<Arc<Settings>>, Watcher)> {
        let mut source =
            SettingsSource::open(self.config.clone(), self.nvidia_runtime_configs.clone())?;
        let publish = watch::Sender::new(Arc::new(source.now()));
        let settings = publish.subscribe();
        let schedule = Schedule {
            directories: source.directories(),
            ..self.schedule()
        };
        let watcher = Watcher::start(schedule, publish, move || source.take())?;
        Ok((settings, watcher))
    }

    fn places(&self, roots: &Roots) -> Vec<Place> {
        let files: Vec<_> = self
            .config
            .iter()
            .chain(&self.nvidia_runtime_configs)
            .cloned()
            .collect();
        Place::all(&roots.kubelet, &self.cdi_dirs, &self.nri_socket, &files)
    }

    fn build_options(&self) -> anyhow::Result<BuildOptions> {
        let kind = Kind::new("nvidia.com", "gpu").context("the kind nvidia.com/gpu")?;
        let roots = self.roots.roots_with(None);
        let text = |given: &Option<String>, root: &Path| {
            given.clone().unwrap_or_else(|| root.display().to_string())
        };
        Ok(BuildOptions {
            host_driver_root: text(&self.host_driver_root, &roots.driver),
            host_dev_root: text(&self.host_dev_root, &roots.dev),
            ..BuildOptions::new(kind)
        })
    }

    async fn serve(
        self,
        warden: Arc<Warden>,
        settings: watch::Receiver<Arc<Settings>>,
        node: watch::Receiver<Arc<NodeState>>,
    ) -> anyhow::Result<()> {
        let fences = Arc::clone(&warden).keep_fences();
        let runner = match Runner::prelaunched(Arc::clone(&warden))? {
            Some(runner) => runner,
            None => Runner::external(
                warden,
                Identity::new(self.plugin_name, self.plugin_index)?,
                self.nri_socket,
            ),
        };
        let mut terminate = signal(SignalKind::terminate()).context("SIGTERM can't be handled")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT can't be handled")?;
        let fencing = tokio::spawn(fences);
        let sources = readiness::Sources {
            status: runner.status(),
            settings,
            node,
        };
        // What is told of us is not worth a container that is not guarded.
        match readiness::listen(&self.status_socket) {
            Ok(listener) => drop(tokio::spawn(readiness::serve(listener, sources.clone()))),
            Err(problem) => warn!("`gpu-warden ready` gets no answer: {problem}"),
        }
        let announcing = tokio::spawn(announce(sources));
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => info!("SIGTERM"),
                _ = interrupt.recv() => info!("SIGINT"),
            }
        };
        let result = runner.run(shutdown).await;
        announcing.abort();
        fencing.abort();
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        Ok(result?)
    }
}

/// Tells systemd and the log whether containers are guarded at the moment, and as configured.
async fn announce(mut sources: readiness::Sources) {
    let mut ready = false;
    let mut said: Option<Readiness> = None;
    loop {
        let now = Readiness {
            inventory: None,
            ..sources.now()
        };
        if now.registered && !ready {
            ready = true;
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        }
        if said.as_ref() != Some(&now) {
            let text = now.to_string();
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Status(&text)]);
            info!(registered = now.registered, "{text}");
            said = Some(now);
        }
        match sources.changed().await {
            // Back so quickly that it looks the same is worth a line.
            Some(true) => said = None,
            Some(false) => {}
            None => return,
        }
    }
}
