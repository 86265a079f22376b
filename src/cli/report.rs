//! `cdi-gen generate --report json`: what was done and what was left out, for programs.

use clap::ValueEnum;
use serde::Serialize;

use super::exit::Exit;
use crate::driver::DriverFiles;
use crate::gpu::{Inventory, Source};

/// `--report`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReportArg {
    /// One JSON document on stdout
    Json,
}

/// The document. `version` changes when a field changes its meaning or goes.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    version: u32,
    /// Same number as the exit code of the command.
    exit_code: u8,
    output: String,
    outcome: &'a str,
    cdi_version: &'a str,
    kind: &'a str,
    devices: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'a str>,
    gpus: Vec<GpuLine<'a>>,
    left_out: Vec<LeftOut<'a>>,
    missing_nodes: Vec<LeftOut<'a>>,
    /// Optional entries of the manifest of which nothing was found.
    not_found: Vec<NotFound<'a>>,
}

#[derive(Debug, Serialize)]
struct GpuLine<'a> {
    uuid: &'a str,
    index: String,
    minor: u32,
    pci: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'a str>,
    nodes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct LeftOut<'a> {
    what: String,
    reason: &'a str,
}

#[derive(Debug, Serialize)]
struct NotFound<'a> {
    name: &'a str,
    files: &'a [String],
}

impl<'a> Report<'a> {
    pub(super) fn new(
        spec: &'a cdi::Spec,
        inventory: Option<&'a Inventory>,
        files: &'a DriverFiles,
        (output, outcome): (String, &'a str),
        exit: Exit,
    ) -> Self {
        let gpus = inventory.map_or_else(Vec::new, |inventory| {
            let whole = inventory
                .gpus
                .iter()
                .map(|gpu| (gpu, gpu.index.to_string(), None));
            let mig = inventory.mig.iter().map(|mig| {
                let index = format!("{}:{}", mig.gpu.index, mig.slot);
                (&mig.gpu, index, Some(mig.parent.as_str()))
            });
            whole
                .chain(mig)
                .map(|(gpu, index, parent)| GpuLine {
                    uuid: gpu.id.as_str(),
                    index,
                    minor: gpu.minor,
                    pci: &gpu.pci,
                    name: &gpu.name,
                    parent,
                    nodes: gpu
                        .nodes
                        .iter()
                        .map(|node| node.path.display().to_string())
                        .collect(),
                })
                .collect()
        });
        Self {
            version: 1,
            exit_code: exit.code(),
            output,
            outcome,
            cdi_version: &spec.cdi_version,
            kind: &spec.kind,
            devices: spec
                .devices
                .iter()
                .map(|device| device.name.as_str())
                .collect(),
            driver_version: inventory.map(|inventory| inventory.driver_version.as_str()),
            source: inventory.map(|inventory| match inventory.source {
                Source::Nvml => "nvml",
                Source::Procfs => "procfs",
            }),
            gpus,
            left_out: inventory.map_or_else(Vec::new, |inventory| {
                let faults = inventory.faults.iter();
                faults
                    .map(|fault| LeftOut {
                        what: format!("GPU {}", fault.gpu),
                        reason: &fault.reason,
                    })
                    .collect()
            }),
            missing_nodes: inventory.map_or_else(Vec::new, |inventory| {
                let faults = inventory.control_faults.iter();
                faults
                    .map(|fault| LeftOut {
                        what: fault.path.display().to_string(),
                        reason: &fault.reason,
                    })
                    .collect()
            }),
            not_found: files
                .absent
                .iter()
                .map(|absent| NotFound {
                    name: &absent.name,
                    files: &absent.files,
                })
                .collect(),
        }
    }
}
