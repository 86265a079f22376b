//! `cdi-gen check`: whether the specs on this host are true of it.

use std::path::PathBuf;

use anyhow::Context;
use cdi::{Kind, QualifiedName};
use clap::Args;
use serde::Serialize;

use super::exit::Exit;
use super::generate::{class, vendor};
use super::output::{CdiDirArgs, VERSION, ViewArgs, exit_if};
use super::{RootArgs, absolute, findings};
use crate::driver::Preset;
use crate::spec::check::{Driver, Facts, HostView, Question, check};
use crate::spec::{Finding, is_negative};

/// Arguments of `cdi-gen check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// A name that some consumer will ask for and that must resolve, such as
    /// nvidia.com/gpu=all (repeatable)
    #[arg(
        long,
        value_name = "NAME",
        env = "CDI_GEN_EXPECT",
        value_delimiter = ','
    )]
    pub expect: Vec<QualifiedName>,
    /// Vendor part of the kind that is asked for by UUID
    #[arg(long, env = "CDI_GEN_VENDOR", default_value = "nvidia.com", value_parser = vendor)]
    pub vendor: String,
    /// Class part of the kind that is asked for by UUID
    #[arg(long, env = "CDI_GEN_CLASS", default_value = "gpu", value_parser = class)]
    pub class: String,
    /// The driver root as the container runtime on the host sees it; by default the driver root
    #[arg(long, value_name = "DIR", env = "CDI_GEN_HOST_DRIVER_ROOT", value_parser = absolute)]
    pub host_driver_root: Option<PathBuf>,
    /// The dev root as the container runtime on the host sees it; by default the host driver root
    /// when both roots are one, else the dev root
    #[arg(long, value_name = "DIR", env = "CDI_GEN_HOST_DEV_ROOT", value_parser = absolute)]
    pub host_dev_root: Option<PathBuf>,
    /// Layout of a known system, as `generate` takes it
    #[arg(long, value_name = "NAME", env = "CDI_GEN_PRESET", value_parser = Preset::named)]
    pub preset: Option<Preset>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub dirs: CdiDirArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub view: ViewArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub roots: RootArgs,
}

#[derive(Serialize)]
struct Answer {
    version: u32,
    /// Of the running driver; absent when it does not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    driver: Option<String>,
    gpus: usize,
    directories: Vec<PathBuf>,
    files: usize,
    devices: usize,
    findings: Vec<Finding>,
}

impl CheckArgs {
    /// Runs the command.
    pub fn exec(&self) -> anyhow::Result<Exit> {
        let question = Question {
            kind: Kind::new(&self.vendor, &self.class).context("--vendor and --class")?,
            expect: self.expect.clone(),
        };
        let nvml = self.roots.nvml_with(self.preset.as_ref());
        let facts = Facts::gather(&self.dirs.cdi_dirs, &self.host_view(), &nvml);
        let findings = check(&facts, &question);
        let inventory = facts.inventory();
        let answer = Answer {
            version: VERSION,
            driver: inventory.map(|inventory| inventory.driver_version.clone()),
            gpus: inventory.map_or(0, |inventory| inventory.devices().count()),
            directories: facts.dirs.clone(),
            files: facts.registry.files().len() + facts.registry.broken().len(),
            devices: facts.registry.devices().count(),
            findings,
        };
        self.view.print(&answer, table)?;
        let negative = is_negative(&answer.findings);
        Ok(match &facts.driver {
            Driver::Unlisted(system) => {
                tracing::info!("{system} has no list of GPUs: devices are not compared with any");
                exit_if(negative)
            }
            Driver::Absent(reason) if !negative => {
                tracing::warn!("{reason}");
                Exit::NoDriver
            }
            _ => exit_if(negative),
        })
    }

    fn host_view(&self) -> HostView {
        let preset = self.preset.as_ref();
        let roots = self.roots.roots_with(preset);
        let preset_root = preset.and_then(|preset| preset.host_driver_root.clone());
        let host_driver_root = self
            .host_driver_root
            .clone()
            .or(preset_root.map(PathBuf::from))
            .unwrap_or_else(|| roots.driver.clone());
        let host_dev_root = match &self.host_dev_root {
            Some(root) => root.clone(),
            None if roots.dev == roots.driver => host_driver_root.clone(),
            None => roots.dev.clone(),
        };
        HostView {
            roots,
            host_driver_root,
            host_dev_root,
        }
    }
}

fn table(answer: &Answer) -> String {
    let dirs: Vec<_> = answer
        .directories
        .iter()
        .map(|dir| dir.display().to_string())
        .collect();
    let driver = match &answer.driver {
        Some(version) => format!(
            "driver {version} with {}",
            findings::counted(answer.gpus, "usable GPU")
        ),
        None => "no working driver".to_owned(),
    };
    let verdict = if answer.findings.is_empty() {
        "nothing found: "
    } else {
        ""
    };
    format!(
        "{}{verdict}{} in {} of {}, {driver}\n",
        findings::table(&answer.findings),
        findings::counted(answer.devices, "device"),
        findings::counted(answer.files, "file"),
        dirs.join(", "),
    )
}
