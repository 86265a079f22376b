//! The ttrpc server on the plugin's connection: unary requests in, replies out.
//!
//! Our own rather than ttrpc's, for four reasons: requests over 4 MiB must be served (`Synchronize` of NRI before 0.7 is not
//! split), a panic must be answered, a method without handler must be `UNIMPLEMENTED` (the runtime's fallback rests on it),
//! and an orderly end must answer what is in flight. Replies are byte for byte what the Go implementation sends.
//!
//! Invariants: each request gets exactly one reply, unless the connection ends first. `Configure` and `Synchronize` are done
//! before a later request begins, so a plugin sees them in order even if the runtime does not wait for the replies.

use std::sync::Arc;

use protobuf::Message as _;
use tokio::sync::watch;
use tokio::task::JoinSet;
use ttrpc::proto::{
    FLAG_REMOTE_OPEN, MESSAGE_LENGTH_MAX, MESSAGE_TYPE_REQUEST, MessageHeader, Request, Response,
    Status,
};

use super::guard::guarded;
use super::service::{Reply, Service};
use crate::mux::{Connection, Inbox, Message, Outbox};
use crate::plugin::Plugin;
use crate::refusal::{Refusal, RefusalCode};

/// Requests in flight; a runtime sends one at a time.
const IN_FLIGHT_MAX: usize = 128;
/// Bytes of the requests in flight.
const IN_FLIGHT_BYTES_MAX: usize = 256 << 20;

#[derive(Debug)]
pub(super) struct Server<P> {
    inbox: Inbox,
    outbox: Outbox,
    service: Arc<Service<P>>,
    /// Each task returns the size of its request.
    in_flight: JoinSet<usize>,
    in_flight_bytes: usize,
    /// Nothing further begins before what is in flight has ended.
    barrier: bool,
}

impl<P: Plugin> Server<P> {
    pub(super) fn new(connection: Connection, service: Arc<Service<P>>) -> Self {
        let Connection { inbox, outbox } = connection;
        Self {
            inbox,
            outbox,
            service,
            in_flight: JoinSet::new(),
            in_flight_bytes: 0,
            barrier: false,
        }
    }

    /// Serves until the connection ends, or until `draining` and nothing is in flight any more.
    pub(super) async fn run(mut self, mut draining: watch::Receiver<bool>) {
        loop {
            self.barrier &= !self.in_flight.is_empty();
            let drains = *draining.borrow_and_update();
            if drains && self.in_flight.is_empty() {
                break;
            }
            tokio::select! {
                message = self.inbox.recv(), if !self.barrier => match message {
                    Some(message) => self.accept(message, drains).await,
                    None => return,
                },
                Some(done) = self.in_flight.join_next(), if !self.in_flight.is_empty() => {
                    // The task itself neither panics nor is it aborted while we run.
                    self.in_flight_bytes = self.in_flight_bytes.saturating_sub(done.unwrap_or(0));
                }
                changed = draining.changed(), if !drains => if changed.is_err() { return },
            }
        }
        while let Some(message) = self.inbox.try_recv() {
            self.accept(message, true).await;
        }
    }

    async fn accept(&mut self, message: Message, drains: bool) {
        let stream = message.header.stream_id;
        let request = match self.admit(&message, drains) {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err(refusal) => {
                reply(&self.outbox, stream, Err(refusal)).await;
                return;
            }
        };
        let size = message.body.len();
        drop(message);
        self.in_flight_bytes += size;
        let is_handshake = matches!(request.method.as_str(), "Configure" | "Synchronize");
        self.barrier = is_handshake;
        let (service, outbox) = (Arc::clone(&self.service), self.outbox.clone());
        self.in_flight.spawn(async move {
            let budget = service.budget(&request);
            let method = request.method.clone();
            let answer = guarded(&method, budget, Arc::clone(&service).call(request)).await;
            let done = answer.as_ref().ok().and_then(|reply| reply.milestone);
            let refused = answer.is_err();
            reply(&outbox, stream, answer.map(|reply| reply.payload)).await;
            if is_handshake && refused {
                service.refused_handshake();
            }
            if let Some(milestone) = done {
                service.reached(milestone);
            }
            size
        });
    }

    /// The request in a message; `None` for what needs no reply.
    fn admit(&self, message: &Message, drains: bool) -> Result<Option<Request>, Refusal> {
        let header = message.header;
        if header.type_ != MESSAGE_TYPE_REQUEST {
            tracing::debug!(?header, "dropping a ttrpc message that is no request");
            return Ok(None);
        }
        if header.flags & FLAG_REMOTE_OPEN != 0 {
            return Err(Refusal::unimplemented("streaming requests"));
        }
        let request = Request::parse_from_bytes(&message.body).map_err(|error| {
            Refusal::new(format!("undecodable ttrpc request: {error}"))
                .with_code(RefusalCode::InvalidArgument)
        })?;
        if drains {
            let reason = format!("{}: the plugin is shutting down", request.method);
            return Err(Refusal::new(reason).with_code(RefusalCode::Unavailable));
        }
        let bytes = self.in_flight_bytes + message.body.len();
        if self.in_flight.len() >= IN_FLIGHT_MAX || bytes > IN_FLIGHT_BYTES_MAX {
            let reason = format!(
                "{}: {} requests are in flight already",
                request.method,
                self.in_flight.len()
            );
            return Err(Refusal::new(reason).with_code(RefusalCode::ResourceExhausted));
        }
        Ok(Some(request))
    }
}

async fn reply(outbox: &Outbox, stream: u32, answer: Result<Vec<u8>, Refusal>) {
    let message = encode_reply(stream, answer);
    if !outbox.send(message).await {
        tracing::warn!("a reply came too late: the connection to the runtime has ended");
    }
}

/// A success carries no status and an empty answer no payload, as Go encodes them.
fn encode_reply(stream: u32, answer: Result<Vec<u8>, Refusal>) -> Message {
    let answer = answer.and_then(|payload| {
        if payload.len() + 64 > MESSAGE_LENGTH_MAX {
            let reason = format!(
                "the plugin's answer has {} bytes, ttrpc carries {MESSAGE_LENGTH_MAX}",
                payload.len()
            );
            return Err(Refusal::new(reason).with_code(RefusalCode::ResourceExhausted));
        }
        Ok(payload)
    });
    let mut response = Response::new();
    match answer {
        Ok(payload) => response.payload = payload,
        Err(refusal) => response.status = Some(Status::from(refusal)).into(),
    }
    // Encoding into memory fails only beyond 2 GiB, which the limit above excludes.
    let body = response.write_to_bytes().unwrap_or_default();
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
    Message {
        header: MessageHeader::new_response(stream, len),
        body,
    }
}

impl Reply {
    pub(super) fn new(message: &impl protobuf::Message) -> Result<Self, Refusal> {
        let payload = message.write_to_bytes().map_err(|error| {
            Refusal::new(format!("the plugin's answer cannot be encoded: {error}"))
                .with_code(RefusalCode::Internal)
        })?;
        Ok(Self {
            payload,
            milestone: None,
        })
    }
}
