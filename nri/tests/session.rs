//! A whole runner against a runtime that is played message by message: the order of the handshake, both styles of events,
//! synchronization in parts and in one piece, deadlines, panics, shutdown.

mod common;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Peer, Rig, container, containerd, create, in_time};
use nri::protobuf::Message as _;
use nri::{Adjusted, Events, Plugin, Refusal, Runtime, RuntimeHandleError, Status, api};
use tokio::sync::Notify;

const UNIMPLEMENTED: i32 = 12;
const INTERNAL: i32 = 13;
const UNAVAILABLE: i32 = 14;
const PERMISSION_DENIED: i32 = 7;
const FAILED_PRECONDITION: i32 = 9;
const INVALID_ARGUMENT: i32 = 3;

/// Notes what it is called with; container ids say how it behaves.
#[derive(Default)]
struct Probe {
    events: AtomicU32,
    calls: Mutex<Vec<String>>,
    release: Notify,
}

impl Probe {
    fn subscribing(events: Events) -> Arc<Self> {
        Arc::new(Self {
            events: AtomicU32::new(events.bits()),
            ..Self::default()
        })
    }

    fn note(&self, call: impl Into<String>) {
        self.calls.lock().unwrap().push(call.into());
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

#[async_trait::async_trait]
impl Plugin for Probe {
    fn events(&self, _: &Runtime) -> Events {
        Events::from_bits(self.events.load(Ordering::SeqCst))
    }

    async fn configure(&self, runtime: &Runtime, config: &str) -> Result<(), Refusal> {
        self.note(format!(
            "configure {} {} {config:?}",
            runtime.name, runtime.version
        ));
        if config == "bad" {
            Err(Refusal::new("no such option"))
        } else {
            Ok(())
        }
    }

    async fn synchronize(
        &self,
        pods: Vec<api::PodSandbox>,
        containers: Vec<api::Container>,
    ) -> Result<Vec<api::ContainerUpdate>, Refusal> {
        self.note(format!("synchronize {} {}", pods.len(), containers.len()));
        Ok(vec![api::ContainerUpdate {
            container_id: "updated".into(),
            ..Default::default()
        }])
    }

    async fn create_container(
        &self,
        _: api::PodSandbox,
        container: api::Container,
    ) -> Result<Adjusted, Refusal> {
        self.note(format!("create {}", container.id));
        match container.id.as_str() {
            "refuse" => return Err(Refusal::new("not this one")),
            "hang" => std::future::pending().await,
            "block" => std::thread::sleep(Duration::from_millis(1800)),
            "panic" => panic!("probe panics"),
            "wait" => self.release.notified().await,
            _ => {}
        }
        let mut adjusted = Adjusted::default();
        if let Some(len) = container.id.strip_prefix("big ") {
            let value = "x".repeat(len.parse().unwrap());
            adjusted.adjust.env.push(api::KeyValue {
                key: "BIG".into(),
                value,
                ..Default::default()
            });
        }
        Ok(adjusted)
    }

    async fn start_container(
        &self,
        _: api::PodSandbox,
        container: api::Container,
    ) -> Result<(), Refusal> {
        self.note(format!("start {}", container.id));
        if container.id == "refuse" {
            Err(Refusal::new("not started"))
        } else {
            Ok(())
        }
    }

    async fn update_container(
        &self,
        _: api::PodSandbox,
        container: api::Container,
        resources: api::LinuxResources,
    ) -> Result<Vec<api::ContainerUpdate>, Refusal> {
        self.note(format!("update {} {}", container.id, resources.cpu.cpus));
        Ok(vec![api::ContainerUpdate {
            container_id: container.id,
            ..Default::default()
        }])
    }

    async fn stop_container(
        &self,
        _: api::PodSandbox,
        container: api::Container,
    ) -> Result<Vec<api::ContainerUpdate>, Refusal> {
        self.note(format!("stop {}", container.id));
        Ok(Vec::new())
    }

    async fn validate_container_adjustment(
        &self,
        request: api::ValidateContainerAdjustmentRequest,
    ) -> Result<(), Refusal> {
        if request.container.id == "foreign" {
            Err(Refusal::new("someone added a device"))
        } else {
            Ok(())
        }
    }

    async fn event(
        &self,
        event: api::Event,
        pod: api::PodSandbox,
        container: Option<api::Container>,
    ) -> Result<(), Refusal> {
        self.note(format!(
            "{event:?} {} {:?}",
            pod.id,
            container.map(|c| c.id)
        ));
        Ok(())
    }
}

fn pod(id: &str) -> api::PodSandbox {
    api::PodSandbox {
        id: id.into(),
        ..Default::default()
    }
}

async fn active(events: Events) -> (Rig, Peer, Arc<Probe>) {
    let plugin = Probe::subscribing(events);
    let mut rig = Rig::start(Arc::clone(&plugin));
    let peer = rig.accept_active(&containerd("2.4.0-beta+unknown")).await;
    plugin.calls();
    (rig, peer, plugin)
}

// --- the handshake

#[tokio::test(flavor = "multi_thread")]
async fn configure_may_come_before_the_registration_is_answered() {
    let plugin = Probe::subscribing(Events::CREATE_CONTAINER);
    let mut rig = Rig::start(Arc::clone(&plugin));
    let mut peer = rig.accept().await;
    assert_eq!(peer.configure(&containerd("1.7.24~ds1")).await, Ok(8));
    peer.synchronize(&api::SynchronizeRequest::default())
        .await
        .unwrap();
    assert_eq!(
        *rig.status.borrow(),
        Status::Configured,
        "not registered before the answer"
    );
    peer.accept_registration().await;
    rig.wait_for(Status::Registered).await;
    assert_eq!(
        plugin.calls(),
        ["configure containerd 1.7.24~ds1 \"\"", "synchronize 0 0"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn configure_may_come_amid_the_registration() {
    let mut rig = Rig::start(Probe::subscribing(Events::CREATE_CONTAINER));
    let mut peer = rig.accept().await;
    let (registration, request) = peer.registration().await;
    assert_eq!(request.NRI_version, "v0.12.2");
    let configure = peer
        .send(
            "Configure",
            containerd("2.1.9+unknown").write_to_bytes().unwrap(),
        )
        .await;
    peer.answer(registration).await;
    assert_eq!(peer.reply().await.0, configure);
    peer.synchronize(&api::SynchronizeRequest::default())
        .await
        .unwrap();
    rig.wait_for(Status::Registered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configure_may_come_after_the_registration_is_answered() {
    let mut rig = Rig::start(Probe::subscribing(Events::CREATE_CONTAINER));
    let mut peer = rig.accept().await;
    peer.accept_registration().await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(*rig.status.borrow(), Status::Connecting);
    peer.configure(&containerd("2.1.9+unknown")).await.unwrap();
    rig.wait_for(Status::Configured).await;
    peer.synchronize(&api::SynchronizeRequest::default())
        .await
        .unwrap();
    rig.wait_for(Status::Registered).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_the_runtime_does_not_know_are_withheld() {
    let rig = Rig::start(Probe::subscribing(Events::ALL));
    let mut peer = rig.accept().await;
    assert_eq!(
        peer.configure(&containerd("2.1.9+unknown")).await,
        Ok(0x7ff)
    );
    assert_eq!(peer.configure(&containerd("2.2.0")).await, Ok(0x3fff));
    let mut request = containerd("unheard of");
    request.NRI_version = "v0.10.0".into();
    assert_eq!(peer.configure(&request).await, Ok(0x3fff));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_event_mask_is_never_sent() {
    for (events, version) in [
        (Events::NONE, "2.2.0"),
        (Events::VALIDATE_CONTAINER_ADJUSTMENT, "2.1.9"),
    ] {
        let rig = Rig::start(Probe::subscribing(events));
        let (code, message) = rig
            .accept()
            .await
            .configure(&containerd(version))
            .await
            .unwrap_err();
        assert_eq!(code, FAILED_PRECONDITION);
        assert!(message.contains("none of the events"), "{message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_the_plugin_refuses_is_answered_with_its_error() {
    let rig = Rig::start(Probe::subscribing(Events::CREATE_CONTAINER));
    let mut peer = rig.accept().await;
    let request = api::ConfigureRequest {
        config: "bad".into(),
        ..containerd("2.2.0")
    };
    assert_eq!(
        peer.configure(&request).await,
        Err((PERMISSION_DENIED, "no such option".into()))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_close_right_after_configure_is_tried_again_without_the_newer_events_and_then_with_them()
{
    let rig = Rig::start(Probe::subscribing(Events::ALL));
    for expected in [0x3fff, 0x7ff, 0x3fff] {
        let mut peer = rig.accept().await;
        peer.accept_registration().await;
        assert_eq!(peer.configure(&containerd("2.2.0")).await, Ok(expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_registration_is_tried_again() {
    let rig = Rig::start(Probe::subscribing(Events::CREATE_CONTAINER));
    for _ in 0..2 {
        let mut peer = rig.accept().await;
        let (stream, _) = peer.registration().await;
        let body = ttrpc::proto::Response {
            status: Some(Refusal::new("plugins are disabled").into()).into(),
            ..Default::default()
        };
        let body = body.write_to_bytes().unwrap();
        let header =
            ttrpc::proto::MessageHeader::new_response(stream, u32::try_from(body.len()).unwrap());
        peer.runtime
            .outbox
            .send(nri::mux::Message { header, body })
            .await;
        peer.closed().await;
    }
}

// --- synchronization

#[tokio::test(flavor = "multi_thread")]
async fn parts_are_acknowledged_without_updates_and_the_plugin_is_called_once() {
    let plugin = Probe::subscribing(Events::CREATE_CONTAINER);
    let rig = Rig::start(Arc::clone(&plugin));
    let mut peer = rig.accept().await;
    peer.configure(&containerd("2.1.9+unknown")).await.unwrap();
    plugin.calls();
    let part = |pods: usize, containers: usize, more| api::SynchronizeRequest {
        pods: vec![pod("p"); pods],
        containers: vec![container("c"); containers],
        more,
        ..Default::default()
    };
    for (pods, containers) in [(2, 0), (1, 3), (0, 0), (0, 0)] {
        let response = peer
            .synchronize(&part(pods, containers, true))
            .await
            .unwrap();
        assert!(response.more && response.update.is_empty());
    }
    assert_eq!(plugin.calls(), Vec::<String>::new());
    let response = peer.synchronize(&part(0, 4, false)).await.unwrap();
    assert!(!response.more);
    assert_eq!(response.update[0].container_id, "updated");
    assert_eq!(plugin.calls(), ["synchronize 3 7"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_synchronize_of_ten_megabytes_in_one_message_is_served() {
    let plugin = Probe::subscribing(Events::CREATE_CONTAINER);
    let rig = Rig::start(Arc::clone(&plugin));
    let mut peer = rig.accept().await;
    peer.configure(&containerd("1.7.24~ds1")).await.unwrap();
    plugin.calls();
    let heavy = api::Container {
        env: vec!["E".repeat(3000)],
        ..container("c")
    };
    let request = api::SynchronizeRequest {
        containers: vec![heavy; 3500],
        ..Default::default()
    };
    assert!(request.compute_size() > 10 << 20);
    assert!(!peer.synchronize(&request).await.unwrap().more);
    assert_eq!(plugin.calls(), ["synchronize 0 3500"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn synchronize_before_configure_is_refused() {
    let rig = Rig::start(Probe::subscribing(Events::CREATE_CONTAINER));
    let (code, _) = rig
        .accept()
        .await
        .synchronize(&api::SynchronizeRequest::default())
        .await
        .unwrap_err();
    assert_eq!(code, FAILED_PRECONDITION);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_sent_without_waiting_reach_the_plugin_in_the_order_of_the_protocol() {
    let plugin = Probe::subscribing(Events::CREATE_CONTAINER);
    let rig = Rig::start(Arc::clone(&plugin));
    let mut peer = rig.accept().await;
    peer.send("Configure", containerd("2.2.0").write_to_bytes().unwrap())
        .await;
    peer.send("Synchronize", Vec::new()).await;
    peer.send("CreateContainer", create("c").write_to_bytes().unwrap())
        .await;
    for stream in [1, 3, 5] {
        let (answered, response) = peer.reply().await;
        assert_eq!((answered, response.status.is_none()), (stream, true));
    }
    assert_eq!(
        plugin.calls(),
        [
            "configure containerd 2.2.0 \"\"",
            "synchronize 0 0",
            "create c"
        ]
    );
}

// --- events

#[tokio::test(flavor = "multi_thread")]
async fn both_styles_of_events_reach_the_same_methods() {
    let (_rig, mut peer, plugin) = active(Events::ALL).await;
    let pods = [
        ("RunPodSandbox", api::Event::RUN_POD_SANDBOX),
        ("StopPodSandbox", api::Event::STOP_POD_SANDBOX),
        ("RemovePodSandbox", api::Event::REMOVE_POD_SANDBOX),
        ("PostUpdatePodSandbox", api::Event::POST_UPDATE_POD_SANDBOX),
    ];
    for (method, event) in pods {
        let request = api::RunPodSandboxRequest {
            pod: Some(pod("p")).into(),
            ..Default::default()
        };
        peer.call::<api::Empty>(method, &request).await.unwrap();
        let change = api::StateChangeEvent {
            event: event.into(),
            pod: Some(pod("p")).into(),
            ..Default::default()
        };
        peer.call::<api::Empty>("StateChange", &change)
            .await
            .unwrap();
        let expected = format!("{event:?} p None");
        assert_eq!(plugin.calls(), [expected.clone(), expected]);
    }
    let containers = [
        (
            "PostCreateContainer",
            api::Event::POST_CREATE_CONTAINER,
            "POST_CREATE_CONTAINER p Some(\"c\")",
        ),
        ("StartContainer", api::Event::START_CONTAINER, "start c"),
        (
            "PostStartContainer",
            api::Event::POST_START_CONTAINER,
            "POST_START_CONTAINER p Some(\"c\")",
        ),
        (
            "PostUpdateContainer",
            api::Event::POST_UPDATE_CONTAINER,
            "POST_UPDATE_CONTAINER p Some(\"c\")",
        ),
        (
            "RemoveContainer",
            api::Event::REMOVE_CONTAINER,
            "REMOVE_CONTAINER p Some(\"c\")",
        ),
    ];
    for (method, event, expected) in containers {
        let request = api::StartContainerRequest {
            pod: Some(pod("p")).into(),
            container: Some(container("c")).into(),
            ..Default::default()
        };
        peer.call::<api::Empty>(method, &request).await.unwrap();
        let change = api::StateChangeEvent {
            event: event.into(),
            pod: Some(pod("p")).into(),
            container: Some(container("c")).into(),
            ..Default::default()
        };
        peer.call::<api::Empty>("StateChange", &change)
            .await
            .unwrap();
        assert_eq!(plugin.calls(), [expected, expected]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_with_answers_carry_them() {
    let (_rig, mut peer, plugin) = active(Events::ALL).await;
    let cpu = api::LinuxCPU {
        cpus: "0-3".into(),
        ..Default::default()
    };
    let update = api::UpdateContainerRequest {
        container: Some(container("u")).into(),
        linux_resources: Some(api::LinuxResources {
            cpu: Some(cpu).into(),
            ..Default::default()
        })
        .into(),
        ..Default::default()
    };
    let response: api::UpdateContainerResponse =
        peer.call("UpdateContainer", &update).await.unwrap();
    assert_eq!(response.update[0].container_id, "u");
    let stop = api::StopContainerRequest {
        container: Some(container("s")).into(),
        ..Default::default()
    };
    peer.call::<api::StopContainerResponse>("StopContainer", &stop)
        .await
        .unwrap();
    let update = api::UpdatePodSandboxRequest {
        pod: Some(pod("p")).into(),
        ..Default::default()
    };
    peer.call::<api::UpdatePodSandboxResponse>("UpdatePodSandbox", &update)
        .await
        .unwrap();
    assert_eq!(
        plugin.calls(),
        ["update u 0-3", "stop s", "UPDATE_POD_SANDBOX p None"]
    );

    for (id, reject, reason) in [
        ("ours", false, ""),
        ("foreign", true, "someone added a device"),
    ] {
        let request = api::ValidateContainerAdjustmentRequest {
            container: Some(container(id)).into(),
            ..Default::default()
        };
        let response: api::ValidateContainerAdjustmentResponse = peer
            .call("ValidateContainerAdjustment", &request)
            .await
            .unwrap();
        assert_eq!(
            (response.reject, response.reason.as_str()),
            (reject, reason)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_fail_the_request_and_keep_the_connection() {
    let (_rig, mut peer, _) = active(Events::ALL).await;
    let refused = peer
        .call::<api::CreateContainerResponse>("CreateContainer", &create("refuse"))
        .await;
    assert_eq!(refused, Err((PERMISSION_DENIED, "not this one".into())));
    let start = api::StartContainerRequest {
        container: Some(container("refuse")).into(),
        ..Default::default()
    };
    assert_eq!(
        peer.call::<api::Empty>("StartContainer", &start).await,
        Err((PERMISSION_DENIED, "not started".into()))
    );
    peer.call::<api::CreateContainerResponse>("CreateContainer", &create("c"))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_subscribed_or_not_known_is_unimplemented() {
    let (_rig, mut peer, plugin) = active(Events::REMOVE_CONTAINER).await;
    for method in [
        "CreateContainer",
        "UpdateContainer",
        "StopContainer",
        "ValidateContainerAdjustment",
        "UpdatePodSandbox",
        "RunPodSandbox",
        "StopPodSandbox",
        "RemovePodSandbox",
        "PostUpdatePodSandbox",
        "PostCreateContainer",
        "StartContainer",
        "PostStartContainer",
        "PostUpdateContainer",
        "NoSuchMethod",
        "",
    ] {
        assert_eq!(
            peer.call_raw(method, Vec::new()).await.unwrap_err().0,
            UNIMPLEMENTED,
            "{method}"
        );
    }
    for event in [0, 1, 4, 8, 10, 14, 15, 99, -1] {
        let event = nri::protobuf::EnumOrUnknown::from_i32(event);
        let change = api::StateChangeEvent {
            event,
            ..Default::default()
        };
        assert_eq!(
            peer.call::<api::Empty>("StateChange", &change)
                .await
                .unwrap_err()
                .0,
            UNIMPLEMENTED,
            "{event:?}"
        );
    }
    assert_eq!(plugin.calls(), Vec::<String>::new());
    peer.call_raw("RemoveContainer", Vec::new()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undecodable_payload_is_an_invalid_argument() {
    let (_rig, mut peer, _) = active(Events::ALL).await;
    let (code, message) = peer
        .call_raw("CreateContainer", vec![0xff; 9])
        .await
        .unwrap_err();
    assert_eq!(code, INVALID_ARGUMENT);
    assert!(message.contains("CreateContainer"), "{message}");
}

// --- deadlines and panics

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_handler_is_answered_with_an_error_at_sixty_percent_of_the_timeout() {
    let (_rig, mut peer, _) = active(Events::ALL).await;
    let begun = Instant::now();
    let (code, message) = peer
        .call_raw("CreateContainer", create("hang").write_to_bytes().unwrap())
        .await
        .unwrap_err();
    assert_eq!(code, INTERNAL);
    assert!(
        message.contains("CreateContainer") && message.contains("1.2s"),
        "{message}"
    );
    assert!(
        (1150..1600).contains(&begun.elapsed().as_millis()),
        "{:?}",
        begun.elapsed()
    );
    peer.call_raw("CreateContainer", create("c").write_to_bytes().unwrap())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_budget_follows_the_timeout_that_the_runtime_states() {
    let mut rig = Rig::start(Probe::subscribing(Events::ALL));
    let mut peer = rig
        .accept_active(&api::ConfigureRequest {
            request_timeout: 200,
            ..containerd("2.1.9")
        })
        .await;
    let begun = Instant::now();
    peer.call_raw("CreateContainer", create("hang").write_to_bytes().unwrap())
        .await
        .unwrap_err();
    assert!(
        (100..400).contains(&begun.elapsed().as_millis()),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_is_answered_in_time_and_blocks_nobody_else() {
    let (_rig, mut peer, _) = active(Events::ALL).await;
    let begun = Instant::now();
    let blocked = peer
        .send("CreateContainer", create("block").write_to_bytes().unwrap())
        .await;
    let quick = peer
        .send("CreateContainer", create("c").write_to_bytes().unwrap())
        .await;
    assert_eq!(peer.reply().await.0, quick);
    let (stream, response) = peer.reply().await;
    assert_eq!(
        (stream, response.status().code.value()),
        (blocked, INTERNAL)
    );
    assert!(
        begun.elapsed() < Duration::from_millis(1700),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_answered_with_an_error_and_the_next_request_is_served() {
    let (_rig, mut peer, _) = active(Events::ALL).await;
    let (code, message) = peer
        .call_raw("CreateContainer", create("panic").write_to_bytes().unwrap())
        .await
        .unwrap_err();
    assert_eq!(
        (code, message.as_str()),
        (
            INTERNAL,
            "the plugin panicked in CreateContainer: probe panics"
        )
    );
    peer.call_raw("CreateContainer", create("c").write_to_bytes().unwrap())
        .await
        .unwrap();
}

// --- big replies

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_beyond_the_limit_of_ttrpc_becomes_an_error() {
    let (_rig, mut peer, _) = active(Events::ALL).await;
    let small_enough = format!("big {}", (4 << 20) - 200);
    peer.call_raw(
        "CreateContainer",
        create(&small_enough).write_to_bytes().unwrap(),
    )
    .await
    .unwrap();
    let too_big = format!("big {}", 4 << 20);
    let (code, message) = peer
        .call_raw(
            "CreateContainer",
            create(&too_big).write_to_bytes().unwrap(),
        )
        .await
        .unwrap_err();
    assert_eq!(code, 8);
    assert!(message.contains("4194304"), "{message}");
}

// --- the end

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_connection_is_made_again_and_synchronized_again() {
    let plugin = Probe::subscribing(Events::ALL);
    let mut rig = Rig::start(Arc::clone(&plugin));
    for _ in 0..3 {
        let peer = rig.accept_active(&containerd("2.2.0")).await;
        assert_eq!(
            plugin.calls(),
            ["configure containerd 2.2.0 \"\"", "synchronize 0 0"]
        );
        drop(peer);
        rig.wait_for(Status::Connecting).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lasting_connection_that_drops_is_made_again_at_once() {
    let mut rig = Rig::start(Probe::subscribing(Events::ALL));
    let peer = rig.accept_active(&containerd("2.2.0")).await;
    tokio::time::sleep(Duration::from_millis(1050)).await;
    let begun = Instant::now();
    drop(peer);
    let _again = rig.accept().await;
    assert!(
        begun.elapsed() < Duration::from_millis(45),
        "{:?}: less than the shortest backoff",
        begun.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_socket_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("nri.sock");
    let identity = nri::Identity::new("probe", "10").unwrap();
    let runner = nri::Runner::external(Probe::subscribing(Events::ALL), identity, socket.clone());
    let task = tokio::spawn(runner.run(std::future::pending()));
    tokio::time::sleep(Duration::from_millis(200)).await;
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let stream = in_time("a connection", listener.accept()).await.unwrap().0;
    Peer::over(stream).accept_registration().await;
    task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_answers_what_is_in_flight_and_refuses_what_comes_after() {
    let (mut rig, mut peer, plugin) = active(Events::ALL).await;
    let waiting = peer
        .send("CreateContainer", create("wait").write_to_bytes().unwrap())
        .await;
    while plugin.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    rig.stop();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (code, _) = peer
        .call_raw("CreateContainer", create("late").write_to_bytes().unwrap())
        .await
        .unwrap_err();
    assert_eq!(code, UNAVAILABLE);
    plugin.release.notify_one();
    let (stream, response) = peer.reply().await;
    assert_eq!((stream, response.status.is_none()), (waiting, true));
    peer.closed().await;
    let mut status = rig.status.clone();
    rig.ended().await.unwrap();
    assert_eq!(*status.borrow_and_update(), Status::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_works_in_every_state() {
    let mut rig = Rig::start(Probe::subscribing(Events::ALL));
    let peer = rig.accept().await;
    rig.stop();
    peer.closed().await;
    rig.ended().await.unwrap();

    let missing = tempfile::tempdir().unwrap().path().join("nri.sock");
    let identity = nri::Identity::new("probe", "10").unwrap();
    let runner = nri::Runner::external(Probe::subscribing(Events::ALL), identity, missing);
    in_time(
        "the end",
        runner.run(tokio::time::sleep(Duration::from_millis(20))),
    )
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runtimes_shutdown_is_answered_and_the_plugin_comes_back() {
    let (mut rig, mut peer, _) = active(Events::ALL).await;
    peer.call::<api::Empty>("Shutdown", &api::Empty::new())
        .await
        .unwrap();
    peer.closed().await;
    rig.accept_active(&containerd("2.2.0")).await;
}

// --- the other direction

#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_can_update_containers_while_it_is_registered() {
    let plugin = Probe::subscribing(Events::ALL);
    let mut rig = Rig::start(plugin);
    let handle = rig.handle.clone();
    let update = vec![api::ContainerUpdate {
        container_id: "u".into(),
        ..Default::default()
    }];
    assert!(matches!(
        handle.update_containers(update.clone()).await,
        Err(RuntimeHandleError::NotConnected)
    ));
    let mut peer = rig.accept_active(&containerd("2.2.0")).await;
    let call = tokio::spawn(async move { handle.update_containers(update).await });
    let message = in_time("UpdateContainers", peer.runtime.inbox.recv())
        .await
        .unwrap();
    let request = ttrpc::proto::Request::parse_from_bytes(&message.body).unwrap();
    assert_eq!(request.method, "UpdateContainers");
    let request = api::UpdateContainersRequest::parse_from_bytes(&request.payload).unwrap();
    let payload = api::UpdateContainersResponse {
        failed: request.update,
        ..Default::default()
    };
    let response = ttrpc::proto::Response {
        payload: payload.write_to_bytes().unwrap(),
        ..Default::default()
    };
    let body = response.write_to_bytes().unwrap();
    let header = ttrpc::proto::MessageHeader::new_response(
        message.header.stream_id,
        u32::try_from(body.len()).unwrap(),
    );
    peer.runtime
        .outbox
        .send(nri::mux::Message { header, body })
        .await;
    assert_eq!(call.await.unwrap().unwrap()[0].container_id, "u");
}

// --- ttrpc's own types as the runtime

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

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_at_once_are_each_answered_once() {
    let (_rig, mut peer, _) = active(Events::ALL).await;
    let mut open = HashMap::new();
    for number in 0..100 {
        let id = format!("big {}", number * 500);
        open.insert(
            peer.send("CreateContainer", create(&id).write_to_bytes().unwrap())
                .await,
            number * 500,
        );
    }
    while !open.is_empty() {
        let (stream, response) = peer.reply().await;
        let len: usize = open.remove(&stream).expect("one reply a request");
        let answer = api::CreateContainerResponse::parse_from_bytes(&response.payload).unwrap();
        assert_eq!(answer.adjust.env[0].value.len(), len);
    }
}
