//! `cdi-gen man`: the manual pages, made of the same text as `--help`.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};

use super::exit::Exit;
use super::output::print;

/// Arguments of `cdi-gen man`.
#[derive(Debug, Clone, Args)]
pub struct ManArgs {
    /// Write a page for the program and one for each command into this directory, instead of the
    /// program's page to stdout
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

impl ManArgs {
    /// Renders the pages of the whole program.
    pub fn exec(&self, program: Command) -> anyhow::Result<Exit> {
        if let Some(dir) = &self.dir {
            let failed = || format!("can't write manual pages to {}", dir.display());
            std::fs::create_dir_all(dir).with_context(failed)?;
            clap_mangen::generate_to(program, dir).with_context(failed)?;
        } else {
            let mut page = Vec::new();
            clap_mangen::Man::new(program)
                .render(&mut page)
                .context("can't render the manual page")?;
            print(&String::from_utf8_lossy(&page))?;
        }
        Ok(Exit::Done)
    }
}
