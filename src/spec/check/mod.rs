//! Whether the specs that lie on this host are true of it.
//!
//! [`Facts::gather`] looks; [`check`] judges, pure, so that every finding is tested without a GPU.
//! Owns the finding ids of `cdi-gen check` ([`CheckId`]), which never change their meaning.
//! Mends nothing.
//!
//! Only definitions with effect are judged for what they name; one that a later directory replaces
//! is told as such, with what would be wrong with it if it came back.

mod facts;
mod files;
mod gather;
mod gpus;
mod id;
mod nodes;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;
use std::path::Path;

use cdi::{Kind, QualifiedName};

pub use facts::{Driver, Facts, NodeState, PathState};
pub use id::CheckId;
pub use view::HostView;

use super::finding::Finding;

/// What consumers will ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The kind whose devices are asked for by UUID; usually `nvidia.com/gpu`.
    pub kind: Kind,
    /// Further names that must resolve.
    pub expect: Vec<QualifiedName>,
}

/// Judges; findings come worst first, then by id and subject.
pub fn check(facts: &Facts, question: &Question) -> Vec<Finding> {
    let mut found = Found::default();
    files::directories(facts, &mut found);
    files::definitions(facts, question, &mut found);
    for live in files::live(facts) {
        nodes::check(facts, &live, &mut found);
        files::paths(facts, &live, &mut found);
    }
    gpus::driver(facts, question, &mut found);
    gpus::devices(facts, question, &mut found);
    gpus::names(facts, question, &mut found);
    found.into_findings()
}

/// Collects evidence by id and subject: fifty missing libraries of one file are one finding.
#[derive(Default)]
struct Found(BTreeMap<(CheckId, String), Vec<String>>);

impl Found {
    fn add(&mut self, id: CheckId, subject: impl Into<String>, evidence: impl Into<String>) {
        let list = self.0.entry((id, subject.into())).or_default();
        let evidence = evidence.into();
        if !list.contains(&evidence) {
            list.push(evidence);
        }
    }

    fn add_file(&mut self, id: CheckId, file: &Path, evidence: impl Into<String>) {
        self.add(id, file.display().to_string(), evidence);
    }

    fn into_findings(self) -> Vec<Finding> {
        let mut findings: Vec<_> = self
            .0
            .into_iter()
            .map(|((id, subject), evidence)| Finding {
                id: id.as_str(),
                severity: id.severity(),
                subject,
                evidence,
                remedy: id.remedy().to_owned(),
            })
            .collect();
        findings
            .sort_by(|a, b| (a.severity, a.id, &a.subject).cmp(&(b.severity, b.id, &b.subject)));
        findings
    }
}
