//! What the kubelet says: which devices it assigned to one container, or that it can't be known now.
//!
//! Two sources, both root-only and written by the kubelet: the device-manager checkpoint (keyed by
//! pod UID, covers init containers) and the PodResources API (keyed by namespace and name).
//! The answer is one of three: a set, nothing, or an error that says why no answer is possible.

pub mod checkpoint;
pub mod decide;
pub mod grpc;
pub mod podresources;
mod resources;
mod source;

pub use source::Kubelet;

use std::collections::BTreeSet;
use std::fmt;

use crate::gpu::DeviceId;

/// The kubelet's messages, generated from `proto/`.
pub mod api {
    #![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
    #![allow(clippy::all, clippy::pedantic, clippy::unwrap_used)]
    include!(concat!(env!("OUT_DIR"), "/proto/mod.rs"));
}

/// The container that is asked about, from the sandbox's CRI metadata; never from labels or
/// annotations that a pod's author controls.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Subject {
    /// Sandbox metadata uid, equal to the checkpoint's `PodUID`.
    pub pod_uid: String,
    /// Pod namespace.
    pub namespace: String,
    /// Pod name.
    pub pod: String,
    /// Container name.
    pub container: String,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.pod, self.container)
    }
}

/// The devices of one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Allocation {
    /// GPU and MIG ids, replicas folded into their device.
    pub devices: BTreeSet<DeviceId>,
    /// Those of `devices` that were handed out as replicas (time-slicing, MPS): not exclusive.
    pub shared: BTreeSet<DeviceId>,
    /// Whether the device plugin asked the runtime to inject them by CDI (AllocResp `cdi_devices`,
    /// or an annotation with a CDI prefix).
    pub injected_by_runtime: bool,
}

/// No answer, so nothing may be granted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AllocationError {
    /// No source could be read: it is unknown whether this container has devices.
    #[error("the kubelet's records can't be read: {0}")]
    Unavailable(String),
    /// The sources disagree, or one holds what can't be right; read again and still so.
    #[error("the kubelet's records disagree: {0}")]
    Conflict(String),
    /// The container has devices of a kind that gpu-warden can't grant (DRA claims, foreign ids).
    #[error("{0}")]
    Unsupported(String),
}
