//! What the runtime leaves to a plugin that it starts: three environment variables and one end of a socket pair.
//!
//! Owns the crate's only unsafe block, the adoption of a file descriptor by its number. Invariant: a descriptor is adopted at
//! most once per process, and only if it is a stream socket.

use std::env::{self, VarError};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::identity::{Identity, IdentityError};

const NAME: &str = "NRI_PLUGIN_NAME";
const INDEX: &str = "NRI_PLUGIN_IDX";
const SOCKET: &str = "NRI_PLUGIN_SOCKET";

/// Why the environment of a pre-launched plugin can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PrelaunchError {
    /// `NRI_PLUGIN_SOCKET` is set, another variable is not.
    #[error("{SOCKET} is set but {variable} is not readable: {source}")]
    Variable {
        /// The variable.
        variable: &'static str,
        /// What is wrong with it.
        #[source]
        source: VarError,
    },
    /// `NRI_PLUGIN_SOCKET` is no descriptor number.
    #[error("{SOCKET}={0:?} is not the number of an inherited file descriptor (3 or more)")]
    Number(String),
    /// Name or index break the rules.
    #[error("{NAME} or {INDEX} from the runtime: {0}")]
    Identity(#[from] IdentityError),
    /// The descriptor is not open, or it can't be looked at.
    #[error("{SOCKET}: file descriptor {fd}: {source}")]
    Descriptor {
        /// The descriptor.
        fd: RawFd,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The descriptor is something else.
    #[error("{SOCKET}: file descriptor {0} is not a unix stream socket")]
    NotASocket(RawFd),
    /// This process has adopted its socket before.
    #[error("{SOCKET}: the inherited socket has been adopted already in this process")]
    Adopted,
}

/// Identity and socket, or `None` where no runtime started this process as a plugin.
pub(super) fn from_environment() -> Result<Option<(Identity, UnixStream)>, PrelaunchError> {
    static ADOPTED: AtomicBool = AtomicBool::new(false);
    let socket = match env::var(SOCKET) {
        Ok(number) => number,
        Err(VarError::NotPresent) => return Ok(None),
        Err(source) => {
            return Err(PrelaunchError::Variable {
                variable: SOCKET,
                source,
            });
        }
    };
    let variable = |variable| {
        env::var(variable).map_err(|source| PrelaunchError::Variable { variable, source })
    };
    let identity = Identity::new(variable(NAME)?, variable(INDEX)?)?;
    let fd = parse_number(&socket)?;
    check_socket_file(fd)?;
    if ADOPTED.swap(true, Ordering::SeqCst) {
        return Err(PrelaunchError::Adopted);
    }
    Ok(Some((identity, adopt(fd)?)))
}

/// Standard streams are never the plugin's socket; adopting one would close it under the process.
fn parse_number(text: &str) -> Result<RawFd, PrelaunchError> {
    match text.parse::<RawFd>() {
        Ok(fd) if fd >= 3 => Ok(fd),
        _ => Err(PrelaunchError::Number(text.into())),
    }
}

/// Looks without touching: a descriptor that is not ours must not be closed by an early return.
fn check_socket_file(fd: RawFd) -> Result<(), PrelaunchError> {
    let file = std::fs::metadata(format!("/proc/self/fd/{fd}"))
        .map_err(|source| PrelaunchError::Descriptor { fd, source })?;
    if file.file_type().is_socket() {
        Ok(())
    } else {
        Err(PrelaunchError::NotASocket(fd))
    }
}

fn adopt(fd: RawFd) -> Result<UnixStream, PrelaunchError> {
    #[expect(
        unsafe_code,
        reason = "an inherited descriptor is known by its number alone"
    )]
    // SAFETY: `fd` is open and a socket (`check_socket_file`), and nothing else in this process owns it: the runtime's protocol
    // names it as ours in NRI_PLUGIN_SOCKET, it was inherited across exec, and `ADOPTED` lets one caller through only.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let failed = |source: rustix::io::Errno| PrelaunchError::Descriptor {
        fd,
        source: source.into(),
    };
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).map_err(failed)?;
    let is_unix = rustix::net::sockopt::socket_domain(&socket).map_err(failed)?
        == rustix::net::AddressFamily::UNIX;
    let is_stream = rustix::net::sockopt::socket_type(&socket).map_err(failed)?
        == rustix::net::SocketType::STREAM;
    if is_unix && is_stream {
        Ok(UnixStream::from(socket))
    } else {
        Err(PrelaunchError::NotASocket(fd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[test]
    fn descriptor_numbers_below_three_and_nonsense_are_refused() {
        for text in ["", "2", "0", "-1", "3x", " 3", "99999999999"] {
            assert!(
                matches!(parse_number(text), Err(PrelaunchError::Number(_))),
                "{text:?}"
            );
        }
        assert_eq!(parse_number("3").unwrap(), 3);
    }

    #[test]
    fn what_is_no_socket_is_refused_and_left_open() {
        let file = tempfile::tempfile().unwrap();
        assert!(matches!(
            check_socket_file(file.as_raw_fd()),
            Err(PrelaunchError::NotASocket(_))
        ));
        assert!(file.metadata().is_ok());
        assert!(matches!(
            check_socket_file(i32::MAX),
            Err(PrelaunchError::Descriptor { .. })
        ));
    }

    #[test]
    fn a_unix_stream_socket_is_adopted_and_closed_on_exec() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let fd = rustix::io::dup(&ours).unwrap().into_raw_fd();
        check_socket_file(fd).unwrap();
        let adopted = adopt(fd).unwrap();
        assert!(
            rustix::io::fcntl_getfd(&adopted)
                .unwrap()
                .contains(rustix::io::FdFlags::CLOEXEC)
        );
    }

    #[test]
    fn sockets_of_other_kinds_are_refused() {
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let fd = rustix::io::dup(&udp).unwrap().into_raw_fd();
        assert!(matches!(adopt(fd), Err(PrelaunchError::NotASocket(_))));
    }
}
