//! What queries print: a table for people, or one document for programs.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::exit::Exit;

/// Of every document; it changes when a field changes its meaning or goes.
pub(super) const VERSION: u32 = 1;

/// `--output` of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum View {
    /// For people
    #[default]
    Table,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

/// How a query answers.
#[derive(Debug, Clone, Copy, Args)]
pub struct ViewArgs {
    /// Form of the answer
    #[arg(
        id = "view",
        short = 'o',
        long = "output",
        value_enum,
        value_name = "FORMAT",
        env = "CDI_GEN_VIEW",
        default_value_t
    )]
    pub view: View,
}

/// Which directories are read.
#[derive(Debug, Clone, Args)]
pub struct CdiDirArgs {
    /// Directory that runtimes read CDI specs from, lowest priority first (repeatable)
    #[arg(
        id = "cdi_dirs",
        long = "cdi-dir",
        value_name = "DIR",
        env = "CDI_GEN_CDI_DIRS",
        value_delimiter = ',',
        default_values = cdi::DEFAULT_DIRS
    )]
    pub cdi_dirs: Vec<PathBuf>,
}

impl ViewArgs {
    /// Prints the answer in the form that was asked for.
    pub(super) fn print<T: Serialize>(
        self,
        answer: &T,
        table: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        let text = match self.view {
            View::Table => table(answer),
            View::Json => {
                let text = serde_json::to_string_pretty(answer);
                text.context("the answer can't be written as JSON")? + "\n"
            }
            View::Yaml => {
                serde_yaml::to_string(answer).context("the answer can't be written as YAML")?
            }
        };
        print(&text)
    }
}

/// A reader that closes early (`head`) has what it wants.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("can't write to stdout"),
    }
}

/// The exit code of a question with the answer yes or no.
pub(super) fn exit_if(negative: bool) -> Exit {
    if negative { Exit::Findings } else { Exit::Done }
}
