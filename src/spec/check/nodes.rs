//! Device nodes: what a runtime will make of each, against what the host has now.

use std::path::Path;

use cdi::{ContainerEdits, DeviceNode};

use super::facts::{Facts, NodeState};
use super::files::Live;
use super::{CheckId, Found};
use crate::host::DeviceNumbers;
use crate::host::devices::Family;

/// Judges every node of a file once.
pub(super) fn check(facts: &Facts, live: &Live<'_>, found: &mut Found) {
    for edits in live.all() {
        for (id, evidence) in faults(facts, edits) {
            found.add_file(id, live.path, evidence);
        }
    }
}

/// What is wrong with the nodes of one edits object.
pub(super) fn faults(facts: &Facts, edits: &ContainerEdits) -> Vec<(CheckId, String)> {
    let mut faults = Vec::new();
    for node in &edits.device_nodes {
        faults.extend(fault(facts, node));
    }
    faults
}

/// The first thing that is wrong with a node: the rest follows from it.
fn fault(facts: &Facts, node: &DeviceNode) -> Option<(CheckId, String)> {
    let path = node.host_path();
    let written = node
        .major
        .filter(|major| *major != 0)
        .map(|major| (major, node.minor.unwrap_or(0)));
    let host = facts.node(node);
    if let NodeState::Other(what) = host {
        return Some((CheckId::NodeNotDevice, format!("{path} is {what}")));
    }
    if let (NodeState::Device { kind, .. }, Some(said)) = (host, node.node_type()) {
        // `u` is the same device as `c` (mknod's old word for an unbuffered one).
        let said = if said == "u" { "c" } else { said };
        if said != kind.to_string() {
            return Some((
                CheckId::NodeType,
                format!("{path} is written as type {said}; the host has type {kind}"),
            ));
        }
    }
    if let (Some(family), Ok(numbers)) = (family(path), &facts.numbers)
        && let Some(fault) = by_family(numbers, family, path, written, host)
    {
        return Some(fault);
    }
    match host {
        NodeState::Device { major, minor, .. } => {
            let (said_major, said_minor) = written?;
            ((said_major, said_minor) != (i64::from(*major), i64::from(*minor))).then(|| {
                (
                    CheckId::NodeDrift,
                    format!("{path} is written as {said_major}:{said_minor}; the host has {major}:{minor}"),
                )
            })
        }
        NodeState::Absent if !node.is_self_contained() => {
            Some((CheckId::NodeMissing, format!("{path} is not there")))
        }
        NodeState::Unknown(reason) => Some((CheckId::NotVisible, format!("{path}: {reason}"))),
        NodeState::Absent | NodeState::Other(_) => None,
    }
}

/// Which of NVIDIA's kernel modules makes the node, by its name; none where the major is fixed.
fn family(path: &str) -> Option<(Family, &'static str)> {
    let path = Path::new(path);
    let name = path.file_name()?.to_str()?;
    let parent = path.parent()?.file_name()?.to_str()?;
    match (parent, name) {
        (_, "nvidia-uvm" | "nvidia-uvm-tools") => Some((Family::Uvm, "nvidia-uvm")),
        ("nvidia-caps", _) => Some((Family::Caps, "nvidia-caps")),
        ("nvidia-caps-imex-channels", _) => {
            Some((Family::ImexChannels, "nvidia-caps-imex-channels"))
        }
        _ if name.starts_with("nvidia-nvswitch") => Some((Family::NvSwitch, "nvidia-nvswitch")),
        _ => None,
    }
}

/// A dynamic major: what the module has now decides, not what the node on the host says.
fn by_family(
    numbers: &DeviceNumbers,
    (family, name): (Family, &str),
    path: &str,
    written: Option<(i64, i64)>,
    host: &NodeState,
) -> Option<(CheckId, String)> {
    let majors: Vec<u32> = numbers
        .majors()
        .filter_map(|(major, of)| (of == family).then_some(major))
        .collect();
    let Some(now) = majors.first() else {
        return Some((
            CheckId::ModuleMissing,
            format!("{path}: {name} is not in /proc/devices"),
        ));
    };
    let is_current = |major: i64| majors.iter().any(|now| i64::from(*now) == major);
    match (written, host) {
        (Some((major, minor)), _) if !is_current(major) => Some((
            CheckId::MajorDrift,
            format!("{path} is written as {major}:{minor}; {name} has the major {now} now"),
        )),
        (None, NodeState::Device { major, minor, .. }) if !is_current((*major).into()) => Some((
            CheckId::HostNodeStale,
            format!("{path} on the host is {major}:{minor}; {name} has the major {now} now"),
        )),
        _ => None,
    }
}
