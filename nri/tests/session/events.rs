//! What each request means for the plugin.

use super::common::{container, create};
use super::probe::{INVALID_ARGUMENT, PERMISSION_DENIED, UNIMPLEMENTED, active, pod};
use nri::{Events, api};

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
