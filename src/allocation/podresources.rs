//! A client of the kubelet's PodResources API: what it reports for a pod, by namespace and name.
//!
//! Owns the connection, the retries within the caller's time and the choice between `Get` and
//! `List`. Keeps no answer and doesn't judge one. Invariants: a call ends by its deadline; a
//! connection that failed is never used for the next call; no lock is held across an await.

mod calls;
mod error;

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

use super::api::podresources::PodResources;
use calls::{Failure, get, list};

pub use error::PodResourcesError;

/// The kubelet refills its bucket at 100 calls a second.
const RATE_STEP: Duration = Duration::from_millis(10);

/// Answers come within a few milliseconds, so after this time the connection is likely dead; the
/// attempt on a new one then has all the time that is left.
const FIRST_ATTEMPT: Duration = Duration::from_millis(500);

/// What the kubelet reports under a pod's namespace and name.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// No such pod: it doesn't exist, has ended, or the kubelet has just been restarted.
    Absent,
    /// The pod. Several only from `List`, while a force-deleted pod and its successor of the same
    /// name are both there.
    Pods(Vec<PodResources>),
}

/// Asks `pod-resources/kubelet.sock` below a kubelet root.
#[derive(Debug)]
pub struct PodResourcesClient {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    link: Option<(SocketId, Channel)>,
    /// The kubelet (by its socket) that has the method `Get` switched off.
    without_get: Option<SocketId>,
}

impl PodResourcesClient {
    /// Of the kubelet whose root is given. Connects with the first call.
    pub fn new(kubelet_root: &Path) -> Self {
        Self {
            path: kubelet_root.join("pod-resources/kubelet.sock"),
            state: Mutex::default(),
        }
    }

    /// Where the socket is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the kubelet reports for a pod, asked now.
    ///
    /// Must be called within a tokio runtime; returns by `deadline`.
    ///
    /// # Errors
    /// No answer within the time, or an answer that is none.
    pub async fn pod(
        &self,
        namespace: &str,
        name: &str,
        deadline: Instant,
    ) -> Result<Report, PodResourcesError> {
        let pod = format!("{namespace}/{name}");
        let mut failed_before = false;
        let mut limited = false;
        loop {
            if Instant::now() >= deadline {
                return Err(if limited {
                    self.rate_limited(pod)
                } else {
                    self.timed_out(pod)
                });
            }
            let (socket, channel, with_get) = self.link()?;
            let ask = async {
                if with_get {
                    get(channel, namespace, name).await
                } else {
                    list(channel, namespace, name).await
                }
            };
            let until = if failed_before {
                deadline
            } else {
                deadline.min(Instant::now() + FIRST_ATTEMPT)
            };
            let answer = tokio::time::timeout_at(until.into(), ask)
                .await
                .unwrap_or(Err(Failure::TimedOut));
            let failure = match answer {
                Ok(report) => return Ok(report),
                Err(failure) => failure,
            };
            match failure {
                Failure::Limited => {
                    limited = true;
                    let next = Instant::now() + RATE_STEP;
                    tokio::time::sleep_until(next.min(deadline).into()).await;
                }
                Failure::GetDisabled => self.state().without_get = Some(socket),
                Failure::Connection(reason) => {
                    self.disconnect(socket);
                    if failed_before {
                        let path = self.path.clone();
                        return Err(PodResourcesError::Connection { path, reason });
                    }
                    failed_before = true;
                }
                Failure::TimedOut => {
                    self.disconnect(socket);
                    if failed_before {
                        return Err(self.timed_out(pod));
                    }
                    failed_before = true;
                }
                Failure::Status(method, status) => {
                    return Err(PodResourcesError::Refused {
                        path: self.path.clone(),
                        method,
                        pod,
                        code: status.code(),
                        message: status.message().to_owned(),
                    });
                }
                Failure::WrongPod(answered) => {
                    let path = self.path.clone();
                    return Err(PodResourcesError::WrongPod {
                        path,
                        pod,
                        answered,
                    });
                }
            }
        }
    }

    /// The channel to the kubelet that owns the socket now, and whether it offers `Get`.
    fn link(&self) -> Result<(SocketId, Channel, bool), PodResourcesError> {
        let meta = std::fs::symlink_metadata(&self.path).map_err(|source| {
            PodResourcesError::NoSocket {
                path: self.path.clone(),
                source,
            }
        })?;
        if !meta.file_type().is_socket() {
            return Err(PodResourcesError::NotASocket(self.path.clone()));
        }
        let socket = SocketId::of(&meta);
        let mut state = self.state();
        let with_get = state.without_get != Some(socket);
        let channel = match &state.link {
            Some((known, channel)) if *known == socket => channel.clone(),
            _ => {
                let channel = connect_lazily(self.path.clone());
                state.link = Some((socket, channel.clone()));
                channel
            }
        };
        Ok((socket, channel, with_get))
    }

    fn disconnect(&self, socket: SocketId) {
        let mut state = self.state();
        if state.link.as_ref().is_some_and(|(id, _)| *id == socket) {
            state.link = None;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn timed_out(&self, pod: String) -> PodResourcesError {
        let path = self.path.clone();
        PodResourcesError::TimedOut { path, pod }
    }

    fn rate_limited(&self, pod: String) -> PodResourcesError {
        let path = self.path.clone();
        PodResourcesError::RateLimited { path, pod }
    }
}

fn connect_lazily(path: PathBuf) -> Channel {
    // The authority is never resolved: the connector goes to the socket whatever it says.
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(tower::service_fn(
        move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        },
    ))
}

/// A restarted kubelet makes the socket anew; the inode number alone may be recycled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SocketId {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

impl SocketId {
    fn of(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}
