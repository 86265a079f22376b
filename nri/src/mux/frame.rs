//! The frame header and the shape in which messages are cut into frames.
//!
//! Pure. The shape is dictated by Go peers: their ttrpc reads through a 4096-byte buffer and one read must take a whole
//! frame, so the frame that begins a message must fit; and they queue 256 frames at most, so the rest must not be crumbs.

use std::fmt;

/// Length of a frame header: connection id and payload length, `u32` big-endian each.
pub const FRAME_HEADER_LEN: usize = 8;
/// Longest frame that may carry the beginning of a message, in bytes of payload.
pub const FIRST_FRAME_LEN: usize = 4096;
/// Longest frame that is sent: a ttrpc header and 4 MiB, the limit of NRI ≥ 0.7.
pub const FRAME_SEND_MAX: usize = 10 + (4 << 20);
/// Longest frame that is accepted. NRI ≤ 0.6.1 sends up to 16 MiB; a margin, then refuse.
pub const FRAME_LEN_MAX: u32 = 32 << 20;

/// One of the logical connections on a trunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u32);

impl ConnectionId {
    /// The connection on which the plugin serves.
    pub const PLUGIN: Self = Self(1);
    /// The connection on which the runtime serves.
    pub const RUNTIME: Self = Self(2);
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// The connection that the payload belongs to.
    pub connection: ConnectionId,
    /// Length of the payload, in bytes.
    pub len: u32,
}

impl FrameHeader {
    /// The header's wire form.
    pub fn encode(self) -> [u8; FRAME_HEADER_LEN] {
        (u64::from(self.connection.0) << 32 | u64::from(self.len)).to_be_bytes()
    }

    /// Reads a header; any eight bytes are one.
    pub fn decode(bytes: [u8; FRAME_HEADER_LEN]) -> Self {
        let [connection @ .., _, _, _, _] = bytes;
        let [_, _, _, _, len @ ..] = bytes;
        Self {
            connection: ConnectionId(u32::from_be_bytes(connection)),
            len: u32::from_be_bytes(len),
        }
    }
}

/// Cuts one whole ttrpc message into frames: at most 4096 bytes first, then the rest in frames as long as a peer takes them.
pub fn encode_frames(connection: ConnectionId, message: &[u8]) -> Vec<u8> {
    let (first, rest) = message.split_at(message.len().min(FIRST_FRAME_LEN));
    let mut wire = Vec::with_capacity(message.len() + 2 * FRAME_HEADER_LEN);
    for payload in std::iter::once(first).chain(rest.chunks(FRAME_SEND_MAX)) {
        // FRAME_SEND_MAX is far below u32::MAX.
        #[expect(clippy::cast_possible_truncation, reason = "bounded by FRAME_SEND_MAX")]
        let len = payload.len() as u32;
        wire.extend_from_slice(&FrameHeader { connection, len }.encode());
        wire.extend_from_slice(payload);
    }
    wire
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(message_len: usize) -> Vec<usize> {
        let wire = encode_frames(ConnectionId::PLUGIN, &vec![7; message_len]);
        let mut lengths = Vec::new();
        let mut rest = &wire[..];
        while let Some((header, tail)) = rest.split_first_chunk() {
            let header = FrameHeader::decode(*header);
            assert_eq!(header.connection, ConnectionId::PLUGIN);
            lengths.push(header.len as usize);
            rest = &tail[header.len as usize..];
        }
        assert!(rest.is_empty());
        lengths
    }

    #[test]
    fn messages_are_cut_in_the_shape_that_go_peers_need() {
        assert_eq!(lengths(10), [10]);
        assert_eq!(lengths(4096), [4096]);
        assert_eq!(lengths(4097), [4096, 1]);
        assert_eq!(lengths(1 << 20), [4096, (1 << 20) - 4096]);
        assert_eq!(
            lengths(FIRST_FRAME_LEN + FRAME_SEND_MAX),
            [4096, FRAME_SEND_MAX]
        );
        assert_eq!(
            lengths(FIRST_FRAME_LEN + FRAME_SEND_MAX + 5),
            [4096, FRAME_SEND_MAX, 5]
        );
    }

    #[test]
    fn header_is_two_big_endian_words() {
        let header = FrameHeader {
            connection: ConnectionId(2),
            len: 0x0102_0304,
        };
        assert_eq!(header.encode(), [0, 0, 0, 2, 1, 2, 3, 4]);
        assert_eq!(FrameHeader::decode(header.encode()), header);
    }
}
