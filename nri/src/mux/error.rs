//! What can go wrong on a trunk.

use std::io;

use super::frame::{ConnectionId, FRAME_LEN_MAX};
use super::message::MESSAGE_LEN_MAX;
use super::trunk::QUEUE_BYTES_MAX;

/// Bytes that are no trunk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// A frame header declares more than any sender writes.
    #[error(
        "NRI frame for connection {connection} declares {len} bytes, the maximum is {FRAME_LEN_MAX}; the peer does not speak NRI"
    )]
    FrameTooLong {
        /// The frame's connection.
        connection: u32,
        /// The declared length, in bytes.
        len: u32,
    },
    /// A ttrpc header declares more than this crate takes.
    #[error("ttrpc message {stream} declares {len} bytes, the maximum is {MESSAGE_LEN_MAX}")]
    MessageTooLong {
        /// The message's stream id.
        stream: u32,
        /// The declared length of its body, in bytes.
        len: u32,
    },
    /// The stream ended within a frame.
    #[error("NRI trunk ended within a frame: {missing} bytes are missing")]
    Truncated {
        /// Bytes of the header or of the payload that did not come.
        missing: usize,
    },
}

/// Why a trunk ended, other than by an orderly close of the peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MuxError {
    /// The peer sent something that is no trunk.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Messages on one connection come faster than they are taken.
    #[error(
        "more than {QUEUE_BYTES_MAX} bytes wait on NRI connection {connection}; the peer sends faster than it can be served"
    )]
    Overflow {
        /// The connection.
        connection: ConnectionId,
    },
    /// Reading failed.
    #[error("cannot read from the NRI socket: {0}")]
    Read(#[source] io::Error),
    /// Writing failed.
    #[error("cannot write to the NRI socket: {0}")]
    Write(#[source] io::Error),
    /// The peer does not read.
    #[error("the NRI peer has not taken a message for {0:?}")]
    WriteStalled(std::time::Duration),
}
