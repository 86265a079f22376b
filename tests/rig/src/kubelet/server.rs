//! `v1.PodResourcesLister` over the state of the stand-in.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use gpu_warden::allocation::api::podresources::{
    CDIDevice, ClaimResource, ContainerDevices, ContainerResources, DynamicResource,
    GetPodResourcesRequest, GetPodResourcesResponse, ListPodResourcesRequest,
    ListPodResourcesResponse, PodResources,
};
use gpu_warden::allocation::grpc::ProtobufCodec;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::{Request, Response, Status};

use super::{Container, Faults, Pod, State};

/// A token bucket over all clients.
#[derive(Debug, Clone, Copy)]
pub struct RateLimit {
    /// Calls per second.
    pub per_second: f64,
    /// Calls at once.
    pub burst: f64,
}

impl RateLimit {
    /// A real kubelet's.
    pub const KUBELET: Self = Self {
        per_second: 100.0,
        burst: 10.0,
    };
}

/// Counts of calls, rejected ones included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// Of `Get`.
    pub get: usize,
    /// Of `List`.
    pub list: usize,
    /// Of both, rejected by the rate limit.
    pub rejected: usize,
}

#[derive(Debug, Default)]
pub(super) struct Bucket(Option<(Instant, f64)>);

impl Bucket {
    fn take(&mut self, limit: RateLimit, now: Instant) -> bool {
        let tokens = match self.0 {
            None => limit.burst,
            Some((at, left)) => {
                let refill = now.duration_since(at).as_secs_f64() * limit.per_second;
                (left + refill).min(limit.burst)
            }
        };
        let granted = tokens >= 1.0;
        self.0 = Some((now, if granted { tokens - 1.0 } else { tokens }));
        granted
    }
}

/// Serves until the runtime ends.
pub(super) async fn serve(listener: UnixListener, state: Arc<Mutex<State>>) {
    let incoming = UnixListenerStream::new(listener);
    let served = tonic::transport::Server::builder()
        .serve_with_incoming(Lister(state), incoming)
        .await;
    if let Err(e) = served {
        // Nobody else would hear of it, and the test would blame the client.
        panic!("the stand-in kubelet can't serve: {e}");
    }
}

#[derive(Debug, Clone)]
struct Lister(Arc<Mutex<State>>);

impl Service<http::Request<Body>> for Lister {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let lister = self.clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/v1.PodResourcesLister/Get" => {
                    let codec =
                        ProtobufCodec::<GetPodResourcesResponse, GetPodResourcesRequest>::default();
                    let method = tower::service_fn(move |request| get(lister.clone(), request));
                    tonic::server::Grpc::new(codec).unary(method, request).await
                }
                "/v1.PodResourcesLister/List" => {
                    let codec =
                        ProtobufCodec::<ListPodResourcesResponse, ListPodResourcesRequest>::default(
                        );
                    let method = tower::service_fn(move |request| list(lister.clone(), request));
                    tonic::server::Grpc::new(codec).unary(method, request).await
                }
                other => Status::unimplemented(format!("no method {other}")).into_http(),
            })
        })
    }
}

async fn get(
    lister: Lister,
    request: Request<GetPodResourcesRequest>,
) -> Result<Response<GetPodResourcesResponse>, Status> {
    let (faults, pods) = lister.admit(|calls| calls.get += 1).await?;
    if faults.get_disabled {
        return Err(Status::unknown(
            "this method is disabled by its feature gate",
        ));
    }
    let asked = request.into_inner();
    // The newest of a name is the last that was added.
    let pod = pods
        .into_iter()
        .rfind(|pod| pod.namespace == asked.pod_namespace && pod.name == asked.pod_name);
    let Some(mut pod) = pod else {
        return Err(Status::unknown(format!(
            "pod {} in namespace {} not found",
            asked.pod_name, asked.pod_namespace
        )));
    };
    if faults.wrong_pod {
        pod.name.push_str("-other");
    }
    Ok(Response::new(GetPodResourcesResponse {
        pod_resources: Some(pod).into(),
        ..Default::default()
    }))
}

async fn list(
    lister: Lister,
    _: Request<ListPodResourcesRequest>,
) -> Result<Response<ListPodResourcesResponse>, Status> {
    let (_, pod_resources) = lister.admit(|calls| calls.list += 1).await?;
    Ok(Response::new(ListPodResourcesResponse {
        pod_resources,
        ..Default::default()
    }))
}

impl Lister {
    /// Counts the call, lets it suffer the faults that concern both methods, and takes the report.
    async fn admit(
        &self,
        count: impl FnOnce(&mut Calls),
    ) -> Result<(Faults, Vec<PodResources>), Status> {
        let (faults, admitted) = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            count(&mut state.calls);
            let limit = state.faults.rate_limit;
            let admitted = limit.is_none_or(|limit| state.bucket.take(limit, Instant::now()));
            state.calls.rejected += usize::from(!admitted);
            (state.faults.clone(), admitted)
        };
        if !admitted {
            return Err(Status::resource_exhausted("rejected by rate limit"));
        }
        if faults.hang {
            std::future::pending::<()>().await;
        }
        if faults.delay > Duration::ZERO {
            tokio::time::sleep(faults.delay).await;
        }
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state
            .unready_until
            .is_some_and(|until| Instant::now() < until)
        {
            return Ok((faults, Vec::new()));
        }
        let mut pods: Vec<_> = state.pods.iter().map(|pod| report(pod, &faults)).collect();
        if faults.shuffle {
            state.turn += 1;
            shuffle(&mut pods, state.turn);
        }
        Ok((faults, pods))
    }
}

fn report(pod: &Pod, faults: &Faults) -> PodResources {
    PodResources {
        name: pod.of.name.clone(),
        namespace: pod.of.namespace.clone(),
        containers: pod
            .containers
            .iter()
            .filter(|container| !container.init)
            .map(|container| report_container(pod, container, faults))
            .collect(),
        ..Default::default()
    }
}

fn report_container(pod: &Pod, container: &Container, faults: &Faults) -> ContainerResources {
    let mut devices = Vec::new();
    for (resource, ids) in &container.devices {
        // One entry per id, as the real one reports them.
        for id in faults.disagree.as_ref().unwrap_or(ids) {
            devices.push(ContainerDevices {
                resource_name: resource.clone(),
                device_ids: vec![id.clone()],
                ..Default::default()
            });
        }
    }
    let dynamic_resources = container
        .claims
        .iter()
        .map(|(claim, driver, cdi)| DynamicResource {
            claim_name: claim.clone(),
            claim_namespace: pod.of.namespace.clone(),
            claim_resources: vec![ClaimResource {
                driver_name: driver.clone(),
                cdi_devices: vec![CDIDevice {
                    name: cdi.clone(),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        })
        .collect();
    ContainerResources {
        name: container.name.clone(),
        devices,
        dynamic_resources,
        ..Default::default()
    }
}

fn shuffle(pods: &mut [PodResources], turn: usize) {
    rotate(pods, turn);
    for pod in pods {
        rotate(&mut pod.containers, turn);
        for container in &mut pod.containers {
            rotate(&mut container.devices, turn);
        }
    }
}

fn rotate<T>(items: &mut [T], turn: usize) {
    if !items.is_empty() {
        items.rotate_left(turn % items.len());
    }
}
