//! A peer that is slow, torn, wrong or malicious, byte by byte: the plugin answers, drops or closes with a reason, never hangs,
//! and comes back.

use std::sync::Arc;
use std::time::Duration;

use nri::mux::{ConnectionId, FrameHeader, MESSAGE_LEN_MAX, Message};
use nri::protobuf::Message as _;
use nri::{Events, Status, api};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use ttrpc::proto::{MessageHeader, Request};

use super::common::{Peer, Rig, SERVICE, containerd, create, in_time};
use super::probe::Probe;

fn request(stream: u32, method: &str, payload: Vec<u8>) -> Vec<u8> {
    let request = Request {
        service: SERVICE.into(),
        method: method.into(),
        payload,
        ..Default::default()
    };
    let body = request.write_to_bytes().unwrap();
    let header = MessageHeader::new_request(stream, u32::try_from(body.len()).unwrap());
    Message { header, body }.encode()
}

fn configure(stream: u32) -> Vec<u8> {
    request(
        stream,
        "Configure",
        containerd("2.2.0").write_to_bytes().unwrap(),
    )
}

fn frame(connection: u32, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        connection: ConnectionId(connection),
        len: u32::try_from(payload.len()).unwrap(),
    };
    [&header.encode()[..], payload].concat()
}

/// Reads frames until one of the plugin's connection came; its payload.
async fn reply_bytes(stream: &mut UnixStream) -> Vec<u8> {
    loop {
        let mut header = [0; 8];
        in_time("a frame", stream.read_exact(&mut header))
            .await
            .unwrap();
        let header = FrameHeader::decode(header);
        let mut payload = vec![0; header.len as usize];
        in_time("its payload", stream.read_exact(&mut payload))
            .await
            .unwrap();
        if header.connection == ConnectionId::PLUGIN {
            return payload;
        }
    }
}

/// The reply to [`configure`] with stream 1: the events 0x3fff.
const CONFIGURED: [u8; 15] = [0, 0, 0, 5, 0, 0, 0, 1, 2, 0, 0x12, 0x03, 0x10, 0xff, 0x7f];

async fn assert_configured(stream: &mut UnixStream, what: &str) {
    assert_eq!(reply_bytes(stream).await, CONFIGURED, "{what}");
}

async fn wait_for_close(stream: &mut UnixStream, what: &str) {
    // Either way of closing will do: an end, or a reset where bytes of ours were left unread.
    let _ = in_time(what, stream.read_to_end(&mut Vec::new())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_split_at_any_byte_is_served() {
    let wire = frame(1, &configure(1));
    for at in 1..wire.len() {
        let (mut stream, _rig) = raw().await;
        stream.write_all(&wire[..at]).await.unwrap();
        stream.flush().await.unwrap();
        tokio::task::yield_now().await;
        stream.write_all(&wire[at..]).await.unwrap();
        assert_configured(&mut stream, &format!("split at {at}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_frames_of_one_byte_among_frames_of_others_is_served() {
    let (mut stream, _rig) = raw().await;
    let mut wire = Vec::new();
    for byte in configure(1) {
        wire.extend(frame(1, &[byte]));
        wire.extend(frame(7, b"nobody opened this connection"));
        wire.extend(frame(0, b"reserved"));
        wire.extend(frame(1, b""));
    }
    stream.write_all(&wire).await.unwrap();
    assert_configured(&mut stream, "one byte a frame").await;
}

async fn raw() -> (UnixStream, Rig) {
    let rig = Rig::start(Probe::subscribing(Events::ALL));
    (rig.accept_raw().await, rig)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_at_any_byte_is_survived_by_reconnecting() {
    let wire = [
        frame(1, &configure(1)),
        frame(2, &[0, 0, 0, 0, 0, 0, 0, 1, 2, 0]),
    ]
    .concat();
    // In steps, since each end costs a reconnection with its backoff; the pure tests of the mux cover each byte.
    for at in (0..wire.len()).step_by(17) {
        let mut rig = Rig::start(Probe::subscribing(Events::ALL));
        let mut stream = rig.accept_raw().await;
        stream.write_all(&wire[..at]).await.unwrap();
        drop(stream);
        rig.accept_active(&containerd("2.2.0")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn absurd_lengths_close_the_connection_and_the_plugin_comes_back() {
    let too_long_frame = FrameHeader {
        connection: ConnectionId(1),
        len: u32::MAX,
    }
    .encode()
    .to_vec();
    let message: Vec<u8> = MessageHeader::new_request(1, MESSAGE_LEN_MAX + 1).into();
    for (what, wire) in [
        ("a frame of 4 GiB", too_long_frame),
        ("a message over the maximum", frame(1, &message)),
        (
            "another protocol",
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        ),
    ] {
        let mut rig = Rig::start(Probe::subscribing(Events::ALL));
        let mut stream = rig.accept_raw().await;
        stream.write_all(&wire).await.unwrap();
        wait_for_close(&mut stream, what).await;
        rig.accept_active(&containerd("2.2.0")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_of_sixteen_mebibytes_is_taken() {
    let (mut stream, _rig) = raw().await;
    stream.write_all(&frame(1, &configure(1))).await.unwrap();
    assert_configured(&mut stream, "before").await;
    let pod = api::PodSandbox {
        id: "p".repeat((16 << 20) - 200),
        ..Default::default()
    };
    let synchronize = api::SynchronizeRequest {
        pods: vec![pod],
        ..Default::default()
    };
    let message = request(3, "Synchronize", synchronize.write_to_bytes().unwrap());
    assert!(message.len() > (16 << 20) - 200 && message.len() <= 16 << 20);
    stream.write_all(&frame(1, &message)).await.unwrap();
    assert_eq!(reply_bytes(&mut stream).await[4..8], [0, 0, 0, 3]);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_no_requests_are_dropped_and_streams_refused() {
    let (mut stream, _rig) = raw().await;
    let header = |type_, flags| MessageHeader {
        length: 0,
        stream_id: 9,
        type_,
        flags,
    };
    for type_ in [0, 2, 3, 255] {
        let bytes: Vec<u8> = header(type_, 0).into();
        stream.write_all(&frame(1, &bytes)).await.unwrap();
    }
    let streaming: Vec<u8> = header(1, 2).into();
    stream.write_all(&frame(1, &streaming)).await.unwrap();
    let reply = reply_bytes(&mut stream).await;
    assert_eq!(reply[4..10], [0, 0, 0, 9, 2, 0]);
    assert_eq!(reply[12..14], [8, 12], "UNIMPLEMENTED");
    stream.write_all(&frame(1, &configure(1))).await.unwrap();
    assert_configured(&mut stream, "after the nonsense").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_for_a_request_is_an_invalid_argument() {
    let (mut stream, _rig) = raw().await;
    let message = Message {
        header: MessageHeader::new_request(5, 7),
        body: vec![0xff; 7],
    };
    stream
        .write_all(&frame(1, &message.encode()))
        .await
        .unwrap();
    let reply = reply_bytes(&mut stream).await;
    assert_eq!(reply[4..10], [0, 0, 0, 5, 2, 0]);
    assert_eq!(reply[12..14], [8, 3], "INVALID_ARGUMENT");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_service_is_unimplemented() {
    let (mut stream, _rig) = raw().await;
    let request = Request {
        service: "other".into(),
        method: "Configure".into(),
        ..Default::default()
    };
    let body = request.write_to_bytes().unwrap();
    let header = MessageHeader::new_request(1, u32::try_from(body.len()).unwrap());
    stream
        .write_all(&frame(1, &Message { header, body }.encode()))
        .await
        .unwrap();
    assert_eq!(reply_bytes(&mut stream).await[12..14], [8, 12]);
}

/// The shape on which Go peers insist, in raw bytes: a first frame of 4096 bytes that begins with the ttrpc header, then one with
/// all the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_reply_of_one_megabyte_leaves_as_a_frame_of_4096_bytes_and_one_with_the_rest() {
    let (mut stream, _rig) = raw().await;
    stream.write_all(&frame(1, &configure(1))).await.unwrap();
    assert_configured(&mut stream, "before").await;
    let message = request(
        3,
        "CreateContainer",
        create("big 1048576").write_to_bytes().unwrap(),
    );
    stream.write_all(&frame(1, &message)).await.unwrap();
    let first = reply_bytes(&mut stream).await;
    let rest = reply_bytes(&mut stream).await;
    assert_eq!(first.len(), 4096);
    let declared = u32::from_be_bytes(first[..4].try_into().unwrap()) as usize;
    assert!(declared > 1 << 20);
    assert_eq!(first.len() + rest.len(), 10 + declared);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_taken_while_the_peer_takes_no_replies() {
    let plugin = Probe::subscribing(Events::ALL);
    let rig = Rig::start(Arc::clone(&plugin));
    let mut stream = rig.accept_raw().await;
    stream.write_all(&frame(1, &configure(1))).await.unwrap();
    assert_configured(&mut stream, "before").await;
    plugin.calls();
    // 8 MB of replies: far more than fit into the socket's buffer.
    let streams: Vec<u32> = (0..20).map(|n| 3 + 2 * n).collect();
    for id in &streams {
        let message = request(
            *id,
            "CreateContainer",
            create("big 400000").write_to_bytes().unwrap(),
        );
        in_time("a write", stream.write_all(&frame(1, &message)))
            .await
            .unwrap();
    }
    let mut served = 0;
    let all = async {
        while served < streams.len() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            served += plugin.calls().len();
        }
    };
    in_time("the plugin to be called for each", all).await;
    let mut answered = Vec::new();
    while answered.len() < streams.len() {
        let first = reply_bytes(&mut stream).await;
        reply_bytes(&mut stream).await;
        answered.push(u32::from_be_bytes(first[4..8].try_into().unwrap()));
    }
    answered.sort_unstable();
    assert_eq!(answered, streams);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_falls_back_when_an_active_connection_turns_to_garbage() {
    let mut rig = Rig::start(Probe::subscribing(Events::ALL));
    let stream = rig.accept_raw().await;
    let (read, mut write) = stream.into_split();
    // The peer's own mux speaks through one end of a pipe, so that the test can add bytes of its own.
    let (near, far) = UnixStream::pair().unwrap();
    let (mut from_peer, mut to_peer) = far.into_split();
    let inward = tokio::spawn(async move {
        let mut read = read;
        let _ = tokio::io::copy(&mut read, &mut to_peer).await;
    });
    let mut peer = Peer::over(near);
    let (turn, turned) = tokio::sync::oneshot::channel::<()>();
    let outward = tokio::spawn(async move {
        tokio::select! {
            copied = tokio::io::copy(&mut from_peer, &mut write) => panic!("the peer ended: {copied:?}"),
            turned = turned => turned.unwrap(),
        }
        write.write_all(&[0xff; 64]).await.unwrap();
        write
    });
    peer.accept_registration().await;
    peer.configure(&containerd("2.2.0")).await.unwrap();
    peer.synchronize(&api::SynchronizeRequest::default())
        .await
        .unwrap();
    rig.wait_for(Status::Registered).await;
    turn.send(()).unwrap();
    rig.wait_for(Status::Connecting).await;
    drop(outward.await.unwrap());
    inward.await.unwrap();
    rig.accept_active(&containerd("2.2.0")).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever bytes come, the session ends or waits; it neither panics nor keeps the runner from stopping.
    #[test]
    fn no_bytes_keep_a_session_from_ending(
        prefix in prop::sample::select(vec![vec![], frame(1, &configure(1))]),
        garbage in prop::collection::vec(any::<u8>(), 0..200),
        framed in any::<bool>(),
    ) {
        let garbage = if framed { frame(1, &garbage) } else { garbage };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut rig = Rig::start(Probe::subscribing(Events::ALL));
            let mut stream = rig.accept_raw().await;
            let _ = stream.write_all(&[prefix, garbage].concat()).await;
            drop(stream);
            rig.stop();
            rig.ended().await.unwrap();
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_empty_parts_of_synchronize_are_each_acknowledged() {
    let plugin = Probe::subscribing(Events::ALL);
    let rig = Rig::start(Arc::clone(&plugin));
    let mut peer = rig.accept().await;
    peer.configure(&containerd("2.1.9+unknown")).await.unwrap();
    let part = api::SynchronizeRequest {
        more: true,
        ..Default::default()
    };
    for _ in 0..1000 {
        assert!(peer.synchronize(&part).await.unwrap().more);
    }
}
