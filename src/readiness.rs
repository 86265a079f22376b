//! Whether containers are guarded at the moment, and as the administrator wants it: one JSON object,
//! told to whoever connects to a unix socket.
//!
//! A socket and not a file: a process that has died answers nothing, while its file would stay.
//! Invariant: what is told is the state at the moment of the connection, and nothing can be asked.

use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nri::Status;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tracing::{debug, warn};

use crate::config::{Enforcement, Settings};
use crate::watch::NodeState;

/// Where the socket is, unless a flag says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/gpu-warden/status.sock";
/// How long a client waits for the answer, and the server for a client to take it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longer than any answer.
const ANSWER_LIMIT: u64 = 64 << 10;

/// The state at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// Whether the runtime asks gpu-warden about containers.
    pub registered: bool,
    /// Whether decisions are carried out (`enforcement: enforce`).
    pub enforcing: bool,
    /// Why the configuration file is not what holds; none when it is.
    pub configuration: Option<String>,
    /// Why no GPU is granted; none when the node's GPUs are known. No matter of readiness: a node whose
    /// driver is not loaded yet is guarded all the same.
    pub inventory: Option<String>,
}

/// What readiness follows from.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Of the connection to the runtime.
    pub status: watch::Receiver<Status>,
    /// The configuration.
    pub settings: watch::Receiver<Arc<Settings>>,
    /// The node.
    pub node: watch::Receiver<Arc<NodeState>>,
}

/// The state can't be told or learnt.
#[derive(Debug, thiserror::Error)]
pub enum ReadinessError {
    /// The socket can't be made.
    #[error("can't listen at {}: {source}", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Another process answers there.
    #[error("another gpu-warden answers at {}", .0.display())]
    Taken(PathBuf),
    /// Nobody answers.
    #[error("no gpu-warden answers at {}: {source}", path.display())]
    Ask {
        /// The socket.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// It is no answer of this program's.
    #[error("{} answers something else: {source}", path.display())]
    Answer {
        /// The socket.
        path: PathBuf,
        /// Place and reason.
        source: serde_json::Error,
    },
}

impl Readiness {
    /// Whether all is as the administrator wants it.
    pub fn is_ready(&self) -> bool {
        self.registered && self.configuration.is_none()
    }

    /// Asks the process that listens at `socket`. Blocks for 2 s at the most.
    pub fn ask(socket: &Path) -> Result<Self, ReadinessError> {
        let failed = |source| ReadinessError::Ask {
            path: socket.to_owned(),
            source,
        };
        let stream = UnixStream::connect(socket).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        let mut text = String::new();
        stream
            .take(ANSWER_LIMIT)
            .read_to_string(&mut text)
            .map_err(failed)?;
        serde_json::from_str(&text).map_err(|source| ReadinessError::Answer {
            path: socket.to_owned(),
            source,
        })
    }
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.registered, self.enforcing) {
            (true, true) => "registered with the runtime",
            (true, false) => "registered with the runtime; nothing is enforced (audit)",
            (false, _) => "not registered: containers are created without gpu-warden",
        })?;
        if let Some(problem) = &self.configuration {
            write!(
                f,
                "; {problem}; the configuration that held before holds on"
            )?;
        }
        if let Some(problem) = &self.inventory {
            write!(f, "; no GPU is granted at the moment: {problem}")?;
        }
        Ok(())
    }
}

impl Sources {
    /// The state now.
    pub fn now(&self) -> Readiness {
        let settings = self.settings.borrow();
        Readiness {
            registered: *self.status.borrow() == Status::Registered,
            enforcing: settings.config.enforcement == Enforcement::Enforce,
            configuration: settings.problem.clone(),
            inventory: self.node.borrow().inventory().err().map(str::to_owned),
        }
    }

    /// Returns when something may have changed, with whether it was the connection; none when nothing
    /// will change any more.
    pub async fn changed(&mut self) -> Option<bool> {
        tokio::select! {
            changed = self.status.changed() => changed.ok().map(|()| true),
            changed = self.settings.changed() => changed.ok().map(|()| false),
            changed = self.node.changed() => changed.ok().map(|()| false),
        }
    }
}

/// Listens at `path`, in a directory that is made where it is missing. The socket of a process that
/// has died is replaced, one that answers is not.
pub fn listen(path: &Path) -> Result<UnixListener, ReadinessError> {
    let failed = |source| ReadinessError::Listen {
        path: path.to_owned(),
        source,
    };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    match UnixStream::connect(path) {
        Ok(_) => return Err(ReadinessError::Taken(path.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(_) => std::fs::remove_file(path).map_err(failed)?,
    }
    UnixListener::bind(path).map_err(failed)
}

/// Tells everybody who connects, until the task is aborted.
pub async fn serve(listener: UnixListener, sources: Sources) {
    loop {
        let mut stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "readiness can't be told");
                tokio::time::sleep(PATIENCE).await;
                continue;
            }
        };
        let answer = serde_json::to_vec(&sources.now()).unwrap_or_default();
        // One that does not read must not keep the next waiting.
        tokio::spawn(async move {
            let told = tokio::time::timeout(PATIENCE, stream.write_all(&answer)).await;
            debug!(?told, "readiness told");
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::DeviceNumbers;

    struct Rig {
        status: watch::Sender<Status>,
        settings: watch::Sender<Arc<Settings>>,
        _node: watch::Sender<Arc<NodeState>>,
        sources: Sources,
    }

    fn rig() -> Rig {
        let (status, status_seen) = watch::channel(Status::Connecting);
        let (settings, settings_seen) = watch::channel(Arc::new(Settings::default()));
        let state = NodeState::unknown("no driver", DeviceNumbers::fixed());
        let (node, node_seen) = watch::channel(Arc::new(state));
        Rig {
            status,
            settings,
            _node: node,
            sources: Sources {
                status: status_seen,
                settings: settings_seen,
                node: node_seen,
            },
        }
    }

    async fn ask(socket: &Path) -> Result<Readiness, ReadinessError> {
        let socket = socket.to_owned();
        tokio::task::spawn_blocking(move || Readiness::ask(&socket))
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn ready_is_who_is_registered_with_the_configuration_that_the_file_says() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("run/status.sock");
        let rig = rig();
        let serving = tokio::spawn(serve(listen(&socket).unwrap(), rig.sources.clone()));
        assert!(!ask(&socket).await.unwrap().is_ready());
        rig.status.send_replace(Status::Registered);
        let ready = ask(&socket).await.unwrap();
        assert!(ready.is_ready() && ready.enforcing);
        assert!(ready.to_string().contains("no driver"), "{ready}");
        rig.settings.send_replace(Arc::new(Settings {
            problem: Some("line 3: unknown key".into()),
            ..Settings::default()
        }));
        let broken = ask(&socket).await.unwrap();
        assert!(!broken.is_ready());
        assert!(broken.to_string().contains("unknown key"), "{broken}");
        serving.abort();
    }

    #[tokio::test]
    async fn a_living_process_keeps_its_socket_and_a_dead_one_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("status.sock");
        assert!(matches!(
            ask(&socket).await,
            Err(ReadinessError::Ask { .. })
        ));
        let first = listen(&socket).unwrap();
        assert!(matches!(listen(&socket), Err(ReadinessError::Taken(_))));
        drop(first);
        assert!(matches!(
            ask(&socket).await,
            Err(ReadinessError::Ask { .. })
        ));
        listen(&socket).unwrap();
    }

    /// A directory or a file at its place was put there by somebody.
    #[tokio::test]
    async fn what_is_no_answer_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let talk = std::thread::spawn(move || {
            use std::io::Write as _;
            listener.accept().unwrap().0.write_all(b"hello").unwrap();
        });
        assert!(matches!(
            ask(&socket).await,
            Err(ReadinessError::Answer { .. })
        ));
        talk.join().unwrap();
        let directory = dir.path().join("d");
        std::fs::create_dir(&directory).unwrap();
        assert!(matches!(
            listen(&directory),
            Err(ReadinessError::Listen { .. })
        ));
    }
}
