//! Sockets to a server of this host. No other is reached: what goes between hosts must be
//! encrypted, and Marram has no TLS yet.

use super::failure::{Failure, Outcome};
use super::place::{Host, Place};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long a server may take to answer while a connection is made.
const GREETING_PATIENCE: Duration = Duration::from_secs(10);

/// A socket to a server.
pub(super) trait Stream: Read + Write + Send {
    /// Lets each answer take as long as it takes.
    fn wait_for_ever(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn wait_for_ever(&self) -> io::Result<()> {
        self.set_read_timeout(None)
    }
}

impl Stream for UnixStream {
    fn wait_for_ever(&self) -> io::Result<()> {
        self.set_read_timeout(None)
    }
}

/// Connects to the server of a place.
pub(super) fn connect(place: &Place) -> Outcome<Box<dyn Stream>> {
    match (place.socket(), &place.host) {
        (Some(socket), _) => {
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(GREETING_PATIENCE))?;
            Ok(Box::new(stream))
        }
        (None, Host::Name(name)) => by_address(name, place.port),
        (None, Host::Folder(_)) => Err(io::Error::from(io::ErrorKind::NotFound).into()),
    }
}

fn by_address(name: &str, port: u16) -> Outcome<Box<dyn Stream>> {
    let addresses: Vec<SocketAddr> = (name, port).to_socket_addrs()?.collect();
    if let Some(far) = addresses.iter().find(|address| !address.ip().is_loopback()) {
        return Err(not_here(name, far.port()));
    }
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match TcpStream::connect_timeout(&address, GREETING_PATIENCE) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(GREETING_PATIENCE))?;
                return Ok(Box::new(stream));
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
