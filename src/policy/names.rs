//! CDI names that stand for GPUs: telling them, and whether a grant covers them.

use std::collections::BTreeSet;

use super::Terms;
use crate::gpu::{Gpu, Grant};
use crate::host::Toolkit;

/// Classes of CDI devices that NVIDIA's tools make beside GPUs, and that come with any of them.
const COMPANIONS: [&str; 3] = ["gds", "mofed", "gdrcopy"];

/// What makes a kind one of GPUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kinds<'a> {
    /// The kind of this node's own spec.
    pub(super) own: Option<&'a str>,
    pub(super) toolkit: &'a Toolkit,
}

impl<'a> Kinds<'a> {
    pub(super) fn new(own: Option<&'a str>, terms: Terms<'a>) -> Self {
        Self {
            own,
            toolkit: terms.toolkit,
        }
    }

    /// The first name in a text that stands for a GPU outside the grant, whatever separates the names:
    /// NVIDIA's tools, runtimes and NRI plugins each have a syntax of their own, from a comma to YAML.
    pub(super) fn foreign<'t>(&self, text: &'t str, grant: &Grant) -> Option<&'t str> {
        self.gpus(text).find(|name| !covers(grant, name))
    }

    /// Whether a text names CDI devices, and GPUs only.
    pub(super) fn are_gpus_only(&self, text: &str) -> bool {
        let all: BTreeSet<_> = names(text).collect();
        !all.is_empty() && all == self.gpus(text).collect()
    }

    fn gpus<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        names(text).filter(|name| {
            name.split_once('=')
                .is_some_and(|(kind, _)| self.is_gpu(kind))
        })
    }

    fn is_gpu(&self, kind: &str) -> bool {
        let vendor = kind
            .split('/')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        self.own == Some(kind)
            || self.toolkit.has_kind(kind)
            || vendor == "nvidia.com"
            || vendor.ends_with(".nvidia.com")
    }
}

/// Everything that could be a qualified name: the characters of CDI names, with a `=` among them.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "._/=:-".contains(c);
    text.split(move |c| !is_of_name(c))
        .filter(|token| token.contains('='))
        // The dash of a YAML list may stand close to its item.
        .map(|token| token.trim_start_matches('-'))
}

/// Whether a qualified name stands for a granted GPU, as device plugins name them: by UUID or by index.
pub(super) fn covers(grant: &Grant, name: &str) -> bool {
    let Some((kind, device)) = name.split_once('=') else {
        return false;
    };
    let class = kind.rsplit('/').next().unwrap_or_default();
    if COMPANIONS.contains(&class) {
        return !grant.is_empty();
    }
    class == "gpu" && is_granted(grant, device)
}

/// Whether `device` is the UUID or the index of a granted GPU. The index of a MIG device is its parent's,
/// and names all of it.
pub(super) fn is_granted(grant: &Grant, device: &str) -> bool {
    let named = |gpu: &Gpu| {
        device == gpu.id.as_str() || (!gpu.id.is_mig() && device == gpu.index.to_string())
    };
    grant.gpus().iter().any(named)
}
