//! Connections to hosts, and which of them are this one.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// A host by its name or address, and a port there.
pub(crate) fn addresses(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((name, port).to_socket_addrs()?.collect())
}

/// Whether all of the addresses are of this host, and nothing between hosts sees what goes there.
pub(crate) fn are_here(addresses: &[SocketAddr]) -> bool {
    addresses.iter().all(|address| address.ip().is_loopback())
}

/// Connects to the first address that answers.
pub(crate) fn connect(addresses: &[SocketAddr], patience: Duration) -> io::Result<TcpStream> {
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match TcpStream::connect_timeout(address, patience) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                wait_for(&stream, patience)?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// How long the other end may be silent, and take nothing.
pub(crate) fn wait_for(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))
}
