//! `Synchronize` in parts and in one piece.

use super::common::{Rig, container, containerd, create};
use super::probe::{FAILED_PRECONDITION, Probe, pod};
use nri::protobuf::Message as _;
use nri::{Events, api};
use std::sync::Arc;

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

/// containerd 1.7.24 keeps the connection open, and would go on without the plugin.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_refused_handshake_the_plugin_begins_anew_on_another_connection() {
    let rig = Rig::start(Probe::subscribing(Events::CREATE_CONTAINER));
    let mut kept = rig.accept().await;
    let refused = kept.synchronize(&api::SynchronizeRequest::default()).await;
    refused.unwrap_err();
    let mut next = rig.accept().await;
    next.configure(&containerd("1.7.24~ds1")).await.unwrap();
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
