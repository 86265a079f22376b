//! The trunk at work: one task that drains it, one that writes to it, and the ends of its connections.
//!
//! Owns both halves of the stream. The reader never waits for anybody but the peer; the writer is the only one that writes,
//! so frames of one message stay adjacent. Dropping the [`Trunk`] ends both tasks and with them every connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::demux::Demux;
use super::error::MuxError;
use super::frame::{ConnectionId, encode_frames};
use super::message::{Assembler, Message};

/// Bytes of whole messages that may wait on one connection.
pub const QUEUE_BYTES_MAX: usize = 128 << 20;
/// Messages that may wait for the writer; senders wait beyond it.
const OUTGOING_MAX: usize = 64;
const READ_BUFFER_LEN: usize = 64 << 10;
/// A peer that takes nothing for so long has dropped us by its own clock already.
const WRITE_STALL: Duration = Duration::from_secs(30);

/// A trunk and the tasks that serve it.
#[derive(Debug)]
pub struct Trunk {
    reader: JoinHandle<Result<(), MuxError>>,
    writer: JoinHandle<Result<(), MuxError>>,
    outgoing: mpsc::Sender<Outgoing>,
}

#[derive(Debug)]
enum Outgoing {
    Message(ConnectionId, Message),
    Close,
}

impl Trunk {
    /// Starts to serve `stream` and opens these connections on it. Frames for others will be dropped.
    ///
    /// Must be called within a tokio runtime.
    pub fn open<S, const N: usize>(
        stream: S,
        connections: [ConnectionId; N],
    ) -> (Self, [Connection; N])
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (read_half, write_half) = tokio::io::split(stream);
        let (outgoing, to_write) = mpsc::channel(OUTGOING_MAX);
        let mut lanes = Vec::with_capacity(N);
        let connections = connections.map(|id| {
            let (sender, receiver) = mpsc::unbounded_channel();
            let queued = Arc::new(AtomicUsize::new(0));
            lanes.push(Lane {
                id,
                assembler: Assembler::new(),
                sender,
                queued: Arc::clone(&queued),
            });
            Connection {
                inbox: Inbox { receiver, queued },
                outbox: Outbox {
                    id,
                    outgoing: outgoing.clone(),
                },
            }
        });
        let trunk = Self {
            reader: tokio::spawn(read_trunk(read_half, lanes)),
            writer: tokio::spawn(write_trunk(write_half, to_write)),
            outgoing,
        };
        (trunk, connections)
    }

    /// Waits for the end of the trunk: `Ok` where the peer closed it between two frames, else the reason. Call it once.
    ///
    /// Cancel safe.
    pub async fn closed(&mut self) -> Result<(), MuxError> {
        tokio::select! {
            ended = &mut self.reader => flatten(ended),
            ended = &mut self.writer => flatten(ended),
        }
    }

    /// Writes what waits, at most for `patience`, and closes the trunk.
    pub async fn close(mut self, patience: Duration) {
        let flush = async {
            if self.outgoing.send(Outgoing::Close).await.is_ok() {
                let _ = (&mut self.writer).await;
            }
        };
        if timeout(patience, flush).await.is_err() {
            tracing::debug!("the NRI peer did not take the last replies in time");
        }
    }
}

impl Drop for Trunk {
    fn drop(&mut self) {
        self.reader.abort();
        self.writer.abort();
    }
}

/// A task of ours ends by its result, or by an abort of ours; the latter is an orderly end.
fn flatten(ended: Result<Result<(), MuxError>, tokio::task::JoinError>) -> Result<(), MuxError> {
    ended.unwrap_or(Ok(()))
}

/// The near end of one connection.
#[derive(Debug)]
pub struct Connection {
    /// What the peer sends.
    pub inbox: Inbox,
    /// The way to the peer.
    pub outbox: Outbox,
}

/// Receives the whole ttrpc messages of one connection.
#[derive(Debug)]
pub struct Inbox {
    receiver: mpsc::UnboundedReceiver<Message>,
    queued: Arc<AtomicUsize>,
}

impl Inbox {
    /// The next message; `None` after the end of the trunk. Cancel safe.
    pub async fn recv(&mut self) -> Option<Message> {
        let message = self.receiver.recv().await?;
        self.queued
            .fetch_sub(message.footprint(), Ordering::Relaxed);
        Some(message)
    }

    /// A message that has arrived already.
    pub fn try_recv(&mut self) -> Option<Message> {
        let message = self.receiver.try_recv().ok()?;
        self.queued
            .fetch_sub(message.footprint(), Ordering::Relaxed);
        Some(message)
    }
}

/// Sends messages on one connection.
#[derive(Debug, Clone)]
pub struct Outbox {
    id: ConnectionId,
    outgoing: mpsc::Sender<Outgoing>,
}

impl Outbox {
    /// Hands a message to the trunk's writer. `false` where the trunk has ended.
    pub async fn send(&self, message: Message) -> bool {
        self.outgoing
            .send(Outgoing::Message(self.id, message))
            .await
            .is_ok()
    }
}

#[derive(Debug)]
struct Lane {
    id: ConnectionId,
    assembler: Assembler,
    sender: mpsc::UnboundedSender<Message>,
    queued: Arc<AtomicUsize>,
}

impl Lane {
    fn feed(&mut self, bytes: &[u8]) -> Result<(), MuxError> {
        let Self {
            id,
            assembler,
            sender,
            queued,
        } = self;
        assembler.feed(bytes, |message| {
            let footprint = message.footprint();
            if queued.fetch_add(footprint, Ordering::Relaxed) + footprint > QUEUE_BYTES_MAX {
                return Err(MuxError::Overflow { connection: *id });
            }
            // A connection that nobody serves any more is like one that was not opened.
            if sender.send(message).is_err() {
                queued.fetch_sub(footprint, Ordering::Relaxed);
            }
            Ok(())
        })
    }
}

async fn read_trunk(
    mut stream: impl AsyncRead + Unpin,
    mut lanes: Vec<Lane>,
) -> Result<(), MuxError> {
    let mut demux = Demux::new();
    let mut buffer = vec![0; READ_BUFFER_LEN];
    loop {
        let len = stream.read(&mut buffer).await.map_err(MuxError::Read)?;
        if len == 0 {
            return Ok(demux.finish()?);
        }
        demux.feed(&buffer[..len], |connection, piece| {
            match lanes.iter_mut().find(|lane| lane.id == connection) {
                Some(lane) => lane.feed(piece),
                None => Ok(()),
            }
        })?;
    }
}

async fn write_trunk(
    mut stream: impl AsyncWrite + Unpin,
    mut outgoing: mpsc::Receiver<Outgoing>,
) -> Result<(), MuxError> {
    while let Some(Outgoing::Message(connection, message)) = outgoing.recv().await {
        let wire = encode_frames(connection, &message.encode());
        let write = async {
            stream.write_all(&wire).await?;
            stream.flush().await
        };
        timeout(WRITE_STALL, write)
            .await
            .map_err(|_| MuxError::WriteStalled(WRITE_STALL))?
            .map_err(MuxError::Write)?;
    }
    stream.shutdown().await.map_err(MuxError::Write)
}
