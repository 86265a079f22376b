//! Two ttrpc connections on one byte stream (the *trunk*), as NRI runs them over a single socket.
//!
//! Owns framing and its limits. Knows ttrpc's 10-byte header, because a Go peer needs message boundaries to show in the frames;
//! knows nothing of requests. Invariants:
//!
//! - The trunk is drained always. A connection whose messages nobody takes can't stop the other one: messages queue, and where
//!   more than [`QUEUE_BYTES_MAX`] would queue the trunk is closed with an error that says so.
//! - Frames for connections that were not opened are dropped, as the reference implementation does.
//! - A message leaves as one frame of at most 4096 bytes, or as one of 4096 and the rest; frames of one message are adjacent.
//!
//! Either side of NRI can be built on it: a test harness opens the same two connections.

mod demux;
mod error;
mod frame;
mod message;
mod socket;
mod trunk;

pub use demux::Demux;
pub use error::{FrameError, MuxError};
pub use frame::{
    ConnectionId, FIRST_FRAME_LEN, FRAME_HEADER_LEN, FRAME_LEN_MAX, FRAME_SEND_MAX, FrameHeader,
    encode_frames,
};
pub use message::{Assembler, MESSAGE_HEADER_LEN, MESSAGE_LEN_MAX, Message};
pub use trunk::{Connection, Inbox, Outbox, QUEUE_BYTES_MAX, Trunk};
