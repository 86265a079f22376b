//! The recorded connections played again: the runtime's bytes go into a real session, whole; the plugin answers as the recorded
//! one did; what comes out must be what was recorded.

use std::collections::HashMap;
use std::sync::Arc;

use super::common::{Rig, fixtures, in_time};
use nri::mux::{Assembler, ConnectionId, Demux, FrameError, Message, encode_frames};
use nri::protobuf::Message as _;
use nri::{Adjusted, Events, Plugin, Refusal, RefusalCode, Runtime, api};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use ttrpc::proto::{MESSAGE_TYPE_REQUEST, MESSAGE_TYPE_RESPONSE, Request, Response};

/// Answers `CreateContainer` as recorded, by container id. A container without a recorded answer is one whose request outlived
/// the recorded connection; it stays without an answer.
struct Recorded(HashMap<String, Response>);

#[async_trait::async_trait]
impl Plugin for Recorded {
    fn events(&self, _: &Runtime) -> Events {
        Events::from_bits(0x6ff)
    }

    async fn create_container(
        &self,
        _: api::PodSandbox,
        container: api::Container,
    ) -> Result<Adjusted, Refusal> {
        let Some(response) = self.0.get(&container.id) else {
            return std::future::pending().await;
        };
        if let Some(status) = response.status.as_ref() {
            assert_eq!(status.code.value(), 2);
            return Err(Refusal::new(&*status.message).with_code(RefusalCode::Unknown));
        }
        let answer = api::CreateContainerResponse::parse_from_bytes(&response.payload).unwrap();
        Ok(Adjusted {
            adjust: answer.adjust.into_option().unwrap_or_default(),
            update: answer.update,
        })
    }
}

struct Recording {
    r2p: Vec<u8>,
    /// The recorded replies of the plugin by stream id.
    replies: HashMap<u32, Message>,
    registration: Message,
    plugin: Arc<Recorded>,
}

fn recording(name: &str) -> Recording {
    let r2p = fixtures::stream(&format!("containerd-{name}.r2p.bin"));
    let p2r = fixtures::messages(&fixtures::stream(&format!("containerd-{name}.p2r.bin")));
    let (replies, calls): (Vec<_>, Vec<_>) = p2r
        .into_iter()
        .partition(|(id, _)| *id == ConnectionId::PLUGIN);
    assert_eq!(
        calls.len(),
        1,
        "the plugin called RegisterPlugin and nothing else"
    );
    let replies: HashMap<u32, Message> = replies
        .into_iter()
        .map(|(_, m)| (m.header.stream_id, m))
        .collect();
    let mut answers = HashMap::new();
    for (connection, message) in fixtures::messages(&r2p) {
        if connection != ConnectionId::PLUGIN {
            continue;
        }
        let request = Request::parse_from_bytes(&message.body).unwrap();
        if request.method != "CreateContainer" {
            continue;
        }
        let create = api::CreateContainerRequest::parse_from_bytes(&request.payload).unwrap();
        if let Some(reply) = replies.get(&message.header.stream_id) {
            answers.insert(
                create.container.id.clone(),
                Response::parse_from_bytes(&reply.body).unwrap(),
            );
        }
    }
    let registration = calls.into_iter().next().unwrap().1;
    Recording {
        r2p,
        replies,
        registration,
        plugin: Arc::new(Recorded(answers)),
    }
}

/// Plays the whole stream in pieces of `piece` bytes, without waiting for replies, and returns what the plugin sent until it had
/// answered as many requests as recorded.
async fn play(recording: &Recording, piece: usize) -> Vec<(ConnectionId, Message, Vec<u8>)> {
    let rig = Rig::start(Arc::clone(&recording.plugin));
    let (mut from_plugin, mut to_plugin) = rig.accept_raw().await.into_split();
    let (begin, permission) = tokio::sync::oneshot::channel();
    let mut begin = Some(begin);
    let bytes = recording.r2p.clone();
    let writer = tokio::spawn(async move {
        permission.await.unwrap();
        for piece in bytes.chunks(piece) {
            to_plugin.write_all(piece).await.unwrap();
        }
        to_plugin
    });
    let (mut demux, mut assemblers) = (Demux::new(), [Assembler::new(), Assembler::new()]);
    let (mut wire, mut sent) = (Vec::new(), Vec::new());
    let expected = |connection: ConnectionId, message: &Message| {
        connection == ConnectionId::RUNTIME
            || recording.replies.contains_key(&message.header.stream_id)
    };
    let is_whole = |sent: &[(ConnectionId, Message, Vec<u8>)]| {
        sent.iter()
            .filter(|(connection, message, _)| expected(*connection, message))
            .count()
            == recording.replies.len() + 1
    };
    while !is_whole(&sent) {
        let mut buffer = vec![0; 4096];
        let len = in_time("the plugin's bytes", from_plugin.read(&mut buffer))
            .await
            .unwrap();
        assert_ne!(len, 0, "the plugin hung up after {} messages", sent.len());
        // The plugin speaks first: no runtime answers a registration that has not come.
        if let Some(begin) = begin.take() {
            begin.send(()).unwrap();
        }
        wire.extend_from_slice(&buffer[..len]);
        demux
            .feed(&buffer[..len], |connection, piece| {
                assemblers[usize::from(connection == ConnectionId::RUNTIME)].feed(
                    piece,
                    |message| {
                        let frames = encode_frames(connection, &message.encode());
                        sent.push((connection, message, frames));
                        Ok::<_, FrameError>(())
                    },
                )
            })
            .unwrap();
    }
    // The frames in the order of their completion are the very bytes that came.
    assert_eq!(
        sent.iter()
            .flat_map(|(_, _, frames)| frames.clone())
            .collect::<Vec<_>>(),
        wire
    );
    drop(writer.await.unwrap());
    sent
}

async fn replays(name: &str, piece: usize) {
    let recording = recording(name);
    let mut replies = recording.replies.clone();
    for (connection, message, _) in play(&recording, piece).await {
        if connection == ConnectionId::RUNTIME {
            assert_eq!(message.header.type_, MESSAGE_TYPE_REQUEST);
            let (ours, theirs) = (request(&message), request(&recording.registration));
            // All but the deadline, which is each sender's own.
            assert_eq!(
                (ours.service, ours.method, ours.payload),
                (theirs.service, theirs.method, theirs.payload)
            );
            continue;
        }
        assert_eq!(message.header.type_, MESSAGE_TYPE_RESPONSE);
        if !recording.replies.contains_key(&message.header.stream_id) {
            // The recorded plugin was too slow there; ours answers with an error instead.
            let response = Response::parse_from_bytes(&message.body).unwrap();
            assert!(
                response
                    .status()
                    .message()
                    .contains("had no answer to CreateContainer")
            );
            continue;
        }
        let recorded = replies
            .remove(&message.header.stream_id)
            .expect("one reply a request");
        assert_eq!(
            message.encode(),
            recorded.encode(),
            "stream {}",
            message.header.stream_id
        );
    }
    assert!(replies.is_empty(), "unanswered: {:?}", replies.keys());
}

fn request(message: &Message) -> Request {
    Request::parse_from_bytes(&message.body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connection_to_containerd_1_7_replays_byte_for_byte() {
    replays("17", usize::MAX).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connection_to_containerd_2_1_replays_byte_for_byte() {
    replays("21", usize::MAX).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connection_to_containerd_2_4_replays_byte_for_byte() {
    replays("24", usize::MAX).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_in_small_odd_pieces_gives_the_same_bytes() {
    replays("24", 13).await;
}
