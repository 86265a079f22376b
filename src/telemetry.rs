//! Logs: on stderr only, as text or JSON.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The filter is not valid, or logs are set up already.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// See [`EnvFilter`].
    #[error("invalid log filter: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// Called twice.
    #[error("logs can't be set up: {0}")]
    Init(#[from] tracing_subscriber::util::TryInitError),
}

/// Sets the process's logs up. `filter` is a level (`info`) or a list of `target=level`.
pub fn init(format: LogFormat, filter: &str) -> Result<(), TelemetryError> {
    use tracing_subscriber::util::SubscriberInitExt as _;
    let filter = EnvFilter::try_new(filter)?;
    let writer = std::io::stderr;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer);
    match format {
        LogFormat::Text => builder
            .with_ansi(writer.make_writer().is_terminal() && std::env::var_os("NO_COLOR").is_none())
            .with_target(false)
            .finish()
            .try_init()?,
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}
