//! The kubelet's side of the CRI, as far as the rig needs it.
//!
//! Owns the calls; what a pod and a container are, is in [`spec`]. Each call has its own deadline, so
//! that a hanging runtime is an error of the test and not a hanging test.

pub mod spec;

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpu_warden::allocation::grpc::ProtobufCodec;
use hyper_util::rt::TokioIo;
use protobuf::Message;
use tokio::net::UnixStream;
use tokio::sync::OnceCell;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::Failure;
pub use spec::{ContainerSpec, PodSpec};

/// Messages of runtime.v1, generated from `proto/cri.proto`.
pub mod api {
    #![allow(missing_docs, missing_debug_implementations, unreachable_pub)]
    #![allow(clippy::all, clippy::pedantic, clippy::unwrap_used)]
    include!(concat!(env!("OUT_DIR"), "/proto/mod.rs"));
}

use api::cri as pb;

/// Longer than any NRI timeout, shorter than a test's patience.
const CALL: Duration = Duration::from_mins(1);
const EXEC_SECONDS: i64 = 20;

/// A client of one containerd.
#[derive(Debug)]
pub struct Cri {
    socket: PathBuf,
    channel: OnceCell<Channel>,
}

/// A sandbox that runs, and what it was made of.
#[derive(Debug, Clone)]
pub struct Pod {
    /// Sandbox id.
    pub id: String,
    /// What was asked for.
    pub spec: PodSpec,
    config: pb::PodSandboxConfig,
}

/// What a command in a container wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Exit code.
    pub code: i32,
    /// Decoded with replacement.
    pub stdout: String,
    /// Decoded with replacement.
    pub stderr: String,
}

impl Cri {
    /// Connects on the first call.
    pub(crate) fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            channel: OnceCell::new(),
        }
    }

    /// Name and version of the runtime.
    pub async fn version(&self) -> Result<(String, String), Failure> {
        let request = pb::VersionRequest::new();
        let answer: pb::VersionResponse = self
            .call("RuntimeService", "Version", "the runtime", request)
            .await?;
        Ok((answer.runtime_name, answer.runtime_version))
    }

    /// Whether CRI knows an image of that name.
    pub async fn has_image(&self, reference: &str) -> Result<bool, Failure> {
        let mut request = pb::ImageStatusRequest::new();
        let image = request.image.mut_or_insert_default();
        reference.clone_into(&mut image.image);
        let answer: pb::ImageStatusResponse = self
            .call("ImageService", "ImageStatus", reference, request)
            .await?;
        Ok(answer.image.is_some())
    }

    /// Starts a pod's sandbox. `cgroup_parent` is [`crate::World::cgroup_parent`].
    pub async fn run_pod(&self, spec: &PodSpec, cgroup_parent: &str) -> Result<Pod, Failure> {
        let config = spec.config(cgroup_parent);
        let mut request = pb::RunPodSandboxRequest::new();
        request.config = Some(config.clone()).into();
        request.runtime_handler.clone_from(&spec.runtime_handler);
        let answer: pb::RunPodSandboxResponse =
            self.runtime("RunPodSandbox", &spec.name, request).await?;
        Ok(Pod {
            id: answer.pod_sandbox_id,
            spec: spec.clone(),
            config,
        })
    }

    /// Stops a pod and all its containers.
    pub async fn stop_pod(&self, pod: &Pod) -> Result<(), Failure> {
        let mut request = pb::StopPodSandboxRequest::new();
        request.pod_sandbox_id.clone_from(&pod.id);
        let _: pb::StopPodSandboxResponse = self
            .runtime("StopPodSandbox", &pod.spec.name, request)
            .await?;
        Ok(())
    }

    /// Removes a stopped pod.
    pub async fn remove_pod(&self, pod: &Pod) -> Result<(), Failure> {
        let mut request = pb::RemovePodSandboxRequest::new();
        request.pod_sandbox_id.clone_from(&pod.id);
        let _: pb::RemovePodSandboxResponse = self
            .runtime("RemovePodSandbox", &pod.spec.name, request)
            .await?;
        Ok(())
    }

    /// Creates a container; the answer is its id.
    pub async fn create(&self, pod: &Pod, spec: &ContainerSpec) -> Result<String, Failure> {
        let mut request = pb::CreateContainerRequest::new();
        request.pod_sandbox_id.clone_from(&pod.id);
        request.config = Some(spec.config(&pod.spec)).into();
        request.sandbox_config = Some(pod.config.clone()).into();
        let answer: pb::CreateContainerResponse =
            self.runtime("CreateContainer", &spec.name, request).await?;
        Ok(answer.container_id)
    }

    /// Starts a created container.
    pub async fn start(&self, id: &str) -> Result<(), Failure> {
        let mut request = pb::StartContainerRequest::new();
        id.clone_into(&mut request.container_id);
        let _: pb::StartContainerResponse = self.runtime("StartContainer", id, request).await?;
        Ok(())
    }

    /// Creates and starts; the answer is its id.
    pub async fn run(&self, pod: &Pod, spec: &ContainerSpec) -> Result<String, Failure> {
        let id = self.create(pod, spec).await?;
        self.start(&id).await?;
        Ok(id)
    }

    /// Stops a container, by force after `grace` seconds.
    pub async fn stop(&self, id: &str, grace: i64) -> Result<(), Failure> {
        let mut request = pb::StopContainerRequest::new();
        id.clone_into(&mut request.container_id);
        request.timeout = grace;
        let _: pb::StopContainerResponse = self.runtime("StopContainer", id, request).await?;
        Ok(())
    }

    /// Removes a container.
    pub async fn remove(&self, id: &str) -> Result<(), Failure> {
        let mut request = pb::RemoveContainerRequest::new();
        id.clone_into(&mut request.container_id);
        let _: pb::RemoveContainerResponse = self.runtime("RemoveContainer", id, request).await?;
        Ok(())
    }

    /// State, exit code, reason and message of a container.
    pub async fn status(&self, id: &str) -> Result<pb::ContainerStatus, Failure> {
        Ok(self.full_status(id).await?.0)
    }

    /// The pid of its init process, as containerd's pid namespace counts.
    pub async fn pid(&self, id: &str) -> Result<u32, Failure> {
        let info = self.info(id).await?;
        let pid = info["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        pid.ok_or_else(|| Failure::unexpected(id, "its status has no pid"))
    }

    /// The OCI spec that containerd stored for it: NRI adjustments applied, edits of OCI runtime
    /// wrappers not.
    pub async fn oci_spec(&self, id: &str) -> Result<serde_json::Value, Failure> {
        Ok(self.info(id).await?["runtimeSpec"].take())
    }

    /// All containers, in every state.
    pub async fn list(&self) -> Result<Vec<pb::Container>, Failure> {
        let request = pb::ListContainersRequest::new();
        let answer: pb::ListContainersResponse =
            self.runtime("ListContainers", "all", request).await?;
        Ok(answer.containers)
    }

    /// Runs a command in a container. A failing command is no failure of the call.
    pub async fn exec(&self, id: &str, words: &[&str]) -> Result<Output, Failure> {
        let mut request = pb::ExecSyncRequest::new();
        id.clone_into(&mut request.container_id);
        request.cmd = words.iter().map(|&word| word.to_owned()).collect();
        request.timeout = EXEC_SECONDS;
        let answer: pb::ExecSyncResponse = self.runtime("ExecSync", id, request).await?;
        Ok(Output {
            code: answer.exit_code,
            stdout: String::from_utf8_lossy(&answer.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&answer.stderr).into_owned(),
        })
    }

    async fn info(&self, id: &str) -> Result<serde_json::Value, Failure> {
        let info = self.full_status(id).await?.1;
        serde_json::from_str(&info).map_err(|e| Failure::unexpected(id, e))
    }

    async fn full_status(&self, id: &str) -> Result<(pb::ContainerStatus, String), Failure> {
        let mut request = pb::ContainerStatusRequest::new();
        id.clone_into(&mut request.container_id);
        request.verbose = true;
        let mut answer: pb::ContainerStatusResponse =
            self.runtime("ContainerStatus", id, request).await?;
        let info = answer.info.remove("info").unwrap_or_default();
        Ok((answer.status.unwrap_or_default(), info))
    }

    async fn runtime<Q: Message, A: Message>(
        &self,
        call: &'static str,
        object: &str,
        request: Q,
    ) -> Result<A, Failure> {
        self.call("RuntimeService", call, object, request).await
    }

    async fn call<Q: Message, A: Message>(
        &self,
        service: &str,
        call: &'static str,
        object: &str,
        request: Q,
    ) -> Result<A, Failure> {
        let failed = |status: tonic::Status| Failure::Cri {
            call,
            object: object.to_owned(),
            status: Box::new(status),
        };
        let path = PathAndQuery::try_from(format!("/runtime.v1.{service}/{call}"))
            .map_err(|e| Failure::unexpected(call, e))?;
        let mut grpc = Grpc::new(self.channel().await?);
        grpc.ready()
            .await
            .map_err(|e| failed(tonic::Status::unavailable(e.to_string())))?;
        let codec = ProtobufCodec::<Q, A>::default();
        let answer = grpc.unary(tonic::Request::new(request), path, codec);
        match tokio::time::timeout(CALL, answer).await {
            Ok(answer) => answer.map(tonic::Response::into_inner).map_err(failed),
            Err(_) => Err(failed(tonic::Status::deadline_exceeded("no answer"))),
        }
    }

    async fn channel(&self) -> Result<Channel, Failure> {
        let connect = async || {
            let socket = self.socket.clone();
            // The address is never resolved: the connector below ignores it.
            Endpoint::from_static("http://containerd.invalid")
                .connect_with_connector(tower::service_fn(move |_: Uri| {
                    let socket = socket.clone();
                    async move { UnixStream::connect(socket).await.map(TokioIo::new) }
                }))
                .await
                .map_err(|source| Failure::Connect {
                    path: self.socket.clone(),
                    source,
                })
        };
        self.channel.get_or_try_init(connect).await.cloned()
    }
}
