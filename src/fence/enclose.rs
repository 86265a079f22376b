//! The fence as a whole: both generations of cgroups, and two levels.
//!
//! Owns the order of the steps and what counts as success. The container's cgroup has its exact grant.
//! Its pod's cgroup, which a privileged container can't reach from its cgroup namespace or by its own
//! `devices.allow`, has the union of the pod's grants.
//!
//! Invariants: it has succeeded only where the kernel's own answer says so (read back on v2, tried on
//! v1), in one hierarchy at least; on an error the container must not be started.

use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::filter::Filter;
use super::rules::WITNESS;
use super::trial::{Trial, TrialError};
use super::v1::{self, Narrowed, V1Error};
use super::v2::{self, CONTAINER_PROGRAM, POD_PROGRAM, V2Error};
use crate::gpu::Grant;
use crate::host::cgroup::Place;
use crate::host::{
    CgroupError, DeviceNumbers, NVIDIA_MAJOR, Placement, PodGroup, Process, ProcessError, Roots,
    VfioError, vfio,
};

/// Why a container has no fence.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// Its cgroup could not be found.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// Which vfio nodes lead to GPUs could not be learnt.
    #[error(transparent)]
    Vfio(#[from] VfioError),
    /// cgroup v1 was of no use.
    #[error(transparent)]
    V1(#[from] V1Error),
    /// cgroup v2 was of no use.
    #[error(transparent)]
    V2(#[from] V2Error),
    /// The kernel does not deny what it was told to.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// A whitelist that can't be narrowed, and no cgroup v2 beside it.
    #[error(
        "its list of devices has the entry `{0}`, from which cgroup v1 can't take single devices away"
    )]
    Wide(String),
    /// The process ended or moved.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It is no longer in the cgroup that was fenced.
    #[error("process of container {0} has left its cgroup while the fence was put up")]
    Left(String),
    /// A new GPU can't be let into a pod whose fence was drawn for containers that are not known now.
    #[error("its pod is fenced, and what another container of the pod holds can't be learnt now")]
    PodUnknown,
}

/// One container, and what it is to be fenced to.
#[derive(Debug, Clone, Copy)]
pub struct Enclosure<'a> {
    /// A process of it.
    pub process: &'a Process,
    /// Its id, which its cgroup's name has in it.
    pub id: &'a str,
    /// UID of its pod.
    pub pod_uid: &'a str,
    /// What it may open.
    pub grant: &'a Grant,
    /// What the pod's containers may open together; none when that can't be told.
    pub pod: Option<&'a Grant>,
}

/// What was put up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fenced {
    /// `v1`, `v2`: where the container's cgroup holds.
    pub container: Vec<&'static str>,
    /// Where the pod's cgroup holds.
    pub pod: Vec<&'static str>,
    /// Why one of them does not.
    pub notes: Vec<String>,
}

/// Puts up fences on one node.
#[derive(Debug)]
pub struct Fence {
    roots: Roots,
    trial: OnceLock<Trial>,
    turn: Mutex<()>,
}

impl Fence {
    /// Opens nothing yet.
    pub fn new(roots: Roots) -> Self {
        Self {
            roots,
            trial: OnceLock::new(),
            turn: Mutex::new(()),
        }
    }

    /// To be held from the moment a pod's union is computed until it is in place: two containers of
    /// one pod that start at once would each leave the other out.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the fence up around a container and proves it. It may run already.
    pub fn enclose(
        &self,
        wanted: &Enclosure<'_>,
        numbers: &DeviceNumbers,
    ) -> Result<Fenced, FenceError> {
        let filters = self.filters(wanted, numbers)?;
        let placement = Placement::of(wanted.process, wanted.id, wanted.pod_uid, &self.roots)?;
        let mut fenced = Fenced::default();
        let mut failure = None;
        let v2 = placement
            .v2
            .as_ref()
            .map(|place| (V2, on_v2(place, &filters)));
        let v1 = placement
            .v1
            .as_ref()
            .map(|place| (V1, self.on_v1(place, &filters)));
        for (name, result) in v2.into_iter().chain(v1) {
            match result {
                Ok(pod) => {
                    fenced.container.push(name);
                    match pod {
                        Level::Up => fenced.pod.push(name),
                        Level::Not(why) => fenced.notes.push(format!("{name}: {why}")),
                    }
                }
                Err(error @ FenceError::PodUnknown) => return Err(error),
                Err(error) => {
                    fenced.notes.push(format!("{name}: {error}"));
                    failure = failure.or(Some(error));
                }
            }
        }
        if let (true, Some(failure)) = (fenced.container.is_empty(), failure) {
            return Err(failure);
        }
        if !wanted.process.is_in_container(wanted.id)? {
            return Err(FenceError::Left(wanted.id.to_owned()));
        }
        Ok(fenced)
    }

    /// Whether the fence around a running container is still what [`Self::enclose`] would put up. It
    /// may have been taken down by whoever reaches the host's cgroups.
    pub fn holds(
        &self,
        wanted: &Enclosure<'_>,
        numbers: &DeviceNumbers,
    ) -> Result<bool, FenceError> {
        let filters = self.filters(wanted, numbers)?;
        let placement = Placement::of(wanted.process, wanted.id, wanted.pod_uid, &self.roots)?;
        if let Some(place) = &placement.v2 {
            // The pod's follows its containers, so at this moment it may be another than ours would be.
            let pod = match &place.pod {
                PodGroup::Own(_) if filters.pod.is_some() => Some(POD_PROGRAM),
                _ => None,
            };
            return Ok(v2::holds(&place.group, &filters.own, pod)?);
        }
        let Some(place) = &placement.v1 else {
            return Ok(false);
        };
        match self
            .trial()?
            .run(&[(&place.group, &filters.own)], &self.roots)
        {
            Ok(()) => Ok(true),
            Err(TrialError::Open { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn filters(
        &self,
        wanted: &Enclosure<'_>,
        numbers: &DeviceNumbers,
    ) -> Result<Filters, FenceError> {
        let vfio = vfio::nvidia_nodes(&self.roots)?;
        let of = |grant: &Grant| Filter::of(grant, numbers, &vfio);
        Ok(Filters {
            own: of(wanted.grant),
            pod: wanted.pod.map(of),
            nothing: of(&Grant::default()),
            granted: !wanted.grant.is_empty(),
        })
    }

    /// Redraws the fence of a pod, if it has one. `process` is one of its sandbox `id`, or of one of its containers.
    ///
    /// To be called *before* the runtime builds a container with a GPU that the pod had not: on v1 the
    /// kernel refuses to allow the container what its pod's cgroup denies.
    pub fn redraw_pod(
        &self,
        process: &Process,
        id: &str,
        pod_uid: &str,
        union: &Grant,
        numbers: &DeviceNumbers,
    ) -> Result<bool, FenceError> {
        let vfio = vfio::nvidia_nodes(&self.roots)?;
        let filter = Filter::of(union, numbers, &vfio);
        let placement = Placement::of(process, id, pod_uid, &self.roots)?;
        let mut redrawn = false;
        if let Some(PodGroup::Own(pod)) = placement.v2.as_ref().map(|place| &place.pod)
            && v2::is_up(pod, POD_PROGRAM)?
        {
            redrawn |= v2::put_up(pod, &filter, POD_PROGRAM)?.changed;
        }
        if let Some(PodGroup::Own(pod)) = placement.v1.as_ref().map(|place| &place.pod)
            && self
                .trial()?
                .is_denied(pod, (NVIDIA_MAJOR, WITNESS), &self.roots)?
        {
            let nothing = Filter::of(&Grant::default(), numbers, &vfio);
            redrawn |= v1::set_pod(pod, &filter, &nothing)?;
        }
        Ok(redrawn)
    }

    fn on_v1(&self, place: &Place, filters: &Filters) -> Result<Level, FenceError> {
        if let Narrowed::AllBut(rule) = v1::narrow(&place.group, &filters.own)? {
            // Nor may the pod's level be touched: the kernel would drop the entry wholly.
            return Err(FenceError::Wide(rule.to_string()));
        }
        let (pod, level) = match (&place.pod, &filters.pod) {
            (PodGroup::Own(group), Some(filter)) => {
                if v1::set_pod(group, filter, &filters.nothing)? {
                    (Some((group, filter)), Level::Up)
                } else {
                    (
                        None,
                        Level::Not("the pod's cgroup has a whitelist".to_owned()),
                    )
                }
            }
            (PodGroup::Own(_), None) => (None, Level::left()),
            (PodGroup::Shared(path), _) => (None, Level::shared(path)),
        };
        let own = (&place.group, &filters.own);
        let cases: Vec<_> = pod.into_iter().chain([own]).collect();
        self.trial()?.run(&cases, &self.roots)?;
        Ok(level)
    }

    fn trial(&self) -> Result<&Trial, TrialError> {
        if let Some(trial) = self.trial.get() {
            return Ok(trial);
        }
        let made = Trial::new()?;
        Ok(self.trial.get_or_init(|| made))
    }
}

const V1: &str = "v1";
const V2: &str = "v2";

struct Filters {
    own: Filter,
    pod: Option<Filter>,
    nothing: Filter,
    granted: bool,
}

enum Level {
    Up,
    Not(String),
}

impl Level {
    fn shared(path: &std::path::Path) -> Self {
        Self::Not(format!(
            "the cgroup above it, {}, is not its pod's alone",
            path.display()
        ))
    }

    fn left() -> Self {
        Self::Not(
            "the pod's level was left as it is: what another container of it holds can't be learnt"
                .to_owned(),
        )
    }
}

fn on_v2(place: &Place, filters: &Filters) -> Result<Level, FenceError> {
    let own = v2::put_up(&place.group, &filters.own, CONTAINER_PROGRAM)?;
    let (pod, level) = match (&place.pod, &filters.pod) {
        (PodGroup::Own(group), Some(filter)) => {
            (Some(v2::put_up(group, filter, POD_PROGRAM)?), Level::Up)
        }
        (PodGroup::Own(group), None) => {
            if filters.granted && v2::is_up(group, POD_PROGRAM)? {
                return Err(FenceError::PodUnknown);
            }
            (None, Level::left())
        }
        (PodGroup::Shared(path), _) => (None, Level::shared(path)),
    };
    let wanted: Vec<_> = [&own].into_iter().chain(&pod).collect();
    v2::verify(&place.group, &wanted)?;
    Ok(level)
}

impl fmt::Display for Fenced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pod = if self.pod.is_empty() {
            "not".to_owned()
        } else {
            self.pod.join("+")
        };
        write!(f, "container {}, pod {pod}", self.container.join("+"))?;
        for note in &self.notes {
            write!(f, "; {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_says_where_it_holds_and_why_elsewhere_not() {
        let fenced = Fenced {
            container: vec!["v2", "v1"],
            pod: Vec::new(),
            notes: vec!["v2: the cgroup above it, /k8s.io, is not its pod's alone".to_owned()],
        };
        assert_eq!(
            fenced.to_string(),
            "container v2+v1, pod not; v2: the cgroup above it, /k8s.io, is not its pod's alone"
        );
    }

    #[test]
    fn without_a_cgroup_there_is_no_fence_and_so_an_error() {
        let empty = tempfile::tempdir().unwrap();
        let fence = Fence::new(Roots {
            cgroup: empty.path().into(),
            ..Roots::default()
        });
        let process = Process::own(std::path::Path::new("/proc")).unwrap();
        let wanted = Enclosure {
            process: &process,
            id: "0123456789abcdef",
            pod_uid: "",
            grant: &Grant::default(),
            pod: None,
        };
        let error = fence.enclose(&wanted, &DeviceNumbers::fixed()).unwrap_err();
        assert!(
            matches!(error, FenceError::Cgroup(CgroupError::NotFound { .. })),
            "{error}"
        );
    }
}
