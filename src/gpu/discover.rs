//! The one entry: ask NVML, else the kernel module, check against the host's nodes.

use std::path::Path;

use super::assemble::{Assembled, assemble};
use super::capability::{Capabilities, NodeWide};
use super::nodes::CONTROL_NODES;
use super::nvml::Silence;
use super::{Inventory, Node, NvmlLibrary, nodes, nvml, procfs};
use crate::host::devices::Family;
use crate::host::{DeviceNumbers, NumbersError, Roots};

/// There is no inventory.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// Nothing of a driver was found: a node without GPUs, or wrong roots.
    #[error("no NVIDIA driver here; looked for:\n  - {}", looked_for.join("\n  - "))]
    NoDriver {
        /// What was looked for and where, one sentence each.
        looked_for: Vec<String>,
    },
    /// Something of a driver is there, and it does not work.
    #[error("the NVIDIA driver is present but does not work: {}", reasons.join("; "))]
    Broken {
        /// What each source said.
        reasons: Vec<String>,
    },
    /// See [`NumbersError`].
    #[error(transparent)]
    Numbers(#[from] NumbersError),
}

/// Takes the inventory. Blocks for as long as the driver does.
///
/// NVML is asked first; when it can't be loaded or does not answer, `/proc/driver/nvidia` is. An
/// inventory may be empty: the driver works and has no usable GPU, and `faults` says why not.
pub fn discover(roots: &Roots, library: &NvmlLibrary) -> Result<Inventory, DiscoverError> {
    discover_with(roots, library, &CONTROL_NODES.map(Path::new))
}

/// The same, with the control nodes that are looked for (absolute paths).
pub fn discover_with(
    roots: &Roots,
    library: &NvmlLibrary,
    control: &[&Path],
) -> Result<Inventory, DiscoverError> {
    let hint = procfs::version(&roots.proc);
    let survey = match nvml::survey(&roots.driver, library, hint.as_deref()) {
        Ok(survey) => survey,
        Err(silence) => match (procfs::survey(&roots.proc), silence) {
            (Some(Ok(survey)), silence) => {
                tracing::warn!(
                    reason = %describe(&silence),
                    "NVML can't be asked; the GPUs are taken from {}",
                    procfs::dir(&roots.proc).display()
                );
                survey
            }
            (Some(Err(reason)), silence) => {
                return Err(DiscoverError::Broken {
                    reasons: vec![describe(&silence), reason],
                });
            }
            (None, Silence::NoLibrary(mut looked_for)) => {
                looked_for.push(format!(
                    "the kernel module's directory {}",
                    procfs::dir(&roots.proc).display()
                ));
                return Err(DiscoverError::NoDriver { looked_for });
            }
            (None, Silence::Broken(reason)) => {
                return Err(DiscoverError::Broken {
                    reasons: vec![
                        reason,
                        format!(
                            "{} does not exist, so the kernel module is not loaded (modprobe nvidia)",
                            procfs::dir(&roots.proc).display()
                        ),
                    ],
                });
            }
        },
    };
    let numbers = DeviceNumbers::read(roots)?;
    let capabilities = Capabilities::read(&roots.proc, numbers.major(Family::Caps));
    let Assembled { gpus, mig, faults } = assemble(
        survey.gpus,
        |minor, pci| nodes::of_gpu(roots, minor, pci),
        |minor, gi, ci| capabilities.of_mig(minor, gi, ci),
    );
    let (control, control_faults) = nodes::control(roots, &numbers, control);
    let drm = || {
        let whole = gpus.iter().map(|gpu| (gpu.pci.as_str(), &gpu.nodes));
        whole.chain(mig.iter().map(|mig| (mig.gpu.pci.as_str(), &mig.drm)))
    };
    Ok(Inventory {
        source: survey.source,
        driver_version: survey.driver_version,
        links: drm()
            .flat_map(|(pci, own)| nodes::links(roots, pci, own))
            .collect(),
        groups: nodes::groups(roots, drm().flat_map(|(_, own)| own)),
        control,
        control_faults,
        gpus,
        mig,
        faults,
    })
}

/// A node-wide MIG capability of this host, with the mode that its node should have; an error in
/// words.
pub fn node_wide(roots: &Roots, which: NodeWide) -> Result<(Node, Option<u32>), String> {
    let numbers = DeviceNumbers::read(roots).map_err(|error| error.to_string())?;
    Capabilities::read(&roots.proc, numbers.major(Family::Caps)).node_wide(which)
}

fn describe(silence: &Silence) -> String {
    match silence {
        Silence::NoLibrary(looked_for) => format!("not found: {}", looked_for.join("; ")),
        Silence::Broken(reason) => reason.clone(),
    }
}
