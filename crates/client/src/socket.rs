//! Connecting to a control socket.

use rustix::io::retry_on_intr;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, socket_with,
};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long to wait for a daemon that takes no more connections. The queue of a live one has room
/// for many.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Connects to `socket`, and does not wait for a daemon that takes no connections.
///
/// # Errors
/// Nobody is there, or takes none within two seconds.
pub fn connect(socket: &Path) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(socket)?;
    let end = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&end, Timeout::Send, Some(CONNECT_TIMEOUT))?;
    retry_on_intr(|| connect_to(&end, &address))?;
    set_socket_timeout(&end, Timeout::Send, None)?;
    Ok(UnixStream::from(end))
}

#[cfg(test)]
mod tests {
    use super::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    use rustix::net::{bind, listen};
    use std::io::ErrorKind;

    #[test]
    fn a_daemon_that_takes_no_connections_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("x.sock");
        let listens =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let listens = listens.unwrap();
        bind(&listens, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
        listen(&listens, 0).unwrap();
        let mut waiting = Vec::new();
        // As many as it lets wait, and then one more.
        let refused = loop {
            match connect(&socket) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::WouldBlock, "{refused}");
    }
}
