//! Every recorded message: framing, ttrpc envelope and NRI payload decode, and encode to the recorded bytes again.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod common {
    pub mod fixtures;
}

use std::collections::HashMap;

use common::fixtures::{Vector, unhex, vectors};
use nri::mux::{Assembler, ConnectionId, Demux, FrameError, FrameHeader, Message, encode_frames};
use nri::protobuf::reflect::{MessageRef, ReflectFieldRef, ReflectValueRef};
use nri::protobuf::{Message as _, MessageFull};
use nri::{Refusal, RefusalCode, api};
use ttrpc::proto::{Code, Request, Response};

/// Decodes as `M`, checks that no field was unknown to our proto file, and that nothing was lost. Compared by length and value:
/// the order of map entries on the wire is the sender's choice.
fn round_trip<M: MessageFull>(bytes: &[u8], what: &str) {
    let message = M::parse_from_bytes(bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_no_unknown_fields(&MessageRef::new(&message), what);
    let again = message.write_to_bytes().unwrap();
    assert_eq!(again.len(), bytes.len(), "{what}");
    assert_eq!(M::parse_from_bytes(&again).unwrap(), message, "{what}");
}

fn assert_no_unknown_fields(message: &MessageRef<'_>, what: &str) {
    let descriptor = message.descriptor_dyn();
    let unknown: Vec<_> = message
        .unknown_fields_dyn()
        .iter()
        .map(|(number, _)| number)
        .collect();
    assert!(
        unknown.is_empty(),
        "{what}: unknown fields {unknown:?} of {}",
        descriptor.name()
    );
    let check = |value: ReflectValueRef<'_>| {
        if let ReflectValueRef::Message(inner) = value {
            assert_no_unknown_fields(&inner, what);
        }
    };
    for field in descriptor.fields() {
        match field.get_reflect(&**message) {
            ReflectFieldRef::Optional(value) => value.value().into_iter().for_each(check),
            ReflectFieldRef::Repeated(values) => values.into_iter().for_each(check),
            ReflectFieldRef::Map(entries) => {
                for (_, value) in &entries {
                    check(value);
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "unknown fields [4000] of Mount")]
fn the_check_for_unknown_fields_looks_into_nested_messages() {
    let mut mount = api::Mount::new();
    mount
        .special_fields
        .mut_unknown_fields()
        .add_varint(4000, 1);
    let container = api::Container {
        mounts: vec![mount],
        ..Default::default()
    };
    round_trip::<api::Container>(&container.write_to_bytes().unwrap(), "a container");
}

fn round_trip_request(method: &str, bytes: &[u8], what: &str) {
    match method {
        "RegisterPlugin" => round_trip::<api::RegisterPluginRequest>(bytes, what),
        "Configure" => round_trip::<api::ConfigureRequest>(bytes, what),
        "Synchronize" => round_trip::<api::SynchronizeRequest>(bytes, what),
        "StateChange" => round_trip::<api::StateChangeEvent>(bytes, what),
        "RunPodSandbox" => round_trip::<api::RunPodSandboxRequest>(bytes, what),
        "StopPodSandbox" => round_trip::<api::StopPodSandboxRequest>(bytes, what),
        "RemovePodSandbox" => round_trip::<api::RemovePodSandboxRequest>(bytes, what),
        "CreateContainer" => round_trip::<api::CreateContainerRequest>(bytes, what),
        "PostCreateContainer" => round_trip::<api::PostCreateContainerRequest>(bytes, what),
        "StartContainer" => round_trip::<api::StartContainerRequest>(bytes, what),
        "PostStartContainer" => round_trip::<api::PostStartContainerRequest>(bytes, what),
        "StopContainer" => round_trip::<api::StopContainerRequest>(bytes, what),
        "RemoveContainer" => round_trip::<api::RemoveContainerRequest>(bytes, what),
        other => panic!("{what}: no case for {other}"),
    }
}

fn round_trip_response(method: &str, bytes: &[u8], what: &str) {
    match method {
        "Configure" => round_trip::<api::ConfigureResponse>(bytes, what),
        "Synchronize" => round_trip::<api::SynchronizeResponse>(bytes, what),
        "CreateContainer" => round_trip::<api::CreateContainerResponse>(bytes, what),
        "StopContainer" => round_trip::<api::StopContainerResponse>(bytes, what),
        _ => assert!(bytes.is_empty(), "{what}: {method} answers nothing"),
    }
}

/// The methods of the recorded requests, for the replies that follow them.
fn methods(vectors: &[Vector]) -> HashMap<(String, u32, u32), String> {
    let requests = vectors.iter().filter_map(|v| Some((v, v.method.clone()?)));
    requests
        .map(|(v, method)| ((v.capture.clone(), v.mux_conn, v.ttrpc.stream_id), method))
        .collect()
}

#[test]
fn every_vector_survives_the_mux_in_the_recorded_frames() {
    for vector in vectors() {
        let message = unhex(&vector.ttrpc_message_hex);
        let mut wire = Vec::new();
        let mut rest = &message[..];
        for len in &vector.mux_frame_lengths {
            let (payload, tail) = rest.split_at(*len);
            let header = FrameHeader {
                connection: ConnectionId(vector.mux_conn),
                len: u32::try_from(*len).unwrap(),
            };
            wire.extend(header.encode());
            wire.extend(payload);
            rest = tail;
        }
        assert!(
            rest.is_empty(),
            "{}: the frames hold the message",
            vector.name()
        );

        let (mut assembler, mut got) = (Assembler::new(), Vec::<Message>::new());
        let mut demux = Demux::new();
        demux
            .feed(&wire, |connection, piece| {
                assert_eq!(connection.0, vector.mux_conn);
                assembler.feed(piece, |message| {
                    got.push(message);
                    Ok::<_, FrameError>(())
                })
            })
            .unwrap();
        assert_eq!(got.len(), 1, "{}", vector.name());
        let header = got[0].header;
        assert_eq!(
            (header.length, header.stream_id, header.type_, header.flags),
            (
                vector.ttrpc.len,
                vector.ttrpc.stream_id,
                vector.ttrpc.type_,
                vector.ttrpc.flags
            )
        );
        assert_eq!(got[0].encode(), message);
        if vector.is_by_go() {
            // Both sides of the recordings are Go, in the shape that we have to send: our frames must equal theirs.
            assert_eq!(
                encode_frames(ConnectionId(vector.mux_conn), &message),
                wire,
                "{}",
                vector.name()
            );
        }
    }
}

#[test]
fn every_vectors_payload_is_known_to_the_last_field() {
    let vectors = vectors();
    assert_eq!(vectors.len(), 126);
    let methods = methods(&vectors);
    for vector in &vectors {
        let body = &unhex(&vector.ttrpc_message_hex)[10..];
        let name = vector.name();
        if let Some(method) = &vector.method {
            let request = Request::parse_from_bytes(body).unwrap();
            assert_eq!(Some(&request.service), vector.service.as_ref(), "{name}");
            assert_eq!(&request.method, method, "{name}");
            assert_eq!(Some(request.timeout_nano), vector.timeout_nano, "{name}");
            assert_eq!(
                request.payload,
                unhex(vector.request_payload_hex.as_deref().unwrap_or("")),
                "{name}"
            );
            round_trip_request(method, &request.payload, &name);
            continue;
        }
        let response = Response::parse_from_bytes(body).unwrap();
        assert_eq!(
            response.payload,
            unhex(vector.response_payload_hex.as_deref().unwrap_or("")),
            "{name}"
        );
        let status = response
            .status
            .as_ref()
            .map(|status| status.write_to_bytes().unwrap());
        assert_eq!(
            status.unwrap_or_default(),
            unhex(vector.status_hex.as_deref().unwrap_or("")),
            "{name}"
        );
        let key = (
            vector.capture.clone(),
            vector.mux_conn,
            vector.ttrpc.stream_id,
        );
        let method = vector.in_reply_to.as_ref().or_else(|| methods.get(&key));
        if let Some(method) = method {
            round_trip_response(method, &response.payload, &name);
        }
    }
}

/// What the plugin sends in the Go recordings equals what we encode, **all bytes of it**: success without status, empty answers
/// without payload. Not compared: the recording with the Rust ttrpc server, which puts an empty status (`0a 00`) before
/// each payload; both are accepted by runtimes, and we send Go's. The session's own output is compared in `replay.rs`.
#[test]
fn what_a_plugin_sends_encodes_to_gos_bytes() {
    let mut compared = 0;
    for vector in vectors()
        .iter()
        .filter(|v| v.is_from_plugin() && v.is_by_go())
    {
        let body = unhex(&vector.ttrpc_message_hex)[10..].to_vec();
        let ours = if let Some(method) = &vector.method {
            let payload = unhex(vector.request_payload_hex.as_deref().unwrap());
            let payload = api::RegisterPluginRequest::parse_from_bytes(&payload)
                .unwrap()
                .write_to_bytes()
                .unwrap();
            let request = Request {
                service: vector.service.clone().unwrap(),
                method: method.clone(),
                payload,
                timeout_nano: vector.timeout_nano.unwrap(),
                ..Default::default()
            };
            request.write_to_bytes().unwrap()
        } else {
            let payload = unhex(vector.response_payload_hex.as_deref().unwrap_or(""));
            let payload = match vector.in_reply_to.as_deref() {
                Some("Configure") => api::ConfigureResponse::parse_from_bytes(&payload)
                    .unwrap()
                    .write_to_bytes(),
                Some("CreateContainer") => api::CreateContainerResponse::parse_from_bytes(&payload)
                    .unwrap()
                    .write_to_bytes(),
                _ => Ok(payload),
            };
            let mut response = Response {
                payload: payload.unwrap(),
                ..Default::default()
            };
            if vector.status_hex.is_some() {
                let refusal = Refusal::new("deny: gpu policy").with_code(RefusalCode::Unknown);
                response.status = Some(refusal.into()).into();
            }
            response.write_to_bytes().unwrap()
        };
        assert_eq!(ours, body, "{}", vector.name());
        compared += 1;
    }
    assert!(compared > 60, "only {compared} vectors are the plugin's");
}

#[test]
fn the_rust_servers_refusal_of_an_unsplit_synchronize_is_as_described() {
    let vectors = vectors();
    let refusals = vectors
        .iter()
        .filter(|v| !v.is_by_go() && v.in_reply_to.as_deref() == Some("Synchronize"));
    let bodies: Vec<_> = refusals
        .map(|v| unhex(&v.ttrpc_message_hex)[10..].to_vec())
        .collect();
    assert_eq!(bodies.len(), 1);
    let response = Response::parse_from_bytes(&bodies[0]).unwrap();
    assert_eq!(response.status().code(), Code::INVALID_ARGUMENT);
}
