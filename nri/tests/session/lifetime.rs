//! Reconnection and shutdown, and calls to the runtime.

use super::common::{Peer, Rig, containerd, create, in_time};
use super::probe::{Probe, UNAVAILABLE, active};
use nri::protobuf::Message as _;
use nri::{Events, RuntimeHandleError, Status, api};
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    let mut delays = Vec::new();
    // A busy machine may be late once; a backoff of 50 ms or more would be there each time.
    for _ in 0..3 {
        let peer = rig.accept_active(&containerd("2.2.0")).await;
        tokio::time::sleep(Duration::from_millis(1050)).await;
        let begun = Instant::now();
        drop(peer);
        drop(rig.accept().await);
        delays.push(begun.elapsed());
        if delays
            .iter()
            .any(|delay| *delay < Duration::from_millis(45))
        {
            return;
        }
    }
    panic!("not at once: {delays:?}");
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

/// Every container that is created before the plugin is back is created without it.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_was_away_for_long_is_found_within_moments() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("nri.sock");
    let identity = nri::Identity::new("probe", "10").unwrap();
    let runner = nri::Runner::external(Probe::subscribing(Events::ALL), identity, socket.clone());
    let task = tokio::spawn(runner.run(std::future::pending()));
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(4)).await;
        let begun = Instant::now();
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        drop(in_time("a connection", listener.accept()).await.unwrap());
        assert!(begun.elapsed() < Duration::from_millis(500));
        drop(listener);
        std::fs::remove_file(&socket).unwrap();
    }
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
