//! A client of the kubelet's PodResources API: what it reports for a pod, by namespace and name.
//!
//! Owns the connection, the retries within the caller's time and the choice between `Get` and
//! `List`. Keeps no answer and doesn't judge one. Invariants: a call ends by its deadline; a
//! connection that failed is never used for the next call; no lock is held across an await.

use std::error::Error as _;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use protobuf::Message;
use tokio::net::UnixStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use super::api::podresources::{
    GetPodResourcesRequest, GetPodResourcesResponse, ListPodResourcesRequest,
    ListPodResourcesResponse, PodResources,
};
use super::grpc::ProtobufCodec;

/// gRPC's default of 4 MiB is too small for the `List` of a dense node.
const MAX_MESSAGE: usize = 16 << 20;

/// The kubelet refills its bucket at 100 calls a second.
const RATE_STEP: Duration = Duration::from_millis(10);

/// One attempt; answers come within a few milliseconds, so this is a dead connection or kubelet.
const ATTEMPT: Duration = Duration::from_millis(500);

/// What the kubelet reports under a pod's namespace and name.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// No such pod: it doesn't exist, has ended, or the kubelet has just been restarted.
    Absent,
    /// The pod. Several only from `List`, while a force-deleted pod and its successor of the same
    /// name are both there.
    Pods(Vec<PodResources>),
}

/// The kubelet gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum PodResourcesError {
    /// There is no socket to connect to.
    #[error(
        "can't find the kubelet's socket {}: {source}; is the kubelet running, and its root right (--kubelet-root)?",
        .path.display()
    )]
    NoSocket {
        /// Where it should be.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else stands there.
    #[error("{} is not a socket; find out who replaced the kubelet's", .0.display())]
    NotASocket(PathBuf),
    /// The connection failed, also when set up anew.
    #[error(
        "can't talk to the kubelet on {}: {reason}; check that the kubelet is running",
        .path.display()
    )]
    Connection {
        /// The socket.
        path: PathBuf,
        /// What failed.
        reason: String,
    },
    /// The time was up before the kubelet answered.
    #[error("the kubelet did not answer on {} for pod {pod} in time; check whether it hangs", .path.display())]
    TimedOut {
        /// The socket.
        path: PathBuf,
        /// Namespace and name.
        pod: String,
    },
    /// Rejected until the time was up.
    #[error(
        "the kubelet's rate limit on {} (100 calls a second for all clients together) rejected every call for pod {pod}; look for a client that polls this socket too often",
        .path.display()
    )]
    RateLimited {
        /// The socket.
        path: PathBuf,
        /// Namespace and name.
        pod: String,
    },
    /// The kubelet answered with an error.
    #[error("the kubelet on {} answered {method} for pod {pod} with {code:?}: {message}", .path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// `Get` or `List`.
        method: &'static str,
        /// Namespace and name.
        pod: String,
        /// gRPC code.
        code: Code,
        /// The kubelet's words.
        message: String,
    },
    /// The answer is about another pod, or about none.
    #[error("the kubelet on {} was asked for pod {pod} and answered about {answered}", .path.display())]
    WrongPod {
        /// The socket.
        path: PathBuf,
        /// Namespace and name asked for.
        pod: String,
        /// Namespace and name in the answer.
        answered: String,
    },
}

/// Why one attempt failed.
enum Failure {
    Limited,
    GetDisabled,
    Connection(String),
    TimedOut,
    Status(&'static str, Status),
    WrongPod(String),
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
            let until = deadline.min(Instant::now() + ATTEMPT);
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

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
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

async fn get(channel: Channel, namespace: &str, name: &str) -> Result<Report, Failure> {
    let request = GetPodResourcesRequest {
        pod_name: name.to_owned(),
        pod_namespace: namespace.to_owned(),
        ..Default::default()
    };
    let answer: Result<GetPodResourcesResponse, Status> =
        call(channel, "/v1.PodResourcesLister/Get", request).await;
    match answer {
        Ok(response) => match response.pod_resources.into_option() {
            Some(pod) if pod.namespace == namespace && pod.name == name => {
                Ok(Report::Pods(vec![pod]))
            }
            Some(pod) => Err(Failure::WrongPod(format!("{}/{}", pod.namespace, pod.name))),
            None => Err(Failure::WrongPod("no pod".to_owned())),
        },
        Err(status) if is_not_found(&status) => Ok(Report::Absent),
        Err(status) if is_disabled(&status) => Err(Failure::GetDisabled),
        Err(status) => Err(failure("Get", status)),
    }
}

async fn list(channel: Channel, namespace: &str, name: &str) -> Result<Report, Failure> {
    let answer: Result<ListPodResourcesResponse, Status> = call(
        channel,
        "/v1.PodResourcesLister/List",
        ListPodResourcesRequest::default(),
    )
    .await;
    let mut pods = answer.map_err(|s| failure("List", s))?.pod_resources;
    pods.retain(|pod| pod.namespace == namespace && pod.name == name);
    Ok(if pods.is_empty() {
        Report::Absent
    } else {
        Report::Pods(pods)
    })
}

async fn call<T: Message, U: Message>(
    channel: Channel,
    method: &'static str,
    request: T,
) -> Result<U, Status> {
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE);
    grpc.ready()
        .await
        .map_err(|e| Status::from_error(Box::new(e)))?;
    let path = PathAndQuery::from_static(method);
    let codec = ProtobufCodec::<T, U>::default();
    let response = grpc.unary(Request::new(request), path, codec).await?;
    Ok(response.into_inner())
}

/// The kubelet answers for an unknown pod with code Unknown and this text.
fn is_not_found(status: &Status) -> bool {
    status.code() == Code::NotFound
        || status.code() == Code::Unknown
            && status.source().is_none()
            && status.message().contains("not found")
}

/// Feature gate `KubeletPodResourcesGet` off, or a kubelet from before the method.
fn is_disabled(status: &Status) -> bool {
    status.code() == Code::Unimplemented
        || status.code() == Code::Unknown
            && status.source().is_none()
            && status.message().contains("disabled")
}

fn failure(method: &'static str, status: Status) -> Failure {
    match (status.code(), status.source()) {
        (Code::ResourceExhausted, _) => Failure::Limited,
        // A status with a source was made on this side, from a broken connection.
        (_, Some(source)) => Failure::Connection(innermost(source)),
        (Code::Unavailable | Code::Cancelled, None) => {
            Failure::Connection(status.message().to_owned())
        }
        _ => Failure::Status(method, status),
    }
}

fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
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
