//! One look at the node: take the inventory, bring the CDI spec in line with it, and see whether
//! runtimes would find our devices by name.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cdi::{Format, Outcome, QualifiedName, Registry, RemoveOutcome, Spec, remove_spec, write_spec};
use tracing::{debug, error, info, warn};

use super::NodeState;
use crate::gpu::{DeviceId, Inventory, NvmlLibrary};
use crate::host::{DeviceNumbers, Roots};
use crate::spec::{BuildOptions, Generated, RefreshOptions, SpecError, generate};

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
    unwritable: Option<String>,
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
            unwritable: None,
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
        let RefreshOptions {
            roots, nvml, build, ..
        } = &self.options;
        match generate(roots, nvml, build) {
            Ok(Generated {
                inventory, spec, ..
            }) => {
                let by_name = self.publish(&spec, &inventory);
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

    /// Writes the file; the answer is the devices that can be asked for by name. With a file that
    /// can't be written there is none, and each grant is expanded from what is in memory.
    fn publish(&mut self, spec: &Spec, inventory: &Inventory) -> BTreeSet<DeviceId> {
        let file = self.options.output.display();
        match write_spec(&self.options.output, spec, self.options.format) {
            Ok(outcome) => {
                self.unwritable = None;
                if outcome == Outcome::Written {
                    info!(%file, devices = spec.devices.len(), "CDI spec written");
                }
                self.found_by_name(spec, inventory)
            }
            Err(problem) => {
                let problem = problem.to_string();
                if self.unwritable.as_ref() != Some(&problem) {
                    error!(%file, problem, "the CDI spec can't be written; GPUs are brought in without it");
                    self.unwritable = Some(problem);
                }
                BTreeSet::new()
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
