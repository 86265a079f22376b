//! Stable reason codes: what logs, metrics and documents call a decision.

use std::fmt;

/// Why a decision is what it is. The text form never changes its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Its allocated GPUs, and no others.
    Granted,
    /// The kubelet allocated none, so it gets none.
    NoGpu,
    /// The kubelet can't be asked, and nothing about the container has to do with a GPU.
    NoGpuUnasked,
    /// Exempt by the configuration: left as it is.
    Exempt,
    /// A managed environment variable occurs more than once (the runtime could not replace it).
    DuplicateEnv,
    /// An annotation or a CDI request asks for a GPU that was not allocated.
    ForeignRequest,
    /// It mounts what the runtime or the kubelet obeys.
    ControlMount,
    /// It mounts a directory of the host that holds foreign GPU nodes or what the runtime obeys, and
    /// the configuration refuses that.
    HostDirectory,
    /// It is privileged, and the configuration refuses that.
    Privileged,
    /// It is in the host's pid namespace, and the configuration refuses that.
    HostPid,
    /// The changes of all NRI plugins together bring a GPU that was not allocated.
    MergedForeign,
    /// What was decided is not among the changes of all NRI plugins together.
    AdjustmentLost,
    /// The kubelet can't be asked, and the container looks as if it had a GPU.
    AllocationUnavailable,
    /// The kubelet's two records disagree.
    AllocationConflict,
    /// The allocation is of a kind that can't be granted.
    AllocationUnsupported,
    /// The node's GPUs are not known at the moment.
    InventoryUnavailable,
    /// An allocated GPU is not among the node's.
    GpuUnknown,
    /// Another pod's container still runs on an allocated GPU.
    GpuHeld,
    /// A foreign GPU node lies where it must not be removed.
    SharedDev,
    /// The container's device nodes are not what was granted.
    GateBreach,
    /// The container could not be examined.
    GateFailed,
    /// The kernel's device filter could not be put up around the container, or did not hold.
    FenceFailed,
}

impl Reason {
    /// The stable code.
    pub fn code(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::NoGpu => "no-gpu",
            Self::NoGpuUnasked => "no-gpu-unasked",
            Self::Exempt => "exempt",
            Self::DuplicateEnv => "duplicate-env",
            Self::ForeignRequest => "foreign-request",
            Self::ControlMount => "control-mount",
            Self::HostDirectory => "host-directory",
            Self::Privileged => "privileged",
            Self::HostPid => "host-pid",
            Self::MergedForeign => "merged-foreign",
            Self::AdjustmentLost => "adjustment-lost",
            Self::AllocationUnavailable => "allocation-unavailable",
            Self::AllocationConflict => "allocation-conflict",
            Self::AllocationUnsupported => "allocation-unsupported",
            Self::InventoryUnavailable => "inventory-unavailable",
            Self::GpuUnknown => "gpu-unknown",
            Self::GpuHeld => "gpu-held",
            Self::SharedDev => "shared-dev",
            Self::GateBreach => "gate-breach",
            Self::GateFailed => "gate-failed",
            Self::FenceFailed => "fence-failed",
        }
    }

    /// What to do about a refusal; empty where nothing was refused.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Granted | Self::NoGpu | Self::NoGpuUnasked | Self::Exempt => "",
            Self::DuplicateEnv => {
                "Set the variable at most once, or leave it out: the allocation decides, not the environment"
            }
            Self::ForeignRequest => {
                "Remove the annotation: GPUs are requested as `nvidia.com/gpu` in the container's limits"
            }
            Self::ControlMount => {
                "Remove the volume; for a component of the node, its administrator adds an exemption \
                 `from: [mounts]` to gpu-warden's configuration"
            }
            Self::HostDirectory => {
                "Mount only what is needed of that directory; for a component of the node, its administrator adds an \
                 exemption `from: [mounts]` to gpu-warden's configuration"
            }
            Self::Privileged => {
                "Run it without `privileged`; for a component of the node, its administrator adds an exemption \
                 `from: [privileged]` to gpu-warden's configuration"
            }
            Self::HostPid => {
                "Run it without `hostPID`; for a component of the node, its administrator adds an exemption \
                 `from: [hostPID]` to gpu-warden's configuration"
            }
            Self::MergedForeign | Self::AdjustmentLost => {
                "The node's administrator finds the NRI plugins of this node in the runtime's log"
            }
            Self::AllocationUnavailable => {
                "The kubelet tries again by itself; if this stays, the node's administrator should check that the \
                 kubelet runs and that gpu-warden's --kubelet-root is its directory"
            }
            Self::AllocationConflict => {
                "The kubelet tries again by itself; if this stays, delete the pod"
            }
            Self::AllocationUnsupported => {
                "Request whole GPUs as `nvidia.com/gpu` in the container's limits"
            }
            Self::InventoryUnavailable => {
                "The node's administrator should check the NVIDIA driver with `cdi-gen generate --output -`"
            }
            Self::GpuUnknown => {
                "Delete the pod so that it is placed anew; if this stays, the node's administrator should check the \
                 GPU with `nvidia-smi -L` and restart the device plugin"
            }
            Self::GpuHeld => "The kubelet tries again by itself once the other pod has ended",
            Self::SharedDev => {
                "Remove the volume that brings the host's device nodes into the container"
            }
            Self::GateBreach => {
                "The node's administrator finds what added or removed the node in gpu-warden's log"
            }
            Self::FenceFailed => {
                "The node's administrator should check that gpu-warden has CAP_SYS_ADMIN and CAP_MKNOD, and that its \
                 --cgroup-root is where the host's cgroups are mounted, writable"
            }
            Self::GateFailed => {
                "The kubelet tries again by itself; gpu-warden's log on the node says more"
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
