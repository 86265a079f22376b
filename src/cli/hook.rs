//! `cdi-gen hook`, which container runtimes run for a spec that names it, and the flags by which
//! `generate` writes such a spec.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use super::absolute;
use super::exit::Exit;
use crate::hook::{Container, Request, run};
use crate::spec::{HookMode, LOADER_DIRS};

/// `--hooks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HooksArg {
    /// One hook process a container start: links and the loader's cache
    One,
    /// No hook: mounts alone
    None,
}

/// The flags of `cdi-gen generate` which choose how containers find the libraries.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Hooks")]
pub struct HookFlags {
    /// How containers find the libraries; by default `one`, and `none` with a preset, with
    /// --container-library-dir, and where this program's path on the host is not known because the
    /// driver root was moved
    #[arg(long, value_enum, env = "CDI_GEN_HOOKS")]
    pub hooks: Option<HooksArg>,
    /// Where the container runtime finds cdi-gen on the host; by default where this one is
    #[arg(
        long,
        alias = "nvidia-cdi-hook-path",
        value_name = "FILE",
        env = "CDI_GEN_HOOK_PATH",
        value_parser = absolute
    )]
    pub hook_path: Option<PathBuf>,
}

/// What other flags say that matters to hooks.
#[derive(Debug, Clone, Copy)]
pub struct HookContext {
    /// This program is where the host has it.
    pub is_host: bool,
    /// Somebody chose the directory of the libraries in the container.
    pub is_placed: bool,
}

impl HookFlags {
    /// What the flags mean.
    pub fn mode(&self, context: HookContext) -> anyhow::Result<HookMode> {
        let text = |path: &Path| {
            let text = path.to_str().map(str::to_owned);
            text.with_context(|| format!("{} is no UTF-8 text", path.display()))
        };
        let known = self.hook_path.is_some() || context.is_host;
        let asked = self.hooks.unwrap_or(
            // Someone who names the directory has no use for a hook.
            if known && !context.is_placed {
                HooksArg::One
            } else {
                HooksArg::None
            },
        );
        match (asked, &self.hook_path) {
            (HooksArg::One, Some(path)) => Ok(HookMode::One {
                program: text(path)?,
            }),
            (HooksArg::One, None) if known => {
                let own = std::env::current_exe().context("can't tell where this program is")?;
                Ok(HookMode::One {
                    program: text(&own)?,
                })
            }
            (HooksArg::One, None) => bail!(
                "where the host has cdi-gen is not known, with a preset or a driver root that is elsewhere there: say so with --hook-path, or use --hooks none"
            ),
            // There, the libraries are under each of their names already.
            (HooksArg::None, _) if context.is_placed => Ok(HookMode::None {
                loader_dirs: Vec::new(),
            }),
            (HooksArg::None, _) => Ok(HookMode::None {
                loader_dirs: LOADER_DIRS.map(Into::into).to_vec(),
            }),
        }
    }
}

/// Arguments of `cdi-gen hook`.
#[derive(Debug, Clone, Args)]
pub struct HookArgs {
    /// `--link=TARGET::PATH`, `--library=PATH`, `--freeze-device-files`; others are passed over
    #[arg(
        value_name = "ARGUMENT",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub arguments: Vec<String>,
}

impl HookArgs {
    /// Runs the hook. Steps that are not possible in this container are named on stderr, one a
    /// line, and are no failure.
    pub fn exec(&self) -> anyhow::Result<Exit> {
        let request = Request::parse(&self.arguments)?;
        let state = io::stdin();
        if state.is_terminal() {
            bail!("a container runtime runs this, with the container's state on stdin");
        }
        for skipped in run(&request, &Container::read(state.lock())?)? {
            // The runtime may have closed it.
            let _ = writeln!(io::stderr(), "cdi-gen hook: {skipped}");
        }
        Ok(Exit::Done)
    }
}
