//! Why the kubelet gave no usable answer, in words for people.

use std::io;
use std::path::PathBuf;

use tonic::Code;

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
