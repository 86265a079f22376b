//! The trait that a plugin implements.
//!
//! Owns the vocabulary between the protocol and the plugin. Invariants that the session keeps for every implementor:
//! each call has a deadline of its own ([`Plugin`] explains it), a panic becomes an error reply, and only subscribed
//! events are delivered.

use async_trait::async_trait;

use crate::api;
use crate::events::Events;
use crate::refusal::Refusal;
use crate::runtime::Runtime;

/// What a plugin wants of a container that is being created, and of others at the same time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Adjusted {
    /// Changes of the new container. Empty means none.
    pub adjust: api::ContainerAdjustment,
    /// Changes of the resources of containers that exist.
    pub update: Vec<api::ContainerUpdate>,
}

/// An NRI plugin.
///
/// Every method runs in a task of its own, with a budget of 60 % of the runtime's request timeout (1.2 s where the runtime
/// sends none). When it is exceeded the runtime gets an error and the future is dropped at its next `await`: work that must
/// not be cut short belongs in a spawned task. A runtime which sees no answer in time would drop the plugin and go on
/// without it, so code that blocks should run in `spawn_blocking`.
///
/// Returning `Err` fails the operation and keeps the plugin connected. `configure`
/// and `synchronize` are done before any later call begins; apart from that runtimes serialise all calls, but do not rely on it.
#[async_trait]
pub trait Plugin: Send + Sync + 'static {
    /// The events to subscribe. Asked after [`Plugin::configure`], on every connection. Events that `runtime` does not know
    /// are withheld; if none remains, the configuration fails (an empty subscription would mean *all* events).
    fn events(&self, runtime: &Runtime) -> Events;

    /// The first call on a connection: who the runtime is, and the configuration text that it holds for a pre-launched
    /// plugin (empty for an external one). An error ends the registration.
    async fn configure(&self, runtime: &Runtime, config: &str) -> Result<(), Refusal> {
        let _ = (runtime, config);
        Ok(())
    }

    /// All pods and containers that exist at the moment of (re)connection, once per connection, whole even where the runtime
    /// sent it in parts. Pods in "not ready" state are among them, so one pod UID can appear twice. An error ends the registration.
    async fn synchronize(
        &self,
        pods: Vec<api::PodSandbox>,
        containers: Vec<api::Container>,
    ) -> Result<Vec<api::ContainerUpdate>, Refusal> {
        let _ = (pods, containers);
        Ok(Vec::new())
    }

    /// A container is to be created ([`Events::CREATE_CONTAINER`]). An error refuses it.
    async fn create_container(
        &self,
        pod: api::PodSandbox,
        container: api::Container,
    ) -> Result<Adjusted, Refusal> {
        let _ = (pod, container);
        Ok(Adjusted::default())
    }

    /// The container's init process exists (`container.pid`) and waits ([`Events::START_CONTAINER`]). An error keeps it
    /// from running.
    async fn start_container(
        &self,
        pod: api::PodSandbox,
        container: api::Container,
    ) -> Result<(), Refusal> {
        let _ = (pod, container);
        Ok(())
    }

    /// A container's resources are to become `resources` ([`Events::UPDATE_CONTAINER`]). An error refuses it.
    async fn update_container(
        &self,
        pod: api::PodSandbox,
        container: api::Container,
        resources: api::LinuxResources,
    ) -> Result<Vec<api::ContainerUpdate>, Refusal> {
        let _ = (pod, container, resources);
        Ok(Vec::new())
    }

    /// A container has ended ([`Events::STOP_CONTAINER`]).
    async fn stop_container(
        &self,
        pod: api::PodSandbox,
        container: api::Container,
    ) -> Result<Vec<api::ContainerUpdate>, Refusal> {
        let _ = (pod, container);
        Ok(Vec::new())
    }

    /// The adjustments of all plugins, merged ([`Events::VALIDATE_CONTAINER_ADJUSTMENT`]). `Err` rejects the container, with
    /// the message as the reason.
    async fn validate_container_adjustment(
        &self,
        request: api::ValidateContainerAdjustmentRequest,
    ) -> Result<(), Refusal> {
        let _ = request;
        Ok(())
    }

    /// A pod's resources are to change ([`Events::UPDATE_POD_SANDBOX`]). Handed to [`Plugin::event`] unless overridden.
    async fn update_pod_sandbox(
        &self,
        pod: api::PodSandbox,
        overhead: api::LinuxResources,
        resources: api::LinuxResources,
    ) -> Result<(), Refusal> {
        let _ = (overhead, resources);
        self.event(api::Event::UPDATE_POD_SANDBOX, pod, None).await
    }

    /// Every other event: run, stop and remove of pods, the `POST_…` events, remove of containers. `container` is `None` for
    /// the events of pods.
    async fn event(
        &self,
        event: api::Event,
        pod: api::PodSandbox,
        container: Option<api::Container>,
    ) -> Result<(), Refusal> {
        let _ = (event, pod, container);
        Ok(())
    }
}
