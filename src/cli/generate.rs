//! `cdi-gen generate`: writes the spec of this host's GPUs.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use cdi::{Format, Kind, Outcome};
use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};

use super::exit::Exit;
use super::hook::HookFlags;
use super::{RootArgs, absolute};
use crate::gpu::Inventory;
use crate::spec::{
    BuildOptions, Generated, NameStrategy, RefreshOptions, SpecError, generate, refresh,
};

/// Where a dynamic spec belongs: it is gone at boot, when its facts are.
const CDI_DIR: &str = "/var/run/cdi";

/// Arguments of `cdi-gen generate`.
#[derive(Debug, Clone, Args)]
pub struct GenerateArgs {
    /// File to write, `-` for stdout; by default `<vendor>-<class>.yaml` in the CDI directory for
    /// root, and stdout for others
    #[arg(short, long, value_name = "FILE", env = "CDI_GEN_OUTPUT")]
    pub output: Option<OsString>,
    /// Encoding; by default that of the output's extension, else yaml
    #[arg(long, value_enum, env = "CDI_GEN_FORMAT")]
    pub format: Option<FormatArg>,
    /// Directory of the default output; `/var/run/cdi` by default
    #[arg(long, value_name = "DIR", env = "CDI_GEN_CDI_DIR", value_parser = absolute)]
    pub cdi_dir: Option<PathBuf>,
    /// What devices are called (repeatable)
    #[arg(
        long,
        value_enum,
        value_name = "STRATEGY",
        env = "CDI_GEN_DEVICE_NAME_STRATEGY",
        value_delimiter = ',',
        default_value = "uuid"
    )]
    pub device_name_strategy: Vec<StrategyArg>,
    /// Add a device `all` with every GPU
    #[arg(
        long,
        env = "CDI_GEN_ALL_DEVICE",
        overrides_with = "no_all_device",
        value_parser = FalseyValueParser::new()
    )]
    pub all_device: bool,
    /// No device `all`; this is the default
    #[arg(long, overrides_with = "all_device")]
    pub no_all_device: bool,
    /// Vendor part of the kind
    #[arg(long, env = "CDI_GEN_VENDOR", default_value = "nvidia.com", value_parser = vendor)]
    pub vendor: String,
    /// Class part of the kind
    #[arg(long, env = "CDI_GEN_CLASS", default_value = "gpu", value_parser = class)]
    pub class: String,
    /// The driver root as the container runtime on the host sees it; by default the driver root
    #[arg(long, value_name = "DIR", env = "CDI_GEN_HOST_DRIVER_ROOT", value_parser = absolute_text)]
    pub host_driver_root: Option<String>,
    /// The dev root as the container runtime on the host sees it; by default the host driver root
    /// when both roots are one, else the dev root
    #[arg(long, value_name = "DIR", env = "CDI_GEN_HOST_DEV_ROOT", value_parser = absolute_text)]
    pub host_dev_root: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub hooks: HookFlags,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub roots: RootArgs,
}

/// `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// YAML
    Yaml,
    /// JSON
    Json,
}

/// `--device-name-strategy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StrategyArg {
    /// `GPU-<uuid>`
    Uuid,
    /// `0`
    Index,
    /// `gpu0`
    TypeIndex,
}

impl From<FormatArg> for Format {
    fn from(arg: FormatArg) -> Self {
        match arg {
            FormatArg::Yaml => Self::Yaml,
            FormatArg::Json => Self::Json,
        }
    }
}

impl From<StrategyArg> for NameStrategy {
    fn from(arg: StrategyArg) -> Self {
        match arg {
            StrategyArg::Uuid => Self::Uuid,
            StrategyArg::Index => Self::Index,
            StrategyArg::TypeIndex => Self::TypeIndex,
        }
    }
}

/// Where the spec goes.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Stdout(Format),
    File(PathBuf, Format),
}

impl GenerateArgs {
    /// Runs the command. An error has exit code 3 or, without a driver or GPU, 4:
    /// [`exit_of`] tells which.
    pub fn exec(&self) -> anyhow::Result<Exit> {
        let build = self.build_options()?;
        let is_root = rustix::process::geteuid().is_root();
        let inventory = match self.target(&build.kind, is_root) {
            Target::Stdout(format) => {
                let Generated { inventory, spec } =
                    generate(&self.roots.roots(), &self.roots.nvml(), &build)?;
                print(&spec.emit(format))?;
                inventory
            }
            Target::File(output, format) => {
                let refreshed = refresh(&RefreshOptions {
                    roots: self.roots.roots(),
                    nvml: self.roots.nvml(),
                    build,
                    output: output.clone(),
                    format,
                })?;
                let did = match refreshed.outcome {
                    Outcome::Written => "written",
                    Outcome::Unchanged => "already up to date",
                };
                tracing::info!(
                    devices = refreshed.spec.devices.len(),
                    "{} {did}",
                    output.display()
                );
                refreshed.inventory
            }
        };
        Ok(report(&inventory))
    }

    fn build_options(&self) -> anyhow::Result<BuildOptions> {
        let kind = Kind::new(&self.vendor, &self.class).context("--vendor and --class")?;
        let text = |path: &Path| {
            let text = path.to_str().map(str::to_owned);
            text.with_context(|| format!("{} is no UTF-8 text", path.display()))
        };
        let roots = self.roots.roots();
        let host_driver_root = match &self.host_driver_root {
            Some(root) => root.clone(),
            None => text(&roots.driver)?,
        };
        let host_dev_root = match &self.host_dev_root {
            Some(root) => root.clone(),
            None if roots.dev == roots.driver => host_driver_root.clone(),
            None => text(&roots.dev)?,
        };
        Ok(BuildOptions {
            names: self
                .device_name_strategy
                .iter()
                .map(|s| (*s).into())
                .collect(),
            all_device: self.all_device,
            hooks: self.hooks.mode(text(&roots.driver)? != host_driver_root)?,
            host_driver_root,
            host_dev_root,
            ..BuildOptions::new(kind)
        })
    }

    fn target(&self, kind: &Kind, is_root: bool) -> Target {
        let asked = self.format.map(Format::from);
        match &self.output {
            Some(output) if output.is_empty() || output == "-" => {
                Target::Stdout(asked.unwrap_or_default())
            }
            Some(output) => {
                let path = PathBuf::from(output);
                match (Format::from_path(&path), asked) {
                    (Some(format), Some(asked)) if format != asked => {
                        tracing::warn!(
                            "{} is written as {}, by its extension: readers go by that, not by --format",
                            path.display(),
                            format.extension()
                        );
                        Target::File(path, format)
                    }
                    (Some(format), _) => Target::File(path, format),
                    (None, asked) => {
                        let format = asked.unwrap_or_default();
                        let mut named = output.clone();
                        named.push(".");
                        named.push(format.extension());
                        tracing::warn!(
                            "readers ignore {}; .{} is appended",
                            path.display(),
                            format.extension()
                        );
                        Target::File(named.into(), format)
                    }
                }
            }
            None if is_root || self.cdi_dir.is_some() => {
                let format = asked.unwrap_or_default();
                let dir = self.cdi_dir.as_deref().unwrap_or(Path::new(CDI_DIR));
                Target::File(dir.join(cdi::file_name::default_name(kind, format)), format)
            }
            None => Target::Stdout(asked.unwrap_or_default()),
        }
    }
}

/// The exit code of an error of [`GenerateArgs::exec`].
pub fn exit_of(error: &anyhow::Error) -> Exit {
    match error.downcast_ref::<SpecError>() {
        Some(error) if error.is_absence() => Exit::NoDriver,
        _ => Exit::Failure,
    }
}

/// Names what was left out.
fn report(inventory: &Inventory) -> Exit {
    for fault in &inventory.faults {
        tracing::warn!("{fault}");
    }
    if inventory.faults.is_empty() {
        Exit::Done
    } else {
        Exit::Findings
    }
}

/// A reader that closes early (`head`) has what it wants.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("can't write to stdout"),
    }
}

fn vendor(text: &str) -> Result<String, String> {
    let kind = Kind::new(text, "gpu").map_err(|error| error.to_string())?;
    Ok(kind.vendor().to_owned())
}

fn class(text: &str) -> Result<String, String> {
    let kind = Kind::new("nvidia.com", text).map_err(|error| error.to_string())?;
    Ok(kind.class().to_owned())
}

fn absolute_text(text: &str) -> Result<String, String> {
    absolute(text).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: GenerateArgs,
    }

    fn args(flags: &[&str]) -> GenerateArgs {
        Cli::parse_from(std::iter::once(&"x").chain(flags)).args
    }

    fn target(flags: &[&str], is_root: bool) -> Target {
        let kind = Kind::new("nvidia.com", "gpu").unwrap();
        args(flags).target(&kind, is_root)
    }

    #[test]
    fn the_output_and_its_format_follow_from_the_flags() {
        let file = |path: &str, format| Target::File(path.into(), format);
        for (flags, is_root, expected) in [
            (&[][..], false, Target::Stdout(Format::Yaml)),
            (
                &[],
                true,
                file("/var/run/cdi/nvidia.com-gpu.yaml", Format::Yaml),
            ),
            (
                &["--format=json"],
                true,
                file("/var/run/cdi/nvidia.com-gpu.json", Format::Json),
            ),
            (
                &["--cdi-dir=/c"],
                false,
                file("/c/nvidia.com-gpu.yaml", Format::Yaml),
            ),
            (
                &["-o", "-", "--format=json"],
                true,
                Target::Stdout(Format::Json),
            ),
            (&["--output="], true, Target::Stdout(Format::Yaml)),
            (&["-o", "x.json"], true, file("x.json", Format::Json)),
            (
                &["-o", "x.json", "--format=yaml"],
                true,
                file("x.json", Format::Json),
            ),
            (&["-o", "x.yml"], true, file("x.yml.yaml", Format::Yaml)),
            (
                &["-o", "x", "--format=json"],
                true,
                file("x.json", Format::Json),
            ),
        ] {
            assert_eq!(target(flags, is_root), expected, "{flags:?} {is_root}");
        }
    }

    #[test]
    fn the_dev_root_follows_the_driver_root_on_both_sides() {
        let moved = args(&["--driver-root=/d", "--host-driver-root=/h"]);
        assert_eq!(moved.roots.roots().dev, Path::new("/d"));
        let options = moved.build_options().unwrap();
        assert_eq!(
            (
                options.host_driver_root.as_str(),
                options.host_dev_root.as_str()
            ),
            ("/h", "/h")
        );
        let apart = args(&["--driver-root=/d", "--dev-root=/"])
            .build_options()
            .unwrap();
        assert_eq!(
            (
                apart.host_driver_root.as_str(),
                apart.host_dev_root.as_str()
            ),
            ("/d", "/")
        );
    }

    #[test]
    fn what_makes_no_sense_is_a_usage_error() {
        for flags in [
            ["--vendor=x"],
            ["--class=a/b"],
            ["--driver-root=relative"],
            ["--device-name-strategy=name"],
            ["--format=toml"],
        ] {
            let parsed = Cli::try_parse_from(std::iter::once(&"x").chain(&flags));
            assert_eq!(parsed.err().map(|e| e.exit_code()), Some(2), "{flags:?}");
        }
    }
}
