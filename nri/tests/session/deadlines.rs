//! Slow, blocking and panicking handlers, and answers that are too big.

use super::common::{Rig, containerd, create};
use super::probe::{INTERNAL, Probe, active};
use nri::protobuf::Message as _;
use nri::{Events, api};
use std::collections::HashMap;
use std::time::{Duration, Instant};

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
        (1150..1950).contains(&begun.elapsed().as_millis()),
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
        (100..1000).contains(&begun.elapsed().as_millis()),
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
        begun.elapsed() < Duration::from_secs(2),
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
