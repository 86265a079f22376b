//! `gpu-warden`: the NRI plugin that gives each container exactly the GPUs which the kubelet allocated to it.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gpu_warden::cli::exit::Exit;
use gpu_warden::cli::ready::ReadyArgs;
use gpu_warden::cli::run::RunArgs;

/// Gives each container exactly the GPUs that the kubelet allocated to it
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve as an NRI plugin, and keep the CDI spec of this node fresh
    Run(Box<RunArgs>),
    /// Ask the running gpu-warden whether containers are guarded as configured
    Ready(ReadyArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse_from(arguments()).command {
        Command::Run(args) => args.exec().map(|()| Exit::Done),
        Command::Ready(args) => args.exec(),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            // Not by the log, which may be what could not be set up. Nothing is left to tell when
            // stderr is closed.
            let _ = writeln!(io::stderr(), "gpu-warden: {error:#}");
            Exit::Failure.into()
        }
    }
}

/// A runtime starts pre-launched plugins without arguments: then it is `run`.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<_> = std::env::args_os().collect();
    if arguments.len() == 1 && std::env::var_os("NRI_PLUGIN_SOCKET").is_some() {
        arguments.push("run".into());
    }
    arguments
}
