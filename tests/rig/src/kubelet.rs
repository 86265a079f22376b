//! A stand-in kubelet: PodResources on a unix socket and the device-manager checkpoint, below a
//! root of its own, both able to misbehave.
//!
//! Owns what a kubelet would have on disk and on its socket. Allocates nothing by itself: the caller
//! says which ids a container gets. It behaves as the real one was seen to: entries of released pods
//! stay in the checkpoint until the next write, regular init containers are never reported, and a
//! stopped one leaves a socket that refuses. It runs on a runtime of its own, so that stopping it
//! cuts every connection, as the death of a process does.

mod checkpoint;
mod response;
mod server;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;

pub use response::{Style, response};
pub use server::{Calls, RateLimit};

/// A pod, as the CRI sandbox metadata names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    /// Sandbox uid.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl PodRef {
    /// A pod of that identity.
    pub fn new(uid: &str, namespace: &str, name: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// What goes wrong. The default is nothing.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent switches, any of which a test may combine"
)]
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Reject calls above a rate (a real kubelet: 100 a second, burst 10).
    pub rate_limit: Option<RateLimit>,
    /// How long after a start every pod is unknown.
    pub empty_after_start: Duration,
    /// Report pods, containers and devices in another order with every call.
    pub shuffle: bool,
    /// Report these ids for every container that has devices, whatever the checkpoint says.
    pub disagree: Option<Vec<String>>,
    /// Switch `Get` off, as the feature gate does.
    pub get_disabled: bool,
    /// Answer `Get` with another pod's resources.
    pub wrong_pod: bool,
    /// Accept calls and never answer.
    pub hang: bool,
    /// Answer only after this time.
    pub delay: Duration,
    /// Write a checksum that another kubelet version would write.
    pub foreign_checksum: bool,
    /// Write device ids as flat lists, as kubelets before 1.20 did.
    pub flat_ids: bool,
}

#[derive(Debug, Clone)]
struct Container {
    name: String,
    /// Regular init container: recorded, never reported.
    init: bool,
    devices: Vec<(String, Vec<String>)>,
    /// Claim name, DRA driver name and CDI device name.
    claims: Vec<(String, String, String)>,
}

#[derive(Debug, Clone)]
struct Pod {
    of: PodRef,
    containers: Vec<Container>,
}

#[derive(Debug, Default)]
struct State {
    pods: Vec<Pod>,
    recorded: Vec<checkpoint::Entry>,
    faults: Faults,
    unready_until: Option<Instant>,
    bucket: server::Bucket,
    calls: Calls,
    turn: usize,
}

impl State {
    fn container(&mut self, of: &PodRef, name: &str) -> &mut Container {
        let pod = at(
            &mut self.pods,
            |pod| pod.of == *of,
            || Pod {
                of: of.clone(),
                containers: Vec::new(),
            },
        );
        at(
            &mut pod.containers,
            |c| c.name == name,
            || Container {
                name: name.to_owned(),
                init: false,
                devices: Vec::new(),
                claims: Vec::new(),
            },
        )
    }
}

/// The item that fits, made first if there is none.
fn at<T>(items: &mut Vec<T>, fits: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> &mut T {
    let at = items.iter().position(fits).unwrap_or_else(|| {
        items.push(make());
        items.len() - 1
    });
    &mut items[at]
}

/// The stand-in. Dropping it stops it.
#[derive(Debug)]
pub struct Kubelet {
    root: PathBuf,
    state: Arc<Mutex<State>>,
    running: Option<Runtime>,
}

impl Kubelet {
    /// Starts one below `root`, which is created when it isn't there, with a checkpoint that holds
    /// no allocation.
    ///
    /// # Errors
    /// The directories, the checkpoint or the socket can't be made.
    pub async fn start(root: &Path) -> Result<Self> {
        for dir in ["pod-resources", "device-plugins"] {
            let dir = root.join(dir);
            std::fs::create_dir_all(&dir).with_context(|| format!("create {}", dir.display()))?;
        }
        let mut kubelet = Self {
            root: root.to_owned(),
            state: Arc::default(),
            running: None,
        };
        kubelet.write_checkpoint()?;
        kubelet.start_again().await?;
        Ok(kubelet)
    }

    /// Serves on a fresh socket, after [`stop`](Self::stop). Allocations are still there.
    ///
    /// # Errors
    /// It runs already, or the socket can't be bound.
    pub async fn start_again(&mut self) -> Result<()> {
        ensure!(self.running.is_none(), "the stand-in kubelet runs already");
        let socket = self.socket();
        match std::fs::remove_file(&socket) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(e).with_context(|| format!("remove {}", socket.display()));
            }
            _ => {}
        }
        {
            let mut state = self.state();
            state.unready_until = Some(Instant::now() + state.faults.empty_after_start);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("stand-in-kubelet")
            .enable_all()
            .build()
            .context("start a runtime")?;
        let state = Arc::clone(&self.state);
        let at = socket.clone();
        let bound = runtime
            .spawn(async move {
                let listener = UnixListener::bind(&at)?;
                tokio::spawn(server::serve(listener, state));
                std::io::Result::Ok(())
            })
            .await;
        self.running = Some(runtime);
        bound
            .context("bind the socket")?
            .with_context(|| format!("bind {}", socket.display()))
    }

    /// Ends it as a crash would: connections break, and the socket stays and refuses.
    ///
    /// # Errors
    /// The socket still accepts after two seconds.
    pub async fn stop(&mut self) -> Result<()> {
        if let Some(runtime) = self.running.take() {
            runtime.shutdown_background();
        }
        let give_up = Instant::now() + Duration::from_secs(2);
        while UnixStream::connect(self.socket()).await.is_ok() {
            ensure!(Instant::now() < give_up, "the socket still accepts");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Lists a container that has no devices.
    pub fn add_container(&self, pod: &PodRef, container: &str) {
        self.state().container(pod, container);
    }

    /// Gives devices to a container (app or sidecar): recorded and reported.
    ///
    /// # Errors
    /// The checkpoint can't be written.
    pub fn allocate(
        &self,
        pod: &PodRef,
        container: &str,
        resource: &str,
        ids: &[&str],
        style: Style,
    ) -> Result<()> {
        self.record(pod, container, resource, ids, style, false)
    }

    /// Gives devices to a regular init container: recorded, never reported.
    ///
    /// # Errors
    /// The checkpoint can't be written.
    pub fn allocate_init(
        &self,
        pod: &PodRef,
        container: &str,
        resource: &str,
        ids: &[&str],
        style: Style,
    ) -> Result<()> {
        self.record(pod, container, resource, ids, style, true)
    }

    /// Gives a container a device by a DRA claim: reported, never recorded.
    pub fn claim(&self, pod: &PodRef, container: &str, claim: &str, driver: &str, cdi: &str) {
        self.state().container(pod, container).claims.push((
            claim.to_owned(),
            driver.to_owned(),
            cdi.to_owned(),
        ));
    }

    /// Ends a pod: no longer reported, but recorded until the next allocation.
    pub fn release(&self, uid: &str) {
        let mut state = self.state();
        state.pods.retain(|pod| pod.of.uid != uid);
        for entry in state.recorded.iter_mut().filter(|e| e.pod_uid == uid) {
            entry.stale = true;
        }
    }

    /// Changes what goes wrong, from the next call or write on.
    pub fn misbehave(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.state().faults);
    }

    /// Writes the checkpoint from the current allocations, by rename.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write_checkpoint(&self) -> Result<()> {
        let (entries, faults) = {
            let mut state = self.state();
            state.recorded.retain(|entry| !entry.stale);
            (state.recorded.clone(), state.faults.clone())
        };
        let bytes = checkpoint::document(&entries, faults.flat_ids, faults.foreign_checksum)?;
        self.replace_checkpoint(&bytes)
    }

    /// Puts any bytes in the checkpoint's place, by rename.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn replace_checkpoint(&self, bytes: &[u8]) -> Result<()> {
        checkpoint::replace(&self.checkpoint(), bytes)
    }

    /// Leaves only the first half of the checkpoint.
    ///
    /// # Errors
    /// The file can't be read or written.
    pub fn tear_checkpoint(&self) -> Result<()> {
        let path = self.checkpoint();
        let bytes = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        self.replace_checkpoint(&bytes[..bytes.len() / 2])
    }

    /// The PodResources socket.
    pub fn socket(&self) -> PathBuf {
        self.root.join("pod-resources/kubelet.sock")
    }

    /// The checkpoint file.
    pub fn checkpoint(&self) -> PathBuf {
        self.root.join("device-plugins/kubelet_internal_checkpoint")
    }

    /// How often it was called since the start, rejected calls included.
    pub fn calls(&self) -> Calls {
        self.state().calls
    }

    fn record(
        &self,
        pod: &PodRef,
        container: &str,
        resource: &str,
        ids: &[&str],
        style: Style,
        init: bool,
    ) -> Result<()> {
        let entry = checkpoint::Entry::new(pod, container, resource, ids, style)?;
        {
            let mut state = self.state();
            let held = state.container(pod, container);
            held.init = init;
            held.devices.push((
                resource.to_owned(),
                ids.iter().map(|id| (*id).to_owned()).collect(),
            ));
            state.recorded.push(entry);
        }
        self.write_checkpoint()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        if let Some(runtime) = self.running.take() {
            runtime.shutdown_background();
        }
    }
}
