//! Registration and configuration, in every order, and the event mask.

use super::common::{Rig, containerd};
use super::probe::{FAILED_PRECONDITION, PERMISSION_DENIED, Probe};
use nri::protobuf::Message as _;
use nri::{Events, Refusal, Status, api};
use std::sync::Arc;
use std::time::Duration;

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
async fn two_closes_right_after_configure_are_followed_by_an_attempt_without_the_newer_events() {
    let rig = Rig::start(Probe::subscribing(Events::ALL));
    for expected in [0x3fff, 0x3fff, 0x7ff, 0x3fff] {
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

#[tokio::test(flavor = "multi_thread")]
async fn one_close_right_after_configure_costs_no_events() {
    let mut rig = Rig::start(Probe::subscribing(Events::ALL));
    let mut peer = rig.accept().await;
    peer.accept_registration().await;
    assert_eq!(peer.configure(&containerd("2.2.0")).await, Ok(0x3fff));
    drop(peer);
    drop(rig.accept_active(&containerd("2.2.0")).await);
    let mut peer = rig.accept().await;
    assert_eq!(peer.configure(&containerd("2.2.0")).await, Ok(0x3fff));
}
