//! Takes frames apart: bytes of the trunk in, pieces of each connection's own byte stream out.
//!
//! Pure and incremental: it accepts the trunk in any pieces and never holds payload, so a frame's declared length costs no
//! memory. Frame boundaries carry no meaning on the receiving side.

use super::error::FrameError;
use super::frame::{ConnectionId, FRAME_HEADER_LEN, FRAME_LEN_MAX, FrameHeader};

/// The state between two pieces of a trunk.
#[derive(Debug, Default)]
pub struct Demux {
    header: [u8; FRAME_HEADER_LEN],
    header_filled: usize,
    connection: u32,
    remaining: usize,
}

impl Demux {
    /// At the beginning of a trunk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the trunk and hands each piece of payload to `sink`, in order.
    ///
    /// Fails on a header that declares more than [`FRAME_LEN_MAX`]; the trunk is unusable from there.
    pub fn feed<'a, E: From<FrameError>>(
        &mut self,
        mut bytes: &'a [u8],
        mut sink: impl FnMut(ConnectionId, &'a [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            if self.remaining > 0 {
                let (piece, rest) = bytes.split_at(bytes.len().min(self.remaining));
                self.remaining -= piece.len();
                bytes = rest;
                sink(ConnectionId(self.connection), piece)?;
                continue;
            }
            let wanted = &mut self.header[self.header_filled..];
            let (piece, rest) = bytes.split_at(bytes.len().min(wanted.len()));
            wanted[..piece.len()].copy_from_slice(piece);
            self.header_filled += piece.len();
            bytes = rest;
            if self.header_filled == FRAME_HEADER_LEN {
                self.begin_payload(FrameHeader::decode(self.header))?;
            }
        }
        Ok(())
    }

    fn begin_payload(&mut self, header: FrameHeader) -> Result<(), FrameError> {
        if header.len > FRAME_LEN_MAX {
            return Err(FrameError::FrameTooLong {
                connection: header.connection.0,
                len: header.len,
            });
        }
        self.header_filled = 0;
        self.connection = header.connection.0;
        self.remaining = header.len as usize;
        Ok(())
    }

    /// Whether the trunk may end here; fails within a frame.
    pub fn finish(&self) -> Result<(), FrameError> {
        let missing = if self.header_filled > 0 {
            FRAME_HEADER_LEN - self.header_filled
        } else {
            self.remaining
        };
        if missing == 0 {
            Ok(())
        } else {
            Err(FrameError::Truncated { missing })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::encode_frames;
    use super::*;
    use proptest::prelude::*;

    fn collect(demux: &mut Demux, bytes: &[u8], into: &mut [Vec<u8>; 3]) -> Result<(), FrameError> {
        demux.feed(bytes, |connection, piece| {
            if let Some(stream) = into.get_mut(connection.0 as usize) {
                stream.extend_from_slice(piece);
            }
            Ok(())
        })
    }

    #[test]
    fn a_frame_is_found_again_whatever_the_split() {
        let wire = [
            encode_frames(ConnectionId(1), b"first"),
            encode_frames(ConnectionId(2), b""),
            encode_frames(ConnectionId(2), b"second"),
        ]
        .concat();
        for at in 0..=wire.len() {
            let mut streams = [vec![], vec![], vec![]];
            let mut demux = Demux::new();
            collect(&mut demux, &wire[..at], &mut streams).unwrap();
            collect(&mut demux, &wire[at..], &mut streams).unwrap();
            assert_eq!(
                streams,
                [b"".to_vec(), b"first".to_vec(), b"second".to_vec()],
                "split at {at}"
            );
            assert_eq!(demux.finish(), Ok(()));
        }
    }

    #[test]
    fn an_end_within_a_frame_is_told_from_one_between_frames() {
        let wire = encode_frames(ConnectionId(1), b"payload");
        for at in 0..=wire.len() {
            let mut demux = Demux::new();
            collect(&mut demux, &wire[..at], &mut Default::default()).unwrap();
            assert_eq!(
                demux.finish().is_ok(),
                at == 0 || at == wire.len(),
                "end after {at} bytes"
            );
        }
    }

    #[test]
    fn sixteen_mebibytes_are_taken_and_absurd_lengths_refused() {
        let header = |len| {
            FrameHeader {
                connection: ConnectionId(1),
                len,
            }
            .encode()
        };
        assert_eq!(
            collect(
                &mut Demux::new(),
                &header(16 << 20),
                &mut Default::default()
            ),
            Ok(())
        );
        assert_eq!(
            collect(
                &mut Demux::new(),
                &header(FRAME_LEN_MAX),
                &mut Default::default()
            ),
            Ok(())
        );
        let refused = collect(
            &mut Demux::new(),
            &header(u32::MAX),
            &mut Default::default(),
        );
        assert_eq!(
            refused,
            Err(FrameError::FrameTooLong {
                connection: 1,
                len: u32::MAX
            })
        );
    }

    proptest! {
        #[test]
        fn interleaved_frames_in_arbitrary_pieces_reassemble(
            frames in prop::collection::vec((0u32..6, prop::collection::vec(any::<u8>(), 0..300)), 0..20),
            cuts in prop::collection::vec(1usize..97, 1..20),
        ) {
            let mut wire = Vec::new();
            let mut expected = [vec![], vec![], vec![]];
            for (connection, payload) in &frames {
                let len = u32::try_from(payload.len()).unwrap();
                wire.extend(FrameHeader { connection: ConnectionId(*connection), len }.encode());
                wire.extend(payload);
                if let Some(stream) = expected.get_mut(*connection as usize) {
                    stream.extend_from_slice(payload);
                }
            }
            let mut streams = [vec![], vec![], vec![]];
            let mut demux = Demux::new();
            let (mut rest, mut cuts) = (&wire[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, tail) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                collect(&mut demux, piece, &mut streams).unwrap();
                rest = tail;
            }
            prop_assert_eq!(demux.finish(), Ok(()));
            prop_assert_eq!(streams, expected);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let mut demux = Demux::new();
            let _ = collect(&mut demux, &bytes, &mut Default::default());
            let _ = demux.finish();
        }
    }
}
