//! Sockets to a server of this host. No other is reached: what goes between hosts must be
//! encrypted, and Marram has no TLS yet.

use super::failure::{Failure, Outcome};
use super::place::{Host, Place};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long a server may take to answer while a connection is made, at most.
const GREETING_PATIENCE: Duration = Duration::from_secs(10);

/// A socket to a server.
pub(super) trait Stream: Read + Write + Send {
    /// How long the other end may be silent, and take nothing. Without that, a connection of which
    /// the other host lost its power would be waited on for ever.
    fn wait_for(&self, patience: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn wait_for(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

impl Stream for UnixStream {
    fn wait_for(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }
}

/// Connects to the server of a place, which is to answer soon.
pub(super) fn connect(place: &Place, patience: Duration) -> Outcome<Box<dyn Stream>> {
    let patience = patience.min(GREETING_PATIENCE);
    let stream: Box<dyn Stream> = match (place.socket(), &place.host) {
        (Some(socket), _) => Box::new(UnixStream::connect(socket)?),
        (None, Host::Name(name)) => Box::new(by_address(name, place.port, patience)?),
        (None, Host::Folder(_)) => return Err(io::Error::from(io::ErrorKind::NotFound).into()),
    };
    stream.wait_for(patience)?;
    Ok(stream)
}

fn by_address(name: &str, port: u16, patience: Duration) -> Outcome<TcpStream> {
    let addresses: Vec<SocketAddr> = (name, port).to_socket_addrs()?.collect();
    if let Some(far) = addresses.iter().find(|address| !address.ip().is_loopback()) {
        return Err(not_here(name, far.port()));
    }
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed.into())
}

fn not_here(name: &str, port: u16) -> Failure {
    Failure::Unfit(format!(
        "{name} is another host, and Marram has no TLS yet: open a tunnel with `ssh -N -L \
         {port}:localhost:{port} {name}`, and name localhost"
    ))
}
