//! `cdi-gen`: Container Device Interface specs for the GPUs of this node.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gpu_warden::cli::LogArgs;
use gpu_warden::cli::exit::Exit;
use gpu_warden::cli::generate::{GenerateArgs, exit_of};
use gpu_warden::cli::hook::HookArgs;

/// Container Device Interface specs for the GPUs of this node
#[derive(Parser)]
#[command(name = "cdi-gen", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: LogArgs,
}

#[derive(Subcommand)]
enum Command {
    /// Write the spec: one device per GPU UUID
    ///
    /// Exit codes: 0 done, 1 written but some GPU left out, 2 usage, 3 failure, 4 no NVIDIA driver
    /// or GPU here.
    Generate(Box<GenerateArgs>),
    /// Prepare one container; run by container runtimes, as specs tell them
    Hook(HookArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Nothing is left to tell the user with when stderr is closed.
            let _ = error.print();
            return u8::try_from(error.exit_code()).map_or(Exit::Usage.into(), ExitCode::from);
        }
    };
    cli.log.init();
    let done = match &cli.command {
        Command::Generate(args) => args.exec(),
        Command::Hook(args) => args.exec(),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(error) => {
            let _ = writeln!(io::stderr(), "cdi-gen: {error:#}");
            exit_of(&error).into()
        }
    }
}
