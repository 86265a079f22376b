//! How long gpu-warden takes for a CreateContainer, with the kubelet warm: median and 99th percentile.
//!
//! Each call looks its allocation up: a PodResources call to a stand-in kubelet (a thread and a
//! runtime of its own) over a unix socket, and the real checkpoint file, of 110 pods. Calls are
//! serial, as a runtime makes them. A target that is missed is printed, and fails nothing: times on
//! a shared machine prove little.

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measured")]

mod end_to_end;
mod in_process;
#[path = "../support/mod.rs"]
mod support;

use support::container::Kind;

/// Calls before the clock counts: they connect to the kubelet and fill the caches.
const WARM_UP: usize = 300;
/// Each pod once. Then all is synchronized anew: a creation by CDI name that never comes to its start is
/// remembered, and the next of that container is expanded.
const ROUND: usize = support::pods::PODS / 2;
/// Calls that are timed, for each case. The 99th percentile leaves 30 above it.
const CALLS: usize = 3000;

/// A container on a runtime.
#[derive(Debug)]
struct Case {
    name: &'static str,
    kind: Kind,
    /// 2.1 takes CDI names in a reply; 1.7.24 does not, so that the spec is expanded into it.
    containerd: &'static str,
}

const CASES: [Case; 5] = [
    Case {
        name: "one GPU, by CDI name (containerd 2.1)",
        kind: Kind::Gpu,
        containerd: "2.1.9",
    },
    Case {
        name: "one GPU, expanded (containerd 1.7)",
        kind: Kind::Gpu,
        containerd: "1.7.24",
    },
    Case {
        name: "no GPU",
        kind: Kind::Plain,
        containerd: "2.1.9",
    },
    Case {
        name: "privileged, 40 device nodes, by CDI name",
        kind: Kind::Privileged,
        containerd: "2.1.9",
    },
    Case {
        name: "privileged, 40 device nodes, expanded",
        kind: Kind::Privileged,
        containerd: "1.7.24",
    },
];

impl Case {
    /// The pod of the nth call: all that fit, in turn.
    fn pod(&self, call: usize) -> usize {
        let pod = call * 2 % support::pods::PODS;
        if self.kind == Kind::Plain {
            pod + 1
        } else {
            pod
        }
    }

    /// Whether an answer is right: what is timed has to be the real work.
    fn check(&self, adjust: &nri::api::ContainerAdjustment) -> anyhow::Result<()> {
        let by_name = self.containerd.starts_with('2');
        let nodes = adjust.linux.devices.len();
        let (names, own, foreign) = match self.kind {
            Kind::Plain => (0, 0, 0),
            Kind::Gpu => (1, 6, 0),
            // Three nodes of each of the seven other GPUs.
            Kind::Privileged => (1, 6, 3 * (support::node::GPUS - 1)),
        };
        let expected = if by_name {
            (names, foreign)
        } else {
            (0, own + foreign)
        };
        anyhow::ensure!(
            (adjust.CDI_devices.len(), nodes) == expected,
            "{}: {} CDI names and {nodes} nodes, not {expected:?}",
            self.name,
            adjust.CDI_devices.len()
        );
        Ok(())
    }
}

fn main() -> anyhow::Result<()> {
    println!(
        "CreateContainer, {} pods at the kubelet, {} GPUs, {CALLS} calls after {WARM_UP}",
        support::pods::PODS,
        support::node::GPUS
    );
    // Percentiles of a busy machine are those of its scheduler.
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("load average before: {}", load.trim_end());
    let in_process = in_process::run()?;
    let end_to_end = end_to_end::run()?;
    let verdict = if in_process && end_to_end {
        "met"
    } else {
        "NOT met"
    };
    println!(
        "\ntarget, p99 below {:?} in every case: {verdict}",
        support::sample::TARGET
    );
    Ok(())
}
