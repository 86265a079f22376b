//! `cdi-gen completions`: what a shell needs to complete the command line.

use clap::{Args, Command, ValueEnum};

use super::exit::Exit;
use super::output::print;

/// Arguments of `cdi-gen completions`.
#[derive(Debug, Clone, Copy, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// A supported shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// For `/usr/share/bash-completion/completions/cdi-gen`
    Bash,
    /// For `_cdi-gen` in a directory of `$fpath`
    Zsh,
    /// For `/usr/share/fish/vendor_completions.d/cdi-gen.fish`
    Fish,
}

impl CompletionsArgs {
    /// Prints the script for the whole program.
    pub fn exec(self, mut program: Command) -> anyhow::Result<Exit> {
        let shell = match self.shell {
            Shell::Bash => clap_complete::Shell::Bash,
            Shell::Zsh => clap_complete::Shell::Zsh,
            Shell::Fish => clap_complete::Shell::Fish,
        };
        let name = program.get_name().to_owned();
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut program, name, &mut script);
        print(&String::from_utf8_lossy(&script))?;
        Ok(Exit::Done)
    }
}
