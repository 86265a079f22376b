//! From what the two sources say about a container to one answer. Pure.
//!
//! Owns the decision table; which resources count as GPUs is in `resources`. Invariant: every id of
//! an allocation stands in the checkpoint under the container's pod UID and name; PodResources,
//! which knows no UIDs, can only confirm or refuse.

use std::collections::{BTreeMap, BTreeSet};

use super::api::podresources::PodResources;
use super::checkpoint::Assigned;
use super::podresources::Report;
use super::resources::{self, Gpus};
use super::{Allocation, AllocationError, Subject};
use crate::gpu::DeviceId;

/// What the checkpoint says about one container.
#[derive(Debug, Clone, PartialEq)]
pub enum Recorded {
    /// Its entries by resource name; empty when it has none, or no checkpoint was ever written.
    Entries(BTreeMap<String, Assigned>),
    /// It can't be read, for this reason.
    Unreadable(String),
}

/// What PodResources says about the container's pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Reported {
    /// An answer.
    Answer(Report),
    /// None, for this reason.
    Unreachable(String),
}

/// The outcome of one reading of both sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Final.
    Settled(Result<Allocation, AllocationError>),
    /// Possibly read in the midst of a change: read again, and if it is still so, this is it.
    Reread(AllocationError),
}

enum Refusal {
    Final(AllocationError),
    Reread(AllocationError),
}

impl From<AllocationError> for Refusal {
    fn from(error: AllocationError) -> Self {
        Self::Final(error)
    }
}

/// Judges one reading of both sources.
pub fn decide(subject: &Subject, recorded: &Recorded, reported: &Reported) -> Verdict {
    match judge(subject, recorded, reported) {
        Ok(allocation) => Verdict::Settled(Ok(allocation)),
        Err(Refusal::Final(error)) => Verdict::Settled(Err(error)),
        Err(Refusal::Reread(error)) => Verdict::Reread(error),
    }
}

fn judge(
    subject: &Subject,
    recorded: &Recorded,
    reported: &Reported,
) -> Result<Allocation, Refusal> {
    let pods: &[PodResources] = match reported {
        Reported::Answer(Report::Pods(pods)) => pods,
        Reported::Answer(Report::Absent) | Reported::Unreachable(_) => &[],
    };
    for pod in pods {
        resources::refuse_claims(subject, pod)?;
    }
    let entries = match recorded {
        Recorded::Entries(entries) => entries,
        Recorded::Unreadable(why) => {
            return Err(Refusal::Reread(AllocationError::Unavailable(why.clone())));
        }
    };
    let held = resources::held(subject, entries)?;
    let seen = pods
        .iter()
        .map(|pod| resources::seen(subject, pod))
        .collect::<Result<Vec<_>, _>>()?;
    let injected_by_runtime = resources::injected_by_runtime(entries, &held.resources)
        .map_err(|why| {
            Refusal::Reread(AllocationError::Unavailable(format!(
                "the checkpoint's AllocResp for {subject} can't be decoded ({why}); delete the pod, so that the kubelet allocates anew"
            )))
        })?;

    if held.gpus.devices.is_empty() {
        confirm_nothing(subject, reported, &seen)?;
    } else {
        confirm(subject, &held.gpus.devices, reported, &seen)?;
    }
    Ok(Allocation {
        devices: held.gpus.devices,
        shared: held.gpus.shared,
        injected_by_runtime,
    })
}

/// Whether a pod bears the record out. Regular init containers are never reported, so a pod that
/// doesn't list the container says nothing against it.
fn agrees(devices: &BTreeSet<DeviceId>, seen: Option<&Gpus>) -> bool {
    seen.is_none_or(|gpus| gpus.devices == *devices)
}

fn confirm_nothing(
    subject: &Subject,
    reported: &Reported,
    seen: &[Option<Gpus>],
) -> Result<(), Refusal> {
    if let Reported::Unreachable(why) = reported {
        return Err(Refusal::Final(AllocationError::Unavailable(format!(
            "the checkpoint has no GPU for {subject}, and the PodResources API can't confirm that: {why}"
        ))));
    }
    let nothing = BTreeSet::new();
    if seen.is_empty() || seen.iter().any(|gpus| agrees(&nothing, gpus.as_ref())) {
        return Ok(());
    }
    Err(Refusal::Final(AllocationError::Conflict(format!(
        "the PodResources API gives {} to {subject}, but the checkpoint has nothing for the pod UID `{}`: this sandbox is not the pod that they were allocated to",
        sets(seen),
        subject.pod_uid
    ))))
}

fn confirm(
    subject: &Subject,
    devices: &BTreeSet<DeviceId>,
    reported: &Reported,
    seen: &[Option<Gpus>],
) -> Result<(), Refusal> {
    let problem = match reported {
        Reported::Unreachable(why) => format!("the PodResources API can't confirm that: {why}"),
        Reported::Answer(Report::Absent) => {
            "the PodResources API has no such pod: the kubelet was just restarted, or the pod is gone and left its entry behind".to_owned()
        }
        Reported::Answer(Report::Pods(_)) => {
            if seen.iter().any(|gpus| agrees(devices, gpus.as_ref())) {
                return Ok(());
            }
            format!("the PodResources API gives it {}", sets(seen))
        }
    };
    Err(Refusal::Reread(AllocationError::Conflict(format!(
        "the checkpoint gives {} to {subject} (pod UID `{}`), but {problem}",
        set(devices),
        subject.pod_uid
    ))))
}

fn sets(seen: &[Option<Gpus>]) -> String {
    let each: Vec<_> = seen.iter().flatten().map(|g| set(&g.devices)).collect();
    each.join(" or ")
}

fn set(devices: &BTreeSet<DeviceId>) -> String {
    if devices.is_empty() {
        return "no GPU".to_owned();
    }
    let ids: Vec<_> = devices.iter().map(DeviceId::as_str).collect();
    format!("{{{}}}", ids.join(", "))
}

#[cfg(test)]
mod tests;
