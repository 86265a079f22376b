//! `gpu-warden ready`: asks the running gpu-warden whether containers are guarded as configured.

use std::path::PathBuf;

use clap::Args;

use super::exit::Exit;
use crate::readiness::{DEFAULT_SOCKET, Readiness};

/// Arguments of `gpu-warden ready`.
#[derive(Debug, Args)]
pub struct ReadyArgs {
    /// Socket at which the running gpu-warden tells its state
    #[arg(long, env = "GPU_WARDEN_STATUS_SOCKET", default_value = DEFAULT_SOCKET, value_name = "PATH")]
    status_socket: PathBuf,
}

impl ReadyArgs {
    /// Prints the state; 0 when ready, 1 when not, an error when nobody answers.
    #[expect(clippy::print_stdout, reason = "the answer of the command")]
    pub fn exec(&self) -> anyhow::Result<Exit> {
        let readiness = Readiness::ask(&self.status_socket)?;
        println!("{readiness}");
        Ok(if readiness.is_ready() {
            Exit::Done
        } else {
            Exit::Findings
        })
    }
}
