//! One look at the node: take the inventory, bring the CDI spec in line with it, and see whether
//! runtimes would find our devices by name.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cdi::{Format, Outcome, QualifiedName, Registry, RemoveOutcome, Spec, remove_spec};
use tracing::{debug, error, info, warn};

use super::NodeState;
use crate::gpu::{DeviceId, Inventory, NvmlLibrary};
use crate::host::{DeviceNumbers, Roots};
use crate::spec::{BuildOptions, RefreshOptions, Refreshed, SpecError, refresh};

/// There is nowhere to keep the spec.
#[derive(Debug, thiserror::Error)]
#[error("no CDI directory is named: the spec is kept in the last one of them")]
pub struct NoDirectory;

/// What a look needs, and what the last one said, so that the log tells changes only.
#[derive(Debug)]
pub struct Look {
    options: RefreshOptions,
    cdi_dirs: Vec<PathBuf>,
    said: Option<String>,
}

impl Look {
    /// Looks below `roots` and keeps the spec in the last of `cdi_dirs`, which are those that the
    /// runtime reads, lowest priority first.
    pub fn new(
        roots: Roots,
        nvml: NvmlLibrary,
        build: BuildOptions,
        cdi_dirs: Vec<PathBuf>,
    ) -> Result<Self, NoDirectory> {
        let directory = cdi_dirs.last().ok_or(NoDirectory)?;
        let output = directory.join(cdi::file_name::default_name(&build.kind, Format::Yaml));
        let options = RefreshOptions {
            roots,
            nvml,
            build,
            output,
            format: Format::Yaml,
        };
        Ok(Self {
            options,
            cdi_dirs,
            said: None,
        })
    }

    /// Directories in which a change calls for a look.
    pub fn directories(&self) -> Vec<PathBuf> {
        let dev = self.options.roots.dev.join("dev");
        let mut directories = vec![dev.join("dri"), dev.join("nvidia-caps"), dev];
        directories.extend(self.cdi_dirs.iter().cloned());
        directories
    }

    /// Looks. Blocks for as long as the driver does.
    pub fn take(&mut self) -> NodeState {
        let numbers = match DeviceNumbers::read(&self.options.roots) {
            Ok(numbers) => numbers,
            Err(problem) => {
                self.say(Err(&problem.to_string()));
                return NodeState::unknown(problem.to_string(), DeviceNumbers::fixed());
            }
        };
        match refresh(&self.options) {
            Ok(Refreshed {
                inventory,
                spec,
                outcome,
                ..
            }) => {
                if outcome == Outcome::Written {
                    info!(file = %self.options.output.display(), devices = spec.devices.len(), "CDI spec written");
                }
                let by_name = self.found_by_name(&spec, &inventory);
                self.say(Ok(&summary(&inventory)));
                NodeState::known(inventory, spec, numbers, by_name)
            }
            Err(problem) => {
                self.withdraw(&problem);
                self.say(Err(&problem.to_string()));
                NodeState::unknown(problem.to_string(), numbers)
            }
        }
    }

    /// With no GPU left, a spec that still names one would bring a dead node into containers. Where
    /// the driver only fails to answer, the spec stays as it is: nothing is granted meanwhile.
    fn withdraw(&self, problem: &SpecError) {
        if !problem.is_absence() && !matches!(problem, SpecError::NoUsableGpu { .. }) {
            return;
        }
        let file = self.options.output.display();
        match remove_spec(&self.options.output) {
            Ok(RemoveOutcome::Removed) => info!(%file, "CDI spec removed: the node has no GPU"),
            Ok(RemoveOutcome::Absent) => {}
            Err(problem) => {
                error!(%problem, "a CDI spec that names GPUs which are gone can't be removed");
            }
        }
    }

    /// The devices whose name leads to our file, seen as the runtime sees the directories.
    fn found_by_name(&self, spec: &Spec, inventory: &Inventory) -> BTreeSet<DeviceId> {
        let registry = Registry::load(&self.cdi_dirs);
        let is_ours = |id: &&DeviceId| {
            let Ok(name) = format!("{}={id}", spec.kind).parse::<QualifiedName>() else {
                return false;
            };
            match registry.resolve(&name) {
                Ok(found) => found.path == self.options.output,
                Err(problem) => {
                    debug!(%problem, "this device can't be asked for by name; it is expanded instead");
                    false
                }
            }
        };
        inventory
            .devices()
            .map(|gpu| &gpu.id)
            .filter(is_ours)
            .cloned()
            .collect()
    }

    fn say(&mut self, now: Result<&str, &str>) {
        let text = now.unwrap_or_else(|problem| problem);
        if self.said.as_deref() == Some(text) {
            return;
        }
        match now {
            Ok(text) => info!("{text}"),
            Err(problem) => warn!("no GPU is granted at the moment: {problem}"),
        }
        self.said = Some(text.to_owned());
    }
}

fn summary(inventory: &Inventory) -> String {
    let gpus: Vec<_> = inventory
        .devices()
        .map(|gpu| format!("{} (/dev/nvidia{})", gpu.id, gpu.minor))
        .collect();
    let faults: Vec<_> = inventory
        .faults
        .iter()
        .map(|fault| format!("; {fault}"))
        .collect();
    format!(
        "driver {}, GPUs: {}{}",
        inventory.driver_version,
        gpus.join(", "),
        faults.concat()
    )
}
