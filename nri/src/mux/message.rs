//! Whole ttrpc messages out of a connection's byte stream.
//!
//! Pure and incremental. Knows ttrpc's header and a maximum length, nothing of what a body means. Memory grows with what
//! arrived, never with what a header promises.

use ttrpc::proto::MessageHeader;

use super::error::FrameError;

/// Length of a ttrpc message header.
pub const MESSAGE_HEADER_LEN: usize = ttrpc::proto::MESSAGE_HEADER_LENGTH;
/// Longest body that is accepted, in bytes. ttrpc's own limit is 4 MiB, but NRI before 0.7 sends `Synchronize` in one piece of
/// any size (about 3 kB a container).
pub const MESSAGE_LEN_MAX: u32 = 64 << 20;

/// One ttrpc message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its header; `length` is that of the body.
    pub header: MessageHeader,
    /// Its body: an encoded request or response.
    pub body: Vec<u8>,
}

impl Message {
    /// The wire form: header and body.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.header.into();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// What the message occupies while it waits, in bytes.
    pub(super) fn footprint(&self) -> usize {
        self.body.len() + size_of::<Self>()
    }
}

/// The state between two pieces of a connection's byte stream.
#[derive(Debug, Default)]
pub struct Assembler {
    header: Vec<u8>,
    body: Vec<u8>,
}

impl Assembler {
    /// At the beginning of a connection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes of the connection and hands each message that they complete to `sink`.
    ///
    /// Fails on a header that declares more than [`MESSAGE_LEN_MAX`]; the connection is unusable from there.
    pub fn feed<E: From<FrameError>>(
        &mut self,
        mut bytes: &[u8],
        mut sink: impl FnMut(Message) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            let missing = MESSAGE_HEADER_LEN - self.header.len();
            let (piece, rest) = bytes.split_at(bytes.len().min(missing));
            self.header.extend_from_slice(piece);
            bytes = rest;
            if self.header.len() < MESSAGE_HEADER_LEN {
                return Ok(());
            }
            let header = MessageHeader::from(&self.header);
            if header.length > MESSAGE_LEN_MAX {
                return Err(FrameError::MessageTooLong {
                    stream: header.stream_id,
                    len: header.length,
                }
                .into());
            }
            let missing = header.length as usize - self.body.len();
            let (piece, rest) = bytes.split_at(bytes.len().min(missing));
            self.body.extend_from_slice(piece);
            bytes = rest;
            if piece.len() < missing {
                return Ok(());
            }
            self.header.clear();
            sink(Message {
                header,
                body: std::mem::take(&mut self.body),
            })?;
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    /// Whether bytes of an unfinished message wait.
    pub fn is_within_message(&self) -> bool {
        !self.header.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(stream: u32, body: Vec<u8>) -> Message {
        Message {
            header: MessageHeader::new_request(stream, u32::try_from(body.len()).unwrap()),
            body,
        }
    }

    #[test]
    fn a_body_over_the_maximum_is_refused_by_its_header_alone() {
        let header: Vec<u8> = MessageHeader::new_request(3, MESSAGE_LEN_MAX + 1).into();
        let refused = Assembler::new().feed(&header, |_| Ok::<_, FrameError>(()));
        assert_eq!(
            refused,
            Err(FrameError::MessageTooLong {
                stream: 3,
                len: MESSAGE_LEN_MAX + 1
            })
        );
    }

    proptest! {
        #[test]
        fn messages_in_arbitrary_pieces_reassemble(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..12),
            cuts in prop::collection::vec(1usize..50, 1..20),
        ) {
            let sent: Vec<_> = (1..).zip(bodies).map(|(stream, body)| message(stream, body)).collect();
            let wire: Vec<u8> = sent.iter().flat_map(Message::encode).collect();
            let (mut assembler, mut received) = (Assembler::new(), Vec::new());
            let (mut rest, mut cuts) = (&wire[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, tail) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                assembler.feed(piece, |m| { received.push(m); Ok::<_, FrameError>(()) }).unwrap();
                rest = tail;
            }
            prop_assert!(!assembler.is_within_message());
            prop_assert_eq!(received, sent);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = Assembler::new().feed(&bytes, |_| Ok::<_, FrameError>(()));
        }
    }
}
