//! Annotations by which runtimes and NRI plugins bring devices into a container: whether one asks for
//! a GPU beyond the grant, and which are taken away.
//!
//! Keys and value shapes: CDI annotations (any key with a configured prefix, on the container);
//! NVIDIA's own NRI plugin (`nvidia.cdi.k8s.io`, on the pod); the device injector of NRI and its
//! clones (`devices`, `cdi-devices`, `mounts` under `noderesource.dev` and, before, `nri.io`, on the pod).
//! The pod's keys hold for one container with `/container.NAME`, for all with `/pod` or bare.

use std::path::Path;

use serde_yaml::{Mapping, Value};

use super::names::Kinds;
use super::{ContainerView, NodeFacts, Refused, mounts};
use crate::gpu::Grant;
use crate::policy::Reason;

/// What NVIDIA's own NRI plugin reads.
const NVIDIA: &str = "nvidia.cdi.k8s.io";
/// Domains of the device injector.
const INJECTORS: [&str; 2] = [".noderesource.dev", ".nri.io"];
/// Lists that must be understood, since they can bring devices.
const LISTS: [&str; 3] = ["devices", "cdi-devices", "mounts"];
/// The API server takes 256 KiB for all annotations of an object.
const SIZE_LIMIT: usize = 256 << 10;

/// Refuses what asks for more than the grant.
pub(super) fn check(
    view: &ContainerView,
    container: &str,
    grant: &Grant,
    node: NodeFacts<'_>,
    kinds: Kinds<'_>,
) -> Result<(), Refused> {
    for name in &view.cdi_devices {
        if let Some(name) = kinds.foreign(name, grant) {
            return Err(foreign(&format!("the CDI device {name}"), "its request"));
        }
    }
    for (key, value) in &view.annotations {
        if !kinds.toolkit.is_cdi_annotation(key) {
            continue;
        }
        if let Some(name) = kinds.foreign(value, grant) {
            return Err(foreign(&format!("the CDI device {name}"), &annotation(key)));
        }
    }
    for (key, value) in &view.pod_annotations {
        let Some(domain) = domain_for(key, container) else {
            continue;
        };
        let list = INJECTORS
            .iter()
            .find_map(|suffix| domain.strip_suffix(suffix));
        if domain != NVIDIA && list.is_none() {
            continue;
        }
        if let Some(name) = kinds.foreign(value, grant) {
            return Err(foreign(&format!("the CDI device {name}"), &annotation(key)));
        }
        if list.is_some_and(|list| LISTS.contains(&list)) {
            let found = in_list(value, grant, node).map_err(|why| {
                (
                    Reason::ForeignRequest,
                    format!("{} can't be understood ({why})", annotation(key)),
                )
            })?;
            if let Some(what) = found {
                return Err(foreign(&what, &annotation(key)));
            }
        }
    }
    Ok(())
}

/// Keys that NVIDIA's runtime would read again behind us, although CRI has acted on them already.
pub(super) fn to_drop<'a>(
    view: &'a ContainerView,
    kinds: Kinds<'a>,
) -> impl Iterator<Item = &'a String> {
    view.annotations
        .iter()
        .filter(move |(key, value)| {
            kinds.toolkit.is_cdi_annotation(key) && kinds.are_gpus_only(value)
        })
        .map(|(key, _)| key)
}

fn annotation(key: &str) -> String {
    format!("the annotation {key:?}")
}

fn foreign(what: &str, by: &str) -> Refused {
    (
        Reason::ForeignRequest,
        format!("{by} asks for {what}, which the kubelet did not allocate to it"),
    )
}

/// The domain of a pod's key, if it holds for this container.
fn domain_for<'k>(key: &'k str, container: &str) -> Option<&'k str> {
    match key.split_once('/') {
        None => Some(key),
        Some((domain, "pod")) => Some(domain),
        Some((domain, scope)) => (scope.strip_prefix("container.")? == container).then_some(domain),
    }
}

/// The first foreign GPU node in an injector's list, or why the list can't be judged.
fn in_list(text: &str, grant: &Grant, node: NodeFacts<'_>) -> Result<Option<String>, String> {
    if text.len() > SIZE_LIMIT {
        return Err("it is longer than 256 KiB".to_owned());
    }
    let value: Value = serde_yaml::from_str(text).map_err(|error| error.to_string())?;
    let items = match value {
        Value::Null => return Ok(None),
        Value::Sequence(items) => items,
        _ => return Err("it is no list".to_owned()),
    };
    for item in items {
        let found = match &item {
            Value::String(text) => path_of(text, grant, node),
            Value::Mapping(fields) => in_fields(fields, grant, node)?,
            _ => return Err("an item is neither a name nor a mapping".to_owned()),
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn in_fields(
    fields: &Mapping,
    grant: &Grant,
    node: NodeFacts<'_>,
) -> Result<Option<String>, String> {
    for value in fields.values() {
        if let Some(found) = value.as_str().and_then(|text| path_of(text, grant, node)) {
            return Ok(Some(found));
        }
    }
    let (major, minor) = (number(fields, "major")?, number(fields, "minor")?);
    let Some(major) = major else { return Ok(None) };
    let minor = minor.unwrap_or(0);
    let class = node.numbers.classify(major, minor);
    Ok(class
        .filter(|class| !grant.permits(*class))
        .map(|_| format!("the GPU node {major}:{minor}")))
}

/// Go reads keys without regard to their case; the same key in two spellings has no one meaning.
fn number(fields: &Mapping, name: &str) -> Result<Option<u32>, String> {
    let mut found = fields.iter().filter(|(key, _)| {
        key.as_str()
            .is_some_and(|key| key.eq_ignore_ascii_case(name))
    });
    let Some((_, value)) = found.next() else {
        return Ok(None);
    };
    if found.next().is_some() {
        return Err(format!("{name} occurs twice"));
    }
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    number
        .map(Some)
        .ok_or_else(|| format!("{name} is no device number"))
}

fn path_of(text: &str, grant: &Grant, node: NodeFacts<'_>) -> Option<String> {
    mounts::is_foreign_path(Path::new(text), grant, node).then(|| format!("the GPU node {text}"))
}
