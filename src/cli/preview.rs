//! `cdi-gen generate --dry-run` and `--diff`: everything but the writing.

use std::fs;

use clap::Args;
use clap::builder::FalseyValueParser;

use super::diff::table;
use super::exit::Exit;
use super::generate::{GenerateArgs, Target};
use super::output::{exit_if, print};

/// The two ways of not writing.
#[derive(Debug, Clone, Copy, Args)]
pub struct PreviewArgs {
    /// Do everything but write the file, and say what would happen to it
    #[arg(long, env = "CDI_GEN_DRY_RUN", value_parser = FalseyValueParser::new())]
    pub dry_run: bool,
    /// Write nothing, and print what would change in the file; exit code 1 when something would
    #[arg(long, env = "CDI_GEN_DIFF", value_parser = FalseyValueParser::new())]
    pub diff: bool,
}

impl PreviewArgs {
    pub(super) fn is_asked(self) -> bool {
        self.dry_run || self.diff
    }
}

impl GenerateArgs {
    /// Runs the command without touching a file. Errors and exit codes are those of the real run;
    /// with `--diff`, a difference is exit code 1 too.
    pub(super) fn look(&self) -> anyhow::Result<Exit> {
        let build = self.build_options()?;
        let made = self.make(&build)?;
        let mut exit = made.exit(&build.devices);
        if self.preview.diff {
            let answer = self.against_target(&made.spec)?;
            tracing::info!("- {}, + {}", answer.old, answer.new);
            print(&table(&answer))?;
            if !answer.equal {
                exit = exit_if(true);
            }
            return Ok(exit);
        }
        match self.own_target(&build.kind) {
            Target::Stdout(format) => print(&made.spec.emit(format))?,
            Target::File(path, format) => {
                let is_equal =
                    fs::read_to_string(&path).is_ok_and(|old| old == made.spec.emit(format));
                let outcome = if is_equal {
                    "already up to date"
                } else {
                    "would be written"
                };
                tracing::info!(
                    devices = made.spec.devices.len(),
                    "{} {}",
                    path.display(),
                    if is_equal { "is up to date" } else { outcome }
                );
                self.print_report(&made, (path.display().to_string(), outcome), exit)?;
            }
        }
        Ok(exit)
    }
}
