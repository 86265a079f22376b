//! Logs every container and gives each new one an environment variable.
//!
//! As root on a node: `cargo run --example greet [SOCKET]`, or copy the binary to `/opt/nri/plugins/50-greet`.

use std::path::PathBuf;
use std::sync::Arc;

use nri::{Adjusted, Events, Identity, Plugin, Refusal, Runner, Runtime, api};

struct Greet;

#[async_trait::async_trait]
impl Plugin for Greet {
    fn events(&self, _: &Runtime) -> Events {
        Events::CREATE_CONTAINER | Events::STOP_CONTAINER
    }

    async fn synchronize(
        &self,
        pods: Vec<api::PodSandbox>,
        containers: Vec<api::Container>,
    ) -> Result<Vec<api::ContainerUpdate>, Refusal> {
        tracing::info!(pods = pods.len(), containers = containers.len(), "in sync");
        Ok(Vec::new())
    }

    async fn create_container(
        &self,
        pod: api::PodSandbox,
        container: api::Container,
    ) -> Result<Adjusted, Refusal> {
        tracing::info!(pod = pod.name, container = container.name, "greeting");
        let mut adjusted = Adjusted::default();
        adjusted.adjust.env.push(api::KeyValue {
            key: "GREETING".into(),
            value: "hello".into(),
            ..Default::default()
        });
        Ok(adjusted)
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    let plugin = Arc::new(Greet);
    let runner = if let Some(runner) = Runner::prelaunched(Arc::clone(&plugin))? {
        runner
    } else {
        let socket = std::env::args_os()
            .nth(1)
            .map_or_else(|| nri::DEFAULT_SOCKET.into(), PathBuf::from);
        Runner::external(plugin, Identity::new("greet", "50")?, socket)
    };
    let interrupted = async { drop(tokio::signal::ctrl_c().await) };
    Ok(runner.run(interrupted).await?)
}
