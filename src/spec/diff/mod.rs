//! What differs between two specs, as a container would notice it.
//!
//! Owns the comparison: pure, two values in, changes out. Order of devices, nodes, mounts and
//! options, spelling of defaults and the encoding of the file are no differences; the order of
//! hooks and of values for one variable is. Reads no file and looks at no host.

mod edits;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use cdi::{Device, Spec};
use serde::Serialize;

pub(super) use edits::{hook_text, mount_text, node_text, rdt};

/// What happened to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// Only the new spec has it.
    Added,
    /// Only the old spec has it.
    Removed,
    /// Both have it, with other content.
    Changed,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    /// Such as `devices[GPU-…].deviceNodes[/dev/nvidia0]`.
    pub place: String,
    /// See [`Change`].
    pub change: Change,
    /// What the old spec says; absent when it says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// What the new spec says; absent when it says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
}

/// Compares two specs; an empty answer means that no reader can tell them apart but by their bytes.
pub fn diff(old: &Spec, new: &Spec) -> Vec<Difference> {
    let mut found = Differences::default();
    found.value("cdiVersion", Some(version(old)), Some(version(new)));
    found.value("kind", Some(old.kind.clone()), Some(new.kind.clone()));
    found.maps("annotations", &old.annotations, &new.annotations);
    found.edits("containerEdits", &old.container_edits, &new.container_edits);
    devices(&mut found, &old.devices, &new.devices);
    found.list
}

/// One leading `v` means nothing to readers.
fn version(spec: &Spec) -> String {
    let text = spec.cdi_version.as_str();
    text.strip_prefix('v').unwrap_or(text).to_owned()
}

fn devices(found: &mut Differences, old: &[Device], new: &[Device]) {
    let by_name = |devices: &'_ [Device]| -> BTreeMap<String, Device> {
        devices
            .iter()
            .map(|device| (device.name.clone(), device.clone()))
            .collect()
    };
    let (old, new) = (by_name(old), by_name(new));
    let names: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    for name in names {
        let place = format!("devices[{name}]");
        match (old.get(name), new.get(name)) {
            (Some(old), Some(new)) => {
                found.maps(
                    &format!("{place}.annotations"),
                    &old.annotations,
                    &new.annotations,
                );
                found.edits(&place, &old.container_edits, &new.container_edits);
            }
            (old, new) => found.value(&place, old.map(summary), new.map(summary)),
        }
    }
}

/// Of a device that the other side lacks: its nodes say which GPU it is.
fn summary(device: &Device) -> String {
    let nodes: Vec<_> = device
        .container_edits
        .device_nodes
        .iter()
        .map(|node| node.path.as_str())
        .collect();
    if nodes.is_empty() {
        "no device node".into()
    } else {
        nodes.join(", ")
    }
}

/// Collects differences in the order of the document.
#[derive(Default)]
struct Differences {
    list: Vec<Difference>,
}

impl Differences {
    fn value(&mut self, place: &str, old: Option<String>, new: Option<String>) {
        let change = match (&old, &new) {
            _ if old == new => return,
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
            _ => Change::Changed,
        };
        self.list.push(Difference {
            place: place.to_owned(),
            change,
            old,
            new,
        });
    }

    fn maps(
        &mut self,
        place: &str,
        old: &BTreeMap<String, String>,
        new: &BTreeMap<String, String>,
    ) {
        let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
        for key in keys {
            self.value(
                &format!("{place}[{key}]"),
                old.get(key).cloned(),
                new.get(key).cloned(),
            );
        }
    }
}
