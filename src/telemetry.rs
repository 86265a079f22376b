//! Logs: on stderr only, as text or JSON.
//!
//! Invariant: who logs never waits for whoever reads the log. A journal or a log copier that hangs would
//! otherwise hold every handler, the runtime would take the plugin for dead, and containers would
//! be created unguarded.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tracing_subscriber::EnvFilter;

/// Lines that wait for stderr; further ones are dropped.
const BACKLOG: usize = 1024;
/// How long the end of the process waits for a reader.
const FAREWELL: Duration = Duration::from_millis(500);

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
    /// No thread.
    #[error("the log's thread can't be started: {0}")]
    Thread(io::Error),
    /// Called twice.
    #[error("logs can't be set up: {0}")]
    Init(#[from] tracing_subscriber::util::TryInitError),
}

/// Sets the process's logs up. `filter` is a level (`info`) or a list of `target=level`. Keep the
/// answer until the end: dropping it waits, not for long, until what was logged is written.
pub fn init(format: LogFormat, filter: &str) -> Result<Flush, TelemetryError> {
    use tracing_subscriber::util::SubscriberInitExt as _;
    let filter = EnvFilter::try_new(filter)?;
    let (queue, lines) = sync_channel(BACKLOG);
    let flush = Flush(queue.clone());
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || write(&lines, io::stderr()))
        .map_err(TelemetryError::Thread)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || Lines(queue.clone()));
    match format {
        LogFormat::Text => builder
            .with_ansi(io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
            .with_target(false)
            .finish()
            .try_init()?,
        LogFormat::Json => builder.json().flatten_event(true).finish().try_init()?,
    }
    Ok(flush)
}

#[derive(Debug)]
enum Entry {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// Writes on the log's own thread.
fn write(entries: &Receiver<Entry>, mut to: impl io::Write) {
    while let Ok(entry) = entries.recv() {
        match entry {
            // There is no other place to say that stderr is closed.
            Entry::Line(line) => drop(to.write_all(&line)),
            Entry::Flush(done) => drop(done.try_send(())),
        }
    }
}

/// One event is one write, as the formatter makes it.
struct Lines(SyncSender<Entry>);

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.0.try_send(Entry::Line(line.to_vec())) {
            // A log that nobody reads is no reason to fail, or to wait.
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Ok(line.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes what waits, when it is dropped.
#[derive(Debug)]
pub struct Flush(SyncSender<Entry>);

impl Drop for Flush {
    fn drop(&mut self) {
        let (done, written) = sync_channel(1);
        if self.0.try_send(Entry::Flush(done)).is_ok() {
            let _ = written.recv_timeout(FAREWELL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_reader_that_hangs_holds_nobody() {
        let (queue, lines) = sync_channel(1);
        let begun = std::time::Instant::now();
        for _ in 0..3 {
            assert_eq!(Lines(queue.clone()).write(b"line\n").unwrap(), 5);
        }
        drop(Flush(queue));
        assert!(begun.elapsed() < FAREWELL * 10);
        assert_eq!(lines.iter().count(), 1, "the rest is dropped");
    }

    #[test]
    fn what_was_logged_is_written_before_the_end() {
        let (mut read, pipe) = io::pipe().unwrap();
        let (queue, lines) = sync_channel(8);
        let thread = std::thread::spawn(move || write(&lines, pipe));
        let mut log = Lines(queue.clone());
        log.write_all(b"a\n").unwrap();
        log.write_all(b"b\n").unwrap();
        drop((log, Flush(queue)));
        thread.join().unwrap();
        let mut text = String::new();
        io::Read::read_to_string(&mut read, &mut text).unwrap();
        assert_eq!(text, "a\nb\n");
    }
}
