//! The fence on cgroup v2: one program more on a cgroup.
//!
//! Owns attaching, replacing and reading back. Programs are attached without a link, so they stay
//! until the cgroup is removed, whatever becomes of this process.
//!
//! Invariants: a new program is attached before an old one is detached, and both vote meanwhile, so at
//! no moment is more open than before or after; only programs with our name are ever detached.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::bpf::{self, Info};
use super::filter::Filter;
use super::program::{TooMany, compile};
use crate::host::Group;

/// Name of the program on a container's cgroup.
pub const CONTAINER_PROGRAM: &str = "gpu_warden";
/// Name of the program on a pod's cgroup.
pub const POD_PROGRAM: &str = "gpu_warden_pod";

/// The fence could not be put up on cgroup v2.
#[derive(Debug, thiserror::Error)]
pub enum V2Error {
    /// A call failed.
    #[error("cannot {verb} a device program{place}: {source}")]
    Call {
        /// What was tried.
        verb: &'static str,
        /// ` on <cgroup>`, or empty.
        place: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// It can't be expressed.
    #[error(transparent)]
    TooMany(#[from] TooMany),
    /// The kernel does not run what was attached.
    #[error("the kernel does not run {name} for {cgroup} although it was attached")]
    NotEffective {
        /// Name of the program.
        name: &'static str,
        /// The cgroup.
        cgroup: String,
    },
}

/// A program in place.
#[derive(Debug)]
pub(super) struct InPlace {
    name: &'static str,
    tag: [u8; 8],
    /// Whether anything was changed.
    pub(super) changed: bool,
}

/// Makes `filter` the one program of that name on `group`.
pub(super) fn put_up(
    group: &Group,
    filter: &Filter,
    name: &'static str,
) -> Result<InPlace, V2Error> {
    let program = bpf::load(&compile(filter)?, name).map_err(call("load", None))?;
    let tag = bpf::info(&program).map_err(call("read back", None))?.tag;
    let (mut same, mut stale) = (false, Vec::new());
    for (attached, info) in ours(group, name)? {
        if info.tag == tag && !same {
            same = true;
        } else {
            stale.push(attached);
        }
    }
    if !same {
        bpf::attach(group.dir(), &program).map_err(call("attach", Some(group)))?;
    }
    for old in &stale {
        match bpf::detach(group.dir(), old) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(call("detach", Some(group))(errno)),
        }
    }
    Ok(InPlace {
        name,
        tag,
        changed: !same || !stale.is_empty(),
    })
}

/// Whether the kernel runs the container's program, and some program of the pod's name if one is wanted.
pub(super) fn holds(group: &Group, own: &Filter, pod: Option<&str>) -> Result<bool, V2Error> {
    let tag = load(own, CONTAINER_PROGRAM)?.1.tag;
    let effective = infos(group, true)?;
    let runs = |name: &str, tag: Option<[u8; 8]>| {
        let mut infos = effective.iter().map(|(_, info)| info);
        infos.any(|info| info.name == name && tag.is_none_or(|tag| tag == info.tag))
    };
    Ok(runs(CONTAINER_PROGRAM, Some(tag)) && pod.is_none_or(|pod| runs(pod, None)))
}

fn load(filter: &Filter, name: &'static str) -> Result<(OwnedFd, InPlace), V2Error> {
    let program = bpf::load(&compile(filter)?, name).map_err(call("load", None))?;
    let info = bpf::info(&program).map_err(call("read back", None))?;
    let in_place = InPlace {
        name,
        tag: info.tag,
        changed: false,
    };
    Ok((program, in_place))
}

/// Whether a program of that name is attached to the group.
pub(super) fn is_up(group: &Group, name: &str) -> Result<bool, V2Error> {
    Ok(!ours(group, name)?.is_empty())
}

/// The kernel's own word that it runs these programs for the processes of `group`.
pub(super) fn verify(group: &Group, programs: &[&InPlace]) -> Result<(), V2Error> {
    let effective = infos(group, true)?;
    for wanted in programs {
        let runs = effective
            .iter()
            .any(|(_, info)| info.name == wanted.name && info.tag == wanted.tag);
        if !runs {
            return Err(V2Error::NotEffective {
                name: wanted.name,
                cgroup: group.path().display().to_string(),
            });
        }
    }
    Ok(())
}

fn ours(group: &Group, name: &str) -> Result<Vec<(OwnedFd, Info)>, V2Error> {
    let mut found = infos(group, false)?;
    found.retain(|(_, info)| info.name == name);
    Ok(found)
}

fn infos(group: &Group, effective: bool) -> Result<Vec<(OwnedFd, Info)>, V2Error> {
    let ids = bpf::query(group.dir(), effective).map_err(call("query", Some(group)))?;
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let program = match bpf::open(id) {
            Ok(program) => program,
            // Detached a moment ago by its owner.
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(call("open", Some(group))(errno)),
        };
        let info = bpf::info(&program).map_err(call("read back", Some(group)))?;
        if info.program_type == bpf::CGROUP_DEVICE_PROGRAM {
            found.push((program, info));
        }
    }
    Ok(found)
}

fn call<'a>(verb: &'static str, group: Option<&'a Group>) -> impl FnOnce(Errno) -> V2Error + 'a {
    move |errno| V2Error::Call {
        verb,
        place: group.map_or(String::new(), |group| {
            format!(" on {}", group.path().display())
        }),
        source: errno.into(),
    }
}
