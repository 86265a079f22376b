//! The recorded traffic in `tests/fixtures`: reads `vectors.json` and cuts the raw streams into messages.

#![allow(
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    reason = "each test binary uses its part"
)]

use std::path::PathBuf;

use nri::mux::{Assembler, ConnectionId, Demux, FrameError, Message};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub struct Vector {
    pub capture: String,
    pub dir: String,
    pub mux_conn: u32,
    pub mux_frame_lengths: Vec<usize>,
    pub ttrpc: Header,
    pub service: Option<String>,
    pub method: Option<String>,
    pub timeout_nano: Option<i64>,
    pub request_payload_hex: Option<String>,
    pub in_reply_to: Option<String>,
    pub status_hex: Option<String>,
    pub response_payload_hex: Option<String>,
    pub ttrpc_message_hex: String,
}

#[derive(Debug, Deserialize)]
pub struct Header {
    pub len: u32,
    pub stream_id: u32,
    #[serde(rename = "type")]
    pub type_: u8,
    pub flags: u8,
}

impl Vector {
    pub fn is_from_plugin(&self) -> bool {
        self.dir == "plugin->runtime"
    }

    pub fn is_by_go(&self) -> bool {
        self.capture.starts_with("go-plugin")
    }

    pub fn name(&self) -> String {
        format!(
            "{} {} stream {}",
            self.capture, self.dir, self.ttrpc.stream_id
        )
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

pub fn vectors() -> Vec<Vector> {
    serde_json::from_slice(&std::fs::read(path("vectors.json")).unwrap()).unwrap()
}

pub fn stream(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap()
}

pub fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// All messages of a recorded trunk, in order, with their connections.
pub fn messages(trunk: &[u8]) -> Vec<(ConnectionId, Message)> {
    let mut messages = Vec::new();
    let mut assemblers = [Assembler::new(), Assembler::new()];
    let mut demux = Demux::new();
    demux
        .feed(trunk, |connection, piece| {
            let index = usize::from(connection != ConnectionId::PLUGIN);
            assemblers[index].feed(piece, |message| {
                messages.push((connection, message));
                Ok::<_, FrameError>(())
            })
        })
        .unwrap();
    demux.finish().unwrap();
    assert!(
        assemblers
            .iter()
            .all(|assembler| !assembler.is_within_message())
    );
    messages
}
