//! ttrpc's own client and server as the runtime.

use super::common::{Peer, Rig, containerd, create, in_time};
use super::probe::Probe;
use nri::{Events, Status, api};
use std::sync::Arc;
use std::time::Duration;

struct Registry(tokio::sync::mpsc::UnboundedSender<String>);

#[async_trait::async_trait]
impl nri::service::Runtime for Registry {
    async fn register_plugin(
        &self,
        _: &ttrpc::r#async::TtrpcContext,
        request: api::RegisterPluginRequest,
    ) -> ttrpc::Result<api::Empty> {
        self.0.send(request.plugin_name).unwrap();
        Ok(api::Empty::new())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ttrpcs_own_client_and_server_work_as_the_runtime() {
    let mut rig = Rig::start(Probe::subscribing(Events::ALL));
    let Peer {
        trunk: _trunk,
        plugin,
        runtime,
        ..
    } = rig.accept().await;
    let (registered, mut registrations) = tokio::sync::mpsc::unbounded_channel();
    let (accepting, accepted) = tokio::sync::mpsc::channel(1);
    accepting.send(Ok(runtime.into_stream())).await.unwrap();
    let mut server = ttrpc::r#async::Server::new()
        .add_listener(ttrpc::r#async::transport::Listener::new(Accepted(accepted)))
        .register_service(nri::service::create_runtime(Arc::new(Registry(registered))));
    server.start().await.unwrap();
    assert_eq!(
        in_time("the registration", registrations.recv())
            .await
            .unwrap(),
        "probe"
    );

    let socket = ttrpc::r#async::transport::Socket::new(plugin.into_stream());
    let client = nri::service::PluginClient::new(ttrpc::r#async::Client::new(socket));
    let context = || ttrpc::context::with_duration(Duration::from_secs(2));
    assert_eq!(
        client
            .configure(context(), &containerd("2.2.0"))
            .await
            .unwrap()
            .events,
        0x3fff
    );
    client
        .synchronize(context(), &api::SynchronizeRequest::default())
        .await
        .unwrap();
    rig.wait_for(Status::Registered).await;
    let response = client
        .create_container(context(), &create("big 1000000"))
        .await
        .unwrap();
    assert_eq!(response.adjust.env[0].value.len(), 1_000_000);
    let refused = client
        .create_container(context(), &create("refuse"))
        .await
        .unwrap_err();
    assert!(matches!(refused, ttrpc::Error::RpcStatus(status) if status.message == "not this one"));
    server.shutdown().await.unwrap();
}

/// A listener's connections out of a channel, pending when there is none.
struct Accepted(tokio::sync::mpsc::Receiver<std::io::Result<tokio::io::DuplexStream>>);

impl futures::Stream for Accepted {
    type Item = std::io::Result<tokio::io::DuplexStream>;
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}
