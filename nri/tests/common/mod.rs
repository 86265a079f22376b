//! The runtime's side of NRI, played by a test: message by message over the crate's own mux.
//!
//! Every wait has a limit, so a reply that never comes is a failure and no hang.

#![allow(
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    reason = "each test binary uses its part"
)]

pub mod fixtures;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nri::mux::{Connection, ConnectionId, Message, Trunk};
use nri::protobuf::Message as _;
use nri::{Identity, Plugin, Runner, RunnerError, Status, api};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use ttrpc::proto::{MESSAGE_TYPE_RESPONSE, MessageHeader, Request, Response};

pub const SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
const PATIENCE: Duration = Duration::from_secs(10);

pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

/// A listening socket and a runner that connects to it.
pub struct Rig {
    _directory: tempfile::TempDir,
    listener: UnixListener,
    pub socket: PathBuf,
    pub status: watch::Receiver<Status>,
    pub handle: nri::RuntimeHandle,
    stop: Option<oneshot::Sender<()>>,
    runner: JoinHandle<Result<(), RunnerError>>,
}

impl Rig {
    pub fn start<P: Plugin>(plugin: Arc<P>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("nri.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let runner = Runner::external(
            plugin,
            Identity::new("probe", "10").unwrap(),
            socket.clone(),
        );
        let (stop, stopped) = oneshot::channel::<()>();
        Self {
            _directory: directory,
            listener,
            socket,
            status: runner.status(),
            handle: runner.runtime(),
            stop: Some(stop),
            runner: tokio::spawn(runner.run(async { drop(stopped.await) })),
        }
    }

    /// The next connection of the plugin, untouched.
    pub async fn accept_raw(&self) -> UnixStream {
        in_time("a connection of the plugin", self.listener.accept())
            .await
            .unwrap()
            .0
    }

    pub async fn accept(&self) -> Peer {
        Peer::over(self.accept_raw().await)
    }

    /// A connection that has come all the way to active.
    pub async fn accept_active(&mut self, configure: &api::ConfigureRequest) -> Peer {
        let mut peer = self.accept().await;
        peer.accept_registration().await;
        peer.configure(configure).await.unwrap();
        peer.synchronize(&api::SynchronizeRequest::default())
            .await
            .unwrap();
        self.wait_for(Status::Registered).await;
        peer
    }

    pub async fn wait_for(&mut self, status: Status) {
        in_time(
            &format!("{status:?}"),
            self.status.wait_for(|now| *now == status),
        )
        .await
        .unwrap();
    }

    pub fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// The runner's end, after [`Rig::stop`].
    pub async fn ended(self) -> Result<(), RunnerError> {
        in_time("the runner's end", self.runner).await.unwrap()
    }
}

pub struct Peer {
    pub trunk: Trunk,
    /// The plugin serves here.
    pub plugin: Connection,
    /// The plugin calls here.
    pub runtime: Connection,
    next_stream: u32,
}

impl Peer {
    pub fn over(stream: UnixStream) -> Self {
        let (trunk, [plugin, runtime]) =
            Trunk::open(stream, [ConnectionId::PLUGIN, ConnectionId::RUNTIME]);
        Self {
            trunk,
            plugin,
            runtime,
            next_stream: 1,
        }
    }

    /// Sends a request with this payload; returns its stream id.
    pub async fn send(&mut self, method: &str, payload: Vec<u8>) -> u32 {
        let request = Request {
            service: SERVICE.into(),
            method: method.into(),
            payload,
            timeout_nano: 1_999_900_000,
            ..Default::default()
        };
        let stream = self.next_stream;
        self.next_stream += 2;
        let body = request.write_to_bytes().unwrap();
        let header = MessageHeader::new_request(stream, u32::try_from(body.len()).unwrap());
        assert!(
            self.plugin.outbox.send(Message { header, body }).await,
            "the trunk is closed"
        );
        stream
    }

    /// The next reply, whichever request it answers.
    pub async fn reply(&mut self) -> (u32, Response) {
        let message = in_time("a reply", self.plugin.inbox.recv())
            .await
            .expect("the plugin closed the connection");
        assert_eq!(message.header.type_, MESSAGE_TYPE_RESPONSE);
        (
            message.header.stream_id,
            Response::parse_from_bytes(&message.body).unwrap(),
        )
    }

    /// One request and its reply's payload, or its status as `(code, message)`.
    pub async fn call_raw(
        &mut self,
        method: &str,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, (i32, String)> {
        let stream = self.send(method, payload).await;
        let (answered, response) = self.reply().await;
        assert_eq!(answered, stream);
        match response.status.into_option() {
            Some(status) => Err((status.code.value(), status.message)),
            None => Ok(response.payload),
        }
    }

    pub async fn call<A: nri::protobuf::Message>(
        &mut self,
        method: &str,
        request: &impl nri::protobuf::Message,
    ) -> Result<A, (i32, String)> {
        let payload = self
            .call_raw(method, request.write_to_bytes().unwrap())
            .await?;
        Ok(A::parse_from_bytes(&payload).unwrap())
    }

    pub async fn configure(
        &mut self,
        request: &api::ConfigureRequest,
    ) -> Result<i32, (i32, String)> {
        self.call::<api::ConfigureResponse>("Configure", request)
            .await
            .map(|response| response.events)
    }

    pub async fn synchronize(
        &mut self,
        request: &api::SynchronizeRequest,
    ) -> Result<api::SynchronizeResponse, (i32, String)> {
        self.call("Synchronize", request).await
    }

    /// Receives `RegisterPlugin`; its stream id and content.
    pub async fn registration(&mut self) -> (u32, api::RegisterPluginRequest) {
        let message = in_time("RegisterPlugin", self.runtime.inbox.recv())
            .await
            .expect("the plugin hung up");
        let request = Request::parse_from_bytes(&message.body).unwrap();
        assert_eq!(
            (&*request.service, &*request.method),
            ("nri.pkg.api.v1alpha1.Runtime", "RegisterPlugin")
        );
        (
            message.header.stream_id,
            api::RegisterPluginRequest::parse_from_bytes(&request.payload).unwrap(),
        )
    }

    /// Answers a request of the plugin as Go does: an empty body.
    pub async fn answer(&mut self, stream: u32) {
        let message = Message {
            header: MessageHeader::new_response(stream, 0),
            body: Vec::new(),
        };
        assert!(self.runtime.outbox.send(message).await);
    }

    pub async fn accept_registration(&mut self) {
        let (stream, request) = self.registration().await;
        assert_eq!(
            (&*request.plugin_name, &*request.plugin_idx),
            ("probe", "10")
        );
        self.answer(stream).await;
    }

    /// Waits until the plugin closes.
    pub async fn closed(mut self) {
        in_time("the plugin's close", self.trunk.closed())
            .await
            .unwrap();
    }
}

pub fn containerd(version: &str) -> api::ConfigureRequest {
    api::ConfigureRequest {
        runtime_name: "containerd".into(),
        runtime_version: version.into(),
        ..Default::default()
    }
}

pub fn container(id: &str) -> api::Container {
    api::Container {
        id: id.into(),
        ..Default::default()
    }
}

pub fn create(id: &str) -> api::CreateContainerRequest {
    api::CreateContainerRequest {
        container: Some(container(id)).into(),
        ..Default::default()
    }
}
