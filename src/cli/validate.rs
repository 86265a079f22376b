//! `cdi-gen validate`: whether readers load these files, and whether a careful writer would have
//! written them. Looks at no host.

use std::path::{Path, PathBuf};

use anyhow::Context;
use cdi::{LoadError, Registry, ResolveError, Spec, Violation};
use clap::Args;
use clap::builder::FalseyValueParser;
use serde::Serialize;

use super::exit::Exit;
use super::findings;
use super::output::{VERSION, ViewArgs};
use crate::spec::{Finding, Severity};

const MEND: &str =
    "mend the member, or write the file again with cdi-gen generate; runtimes skip the whole file";
const IMPROVE: &str =
    "mend the member: runtimes built on some CDI libraries refuse it or take it otherwise";

/// Arguments of `cdi-gen validate`.
#[derive(Debug, Clone, Args)]
pub struct ValidateArgs {
    /// Spec files, or directories of them
    #[arg(value_name = "FILE|DIR", required = true)]
    pub paths: Vec<PathBuf>,
    /// Also what a careful writer keeps and readers don't ask for: absolute paths, legal annotation
    /// keys, no empty member
    #[arg(long, env = "CDI_GEN_STRICT", value_parser = FalseyValueParser::new())]
    pub strict: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub view: ViewArgs,
}

#[derive(Serialize)]
struct Answer {
    version: u32,
    level: &'static str,
    files: Vec<Judged>,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct Judged {
    file: PathBuf,
    valid: bool,
}

impl ValidateArgs {
    /// Runs the command. A file that can't be read makes exit code 3, after all others are judged.
    pub fn exec(&self) -> anyhow::Result<Exit> {
        let mut answer = Answer {
            version: VERSION,
            level: if self.strict { "writers" } else { "readers" },
            files: Vec::new(),
            findings: Vec::new(),
        };
        let mut unreadable = false;
        for path in &self.paths {
            if path.is_dir() {
                let files = list(path)?;
                if files.is_empty() {
                    tracing::warn!("{} holds no .yaml or .json file", path.display());
                }
                for file in files {
                    unreadable |= !self.judge(&file, &mut answer);
                }
                conflicts(path, &mut answer.findings);
            } else {
                unreadable |= !self.judge(path, &mut answer);
            }
        }
        self.view.print(&answer, table)?;
        Ok(match (unreadable, answer.findings.is_empty()) {
            (true, _) => Exit::Failure,
            (_, false) => Exit::Findings,
            _ => Exit::Done,
        })
    }

    /// False when the file can't be read at all.
    fn judge(&self, path: &Path, answer: &mut Answer) -> bool {
        let before = answer.findings.len();
        let mut readable = true;
        match Spec::from_file(path) {
            Ok(spec) => {
                let readers = violations(spec.validate());
                let all = if self.strict {
                    violations(spec.validate_for_writing())
                } else {
                    readers.clone()
                };
                answer.findings.extend(all.iter().map(|violation| {
                    let severe = readers.contains(violation);
                    Finding {
                        id: violation.rule.id(),
                        severity: if severe {
                            Severity::Error
                        } else {
                            Severity::Warning
                        },
                        subject: path.display().to_string(),
                        evidence: vec![violation.to_string()],
                        remedy: if severe { MEND } else { IMPROVE }.into(),
                    }
                }));
            }
            Err(error) => {
                let id = match &error {
                    LoadError::Parse { .. } | LoadError::Encoding { .. } => "malformed",
                    LoadError::Extension { .. } => "extension",
                    _ => {
                        readable = false;
                        "unreadable"
                    }
                };
                answer.findings.push(Finding {
                    id,
                    severity: Severity::Error,
                    subject: path.display().to_string(),
                    evidence: vec![error.to_string()],
                    remedy: MEND.into(),
                });
            }
        }
        answer.files.push(Judged {
            file: path.to_owned(),
            valid: answer.findings.len() == before,
        });
        readable
    }
}

fn violations(result: Result<(), cdi::Violations>) -> Vec<Violation> {
    result
        .err()
        .map(cdi::Violations::into_vec)
        .unwrap_or_default()
}

fn list(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let failed = || format!("can't list {}", dir.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        if cdi::Format::from_path(&path).is_some() && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Each file may be valid, and the directory not: a device that two of its files define is gone.
fn conflicts(dir: &Path, found: &mut Vec<Finding>) {
    for conflict in Registry::load(&[dir.to_owned()]).conflicts() {
        if let ResolveError::Conflict { name, files } = conflict {
            found.push(Finding {
                id: "device-conflict",
                severity: Severity::Error,
                subject: name.to_string(),
                evidence: files
                    .iter()
                    .map(|file| format!("defined by {}", file.display()))
                    .collect(),
                remedy: "remove all but one of the files: runtimes drop the device altogether"
                    .into(),
            });
        }
    }
}

fn table(answer: &Answer) -> String {
    let valid = answer.files.iter().filter(|file| file.valid).count();
    format!(
        "{}{valid} of {} valid for {}\n",
        findings::table(&answer.findings),
        findings::counted(answer.files.len(), "file"),
        answer.level
    )
}
