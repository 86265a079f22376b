//! The runtime's side of one NRI connection, message by message over the crate's own multiplexer.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nri::api::{
    ConfigureRequest, CreateContainerRequest, CreateContainerResponse, RegisterPluginRequest,
    StopContainerRequest, SynchronizeRequest,
};
use nri::mux::{Connection, ConnectionId, Message, Trunk};
use nri::protobuf::{Message as _, MessageField};
use tokio::net::UnixListener;
use ttrpc::proto::{MessageHeader, Request, Response};

use super::container::{Kind, creation};
use super::pods;

const SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
const PATIENCE: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug)]
pub(crate) struct Peer {
    plugin: Connection,
    next_stream: u32,
    // Last: its tasks serve the connections.
    _runtime: Connection,
    _trunk: Trunk,
}

impl Peer {
    /// Takes the next plugin in, as a containerd of that version with all pods running.
    pub(crate) async fn accept(listener: &UnixListener, version: &str) -> Result<Self> {
        let accepted = tokio::time::timeout(PATIENCE, listener.accept());
        let (stream, _) = accepted.await.context("no plugin connects")??;
        let (trunk, [plugin, mut runtime]) =
            Trunk::open(stream, [ConnectionId::PLUGIN, ConnectionId::RUNTIME]);
        let message = runtime.inbox.recv().await.context("the plugin hung up")?;
        let request = Request::parse_from_bytes(&message.body)?;
        RegisterPluginRequest::parse_from_bytes(&request.payload)?;
        let answer = Message {
            header: MessageHeader::new_response(message.header.stream_id, 0),
            body: Vec::new(),
        };
        ensure!(runtime.outbox.send(answer).await, "the plugin hung up");
        let mut peer = Self {
            plugin,
            next_stream: 1,
            _runtime: runtime,
            _trunk: trunk,
        };
        let configure = ConfigureRequest {
            runtime_name: "containerd".into(),
            runtime_version: version.into(),
            ..Default::default()
        };
        peer.call("Configure", &configure).await?;
        peer.synchronize().await?;
        Ok(peer)
    }

    /// Says which pods and containers there are.
    pub(crate) async fn synchronize(&mut self) -> Result<()> {
        let (pods, containers) = pods::running();
        let synchronize = SynchronizeRequest {
            pods,
            containers,
            ..Default::default()
        };
        self.call("Synchronize", &synchronize).await.map(drop)
    }

    /// A request, ready to be sent: what a runtime does before is not the plugin's time.
    pub(crate) fn encode(
        &mut self,
        method: &str,
        request: &impl nri::protobuf::Message,
    ) -> Result<Message> {
        let request = Request {
            service: SERVICE.into(),
            method: method.into(),
            payload: request.write_to_bytes()?,
            timeout_nano: 1_999_900_000,
            ..Default::default()
        };
        let body = request.write_to_bytes()?;
        let stream = self.next_stream;
        self.next_stream += 2;
        Ok(Message {
            header: MessageHeader::new_request(stream, u32::try_from(body.len())?),
            body,
        })
    }

    /// Sends it and waits for the answer.
    pub(crate) async fn exchange(&mut self, message: Message) -> Result<Message> {
        ensure!(self.plugin.outbox.send(message).await, "the plugin hung up");
        let answer = tokio::time::timeout(PATIENCE, self.plugin.inbox.recv());
        answer
            .await
            .context("no answer")?
            .context("the plugin hung up")
    }

    async fn call(
        &mut self,
        method: &str,
        request: &impl nri::protobuf::Message,
    ) -> Result<Vec<u8>> {
        let message = self.encode(method, request)?;
        let answer = self.exchange(message).await?;
        payload(&answer).with_context(|| method.to_owned())
    }

    /// Creates a container; the answer is checked.
    pub(crate) async fn create(&mut self, pod: usize, id: usize, kind: Kind) -> Result<()> {
        let request = create_request(pod, id, kind);
        let answer = self.call("CreateContainer", &request).await?;
        CreateContainerResponse::parse_from_bytes(&answer)?;
        Ok(())
    }

    /// Reports that it has stopped.
    pub(crate) async fn stop(&mut self, pod: usize, id: usize, kind: Kind) -> Result<()> {
        let (pod, container) = creation(pod, id, kind);
        let request = StopContainerRequest {
            pod: MessageField::some(pod),
            container: MessageField::some(container),
            ..Default::default()
        };
        self.call("StopContainer", &request).await.map(drop)
    }
}

/// The payload of a successful answer; an error where the plugin refused.
pub(crate) fn payload(answer: &Message) -> Result<Vec<u8>> {
    let response = Response::parse_from_bytes(&answer.body)?;
    match response.status.into_option() {
        Some(status) if status.code.value() != 0 => bail!("refused: {}", status.message),
        _ => Ok(response.payload),
    }
}

/// The message of a creation.
pub(crate) fn create_request(pod: usize, id: usize, kind: Kind) -> CreateContainerRequest {
    let (pod, container) = creation(pod, id, kind);
    CreateContainerRequest {
        pod: MessageField::some(pod),
        container: MessageField::some(container),
        ..Default::default()
    }
}
