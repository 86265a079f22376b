//! The NRI `Plugin` service: what each request means for the plugin.
//!
//! Owns the methods' names and messages, both styles of events, and what is agreed on a connection (runtime, events, the parts
//! of `Synchronize`). Invariants: only subscribed events reach the plugin; everything else is `UNIMPLEMENTED`; the event mask
//! that is sent is neither 0 nor beyond what the runtime knows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protobuf::{Message, MessageField};
use ttrpc::proto::Request;

use super::progress::Progress;
use super::synchronize::{Parts, Whole};
use crate::api::{self, Event};
use crate::events::Events;
use crate::plugin::{Adjusted, Plugin};
use crate::refusal::{Refusal, RefusalCode};
use crate::runtime::{DEFAULT_REQUEST_TIMEOUT, Runtime};

const SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";

#[derive(Debug)]
pub(super) struct Service<P> {
    plugin: Arc<P>,
    withheld: Events,
    progress: Arc<Progress>,
    agreed: Mutex<Agreed>,
}

#[derive(Debug, Default)]
struct Agreed {
    request_timeout: Option<Duration>,
    events: Events,
    parts: Parts,
}

/// A successful answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) payload: Vec<u8>,
    /// What is reached once the reply is on its way.
    pub(super) milestone: Option<Milestone>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Milestone {
    Synchronized,
    Shutdown,
}

impl<P: Plugin> Service<P> {
    pub(super) fn new(plugin: Arc<P>, withheld: Events, progress: Arc<Progress>) -> Self {
        Self {
            plugin,
            withheld,
            progress,
            agreed: Mutex::default(),
        }
    }

    fn agreed(&self) -> MutexGuard<'_, Agreed> {
        self.agreed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the plugin may take: 60 % of the runtime's timeout, less where the request itself says that less is left.
    pub(super) fn budget(&self, request: &Request) -> Duration {
        let usual = self
            .agreed()
            .request_timeout
            .unwrap_or(DEFAULT_REQUEST_TIMEOUT)
            .mul_f64(0.6);
        match u64::try_from(request.timeout_nano) {
            // A fifth stays for the way back.
            Ok(left) if left > 0 => usual.min(Duration::from_nanos(left).mul_f64(0.8)),
            _ => usual,
        }
    }

    pub(super) fn reached(&self, milestone: Milestone) {
        match milestone {
            Milestone::Synchronized => self.progress.synchronized(),
            Milestone::Shutdown => self.progress.request_shutdown(),
        }
    }

    /// A request of the handshake was answered with an error.
    pub(super) fn refused_handshake(&self) {
        self.progress.refuse();
    }

    pub(super) async fn call(self: Arc<Self>, request: Request) -> Result<Reply, Refusal> {
        if request.service != SERVICE {
            return Err(Refusal::unimplemented(format_args!(
                "the service {:?}",
                request.service
            )));
        }
        let method = request.method.as_str();
        let payload = &request.payload[..];
        match method {
            "Configure" => self.configure(decode(method, payload)?).await,
            "Synchronize" => {
                self.synchronize(decode(method, payload)?, payload.len())
                    .await
            }
            "Shutdown" => Ok(Reply {
                milestone: Some(Milestone::Shutdown),
                ..empty()
            }),
            "StateChange" => self.state_change(decode(method, payload)?).await,
            "CreateContainer" => self.create_container(decode(method, payload)?).await,
            "UpdateContainer" => self.update_container(decode(method, payload)?).await,
            "StopContainer" => self.stop_container(decode(method, payload)?).await,
            "ValidateContainerAdjustment" => self.validate(decode(method, payload)?).await,
            "UpdatePodSandbox" => self.update_pod_sandbox(decode(method, payload)?).await,
            _ => self.notification(method, payload).await,
        }
    }

    fn subscribed(&self, event: Event) -> Result<(), Refusal> {
        match Events::of(event) {
            Some(wanted) if self.agreed().events.contains(wanted) => Ok(()),
            _ => Err(Refusal::unimplemented(format_args!("the event {event:?}"))),
        }
    }

    async fn configure(&self, request: api::ConfigureRequest) -> Result<Reply, Refusal> {
        let runtime = Runtime::from(&request);
        tracing::info!(
            runtime = runtime.name,
            version = runtime.version,
            nri_version = runtime.nri_version,
            request_timeout = ?runtime.request_timeout,
            "the runtime configures the plugin"
        );
        self.agreed().request_timeout = Some(runtime.request_timeout);
        self.plugin.configure(&runtime, &request.config).await?;
        let wanted = self.plugin.events(&runtime);
        let events = wanted.accepted_by(&runtime).without(self.withheld);
        if events != wanted {
            tracing::warn!(dropped = %wanted.without(events), "the runtime does not know events that the plugin wants");
        }
        if events.is_empty() {
            let reason = format!(
                "{} {} knows none of the events that the plugin wants ({wanted})",
                runtime.name, runtime.version
            );
            return Err(Refusal::new(reason).with_code(RefusalCode::FailedPrecondition));
        }
        self.agreed().events = events;
        // Before the reply leaves: the runtime may close as its answer to it, and then this has to be known.
        self.progress.configured(events);
        Reply::new(&api::ConfigureResponse {
            events: events.bits().cast_signed(),
            ..Default::default()
        })
    }

    async fn synchronize(
        &self,
        request: api::SynchronizeRequest,
        len: usize,
    ) -> Result<Reply, Refusal> {
        self.progress.synchronize_begun();
        let whole = {
            let mut agreed = self.agreed();
            if agreed.events.is_empty() {
                return Err(Refusal::new("Synchronize before Configure")
                    .with_code(RefusalCode::FailedPrecondition));
            }
            agreed.parts.add(request, len)?
        };
        let Some(Whole { pods, containers }) = whole else {
            return Reply::new(&api::SynchronizeResponse {
                more: true,
                ..Default::default()
            });
        };
        tracing::info!(
            pods = pods.len(),
            containers = containers.len(),
            "the runtime synchronizes the plugin"
        );
        let update = self.plugin.synchronize(pods, containers).await?;
        let response = api::SynchronizeResponse {
            update,
            ..Default::default()
        };
        Ok(Reply {
            milestone: Some(Milestone::Synchronized),
            ..Reply::new(&response)?
        })
    }

    async fn create_container(
        &self,
        request: api::CreateContainerRequest,
    ) -> Result<Reply, Refusal> {
        self.subscribed(Event::CREATE_CONTAINER)?;
        let (pod, container) = (unbox(request.pod), unbox(request.container));
        let Adjusted { adjust, update } = self.plugin.create_container(pod, container).await?;
        let adjust = if adjust == api::ContainerAdjustment::default() {
            MessageField::none()
        } else {
            MessageField::some(adjust)
        };
        Reply::new(&api::CreateContainerResponse {
            adjust,
            update,
            ..Default::default()
        })
    }

    async fn update_container(
        &self,
        request: api::UpdateContainerRequest,
    ) -> Result<Reply, Refusal> {
        self.subscribed(Event::UPDATE_CONTAINER)?;
        let (pod, container, resources) = (
            unbox(request.pod),
            unbox(request.container),
            unbox(request.linux_resources),
        );
        let update = self
            .plugin
            .update_container(pod, container, resources)
            .await?;
        Reply::new(&api::UpdateContainerResponse {
            update,
            ..Default::default()
        })
    }

    async fn stop_container(&self, request: api::StopContainerRequest) -> Result<Reply, Refusal> {
        self.subscribed(Event::STOP_CONTAINER)?;
        let update = self
            .plugin
            .stop_container(unbox(request.pod), unbox(request.container))
            .await?;
        Reply::new(&api::StopContainerResponse {
            update,
            ..Default::default()
        })
    }

    async fn validate(
        &self,
        request: api::ValidateContainerAdjustmentRequest,
    ) -> Result<Reply, Refusal> {
        self.subscribed(Event::VALIDATE_CONTAINER_ADJUSTMENT)?;
        let mut response = api::ValidateContainerAdjustmentResponse::new();
        if let Err(refusal) = self.plugin.validate_container_adjustment(request).await {
            response.reject = true;
            response.reason = refusal.message().into();
        }
        Reply::new(&response)
    }

    async fn update_pod_sandbox(
        &self,
        request: api::UpdatePodSandboxRequest,
    ) -> Result<Reply, Refusal> {
        self.subscribed(Event::UPDATE_POD_SANDBOX)?;
        let (overhead, resources) = (
            unbox(request.overhead_linux_resources),
            unbox(request.linux_resources),
        );
        self.plugin
            .update_pod_sandbox(unbox(request.pod), overhead, resources)
            .await?;
        Ok(empty())
    }

    /// The style of NRI before 0.12, one method for all events that take no answer.
    async fn state_change(&self, request: api::StateChangeEvent) -> Result<Reply, Refusal> {
        let Ok(event) = request.event.enum_value() else {
            return Err(Refusal::unimplemented(format_args!(
                "the event {}",
                request.event.value()
            )));
        };
        if matches!(
            event,
            Event::CREATE_CONTAINER
                | Event::UPDATE_CONTAINER
                | Event::STOP_CONTAINER
                | Event::VALIDATE_CONTAINER_ADJUSTMENT
                | Event::UPDATE_POD_SANDBOX
        ) {
            return Err(Refusal::unimplemented(format_args!(
                "{event:?} as a StateChange"
            )));
        }
        self.notify(event, unbox(request.pod), request.container.into_option())
            .await
    }

    /// The style of NRI 0.12 and later, one method an event. On the wire all their requests are alike: field 1 is the pod and,
    /// for events of containers, field 2 the container.
    async fn notification(&self, method: &str, payload: &[u8]) -> Result<Reply, Refusal> {
        let event = match method {
            "RunPodSandbox" => Event::RUN_POD_SANDBOX,
            "StopPodSandbox" => Event::STOP_POD_SANDBOX,
            "RemovePodSandbox" => Event::REMOVE_POD_SANDBOX,
            "PostUpdatePodSandbox" => Event::POST_UPDATE_POD_SANDBOX,
            "PostCreateContainer" => Event::POST_CREATE_CONTAINER,
            "StartContainer" => Event::START_CONTAINER,
            "PostStartContainer" => Event::POST_START_CONTAINER,
            "PostUpdateContainer" => Event::POST_UPDATE_CONTAINER,
            "RemoveContainer" => Event::REMOVE_CONTAINER,
            _ => {
                return Err(Refusal::unimplemented(format_args!(
                    "the method {method:?}"
                )));
            }
        };
        if method.ends_with("Sandbox") {
            let request: api::RunPodSandboxRequest = decode(method, payload)?;
            return self.notify(event, unbox(request.pod), None).await;
        }
        let request: api::StartContainerRequest = decode(method, payload)?;
        self.notify(event, unbox(request.pod), request.container.into_option())
            .await
    }

    async fn notify(
        &self,
        event: Event,
        pod: api::PodSandbox,
        container: Option<api::Container>,
    ) -> Result<Reply, Refusal> {
        self.subscribed(event)?;
        if event == Event::START_CONTAINER {
            self.plugin
                .start_container(pod, container.unwrap_or_default())
                .await?;
        } else {
            self.plugin.event(event, pod, container).await?;
        }
        Ok(empty())
    }
}

fn empty() -> Reply {
    Reply {
        payload: Vec::new(),
        milestone: None,
    }
}

fn decode<M: Message>(method: &str, payload: &[u8]) -> Result<M, Refusal> {
    M::parse_from_bytes(payload).map_err(|error| {
        Refusal::new(format!("undecodable {method} request: {error}"))
            .with_code(RefusalCode::InvalidArgument)
    })
}

/// A message that the peer left out reads as an empty one, as everywhere in proto3.
fn unbox<M: Default>(field: MessageField<M>) -> M {
    field.into_option().unwrap_or_default()
}
