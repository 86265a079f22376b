//! `cdi-gen`: Container Device Interface specs for the GPUs of this node.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use gpu_warden::cli::LogArgs;
use gpu_warden::cli::check::CheckArgs;
use gpu_warden::cli::completions::CompletionsArgs;
use gpu_warden::cli::diff::DiffArgs;
use gpu_warden::cli::exit::Exit;
use gpu_warden::cli::explain::ExplainArgs;
use gpu_warden::cli::generate::{GenerateArgs, exit_of};
use gpu_warden::cli::hook::HookArgs;
use gpu_warden::cli::list::ListArgs;
use gpu_warden::cli::man::ManArgs;
use gpu_warden::cli::validate::ValidateArgs;

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
    /// List every device that the CDI directories define, and which file gives it
    List(ListArgs),
    /// Say whether readers load these files: all broken rules at once
    ///
    /// Exit codes: 0 all valid, 1 some rule is broken, 2 usage, 3 a file can't be read.
    Validate(ValidateArgs),
    /// Compare the specs with this host: nodes, files, driver, readability, both directories
    ///
    /// Exit codes: 0 nothing found (or notes only), 1 errors or warnings, 2 usage, 3 failure, 4 no
    /// NVIDIA driver or GPU here and nothing found.
    Check(Box<CheckArgs>),
    /// Show what `generate` would change now, or what differs between two files
    ///
    /// Exit codes: 0 equal for every reader, 1 differences, 2 usage, 3 failure, 4 no NVIDIA driver
    /// or GPU here.
    Diff(Box<DiffArgs>),
    /// Say which file gives a device, what a runtime does with it, or why there is none
    ///
    /// Exit codes: 0 it resolves, 1 it does not, 2 usage.
    Explain(ExplainArgs),
    /// Print the completion script of a shell
    Completions(CompletionsArgs),
    /// Print or write the manual pages
    Man(ManArgs),
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
    let result = match &cli.command {
        Command::Generate(args) => args.exec(),
        Command::List(args) => args.exec(),
        Command::Validate(args) => args.exec(),
        Command::Check(args) => args.exec(),
        Command::Diff(args) => args.exec(),
        Command::Explain(args) => args.exec(),
        Command::Completions(args) => args.exec(Cli::command()),
        Command::Man(args) => args.exec(Cli::command()),
        Command::Hook(args) => args.exec(),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(error) => {
            let _ = writeln!(io::stderr(), "cdi-gen: {error:#}");
            exit_of(&error).into()
        }
    }
}
