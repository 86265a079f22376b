//! Arguments and output of the programs, one file a command.
//!
//! Owns the flags, their environment variables and the exit codes. Decides nothing about GPUs:
//! each command turns arguments into options, calls the library, and prints.

pub mod check;
pub mod completions;
pub mod content;
pub mod diff;
pub mod exit;
pub mod explain;
mod findings;
pub mod generate;
mod heap;
pub mod hook;
pub mod list;
mod make;
pub mod man;
pub mod output;
pub mod preview;
pub mod ready;
pub mod report;
pub mod run;
mod table;
pub mod validate;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clap::builder::FalseyValueParser;
use clap::{ArgAction, Args};
use tracing::level_filters::LevelFilter;

use crate::driver::Preset;
use crate::gpu::NvmlLibrary;
use crate::host::Roots;

/// Where the host is: shared by all commands that look at it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Host")]
pub struct RootArgs {
    /// Root directory of the driver's files; `/` by default
    #[arg(long, value_name = "DIR", env = "CDI_GEN_DRIVER_ROOT", value_parser = absolute)]
    pub driver_root: Option<PathBuf>,
    /// Directory that contains `dev`; by default the driver root
    #[arg(long, value_name = "DIR", env = "CDI_GEN_DEV_ROOT", value_parser = absolute)]
    pub dev_root: Option<PathBuf>,
    /// Where sysfs is
    #[arg(long, value_name = "DIR", env = "CDI_GEN_SYS_ROOT", default_value = "/sys", value_parser = absolute)]
    pub sys_root: PathBuf,
    /// Where the procfs of the host's pid namespace is
    #[arg(long, value_name = "DIR", env = "CDI_GEN_PROC_ROOT", default_value = "/proc", value_parser = absolute)]
    pub proc_root: PathBuf,
    /// NVML library to load; by default libnvidia-ml.so.1 below the driver root, else the loader's
    #[arg(long, value_name = "FILE", env = "CDI_GEN_NVML_LIBRARY", value_parser = absolute)]
    pub nvml_library: Option<PathBuf>,
    /// Directory, inside the driver root, to search for libraries instead of the usual ones
    /// (repeatable)
    #[arg(
        long,
        value_name = "DIR",
        env = "CDI_GEN_LIBRARY_SEARCH_PATH",
        value_delimiter = ',',
        value_parser = absolute
    )]
    pub library_search_path: Vec<PathBuf>,
}

impl RootArgs {
    /// The roots that the library takes: flags, then the preset.
    fn roots_with(&self, preset: Option<&Preset>) -> Roots {
        let preset_root = preset.and_then(|preset| preset.driver_root.clone());
        let own = self.driver_root.clone();
        // A driver root that was named has its own nodes, unless somebody says otherwise.
        let preset_dev = preset
            .and_then(|preset| preset.dev_root.clone())
            .filter(|_| own.is_none());
        let driver = own.or(preset_root).unwrap_or_else(|| "/".into());
        Roots {
            dev: self
                .dev_root
                .clone()
                .or(preset_dev)
                .unwrap_or_else(|| driver.clone()),
            driver,
            sys: self.sys_root.clone(),
            proc: self.proc_root.clone(),
            ..Roots::default()
        }
    }

    /// Which NVML library. Its search directories, of flags and then of the preset, hold for the
    /// driver's files too. With 32-bit libraries wanted, a preset's directories of those come
    /// through the manifest.
    fn nvml_with(&self, preset: Option<&Preset>) -> NvmlLibrary {
        let named = self.library_search_path.clone();
        NvmlLibrary {
            path: self.nvml_library.clone(),
            search: match preset {
                Some(preset) if named.is_empty() => preset.library_dirs().to_vec(),
                _ => named,
            },
        }
    }
}

/// How much is said on stderr.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Logging")]
pub struct LogArgs {
    /// Say more; twice for all
    #[arg(short, long, global = true, action = ArgAction::Count, env = "CDI_GEN_VERBOSE")]
    pub verbose: u8,
    /// Say nothing but errors
    #[arg(
        long,
        global = true,
        env = "CDI_GEN_QUIET",
        conflicts_with = "verbose",
        value_parser = FalseyValueParser::new()
    )]
    pub quiet: bool,
}

impl LogArgs {
    /// Sends logs to stderr; stdout is for data. Does nothing when a subscriber is set already.
    pub fn init(self) {
        let level = match (self.quiet, self.verbose) {
            (true, _) => LevelFilter::ERROR,
            (false, 0) => LevelFilter::INFO,
            (false, 1) => LevelFilter::DEBUG,
            (false, _) => LevelFilter::TRACE,
        };
        let _ = tracing_subscriber::fmt()
            .with_writer(io::stderr)
            .with_ansi(io::stderr().is_terminal())
            .with_max_level(level)
            .with_target(false)
            .without_time()
            .try_init();
    }
}

/// A path below which others are looked up: one that changes with the working directory would
/// make another spec under systemd than in a shell.
fn absolute(text: &str) -> Result<PathBuf, String> {
    if Path::new(text).is_absolute() {
        Ok(text.into())
    } else {
        Err("must be an absolute path".into())
    }
}
