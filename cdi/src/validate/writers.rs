//! What a careful writer keeps beyond the readers' rules.

use std::collections::BTreeMap;

use crate::model::{ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, Spec};
use crate::validate::{Report, Rule};

/// Keys and values of one `annotations` object together, as Kubernetes counts them.
const ANNOTATION_BYTES: usize = 256 * 1024;

pub(super) fn check(spec: &Spec, report: &mut Report) {
    annotations(&spec.annotations, report);
    for (i, device) in spec.devices.iter().enumerate() {
        report.at(format_args!(".devices[{i}]({:?})", device.name), |report| {
            annotations(&device.annotations, report);
            report.field("containerEdits", |report| {
                edits(&device.container_edits, report);
            });
        });
    }
    report.field("containerEdits", |report| {
        edits(&spec.container_edits, report);
    });
}

fn annotations(notes: &BTreeMap<String, String>, report: &mut Report) {
    report.field("annotations", |report| {
        let size = notes
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        report.require(size <= ANNOTATION_BYTES, || Rule::AnnotationSize(size));
        for key in notes.keys() {
            report.require(is_annotation_key(key), || Rule::AnnotationKey(key.clone()));
        }
    });
}

/// `[prefix/]name`: the prefix a lower-case DNS subdomain of at most 253 characters, the name at most 63,
/// letters and digits at both ends, `-`, `_` and `.` within.
fn is_annotation_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let edges = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    let label = |label: &str| {
        edges(label)
            && label
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    edges(name)
        && name.len() <= 63
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && prefix.is_none_or(|prefix| prefix.len() <= 253 && prefix.split('.').all(label))
}

fn edits(edits: &ContainerEdits, report: &mut Report) {
    report.each("env", &edits.env, |report, text| no_nul(text, report));
    report.each("deviceNodes", &edits.device_nodes, |report, node| {
        device_node(node, report);
    });
    report.each("netDevices", &edits.net_devices, |report, device| {
        report.field("hostInterfaceName", |report| {
            no_nul(&device.host_interface_name, report);
        });
        report.field("name", |report| no_nul(&device.name, report));
    });
    report.each("hooks", &edits.hooks, |report, item| hook(item, report));
    report.each("mounts", &edits.mounts, |report, item| mount(item, report));
    if let Some(rdt) = &edits.intel_rdt {
        report.field("intelRdt", |report| intel_rdt(rdt, report));
    }
}

fn no_nul(text: &str, report: &mut Report) {
    report.require(!text.contains('\0'), || Rule::Nul);
}

/// An empty path is the readers' finding already.
fn path(field: &str, text: &str, report: &mut Report) {
    let clean = |rest: &str| {
        rest.is_empty() || rest.split('/').all(|part| !matches!(part, "" | "." | ".."))
    };
    report.field(field, |report| {
        let kept = text.is_empty() || text.strip_prefix('/').is_some_and(clean);
        report.require(kept, || Rule::Path(text.to_owned()));
        no_nul(text, report);
    });
}

fn optional(field: &str, text: Option<&String>, report: &mut Report) {
    if let Some(text) = text {
        report.field(field, |report| {
            report.require(!text.is_empty(), || Rule::EmptyOptional);
            no_nul(text, report);
        });
    }
}

fn range(field: &str, value: Option<i64>, max: u32, report: &mut Report) {
    let max = i64::from(max);
    if let Some(value) = value {
        report.field(field, |report| {
            report.require((0..=max).contains(&value), || Rule::Range { value, max });
        });
    }
}

fn device_node(node: &DeviceNode, report: &mut Report) {
    path("path", &node.path, report);
    optional("hostPath", node.host_path.as_ref(), report);
    if let Some(host) = &node.host_path {
        path("hostPath", host, report);
    }
    optional("type", node.kind.as_ref(), report);
    // A dev_t of Linux has 12 bits of major and 20 of minor.
    range("major", node.major, 0xfff, report);
    range("minor", node.minor, 0xf_ffff, report);
    range("fileMode", node.file_mode.map(i64::from), 0o7777, report);
    optional("permissions", node.permissions.as_ref(), report);
    if node.permissions.as_deref() == Some("none") {
        report.field("permissions", |report| report.add(Rule::NonePermissions));
    }
}

/// The published schema, which the Rust port applies, takes a timeout of 32 unsigned bits only.
fn hook(hook: &Hook, report: &mut Report) {
    path("path", &hook.path, report);
    report.each("args", &hook.args, |report, text| no_nul(text, report));
    report.each("env", &hook.env, |report, text| no_nul(text, report));
    range("timeout", hook.timeout, u32::MAX, report);
}

fn mount(mount: &Mount, report: &mut Report) {
    path("hostPath", &mount.host_path, report);
    path("containerPath", &mount.container_path, report);
    report.each("options", &mount.options, |report, text| {
        report.require(!text.is_empty(), || Rule::Empty);
        no_nul(text, report);
    });
    optional("type", mount.kind.as_ref(), report);
}

fn intel_rdt(rdt: &IntelRdt, report: &mut Report) {
    optional("closID", rdt.clos_id.as_ref(), report);
    if rdt.clos_id.as_deref() == Some("/") {
        report.field("closID", |report| report.add(Rule::RootClosId));
    }
    optional("l3CacheSchema", rdt.l3_cache_schema.as_ref(), report);
    optional("memBwSchema", rdt.mem_bw_schema.as_ref(), report);
    report.each("schemata", &rdt.schemata, |report, text| {
        no_nul(text, report);
    });
}
