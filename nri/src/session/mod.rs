//! One connection to the runtime, from `RegisterPlugin` to its end.
//!
//! Owns the order of things on a connection: the server is up before the registration is sent, `Configure` is served whether
//! it comes before or after the registration's answer, requests in flight are answered before an orderly end. Refuses to
//! own reconnection: that is the runner's.

mod error;
mod guard;
mod handle;
mod progress;
mod server;
mod service;
mod synchronize;

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use ttrpc::r#async::transport::Socket;

use crate::api;
use crate::events::Events;
use crate::identity::Identity;
use crate::mux::{ConnectionId, Trunk};
use crate::plugin::Plugin;
use crate::service::RuntimeClient;
use crate::status::Status;

pub use error::SessionError;
use guard::AbortOnDrop;
pub(crate) use handle::Slot;
pub use handle::{RuntimeHandle, RuntimeHandleError};
use progress::Progress;
use server::Server;
use service::Service;

/// The NRI release whose API this crate speaks, sent with the registration.
const NRI_VERSION: &str = "v0.12.2";
/// A runtime accepts plugins one after the other and may be held up by another one's registration (5 s) before it sees ours.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(10);
/// The same, for the whole way to the answered `Synchronize`.
const ACTIVATION_TIMEOUT: Duration = Duration::from_secs(60);
/// For a runtime to close a connection on which its handshake was answered with an error. Closed from here, it is made
/// again at once, while containers are created without the plugin.
const REFUSED_PATIENCE: Duration = Duration::from_millis(500);
/// For the last replies to leave.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);

/// What a session needs of its runner.
#[derive(Debug)]
pub(crate) struct Context<P> {
    pub(crate) plugin: Arc<P>,
    pub(crate) identity: Identity,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) slot: Slot,
}

/// How a session ended, and how far it had come.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) cause: Cause,
    /// The runtime had made the plugin active.
    pub(crate) was_active: bool,
    /// The runtime closed the connection as the next thing after it was sent a mask with events of NRI 0.10: it may not know
    /// them, whatever its version says.
    pub(crate) suspects_events: bool,
}

#[derive(Debug)]
pub(crate) enum Cause {
    /// The runner was told to stop.
    Stopped,
    /// The runtime called `Shutdown`.
    ShutdownRequested,
    /// The peer closed an active connection between two messages.
    Closed,
    Failed(SessionError),
}

/// Runs one session over `stream` until it ends or `stop` is set. `withheld` events are not subscribed.
pub(crate) async fn run<P: Plugin>(
    context: &Context<P>,
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    withheld: Events,
    stop: &mut watch::Receiver<bool>,
) -> Ended {
    context.status.send_replace(Status::Connecting);
    let progress = Arc::new(Progress::new(context.status.clone()));
    let (mut trunk, [serving, calling]) =
        Trunk::open(stream, [ConnectionId::PLUGIN, ConnectionId::RUNTIME]);
    let service = Arc::new(Service::new(
        Arc::clone(&context.plugin),
        withheld,
        Arc::clone(&progress),
    ));
    let (drain, draining) = watch::channel(false);
    let mut server = AbortOnDrop::spawn(Server::new(serving, service).run(draining));
    let client = RuntimeClient::new(ttrpc::r#async::Client::new(Socket::new(
        calling.into_stream(),
    )));

    let cause = tokio::select! {
        // Before the rest: the error of a registration that the end of the trunk cut off says less than the trunk's own.
        biased;
        ended = trunk.closed() => closed(ended, &progress),
        () = stopped(stop) => Cause::Stopped,
        () = progress.shutdown_requested() => Cause::ShutdownRequested,
        error = activate(context, client, &progress) => Cause::Failed(error),
        error = refused(&progress) => Cause::Failed(error),
    };
    context.slot.clear();
    if matches!(cause, Cause::Stopped | Cause::ShutdownRequested) {
        drain.send_replace(true);
        // Every request in flight has a deadline of its own, so this ends.
        let _ = server.join().await;
        trunk.close(CLOSE_PATIENCE).await;
    }
    Ended {
        cause,
        was_active: progress.is_active(),
        suspects_events: progress.suspects_events(),
    }
}

pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // The sender lives in the runner, longer than any session.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn closed(ended: Result<(), crate::mux::MuxError>, progress: &Progress) -> Cause {
    match ended {
        Err(error) => Cause::Failed(SessionError::Trunk(error)),
        Ok(()) if progress.is_active() => Cause::Closed,
        Ok(()) => Cause::Failed(SessionError::ClosedEarly(progress.stage())),
    }
}

/// Returns when this connection can't become active any more, and the runtime has had its time to say so.
async fn refused(progress: &Progress) -> SessionError {
    progress.refused().await;
    tokio::time::sleep(REFUSED_PATIENCE).await;
    SessionError::Refused(progress.stage())
}

/// Registers and waits until the plugin is active; then stays pending. Returns only failures.
async fn activate<P: Plugin>(
    context: &Context<P>,
    client: RuntimeClient,
    progress: &Progress,
) -> SessionError {
    let request = api::RegisterPluginRequest {
        plugin_name: context.identity.name().into(),
        plugin_idx: context.identity.index().into(),
        NRI_version: NRI_VERSION.into(),
        ..Default::default()
    };
    let answer = client
        .register_plugin(ttrpc::context::with_duration(REGISTER_TIMEOUT), &request)
        .await;
    if let Err(error) = answer {
        return SessionError::Register {
            plugin: context.identity.to_string(),
            reason: error.to_string(),
        };
    }
    context.slot.fill(client);
    progress.registered();
    if tokio::time::timeout(ACTIVATION_TIMEOUT, progress.active())
        .await
        .is_err()
    {
        return SessionError::Inactive {
            after: ACTIVATION_TIMEOUT,
            stage: progress.stage(),
        };
    }
    tracing::info!(plugin = %context.identity, "the plugin is active");
    std::future::pending().await
}
