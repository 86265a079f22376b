//! What the readers in the runtimes refuse when they load a file.

use std::collections::{HashMap, HashSet};

use crate::model::{ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec};
use crate::name::{Kind, Part, check as check_name};
use crate::validate::{Report, Rule};
use crate::version::Version;

pub(super) fn check(spec: &Spec, report: &mut Report) {
    report.field("cdiVersion", |report| version(spec, report));
    report.field("kind", |report| {
        if let Err(fault) = spec.kind.parse::<Kind>() {
            report.add(Rule::Kind(fault));
        }
    });
    report.require(!spec.devices.is_empty(), || Rule::NoDevice);
    devices(spec, report);
    report.field("containerEdits", |report| {
        edits(&spec.container_edits, report);
    });
}

fn version(spec: &Spec, report: &mut Report) {
    match spec.cdi_version.parse::<Version>() {
        Err(unknown) => report.add(Rule::UnknownVersion(unknown)),
        Ok(declared) => {
            let minimum = spec.minimum_version();
            report.require(declared >= minimum, || Rule::VersionTooLow {
                declared,
                minimum,
            });
        }
    }
}

fn devices(spec: &Spec, report: &mut Report) {
    let mut seen = HashMap::new();
    for (i, device) in spec.devices.iter().enumerate() {
        report.at(format_args!(".devices[{i}]({:?})", device.name), |report| {
            if let Err(fault) = check_name(Part::Device, &device.name) {
                report.add(Rule::DeviceName {
                    name: device.name.clone(),
                    fault,
                });
            }
            let first = *seen.entry(device.name.as_str()).or_insert(i);
            report.require(first == i, || Rule::DuplicateDevice {
                name: device.name.clone(),
                first,
            });
            report.require(!device.container_edits.is_empty(), || Rule::NoEdit);
            report.field("containerEdits", |report| {
                edits(&device.container_edits, report);
            });
        });
    }
}

fn edits(edits: &ContainerEdits, report: &mut Report) {
    report.each("env", &edits.env, |report, entry| env(entry, report));
    report.each("deviceNodes", &edits.device_nodes, |report, node| {
        device_node(node, report);
    });
    net_devices(&edits.net_devices, report);
    report.each("hooks", &edits.hooks, |report, item| hook(item, report));
    report.each("mounts", &edits.mounts, |report, item| mount(item, report));
    if let Some(rdt) = &edits.intel_rdt {
        report.field("intelRdt", |report| intel_rdt(rdt, report));
    }
}

fn env(entry: &str, report: &mut Report) {
    let named = entry.find('=').is_some_and(|at| at > 0);
    report.require(named, || Rule::Env(entry.to_owned()));
}

fn not_empty(field: &str, text: &str, report: &mut Report) {
    report.field(field, |report| {
        report.require(!text.is_empty(), || Rule::Empty);
    });
}

fn device_node(node: &DeviceNode, report: &mut Report) {
    not_empty("path", &node.path, report);
    if let Some(kind) = &node.kind {
        report.field("type", |report| {
            let known = matches!(kind.as_str(), "" | "b" | "c" | "u" | "p");
            report.require(known, || Rule::NodeType(kind.clone()));
        });
    }
    if let Some(permissions) = &node.permissions {
        report.field("permissions", |report| {
            let known =
                permissions == "none" || permissions.chars().all(|c| matches!(c, 'r' | 'w' | 'm'));
            report.require(known, || Rule::Permissions(permissions.clone()));
        });
    }
}

fn net_devices(devices: &[NetDevice], report: &mut Report) {
    let (mut hosts, mut names) = (HashSet::new(), HashSet::new());
    report.each("netDevices", devices, |report, device| {
        let host = device.host_interface_name.as_str();
        for (field, text, fresh) in [
            ("hostInterfaceName", host, hosts.insert(host.to_owned())),
            (
                "name",
                device.name.as_str(),
                names.insert(device.name.clone()),
            ),
        ] {
            not_empty(field, text, report);
            report.field(field, |report| {
                report.require(fresh, || Rule::DuplicateNetDevice(text.to_owned()));
            });
        }
    });
}

fn hook(hook: &Hook, report: &mut Report) {
    report.field("hookName", |report| {
        let known = matches!(
            hook.hook_name.as_str(),
            "prestart"
                | "createRuntime"
                | "createContainer"
                | "startContainer"
                | "poststart"
                | "poststop"
        );
        report.require(known, || Rule::HookName(hook.hook_name.clone()));
    });
    not_empty("path", &hook.path, report);
    report.each("env", &hook.env, |report, entry| env(entry, report));
}

fn mount(mount: &Mount, report: &mut Report) {
    not_empty("hostPath", &mount.host_path, report);
    not_empty("containerPath", &mount.container_path, report);
}

/// A closID of `/` is the root group.
fn intel_rdt(rdt: &IntelRdt, report: &mut Report) {
    if let Some(id) = &rdt.clos_id {
        report.field("closID", |report| {
            let directory =
                id.len() < 4096 && !matches!(id.as_str(), "." | "..") && !id.contains(['/', '\n']);
            report.require(directory || id == "/", || Rule::ClosId);
        });
    }
}
