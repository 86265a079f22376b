//! Exit codes, the same for all commands.

use std::process::ExitCode;

/// How a command ended. Usage errors are clap's, with code 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Yes, or done.
    Done,
    /// Findings, differences, something left out or invalid; the rest is done.
    Findings,
    /// The arguments make no sense.
    Usage,
    /// It could not be done.
    Failure,
    /// There is no NVIDIA driver or GPU here; usable as a condition of a unit.
    NoDriver,
}

impl Exit {
    /// The number that a shell sees.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Findings => 1,
            Self::Usage => 2,
            Self::Failure => 3,
            Self::NoDriver => 4,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
