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
    /// How containers find the libraries; by default `one`, and `none` where this program's path on
    /// the host is not known because the driver root was moved
    #[arg(long, value_enum, env = "CDI_GEN_HOOKS")]
    pub hooks: Option<HooksArg>,
    /// Where the container runtime finds cdi-gen on the host; by default where this one is
    #[arg(long, value_name = "FILE", env = "CDI_GEN_HOOK_PATH", value_parser = absolute)]
    pub hook_path: Option<PathBuf>,
    /// Directory in containers where the loader looks, for specs without a hook (repeatable); by
    /// default those of the usual distributions
    #[arg(
        long,
        value_name = "DIR",
        env = "CDI_GEN_CONTAINER_LIBRARY_DIR",
        value_delimiter = ',',
        value_parser = absolute
    )]
    pub container_library_dir: Vec<PathBuf>,
}

impl HookFlags {
    /// What the flags mean, on a host (`moved`: as seen from a container on it).
    pub fn mode(&self, moved: bool) -> anyhow::Result<HookMode> {
        let text = |path: &Path| {
            let text = path.to_str().map(str::to_owned);
            text.with_context(|| format!("{} is no UTF-8 text", path.display()))
        };
        let known = self.hook_path.is_some() || !moved;
        let asked = self.hooks.unwrap_or(
            // Someone who names directories has no use for a hook.
            if known && self.container_library_dir.is_empty() {
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
                "the driver root is elsewhere on the host, so cdi-gen may be too: say where with --hook-path, or use --hooks none"
            ),
            (HooksArg::None, _) if self.container_library_dir.is_empty() => Ok(HookMode::None {
                loader_dirs: LOADER_DIRS.map(Into::into).to_vec(),
            }),
            (HooksArg::None, _) => {
                let dirs = self.container_library_dir.iter().map(|dir| text(dir));
                Ok(HookMode::None {
                    loader_dirs: dirs.collect::<Result<_, _>>()?,
                })
            }
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
