//! Who is exempt, and from what.
//!
//! Invariant: namespace and name must both match. Labels, which any pod's author may write, can only
//! narrow an exemption.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use globset::{Glob, GlobMatcher};
use serde::Deserialize;

use super::{ConfigError, Rule};

/// Whose exemption is asked for.
#[derive(Debug, Clone, Copy)]
pub struct PodIdentity<'a> {
    /// Of the sandbox's CRI metadata.
    pub namespace: &'a str,
    /// Of the sandbox's CRI metadata.
    pub name: &'a str,
    /// Written by the pod's author.
    pub labels: &'a HashMap<String, String>,
}

/// What a container is exempt from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exempt {
    wholly: bool,
    rules: BTreeSet<Rule>,
}

impl Exempt {
    /// From everything: it is left as it is.
    pub fn wholly() -> Self {
        Self {
            wholly: true,
            rules: BTreeSet::new(),
        }
    }

    /// Whether it is left as it is.
    pub fn is_whole(&self) -> bool {
        self.wholly
    }

    /// Whether it is exempt from one rule.
    pub fn covers(&self, rule: Rule) -> bool {
        self.wholly || self.rules.contains(&rule)
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct FileExemption {
    namespace: String,
    pods: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    from: Option<BTreeSet<Rule>>,
}

/// One checked entry of the configuration.
#[derive(Debug, Clone)]
pub struct Exemption {
    namespace: String,
    pods: GlobMatcher,
    labels: BTreeMap<String, String>,
    from: Option<BTreeSet<Rule>>,
}

impl Exemption {
    pub(super) fn check(file: FileExemption) -> Result<Self, ConfigError> {
        if file.namespace.is_empty() {
            return Err(ConfigError::NoNamespace(file.pods));
        }
        if file.from.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(ConfigError::FromNothing(file.namespace, file.pods));
        }
        Ok(Self {
            namespace: file.namespace,
            pods: Glob::new(&file.pods)?.compile_matcher(),
            labels: file.labels,
            from: file.from,
        })
    }

    /// Adds what this entry exempts `pod` from.
    pub(super) fn apply(&self, pod: PodIdentity<'_>, exempt: &mut Exempt) {
        let labelled = || {
            self.labels
                .iter()
                .all(|(key, value)| pod.labels.get(key) == Some(value))
        };
        if self.namespace == pod.namespace && self.pods.is_match(pod.name) && labelled() {
            match &self.from {
                None => exempt.wholly = true,
                Some(rules) => exempt.rules.extend(rules),
            }
        }
    }
}
