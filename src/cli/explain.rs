//! `cdi-gen explain`: which file gives a device, what a runtime does with it, or why there is none.

use std::path::PathBuf;

use cdi::Registry;
use clap::Args;
use serde::Serialize;

use super::exit::Exit;
use super::output::{CdiDirArgs, VERSION, ViewArgs, exit_if};
use super::table::{Table, clean};
use crate::spec::explain::{Explanation, Level, explain};

/// Arguments of `cdi-gen explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// Device, such as nvidia.com/gpu=GPU-4cf8db2d-…
    #[arg(value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub dirs: CdiDirArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub view: ViewArgs,
}

#[derive(Serialize)]
struct Answer {
    version: u32,
    directories: Vec<PathBuf>,
    resolves: bool,
    #[serde(flatten)]
    explanation: Explanation,
}

impl ExplainArgs {
    /// Runs the command.
    pub fn exec(&self) -> anyhow::Result<Exit> {
        let explanation = explain(&Registry::load(&self.dirs.cdi_dirs), &self.name);
        let answer = Answer {
            version: VERSION,
            directories: self.dirs.cdi_dirs.clone(),
            resolves: explanation.resolves(),
            explanation,
        };
        self.view.print(&answer, table)?;
        Ok(exit_if(!answer.resolves))
    }
}

fn table(answer: &Answer) -> String {
    let Explanation {
        name,
        file,
        reason,
        edits,
        shadowed,
        instead,
        notes,
    } = &answer.explanation;
    let mut lines = Vec::new();
    match (file, reason) {
        (Some(file), _) => lines.push(format!("{name} comes from {}", file.display())),
        (None, reason) => {
            lines.push(format!("{name} gives no device"));
            lines.extend(reason.clone());
            let dirs = answer.directories.iter();
            let dirs: Vec<_> = dirs.map(|dir| dir.display().to_string()).collect();
            lines.push(format!("looked into: {}", dirs.join(", ")));
        }
    }
    for loser in shadowed {
        lines.push(format!(
            "without effect: {}, of lower priority, {}",
            loser.file.display(),
            if loser.same {
                "with the same content"
            } else {
                "with other content"
            }
        ));
    }
    if !instead.is_empty() {
        lines.push(format!("there is: {}", instead.join(", ")));
    }
    lines.extend(notes.iter().map(|note| format!("note: {note}")));
    let mut text: String = lines.iter().map(|line| clean(line) + "\n").collect();
    let mut table = Table::new(&["EDIT", "OF", "TARGET", "DETAIL"]);
    for edit in edits {
        let level = match edit.level {
            Level::File => "file",
            Level::Device => "device",
        };
        table.row([edit.what, level, &edit.target, &edit.detail]);
    }
    if !table.is_empty() {
        text.push('\n');
        text.push_str(&table.render());
    }
    text
}
