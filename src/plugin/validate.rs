//! The validation of adjustments: whether what was decided is still among the merged changes of all
//! plugins, and whether these bring anything beyond it.

use std::sync::Arc;

use nri::api::{
    ContainerAdjustment, KeyValue, LinuxDevice, Mount, ValidateContainerAdjustmentRequest,
};

use super::ledger::Handling;
use super::service::Warden;
use super::view::added;
use crate::allocation::Subject;
use crate::config::Settings;
use crate::policy::{self, NodeFacts, Reason, Refused, Terms};

impl Warden {
    /// Judges what all plugins together want of a container.
    pub(super) async fn judge_merged(
        &self,
        request: &ValidateContainerAdjustmentRequest,
        subject: &Subject,
        settings: &Settings,
    ) -> Result<(), Refused> {
        let exempt = self.exempt(&request.pod, settings);
        if exempt.is_whole() {
            return Ok(());
        }
        let entry = self.ledger().get(&request.container.id).cloned();
        let entry = entry.ok_or_else(|| {
            let cause = "it was created without a decision of gpu-warden".to_owned();
            (Reason::AdjustmentLost, cause)
        })?;
        let nothing = ContainerAdjustment::default();
        let merged = request.adjust.as_ref().unwrap_or(&nothing);
        if entry.handling != Handling::Audited
            && let Some(lost) = lost(entry.replied.as_deref().unwrap_or(&nothing), merged)
        {
            let cause = format!("another NRI plugin has undone {lost}");
            return Err((Reason::AdjustmentLost, cause));
        }
        let sources = self.sources(&request.pod, &merged.mounts, settings).await;
        let node = Arc::clone(&self.wiring.node.borrow());
        let facts = NodeFacts {
            inventory: node.inventory(),
            spec: node.spec(),
            numbers: node.numbers(),
        };
        let terms = Terms {
            cdi_names: false,
            device_rules: true,
            config: &settings.config,
            toolkit: &settings.toolkit,
            exempt: &exempt,
        };
        let added = added(merged, &sources);
        policy::validate(&added, &subject.container, &entry.grant, facts, terms)
    }
}

/// The first thing of `ours` that `merged` lacks or has otherwise; none when all is there.
///
/// Removals are not looked for as such, since their form is the runtime's own matter; what counts is
/// that nobody has put the thing back.
fn lost(ours: &ContainerAdjustment, merged: &ContainerAdjustment) -> Option<String> {
    variable(ours, merged)
        .or_else(|| mount(ours, merged))
        .or_else(|| annotation(ours, merged))
        .or_else(|| device(ours, merged))
        .or_else(|| name(ours, merged))
        .or_else(|| hook(ours, merged))
}

fn variable(ours: &ContainerAdjustment, merged: &ContainerAdjustment) -> Option<String> {
    let is_lost = |own: &&KeyValue| {
        let mut values = merged.env.iter().filter(|other| other.key == own.key);
        !matches!((values.next(), values.next()), (Some(only), None) if only.value == own.value)
    };
    let own = ours.env.iter().find(is_lost)?;
    Some(format!("the variable {}={}", own.key, own.value))
}

fn mount(ours: &ContainerAdjustment, merged: &ContainerAdjustment) -> Option<String> {
    let at = |destination: &str| {
        let mut others = merged.mounts.iter();
        others.find(|other| other.destination == destination)
    };
    let is_lost = |own: &&Mount| match own.destination.strip_prefix('-') {
        Some(removed) => at(removed).is_some(),
        None => at(&own.destination).is_none_or(|other| other.source != own.source),
    };
    let own = ours.mounts.iter().find(is_lost)?;
    Some(format!("the mount {}", own.destination))
}

fn annotation(ours: &ContainerAdjustment, merged: &ContainerAdjustment) -> Option<String> {
    let mut removed = ours
        .annotations
        .keys()
        .filter_map(|key| key.strip_prefix('-'));
    let back = removed.find(|key| merged.annotations.contains_key(*key))?;
    Some(format!("the removal of the annotation {back}"))
}

fn device(ours: &ContainerAdjustment, merged: &ContainerAdjustment) -> Option<String> {
    let others = &merged.linux.devices;
    let numbers = |device: &LinuxDevice| (device.major, device.minor);
    let is_lost = |own: &&LinuxDevice| {
        let mut same = others.iter().filter(|other| other.path == own.path);
        same.next()
            .is_none_or(|other| numbers(other) != numbers(own))
            || same.next().is_some()
    };
    if let Some(own) = ours.linux.devices.iter().find(is_lost) {
        return Some(format!("the device {}", own.path));
    }
    let rules = &merged.linux.resources.devices;
    let mut own = ours.linux.resources.devices.iter();
    own.find(|own| !rules.contains(own)).map(|own| {
        let (major, minor) = (own.major.value, own.minor.value);
        format!("the rule that denies {major}:{minor}")
    })
}

fn name(ours: &ContainerAdjustment, merged: &ContainerAdjustment) -> Option<String> {
    let mut own = ours.CDI_devices.iter();
    let lost = own.find(|own| !merged.CDI_devices.contains(own))?;
    Some(format!("the CDI device {}", lost.name))
}

fn hook(ours: &ContainerAdjustment, merged: &ContainerAdjustment) -> Option<String> {
    let phases = |adjust: &ContainerAdjustment| {
        let hooks = &adjust.hooks;
        [
            &hooks.prestart,
            &hooks.create_runtime,
            &hooks.create_container,
            &hooks.start_container,
            &hooks.poststart,
            &hooks.poststop,
        ]
        .map(Clone::clone)
    };
    let pairs = phases(ours).into_iter().zip(phases(merged));
    pairs.into_iter().find_map(|(own, other)| {
        let lost = own.into_iter().find(|hook| !other.contains(hook))?;
        Some(format!("the hook {}", lost.path))
    })
}

#[cfg(test)]
mod tests;
