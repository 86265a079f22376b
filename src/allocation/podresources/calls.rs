//! The two methods, each one attempt, and what their failures mean.

use std::error::Error as _;

use protobuf::Message;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::Report;
use crate::allocation::api::podresources::{
    GetPodResourcesRequest, GetPodResourcesResponse, ListPodResourcesRequest,
    ListPodResourcesResponse,
};
use crate::allocation::grpc::ProtobufCodec;

/// gRPC's default of 4 MiB is too small for the `List` of a dense node.
const MAX_MESSAGE: usize = 16 << 20;

/// Why one attempt failed.
pub(super) enum Failure {
    Limited,
    GetDisabled,
    Connection(String),
    TimedOut,
    Status(&'static str, Status),
    WrongPod(String),
}

pub(super) async fn get(channel: Channel, namespace: &str, name: &str) -> Result<Report, Failure> {
    let request = GetPodResourcesRequest {
        pod_name: name.to_owned(),
        pod_namespace: namespace.to_owned(),
        ..Default::default()
    };
    let answer: Result<GetPodResourcesResponse, Status> =
        call(channel, "/v1.PodResourcesLister/Get", request).await;
    match answer {
        Ok(response) => match response.pod_resources.into_option() {
            Some(pod) if pod.namespace == namespace && pod.name == name => {
                Ok(Report::Pods(vec![pod]))
            }
            Some(pod) => Err(Failure::WrongPod(format!("{}/{}", pod.namespace, pod.name))),
            None => Err(Failure::WrongPod("no pod".to_owned())),
        },
        Err(status) if is_not_found(&status) => Ok(Report::Absent),
        Err(status) if is_disabled(&status) => Err(Failure::GetDisabled),
        Err(status) => Err(failure("Get", status)),
    }
}

pub(super) async fn list(channel: Channel, namespace: &str, name: &str) -> Result<Report, Failure> {
    let answer: Result<ListPodResourcesResponse, Status> = call(
        channel,
        "/v1.PodResourcesLister/List",
        ListPodResourcesRequest::default(),
    )
    .await;
    let mut pods = answer.map_err(|s| failure("List", s))?.pod_resources;
    pods.retain(|pod| pod.namespace == namespace && pod.name == name);
    Ok(if pods.is_empty() {
        Report::Absent
    } else {
        Report::Pods(pods)
    })
}

async fn call<T: Message, U: Message>(
    channel: Channel,
    method: &'static str,
    request: T,
) -> Result<U, Status> {
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE);
    grpc.ready()
        .await
        .map_err(|e| Status::from_error(Box::new(e)))?;
    let path = PathAndQuery::from_static(method);
    let codec = ProtobufCodec::<T, U>::default();
    let response = grpc.unary(Request::new(request), path, codec).await?;
    Ok(response.into_inner())
}

/// The kubelet answers for an unknown pod with code Unknown and this text.
fn is_not_found(status: &Status) -> bool {
    status.code() == Code::NotFound
        || status.code() == Code::Unknown
            && status.source().is_none()
            && status.message().contains("not found")
}

/// Feature gate `KubeletPodResourcesGet` off, or a kubelet from before the method.
fn is_disabled(status: &Status) -> bool {
    status.code() == Code::Unimplemented
        || status.code() == Code::Unknown
            && status.source().is_none()
            && status.message().contains("disabled")
}

fn failure(method: &'static str, status: Status) -> Failure {
    match (status.code(), status.source()) {
        (Code::ResourceExhausted, _) => Failure::Limited,
        // A status with a source was made on this side, from a broken connection.
        (_, Some(source)) => Failure::Connection(innermost(source)),
        (Code::Unavailable | Code::Cancelled, None) => {
            Failure::Connection(status.message().to_owned())
        }
        _ => Failure::Status(method, status),
    }
}

fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}
