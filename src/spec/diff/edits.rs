//! The edits of a file or device, each list in the form in which its order means something.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use cdi::{ContainerEdits, DeviceNode, Hook, IntelRdt, Mount};

use super::Differences;

impl Differences {
    pub(super) fn edits(&mut self, place: &str, old: &ContainerEdits, new: &ContainerEdits) {
        self.maps(&format!("{place}.env"), &env(old), &env(new));
        self.maps(&format!("{place}.deviceNodes"), &nodes(old), &nodes(new));
        self.maps(&format!("{place}.mounts"), &mounts(old), &mounts(new));
        self.hooks(place, &old.hooks, &new.hooks);
        self.maps(
            &format!("{place}.netDevices"),
            &net_devices(old),
            &net_devices(new),
        );
        self.value(
            &format!("{place}.intelRdt"),
            old.intel_rdt.as_ref().map(rdt),
            new.intel_rdt.as_ref().map(rdt),
        );
        self.value(
            &format!("{place}.additionalGids"),
            gids(&old.additional_gids),
            gids(&new.additional_gids),
        );
    }

    /// Phase by phase: runtimes keep the order inside a phase only.
    fn hooks(&mut self, place: &str, old: &[Hook], new: &[Hook]) {
        let (old, new) = (by_phase(old), by_phase(new));
        let phases: BTreeSet<_> = old.keys().chain(new.keys()).collect();
        for phase in phases {
            let text = |hooks: Option<&Vec<String>>| hooks.map(|hooks| hooks.join("; then "));
            self.value(
                &format!("{place}.hooks[{phase}]"),
                text(old.get(phase)),
                text(new.get(phase)),
            );
        }
    }
}

/// Of a variable that is set twice, the last value counts.
fn env(edits: &ContainerEdits) -> BTreeMap<String, String> {
    edits
        .env
        .iter()
        .map(|entry| match entry.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (entry.clone(), String::new()),
        })
        .collect()
}

/// A later node replaces an earlier one of its path.
fn nodes(edits: &ContainerEdits) -> BTreeMap<String, String> {
    edits
        .device_nodes
        .iter()
        .map(|node| (node.path.clone(), node_text(node)))
        .collect()
}

/// The node in words; equal for readers means equal text.
pub(in crate::spec) fn node_text(node: &DeviceNode) -> String {
    let mut words = Vec::new();
    if let Some(kind) = node.node_type() {
        words.push(format!("type {kind}"));
    }
    // Without a major, readers take both numbers from the host, whatever the minor says.
    words.push(match node.major.unwrap_or(0) {
        0 => "numbers of the host's node".to_owned(),
        major => format!("{major}:{}", node.minor.unwrap_or(0)),
    });
    if node.host_path() != node.path {
        words.push(format!("from {}", node.host_path()));
    }
    let mut access: Vec<_> = node.access().chars().collect();
    access.sort_unstable();
    access.dedup();
    let access: String = access.into_iter().collect();
    if access != "mrw" {
        words.push(format!("access {access:?}"));
    }
    if let Some(mode) = node.file_mode {
        words.push(format!("mode {mode:04o}"));
    }
    if let Some(uid) = node.uid {
        words.push(format!("uid {uid}"));
    }
    if let Some(gid) = node.gid {
        words.push(format!("gid {gid}"));
    }
    words.join(", ")
}

/// A later mount replaces an earlier one of its destination.
fn mounts(edits: &ContainerEdits) -> BTreeMap<String, String> {
    edits
        .mounts
        .iter()
        .map(|mount| (mount.container_path.clone(), mount_text(mount)))
        .collect()
}

/// The mount in words.
pub(in crate::spec) fn mount_text(mount: &Mount) -> String {
    let mut options: Vec<_> = mount.options.iter().map(String::as_str).collect();
    options.sort_unstable();
    options.dedup();
    let kind = mount.kind.as_deref().filter(|kind| !kind.is_empty());
    let mut text = format!("from {}", mount.host_path);
    if let Some(kind) = kind {
        text.push_str(", type ");
        text.push_str(kind);
    }
    if !options.is_empty() {
        text.push_str(", ");
        text.push_str(&options.join(","));
    }
    text
}

fn by_phase(hooks: &[Hook]) -> BTreeMap<String, Vec<String>> {
    let mut phases: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for hook in hooks {
        phases
            .entry(hook.hook_name.clone())
            .or_default()
            .push(hook_text(hook));
    }
    phases
}

/// The hook in words; arguments stay apart even when they contain spaces.
pub(in crate::spec) fn hook_text(hook: &Hook) -> String {
    // Writing to a String can't fail.
    let mut text = hook.path.clone();
    if !hook.args.is_empty() {
        let _ = write!(text, " {:?}", hook.args);
    }
    if !hook.env.is_empty() {
        let _ = write!(text, " env {:?}", hook.env);
    }
    if let Some(timeout) = hook.timeout {
        let _ = write!(text, " timeout {timeout} s");
    }
    text
}

fn net_devices(edits: &ContainerEdits) -> BTreeMap<String, String> {
    edits
        .net_devices
        .iter()
        .map(|device| (device.host_interface_name.clone(), device.name.clone()))
        .collect()
}

/// The RDT settings in words.
pub(in crate::spec) fn rdt(rdt: &IntelRdt) -> String {
    let text = |name: &str, value: Option<&String>| value.map(|value| format!("{name} {value}"));
    let mut words: Vec<String> = [
        text("closID", rdt.clos_id.as_ref()),
        text("L3", rdt.l3_cache_schema.as_ref()),
        text("MB", rdt.mem_bw_schema.as_ref()),
    ]
    .into_iter()
    .flatten()
    .collect();
    words.extend(rdt.schemata.iter().cloned());
    if rdt.enable_monitoring == Some(true) {
        words.push("monitoring".into());
    }
    if words.is_empty() {
        "defaults".into()
    } else {
        words.join(", ")
    }
}

/// Runtimes skip 0 and repetitions.
fn gids(gids: &[u32]) -> Option<String> {
    let mut gids: Vec<_> = gids.iter().filter(|gid| **gid != 0).collect();
    gids.sort_unstable();
    gids.dedup();
    let words: Vec<_> = gids.iter().map(ToString::to_string).collect();
    (!words.is_empty()).then(|| words.join(", "))
}
