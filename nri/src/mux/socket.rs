//! A connection as a byte stream, for ttrpc's own client and server types.
//!
//! Owns the two pumps between a connection and one end of an in-memory pipe. The pipe is small on purpose: what waits, waits
//! in the connection's bounded queue.

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::message::{MESSAGE_HEADER_LEN, MESSAGE_LEN_MAX, Message};
use super::trunk::{Connection, Inbox, Outbox};
use ttrpc::proto::MessageHeader;

const PIPE_LEN: usize = 64 << 10;

impl Connection {
    /// Turns the connection into a byte stream that carries whole ttrpc messages, for `ttrpc::r#async::transport::Socket`.
    ///
    /// The stream ends with the trunk. Must be called within a tokio runtime.
    pub fn into_stream(self) -> DuplexStream {
        let (near, far) = tokio::io::duplex(PIPE_LEN);
        let (from_near, to_near) = tokio::io::split(near);
        tokio::spawn(deliver(self.inbox, to_near));
        tokio::spawn(collect(from_near, self.outbox));
        far
    }
}

async fn deliver(mut inbox: Inbox, mut pipe: impl AsyncWriteExt + Unpin) {
    while let Some(message) = inbox.recv().await {
        if pipe.write_all(&message.encode()).await.is_err() {
            return;
        }
    }
    // The other end is told of the end by the shutdown; where it is gone already there is nobody to tell.
    let _ = pipe.shutdown().await;
}

async fn collect(mut pipe: impl AsyncReadExt + Unpin, outbox: Outbox) {
    let mut header = [0; MESSAGE_HEADER_LEN];
    while pipe.read_exact(&mut header).await.is_ok() {
        let header = MessageHeader::from(header);
        if header.length > MESSAGE_LEN_MAX {
            return;
        }
        let mut body = vec![0; header.length as usize];
        if pipe.read_exact(&mut body).await.is_err() || !outbox.send(Message { header, body }).await
        {
            return;
        }
    }
}
