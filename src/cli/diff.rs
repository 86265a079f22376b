//! `cdi-gen diff`: what `generate` would change now, or what differs between two files.

use std::path::{Path, PathBuf};

use anyhow::Context;
use cdi::Spec;
use clap::Args;
use serde::Serialize;

use super::exit::Exit;
use super::generate::{GenerateArgs, usage};
use super::output::{VERSION, ViewArgs, exit_if};
use super::table::Table;
use crate::spec::diff::{Change, Difference, diff};

/// Arguments of `cdi-gen diff`.
///
/// It takes the flags of `generate`, so that it compares with what the same call of that would
/// write; the form of the answer has the name that it has in other queries.
#[derive(Debug, Clone, Args)]
#[command(
    mut_arg("output", |arg| arg.short(None).long("spec-output").hide(true)),
    mut_arg("dry_run", |arg| arg.hide(true)),
    mut_arg("print_manifest", |arg| arg.hide(true)),
    mut_arg("report", |arg| arg.hide(true)),
    mut_arg("diff", |arg| arg.hide(true))
)]
pub struct DiffArgs {
    /// The old spec; by default the file that `generate` would write
    #[arg(value_name = "OLD")]
    pub old: Option<PathBuf>,
    /// The new spec; by default what `generate` would write now
    #[arg(value_name = "NEW")]
    pub new: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub view: ViewArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub generate: GenerateArgs,
}

/// The answer of `diff` and of `generate --diff`.
#[derive(Serialize)]
pub(super) struct Answer {
    version: u32,
    pub(super) old: String,
    pub(super) new: String,
    pub(super) equal: bool,
    pub(super) differences: Vec<Difference>,
}

impl DiffArgs {
    /// Runs the command.
    pub fn exec(&self) -> anyhow::Result<Exit> {
        let answer = match (&self.old, &self.new) {
            (Some(old), Some(new)) => Answer::of(
                (&old.display().to_string(), Some(&load(old)?)),
                (&new.display().to_string(), &load(new)?),
            ),
            (old, _) => {
                if let Some(problem) = self.generate.device_id_problem() {
                    return Ok(usage(&problem));
                }
                let new = self.generate.now()?;
                match old {
                    Some(old) => {
                        Answer::of((&old.display().to_string(), Some(&load(old)?)), (NOW, &new))
                    }
                    None => self.generate.against_target(&new)?,
                }
            }
        };
        self.view.print(&answer, table)?;
        Ok(exit_if(!answer.equal))
    }
}

/// How the spec of this moment is called.
const NOW: &str = "this host now";

impl GenerateArgs {
    /// The spec of this moment.
    pub(super) fn now(&self) -> anyhow::Result<Spec> {
        Ok(self.make(&self.build_options()?)?.spec)
    }

    /// Compares with the file that `generate` would write; without `--output`, as root's would be.
    pub(super) fn against_target(&self, new: &Spec) -> anyhow::Result<Answer> {
        let path = self.target_file()?;
        let name = path.display().to_string();
        let old = match Spec::from_file(&path) {
            Ok(spec) => Some(spec),
            Err(cdi::LoadError::Read { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                None
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Answer::of((&name, old.as_ref()), (NOW, new)))
    }
}

impl Answer {
    fn of((old_name, old): (&str, Option<&Spec>), (new_name, new): (&str, &Spec)) -> Self {
        let differences = match old {
            Some(old) => diff(old, new),
            None => vec![Difference {
                place: "the file".into(),
                change: Change::Added,
                old: None,
                new: Some(format!("{} devices", new.devices.len())),
            }],
        };
        Self {
            version: VERSION,
            old: old_name.to_owned(),
            new: new_name.to_owned(),
            equal: differences.is_empty(),
            differences,
        }
    }
}

fn load(path: &Path) -> anyhow::Result<Spec> {
    Spec::from_file(path).context("can't compare")
}

pub(super) fn table(answer: &Answer) -> String {
    let mut table = Table::new(&["CHANGE", "PLACE"]);
    for difference in &answer.differences {
        let change = match difference.change {
            Change::Added => "added",
            Change::Removed => "removed",
            Change::Changed => "changed",
        };
        table.row([change, &difference.place]);
        if let Some(old) = &difference.old {
            table.note(&format!("- {old}"));
        }
        if let Some(new) = &difference.new {
            table.note(&format!("+ {new}"));
        }
    }
    table.render()
}
