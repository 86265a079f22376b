//! Keeps a plugin connected: connects or adopts a socket, runs sessions, reconnects.
//!
//! Invariants: an external plugin is never given up, only its shutdown ends it; a pre-launched plugin has one connection and
//! ends with it.

mod backoff;
mod prelaunched;

use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::UnixStream;
use tokio::sync::watch;

use crate::events::Events;
use crate::identity::Identity;
use crate::plugin::Plugin;
use crate::session::{self, Cause, Context, Ended, RuntimeHandle, SessionError, Slot};
use crate::status::Status;
use backoff::Backoff;

pub use prelaunched::PrelaunchError;

/// Where containerd and CRI-O listen unless they are configured otherwise.
pub const DEFAULT_SOCKET: &str = "/var/run/nri/nri.sock";
/// So many times in a row must a runtime close the connection on its answer to `Configure` before that is held to be its
/// opinion of the events. A runtime that restarts at that moment does so once, and validation must not be lost to that.
const SUSPICIONS: u32 = 2;
/// A session that lasted so long is no part of a series of failures.
const SETTLED: Duration = Duration::from_secs(1);

/// A plugin and its connection to the runtime.
#[derive(Debug)]
pub struct Runner<P> {
    context: Context<P>,
    source: Source,
}

#[derive(Debug)]
enum Source {
    External(PathBuf),
    Prelaunched(StdUnixStream),
}

/// Why a runner ended without having been told to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunnerError {
    /// The inherited socket can't be used.
    #[error("cannot use the socket inherited from the runtime: {0}")]
    Socket(#[source] std::io::Error),
    /// The one connection of a pre-launched plugin failed.
    #[error("NRI plugin {plugin}, started by the runtime, lost its connection: {source}")]
    Session {
        /// Index and name.
        plugin: String,
        /// What happened.
        #[source]
        source: SessionError,
    },
}

impl<P: Plugin> Runner<P> {
    /// A plugin that connects to `socket` by itself, and does so again whenever the connection ends.
    pub fn external(plugin: Arc<P>, identity: Identity, socket: PathBuf) -> Self {
        Self::new(plugin, identity, Source::External(socket))
    }

    /// A plugin that the runtime has started, as the environment tells; `None` where it tells nothing of that.
    ///
    /// Adopts the inherited socket, so it succeeds once per process. Name and index are the runtime's: those of the file name.
    pub fn prelaunched(plugin: Arc<P>) -> Result<Option<Self>, PrelaunchError> {
        let Some((identity, socket)) = prelaunched::from_environment()? else {
            return Ok(None);
        };
        Ok(Some(Self::new(
            plugin,
            identity,
            Source::Prelaunched(socket),
        )))
    }

    fn new(plugin: Arc<P>, identity: Identity, source: Source) -> Self {
        let status = watch::channel(Status::Connecting).0;
        Self {
            context: Context {
                plugin,
                identity,
                status,
                slot: Slot::new(),
            },
            source,
        }
    }

    /// Follows the plugin's state.
    pub fn status(&self) -> watch::Receiver<Status> {
        self.context.status.subscribe()
    }

    /// The way to call the runtime outside of requests.
    pub fn runtime(&self) -> RuntimeHandle {
        self.context.slot.handle()
    }

    /// Serves until `shutdown` completes; requests in flight are answered then. Without it, an external plugin never returns,
    /// and a pre-launched one when the runtime closes its connection.
    ///
    /// Must run on a tokio runtime with time and I/O enabled, best a multi-threaded one: on a single thread, a handler that
    /// blocks can't be answered for.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), RunnerError> {
        let Self { context, source } = self;
        let (stop, stopping) = watch::channel(false);
        let serve = async {
            match source {
                Source::External(socket) => {
                    serve_external(&context, &socket, stopping).await;
                    Ok(())
                }
                Source::Prelaunched(socket) => serve_prelaunched(&context, socket, stopping).await,
            }
        };
        let watch_shutdown = async {
            shutdown.await;
            stop.send_replace(true);
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            ended = serve => ended,
            () = watch_shutdown => Ok(()),
        };
        context.status.send_replace(Status::Stopped);
        ended
    }
}

async fn serve_prelaunched<P: Plugin>(
    context: &Context<P>,
    socket: StdUnixStream,
    mut stopping: watch::Receiver<bool>,
) -> Result<(), RunnerError> {
    socket.set_nonblocking(true).map_err(RunnerError::Socket)?;
    let stream = UnixStream::from_std(socket).map_err(RunnerError::Socket)?;
    match session::run(context, stream, Events::NONE, &mut stopping)
        .await
        .cause
    {
        Cause::Failed(source) => Err(RunnerError::Session {
            plugin: context.identity.to_string(),
            source,
        }),
        Cause::Stopped | Cause::ShutdownRequested | Cause::Closed => Ok(()),
    }
}

async fn serve_external<P: Plugin>(
    context: &Context<P>,
    socket: &Path,
    mut stopping: watch::Receiver<bool>,
) {
    let mut backoff = Backoff::new();
    let mut doubt = Doubt::default();
    let mut last_failure = String::new();
    while !*stopping.borrow() {
        let begun = Instant::now();
        let (failure, delay) = match UnixStream::connect(socket).await {
            Ok(stream) => {
                let ended = session::run(context, stream, doubt.withheld(), &mut stopping).await;
                doubt.learn(&ended);
                if ended.was_active && begun.elapsed() >= SETTLED {
                    backoff.reset();
                } else if ended.was_active {
                    backoff.restart();
                }
                (describe(&ended.cause), backoff.next())
            }
            Err(error) => {
                // The runtime is gone: what it closed before, it closed for that.
                doubt = Doubt::default();
                let failure = format!(
                    "cannot connect to the NRI socket {}: {error}",
                    socket.display()
                );
                (Some(failure), backoff.knock())
            }
        };
        context.status.send_replace(Status::Connecting);
        let Some(failure) = failure else { return };
        // A runtime that is away for an hour is worth one line, not thousands.
        if failure == last_failure {
            tracing::debug!(plugin = %context.identity, failure, ?delay, "still not connected");
        } else {
            tracing::warn!(plugin = %context.identity, failure, ?delay, "not connected to the runtime, will reconnect");
            last_failure = failure;
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = session::stopped(&mut stopping) => return,
        }
    }
}

/// Whether the runtime knows the events of NRI 0.10 that its version promises.
#[derive(Debug, Default)]
struct Doubt {
    suspicions: u32,
}

impl Doubt {
    /// What the next attempt is not to subscribe.
    fn withheld(&self) -> Events {
        if self.suspicions < SUSPICIONS {
            return Events::NONE;
        }
        tracing::warn!(events = %Events::SINCE_0_10, "the runtime closes the connection after Configure; trying without these");
        Events::SINCE_0_10
    }

    /// A session that ended any other way, with or without the events, clears the doubt: the next one asks for all again.
    fn learn(&mut self, ended: &Ended) {
        self.suspicions = if ended.suspects_events {
            self.suspicions + 1
        } else {
            0
        };
    }
}

/// `None` where the runner is to end.
fn describe(cause: &Cause) -> Option<String> {
    match cause {
        Cause::Stopped => None,
        Cause::ShutdownRequested => Some("the runtime called Shutdown".into()),
        Cause::Closed => Some("the runtime closed the connection".into()),
        Cause::Failed(error) => Some(error.to_string()),
    }
}
