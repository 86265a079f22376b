//! The check of what all NRI plugins together want, which only runtimes with NRI ≥ 0.10 show.

use super::names::Kinds;
use super::{
    ContainerView, NodeFacts, Reason, Refused, Terms, WARDEN_UUIDS, annotations, deny, legacy,
    mounts,
};
use crate::gpu::Grant;

/// Refuses a merged adjustment, given as the view of what it adds, that brings anything of a GPU
/// beyond the grant: whoever added it, and in whatever order the plugins ran.
pub fn validate(
    added: &ContainerView,
    container: &str,
    grant: &Grant,
    node: NodeFacts<'_>,
    terms: Terms<'_>,
) -> Result<(), Refused> {
    let kinds = Kinds::new(node.spec.map(|spec| spec.kind.as_str()), terms);
    let result = environment(added, grant, terms)
        .and_then(|()| devices(added, grant, node))
        .and_then(|()| annotations::check(added, container, grant, node, kinds))
        .and_then(|()| mounts::check(added, grant, node, terms));
    result.map_err(|(_, cause)| {
        (
            Reason::MergedForeign,
            format!("with the changes of all NRI plugins, {cause}"),
        )
    })
}

fn environment(added: &ContainerView, grant: &Grant, terms: Terms<'_>) -> Result<(), Refused> {
    for (key, values) in legacy::managed(added, terms) {
        if key == WARDEN_UUIDS {
            continue;
        }
        let brings = |value: &&&str| !legacy::is_harmless(key, value, grant);
        if let Some(value) = values.iter().find(brings) {
            let cause = format!("its environment has {key}={value}");
            return Err((Reason::MergedForeign, cause));
        }
    }
    Ok(())
}

fn devices(added: &ContainerView, grant: &Grant, node: NodeFacts<'_>) -> Result<(), Refused> {
    let foreign = added.devices.iter().find(|device| {
        let class = node.numbers.classify(device.major, device.minor);
        class.is_some_and(|class| !grant.permits(class))
    });
    if let Some(device) = foreign {
        let cause = format!(
            "it has the GPU node {} ({}:{}), which was not allocated to it",
            device.path.display(),
            device.major,
            device.minor
        );
        return Err((Reason::MergedForeign, cause));
    }
    if let Some((major, minor)) = deny::numbers(added, grant, node).first() {
        let cause = format!(
            "its device cgroup lets the GPU node {major}:{minor} through, which was not allocated to it"
        );
        return Err((Reason::MergedForeign, cause));
    }
    Ok(())
}
