//! The decision: what one container gets, and how.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use cdi::{ContainerEdits, Spec};

use super::expand::expand;
use super::legacy::{self, VISIBLE_DEVICES, VOID, WARDEN_UUIDS};
use super::names::Kinds;
use super::{ContainerView, Reason, Refusal, Refused, annotations, deny, mounts};
use crate::allocation::{Allocation, AllocationError, Subject};
use crate::config::{Config, Exempt, Rule, Treatment};
use crate::gpu::{DeviceId, Grant, Inventory};
use crate::host::{DeviceNumbers, Toolkit};

/// The node, as far as a decision needs it.
#[derive(Debug, Clone, Copy)]
pub struct NodeFacts<'a> {
    /// The GPUs, or why they are not known.
    pub inventory: Result<&'a Inventory, &'a str>,
    /// The spec that was built from this inventory.
    pub spec: Option<&'a Spec>,
    /// How to tell GPU nodes.
    pub numbers: &'a DeviceNumbers,
}

/// What the runtime can do and the configuration wants.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// The runtime takes CDI names in the reply, and resolves them to our spec.
    pub cdi_names: bool,
    /// The runtime takes device cgroup rules in the reply.
    pub device_rules: bool,
    /// The node's administrator's choices.
    pub config: &'a Config,
    /// What the node's NVIDIA runtime listens to.
    pub toolkit: &'a Toolkit,
    /// What this container is exempt from.
    pub exempt: &'a Exempt,
}

/// What happens to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It runs, changed like this.
    Admit(Admission),
    /// It runs, unchanged and unguarded.
    Exempt,
    /// It does not run.
    Refuse(Refusal),
}

/// What is changed in a container that may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// Why.
    pub reason: Reason,
    /// What it may have.
    pub grant: Grant,
    /// Variables to set, replacing any value.
    pub env: BTreeMap<String, String>,
    /// Paths of foreign nodes, to be re-pointed to a null device.
    pub repoint: BTreeSet<PathBuf>,
    /// Mount destinations to drop.
    pub drop_mounts: BTreeSet<String>,
    /// Annotations of the container to remove.
    pub drop_annotations: BTreeSet<String>,
    /// Numbers of GPU nodes to deny in the device cgroup.
    pub deny: BTreeSet<(u32, u32)>,
    /// How the granted GPUs get in.
    pub inject: Injection,
}

/// How the granted GPUs get into the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Injection {
    /// There is nothing to inject.
    Nothing,
    /// The runtime has done it already (device plugin with `cdi-cri` or CDI annotations).
    Done,
    /// By qualified names, which the runtime resolves.
    Names(Vec<String>),
    /// By our own expansion of the spec.
    Edits(Box<ContainerEdits>),
}

/// Decides. Grants exactly the allocation or refuses; there is nothing between.
pub fn decide(
    subject: &Subject,
    view: &ContainerView,
    allocation: &Result<Allocation, AllocationError>,
    node: NodeFacts<'_>,
    terms: Terms<'_>,
) -> Decision {
    if terms.exempt.is_whole() {
        return Decision::Exempt;
    }
    match admit(view, &subject.container, allocation, node, terms) {
        Ok(admission) => Decision::Admit(admission),
        Err((reason, cause)) => Decision::Refuse(Refusal {
            subject: subject.clone(),
            reason,
            cause,
        }),
    }
}

fn admit(
    view: &ContainerView,
    container: &str,
    allocation: &Result<Allocation, AllocationError>,
    node: NodeFacts<'_>,
    terms: Terms<'_>,
) -> Result<Admission, Refused> {
    let (reason, grant, injected) = match allocation {
        Ok(allocation) if allocation.devices.is_empty() => (Reason::NoGpu, Grant::default(), false),
        Ok(allocation) => (
            Reason::Granted,
            grant(allocation, node)?,
            allocation.injected_by_runtime,
        ),
        Err(AllocationError::Unavailable(why)) => match legacy::sign(view, terms, node.numbers) {
            Some(sign) => {
                let cause = format!("{sign}, and which GPU is its own can't be learnt now ({why})");
                return Err((Reason::AllocationUnavailable, cause));
            }
            None => (Reason::NoGpuUnasked, Grant::default(), false),
        },
        Err(AllocationError::Conflict(why)) => {
            return Err((Reason::AllocationConflict, why.clone()));
        }
        Err(AllocationError::Unsupported(why)) => {
            return Err((Reason::AllocationUnsupported, why.clone()));
        }
    };
    refuse_power(view, &grant, terms)?;
    refuse_duplicates(view, &grant, terms)?;
    let kinds = Kinds::new(node.spec.map(|spec| spec.kind.as_str()), terms);
    annotations::check(view, container, &grant, node, kinds)?;
    mounts::check(view, &grant, node, terms)?;
    let inject = inject(view, &grant, injected, node, terms)?;
    Ok(Admission {
        reason,
        env: env(view, &grant, &inject, terms),
        repoint: repoint(view, &grant, &inject, node.numbers),
        drop_mounts: drop_mounts(view, &grant),
        drop_annotations: annotations::to_drop(view, kinds).cloned().collect(),
        deny: if terms.device_rules {
            deny::numbers(view, &grant, node)
        } else {
            BTreeSet::new()
        },
        grant,
        inject,
    })
}

/// What the configuration refuses for the power that it has over the node.
fn refuse_power(view: &ContainerView, grant: &Grant, terms: Terms<'_>) -> Result<(), Refused> {
    let has_gpu = !grant.is_empty();
    let held = if has_gpu { " and has a GPU" } else { "" };
    let refused =
        |treatment: Treatment, rule| treatment.refuses(has_gpu) && !terms.exempt.covers(rule);
    if view.privileged && refused(terms.config.privileged, Rule::Privileged) {
        return Err((Reason::Privileged, format!("it is privileged{held}")));
    }
    if view.host_pid && refused(terms.config.host_pid, Rule::HostPid) {
        let cause = format!("it runs in the host's pid namespace{held}");
        return Err((Reason::HostPid, cause));
    }
    Ok(())
}

/// With a key twice, the runtime lets the *last* original value win over our replacement. That is the
/// everyday case (containerd keeps a CUDA image's `all` beside the device plugin's own value), so
/// it is refused only where that value would bring more than the grant.
fn refuse_duplicates(view: &ContainerView, grant: &Grant, terms: Terms<'_>) -> Result<(), Refused> {
    for (key, values) in legacy::managed(view, terms) {
        let Some(last) = values.last().filter(|_| values.len() > 1) else {
            continue;
        };
        if !legacy::is_harmless(key, last, grant) {
            let cause = format!(
                "its environment sets {key} {} times ({}), and the runtime would let the last value win over the allocation",
                values.len(),
                values.join(", ")
            );
            return Err((Reason::DuplicateEnv, cause));
        }
    }
    Ok(())
}

/// Device lists by volume mounts, but for the container's own entries where the variable still points
/// to the list and can't be replaced (see [`refuse_duplicates`]): NVIDIA's runtime, finding no list,
/// would take the variable for the name of a device, and fail.
fn drop_mounts(view: &ContainerView, grant: &Grant) -> BTreeSet<String> {
    let values: Vec<_> = view.values(VISIBLE_DEVICES).collect();
    let is_read = values.len() > 1 && values.last().is_some_and(|v| legacy::is_list_root(v));
    let destinations = view.mounts.iter().map(|mount| &mount.destination);
    destinations
        .filter(|destination| legacy::is_volume_list(destination))
        .filter(|destination| !(is_read && legacy::lists_own(destination, grant)))
        .cloned()
        .collect()
}

fn grant(allocation: &Allocation, node: NodeFacts<'_>) -> Result<Grant, Refused> {
    let ids = || {
        allocation
            .devices
            .iter()
            .map(DeviceId::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let inventory = node.inventory.map_err(|why| {
        (
            Reason::InventoryUnavailable,
            format!(
                "it was allocated {}, but the GPUs of this node are not known now ({why})",
                ids()
            ),
        )
    })?;
    let gpus = allocation.devices.iter().map(|id| {
        inventory.gpu(id).cloned().ok_or_else(|| {
            let kind = if id.as_str().starts_with("MIG-") {
                "this node has no such usable MIG device"
            } else {
                "this node has no such usable GPU"
            };
            let faults: Vec<_> = inventory.faults.iter().map(ToString::to_string).collect();
            let faults = if faults.is_empty() {
                String::new()
            } else {
                format!(" ({})", faults.join("; "))
            };
            (
                Reason::GpuUnknown,
                format!("it was allocated {id}, but {kind}{faults}"),
            )
        })
    });
    Ok(Grant::new(
        gpus.collect::<Result<_, _>>()?,
        allocation.shared.clone(),
    ))
}

fn inject(
    view: &ContainerView,
    grant: &Grant,
    injected: bool,
    node: NodeFacts<'_>,
    terms: Terms<'_>,
) -> Result<Injection, Refused> {
    if grant.is_empty() {
        return Ok(Injection::Nothing);
    }
    if is_injected(view, grant, injected) {
        return Ok(Injection::Done);
    }
    let unknown = |why: &str| {
        (
            Reason::InventoryUnavailable,
            format!("its GPU can't be brought in: {why}"),
        )
    };
    let spec = node
        .spec
        .ok_or_else(|| unknown("this node has no CDI spec yet"))?;
    if terms.cdi_names {
        return Ok(Injection::Names(
            grant
                .ids()
                .iter()
                .map(|id| format!("{}={id}", spec.kind))
                .collect(),
        ));
    }
    let edits = expand(spec, &grant.ids(), node.inventory.map_err(unknown)?)
        .map_err(|e| unknown(&e.to_string()))?;
    Ok(Injection::Edits(Box::new(edits)))
}

/// A second injection of the same device doubles hooks and variables, so believe a request for CDI
/// once its traces are there: the neutral variable, and the nodes that each granted GPU needs. The
/// variable comes last, behind the one of a CUDA image: CDI's edits append, and leave what was there.
fn is_injected(view: &ContainerView, grant: &Grant, asked: bool) -> bool {
    (asked || !view.cdi_devices.is_empty())
        && view.values(VISIBLE_DEVICES).last() == Some(VOID)
        && grant.gpus().iter().all(|gpu| {
            !gpu.nodes.is_empty()
                && gpu.required_nodes().all(|own| {
                    view.devices
                        .iter()
                        .any(|node| (node.major, node.minor) == (own.major, own.minor))
                })
        })
}

fn env(
    view: &ContainerView,
    grant: &Grant,
    inject: &Injection,
    terms: Terms<'_>,
) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    if let Injection::Edits(edits) = inject {
        env.extend(
            edits
                .env
                .iter()
                .filter_map(|entry| entry.split_once('='))
                .map(|(k, v)| (k.to_owned(), v.to_owned())),
        );
    }
    let managed = legacy::managed(view, terms);
    for (key, values) in &managed {
        if values.first() != Some(&VOID) {
            env.insert((*key).to_owned(), VOID.to_owned());
        }
    }
    if !managed.contains_key(VISIBLE_DEVICES) {
        env.insert(VISIBLE_DEVICES.to_owned(), VOID.to_owned());
    }
    if !grant.is_empty() {
        let ids: Vec<_> = grant.gpus().iter().map(|gpu| gpu.id.as_str()).collect();
        env.insert(WARDEN_UUIDS.to_owned(), ids.join(","));
    }
    env
}

/// Foreign nodes, but for paths at which the injection puts a granted node: it replaces what is
/// there, and one reply must not set a path twice.
fn repoint(
    view: &ContainerView,
    grant: &Grant,
    inject: &Injection,
    numbers: &DeviceNumbers,
) -> BTreeSet<PathBuf> {
    let injected: BTreeSet<PathBuf> = match inject {
        Injection::Nothing | Injection::Done => BTreeSet::new(),
        Injection::Edits(edits) => edits
            .device_nodes
            .iter()
            .map(|node| node.path.clone().into())
            .collect(),
        Injection::Names(_) => grant
            .gpus()
            .iter()
            .flat_map(|gpu| gpu.nodes.iter().map(|node| node.path.clone()))
            .collect(),
    };
    let foreign = view.devices.iter().filter(|node| {
        numbers
            .classify(node.major, node.minor)
            .is_some_and(|class| !grant.permits(class))
    });
    foreign
        .map(|node| node.path.clone())
        .filter(|path| !injected.contains(path))
        .collect()
}
