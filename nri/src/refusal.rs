//! The error reply of a plugin, and the status codes it may carry.
//!
//! Invariant: a refusal can never read as success (`OK`) nor as the runtime's own fatal errors: `DEADLINE_EXCEEDED` and
//! `CANCELLED` are not representable, since a runtime that takes a reply for its own timeout drops the plugin and
//! creates the container unmodified.

use std::fmt;

use ttrpc::proto::{Code, Status};

/// Longest message that is sent, in bytes. Refusals end in kubelet events; a reply must never outgrow the transport.
const MESSAGE_MAX: usize = 8 * 1024;

/// The status code of a [`Refusal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalCode {
    /// Nothing more is known (2). What Go plugins send for a plain error.
    Unknown,
    /// The request itself is wrong (3).
    InvalidArgument,
    /// The object is not there (5).
    NotFound,
    /// The policy says no (7). The default.
    PermissionDenied,
    /// A limit is reached (8).
    ResourceExhausted,
    /// The request is fine but not in this state (9).
    FailedPrecondition,
    /// The plugin does not serve this (12). The runtime then falls back to the older style of the event.
    Unimplemented,
    /// The plugin failed (13).
    Internal,
    /// The plugin cannot answer now (14).
    Unavailable,
}

impl RefusalCode {
    fn wire(self) -> Code {
        match self {
            Self::Unknown => Code::UNKNOWN,
            Self::InvalidArgument => Code::INVALID_ARGUMENT,
            Self::NotFound => Code::NOT_FOUND,
            Self::PermissionDenied => Code::PERMISSION_DENIED,
            Self::ResourceExhausted => Code::RESOURCE_EXHAUSTED,
            Self::FailedPrecondition => Code::FAILED_PRECONDITION,
            Self::Unimplemented => Code::UNIMPLEMENTED,
            Self::Internal => Code::INTERNAL,
            Self::Unavailable => Code::UNAVAILABLE,
        }
    }
}

/// An error reply: the operation fails, and the caller of the CRI reads `message`.
///
/// The default code is [`RefusalCode::PermissionDenied`], which the kubelet shows as
/// `rpc error: code = PermissionDenied desc = <message>` and gives no meaning of its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    message: String,
    code: RefusalCode,
}

impl Refusal {
    /// A refusal with this message; name the object and, where there is one, the remedy.
    /// Messages beyond 8 KiB are cut.
    pub fn new(message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > MESSAGE_MAX {
            let end = (0..=MESSAGE_MAX)
                .rev()
                .find(|at| message.is_char_boundary(*at));
            message.truncate(end.unwrap_or(0));
            message.push('…');
        }
        Self {
            message,
            code: RefusalCode::PermissionDenied,
        }
    }

    /// The same refusal with another status code.
    #[must_use]
    pub fn with_code(mut self, code: RefusalCode) -> Self {
        self.code = code;
        self
    }

    /// The message, without the code.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The status code.
    pub fn code(&self) -> RefusalCode {
        self.code
    }

    pub(crate) fn unimplemented(what: impl fmt::Display) -> Self {
        Self::new(format!("this plugin does not serve {what}"))
            .with_code(RefusalCode::Unimplemented)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let mut status = Status::new();
        status.set_code(refusal.code.wire());
        status.set_message(refusal.message);
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protobuf::Message;

    #[test]
    fn encodes_as_the_recorded_go_error_reply() {
        let status = Status::from(Refusal::new("deny: gpu policy").with_code(RefusalCode::Unknown));
        let recorded = [&[0x08, 0x02, 0x12, 0x10][..], b"deny: gpu policy"].concat();
        assert_eq!(status.write_to_bytes().unwrap(), recorded);
    }

    #[test]
    fn default_code_is_permission_denied() {
        assert_eq!(
            Status::from(Refusal::new("no")).code(),
            Code::PERMISSION_DENIED
        );
    }

    #[test]
    fn no_code_reads_as_success_or_timeout() {
        for code in [
            RefusalCode::Unknown,
            RefusalCode::InvalidArgument,
            RefusalCode::NotFound,
            RefusalCode::PermissionDenied,
            RefusalCode::ResourceExhausted,
            RefusalCode::FailedPrecondition,
            RefusalCode::Unimplemented,
            RefusalCode::Internal,
            RefusalCode::Unavailable,
        ] {
            assert!(
                ![Code::OK, Code::CANCELLED, Code::DEADLINE_EXCEEDED].contains(&code.wire()),
                "{code:?}"
            );
        }
    }

    #[test]
    fn overlong_messages_are_cut_at_a_character() {
        let refusal = Refusal::new("ü".repeat(MESSAGE_MAX));
        assert!(refusal.message().len() <= MESSAGE_MAX + '…'.len_utf8());
        assert!(refusal.message().ends_with("ü…"));
    }
}
