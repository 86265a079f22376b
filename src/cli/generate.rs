//! `cdi-gen generate`: writes the spec of this host's GPUs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use cdi::{Format, Kind, Outcome};
use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};

use super::content::ContentArgs;
use super::exit::Exit;
use super::hook::{HookContext, HookFlags};
use super::make::Made;
use super::output::print;
use super::preview::PreviewArgs;
use super::report::{Report, ReportArg};
use super::{RootArgs, absolute};
use crate::driver::Manifest;
use crate::gpu::Inventory;
use crate::spec::{BuildOptions, DeviceSelection, NameStrategy, SpecError};

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
    /// Vendor part of the kind; nvidia.com, or the mode's
    #[arg(long, alias = "cdi-vendor", env = "CDI_GEN_VENDOR", value_parser = vendor)]
    pub vendor: Option<String>,
    /// Class part of the kind; gpu, or the mode's
    #[arg(long, alias = "cdi-class", env = "CDI_GEN_CLASS", value_parser = class)]
    pub class: Option<String>,
    /// Say what was done and left out, with reasons, on stdout; the spec must go to a file then
    #[arg(long, value_enum, value_name = "FORMAT", env = "CDI_GEN_REPORT")]
    pub report: Option<ReportArg>,
    /// The driver root as the container runtime on the host sees it; by default the driver root
    #[arg(long, value_name = "DIR", env = "CDI_GEN_HOST_DRIVER_ROOT", value_parser = absolute_text)]
    pub host_driver_root: Option<String>,
    /// The dev root as the container runtime on the host sees it; by default the host driver root
    /// when both roots are one, else the dev root
    #[arg(long, value_name = "DIR", env = "CDI_GEN_HOST_DEV_ROOT", value_parser = absolute_text)]
    pub host_dev_root: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub content: ContentArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub hooks: HookFlags,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub preview: PreviewArgs,
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
pub(super) enum Target {
    Stdout(Format),
    File(PathBuf, Format),
}

impl GenerateArgs {
    /// Runs the command. An error has exit code 3 or, without a driver or GPU, 4:
    /// [`exit_of`] tells which.
    pub fn exec(&self) -> anyhow::Result<Exit> {
        if self.content.print_manifest {
            print(Manifest::builtin_text())?;
            return Ok(Exit::Done);
        }
        if let Some(problem) = self.contradiction() {
            return Ok(usage(&problem));
        }
        if self.preview.is_asked() {
            return self.look();
        }
        let build = self.build_options()?;
        let made = self.make(&build)?;
        let exit = made.exit(&build.devices);
        let done = match self.own_target(&build.kind) {
            Target::Stdout(format) => {
                print(&made.spec.emit(format))?;
                return Ok(exit);
            }
            Target::File(output, format) => {
                let did =
                    match cdi::write_spec(&output, &made.spec, format).map_err(SpecError::from)? {
                        Outcome::Written => "written",
                        Outcome::Unchanged => "already up to date",
                    };
                tracing::info!(
                    devices = made.spec.devices.len(),
                    "{} {did}",
                    output.display()
                );
                (output.display().to_string(), did)
            }
        };
        self.print_report(&made, done, exit)?;
        Ok(exit)
    }

    /// The report, where one was asked for; `done` is the file and what became of it.
    pub(super) fn print_report(
        &self,
        made: &Made,
        done: (String, &str),
        exit: Exit,
    ) -> anyhow::Result<()> {
        if self.report.is_none() {
            return Ok(());
        }
        let report = Report::new(&made.spec, made.inventory.as_ref(), &made.files, done, exit);
        let mut text = serde_json::to_string_pretty(&report).context("the report")?;
        text.push('\n');
        print(&text)
    }

    /// What clap can't know to be wrong.
    pub(super) fn contradiction(&self) -> Option<String> {
        if let Some(problem) = self.device_id_problem() {
            return Some(problem);
        }
        self.report?;
        if self.preview.diff {
            return Some("--report and --diff both need stdout: leave one out".into());
        }
        let kind = self.kind().ok()?;
        matches!(self.own_target(&kind), Target::Stdout(_)).then(|| {
            "--report needs stdout, so the spec must go to a file: name one with --output".into()
        })
    }

    /// What is wrong with `--device-id`, if anything.
    pub(super) fn device_id_problem(&self) -> Option<String> {
        let problem = DeviceSelection::parse(&self.content.device_id).err()?;
        Some(format!("--device-id: {problem}"))
    }

    /// Where this user's call puts the spec.
    pub(super) fn own_target(&self, kind: &Kind) -> Target {
        self.target(kind, rustix::process::geteuid().is_root())
    }

    pub(super) fn build_options(&self) -> anyhow::Result<BuildOptions> {
        let text = |path: &Path| {
            let text = path.to_str().map(str::to_owned);
            text.with_context(|| format!("{} is no UTF-8 text", path.display()))
        };
        let roots = self.roots();
        let preset = self.content.preset.as_ref();
        let host_driver_root = match &self.host_driver_root {
            Some(root) => root.clone(),
            None => match preset.and_then(|preset| preset.host_driver_root.clone()) {
                Some(root) => root,
                None => text(&roots.driver)?,
            },
        };
        let host_dev_root = match &self.host_dev_root {
            Some(root) => root.clone(),
            None if roots.dev == roots.driver => host_driver_root.clone(),
            None => text(&roots.dev)?,
        };
        let mut options = BuildOptions {
            names: self
                .device_name_strategy
                .iter()
                .map(|s| (*s).into())
                .collect(),
            all_device: self.all_device,
            hooks: self.hooks.mode(HookContext {
                is_host: text(&roots.driver)? == host_driver_root && preset.is_none(),
                is_placed: self.content.container_library_dir.is_some(),
            })?,
            host_driver_root,
            host_dev_root,
            ..BuildOptions::new(self.kind()?)
        };
        self.content.apply(&mut options)?;
        Ok(options)
    }

    /// The file to compare with: what root would write, where a user would get stdout.
    pub(super) fn target_file(&self) -> anyhow::Result<PathBuf> {
        let kind = self.kind()?;
        match self.target(&kind, true) {
            Target::File(path, _) => Ok(path),
            Target::Stdout(format) => {
                let dir = self.cdi_dir.as_deref().unwrap_or(Path::new(CDI_DIR));
                Ok(dir.join(cdi::file_name::default_name(&kind, format)))
            }
        }
    }

    pub(super) fn target(&self, kind: &Kind, is_root: bool) -> Target {
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

/// Says what is wrong with the arguments where clap can't know it.
pub(super) fn usage(problem: &str) -> Exit {
    tracing::error!("{problem}");
    Exit::Usage
}

/// Names what was left out. Whoever chose devices, and got them, has all that was asked for.
pub(super) fn report(inventory: &Inventory, chosen: &DeviceSelection) -> Exit {
    for fault in &inventory.faults {
        tracing::warn!("{fault}");
    }
    if inventory.faults.is_empty() || *chosen != DeviceSelection::All {
        Exit::Done
    } else {
        Exit::Findings
    }
}

pub(super) fn vendor(text: &str) -> Result<String, String> {
    let kind = Kind::new(text, "gpu").map_err(|error| error.to_string())?;
    Ok(kind.vendor().to_owned())
}

pub(super) fn class(text: &str) -> Result<String, String> {
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
        assert_eq!(moved.roots().dev, Path::new("/d"));
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
