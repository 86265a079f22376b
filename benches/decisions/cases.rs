//! The pure parts of a request: the policy's decision, and the gate's plan for a container's `/dev`.

use std::collections::BTreeSet;
use std::hint::black_box;

use anyhow::{Context as _, Result, ensure};
use gpu_warden::allocation::{Allocation, AllocationError, Subject};
use gpu_warden::config::{Config, Exempt};
use gpu_warden::fence::{Expectation, FoundNode};
use gpu_warden::gpu::{DeviceId, Grant, Node};
use gpu_warden::host::Toolkit;
use gpu_warden::policy::{ContainerView, Decision, NodeFacts, Terms, ViewMount, decide};

use super::support::container::{self, Kind};
use super::support::{node, pods};

/// What is counted.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    what: What,
}

#[derive(Debug)]
enum What {
    /// `policy::decide`, by CDI name or expanded.
    Decide {
        kind: Kind,
        nodes: usize,
        by_name: bool,
    },
    /// What to unlink, and the check of what remains.
    Gate { nodes: usize, gpu: bool },
}

const fn decide_case(name: &'static str, kind: Kind, nodes: usize, by_name: bool) -> Case {
    Case {
        name,
        what: What::Decide {
            kind,
            nodes,
            by_name,
        },
    }
}

const fn gate_case(name: &'static str, nodes: usize, gpu: bool) -> Case {
    Case {
        name,
        what: What::Gate { nodes, gpu },
    }
}

/// The first is the base of the ratios.
pub(crate) const CASES: [Case; 9] = [
    decide_case("decide: no GPU", Kind::Plain, 0, true),
    decide_case("decide: one GPU, by CDI name", Kind::Gpu, 0, true),
    decide_case("decide: one GPU, expanded", Kind::Gpu, 0, false),
    decide_case(
        "decide: privileged, 40 nodes, by CDI name",
        Kind::Privileged,
        40,
        true,
    ),
    decide_case(
        "decide: privileged, 400 nodes, by CDI name",
        Kind::Privileged,
        400,
        true,
    ),
    decide_case(
        "decide: privileged, 40 nodes, expanded",
        Kind::Privileged,
        40,
        false,
    ),
    gate_case("gate: 15 nodes, no GPU granted", 15, false),
    gate_case("gate: 40 nodes, one GPU granted", 40, true),
    gate_case("gate: 400 nodes, one GPU granted", 400, true),
];

/// Runs a case so many times.
pub(crate) fn repeat(case: usize, times: usize) -> Result<()> {
    match CASES.get(case).context("no such case")?.what {
        What::Decide {
            kind,
            nodes,
            by_name,
        } => repeat_decide(kind, nodes, by_name, times),
        What::Gate { nodes, gpu } => repeat_gate(nodes, gpu, times),
    }
}

fn repeat_decide(kind: Kind, nodes: usize, by_name: bool, times: usize) -> Result<()> {
    let sandbox = pods::sandbox(0);
    let subject = Subject {
        pod_uid: sandbox.uid,
        namespace: sandbox.namespace,
        pod: sandbox.name,
        container: pods::CONTAINER.into(),
    };
    let view = view(kind, nodes);
    let mut allocation = Allocation::default();
    if kind != Kind::Plain {
        allocation
            .devices
            .insert(DeviceId::parse(&pods::gpu_of(0))?);
    }
    let allocation: Result<Allocation, AllocationError> = Ok(allocation);
    let (inventory, spec, numbers) = (node::inventory(), node::spec(), node::numbers());
    let facts = NodeFacts {
        inventory: Ok(&inventory),
        spec: Some(&spec),
        numbers: &numbers,
    };
    let (config, toolkit, exempt) = (Config::shipped()?, Toolkit::unknown(), Exempt::default());
    let terms = Terms {
        cdi_names: by_name,
        device_rules: false,
        config: &config,
        toolkit: &toolkit,
        exempt: &exempt,
    };
    for _ in 0..times {
        let decision = decide(&subject, black_box(&view), &allocation, facts, terms);
        ensure!(
            matches!(black_box(decision), Decision::Admit(_)),
            "it was refused"
        );
    }
    Ok(())
}

fn view(kind: Kind, nodes: usize) -> ContainerView {
    let message = container::of(0, 0, kind);
    let devices = container::nodes(nodes).map(|(path, major, minor)| Node {
        path: path.into(),
        major,
        minor,
    });
    let mounts = message.mounts.into_iter().map(|mount| ViewMount {
        destination: mount.destination,
        source: mount.source,
        ..Default::default()
    });
    ContainerView {
        env: message.env,
        devices: devices.collect(),
        mounts: mounts.collect(),
        annotations: message.annotations.into_iter().collect(),
        cdi_devices: Vec::new(),
        all_devices_allowed: kind == Kind::Privileged,
        ..Default::default()
    }
}

fn repeat_gate(nodes: usize, gpu: bool, times: usize) -> Result<()> {
    let found: Vec<_> = container::nodes(nodes)
        .map(|(path, major, minor)| FoundNode {
            path: path.into(),
            major,
            minor,
            own: true,
        })
        .collect();
    let granted = node::inventory()
        .gpus
        .into_iter()
        .take(usize::from(gpu))
        .collect();
    let (grant, numbers) = (Grant::new(granted, BTreeSet::new()), node::numbers());
    let placeholders = BTreeSet::new();
    let expectation = Expectation {
        grant: &grant,
        placeholders: &placeholders,
        numbers: &numbers,
    };
    let removed = expectation.to_remove(&found)?.len();
    let left: Vec<_> = {
        let gone = expectation.to_remove(&found)?;
        found
            .iter()
            .filter(|node| !gone.contains(node))
            .cloned()
            .collect()
    };
    for _ in 0..times {
        ensure!(
            expectation.to_remove(black_box(&found))?.len() == removed,
            "another plan"
        );
        expectation.verify(black_box(&left))?;
    }
    Ok(())
}
