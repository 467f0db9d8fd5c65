//! Sockets to a server: of this host, or encrypted to any.

use super::failure::{Failure, Outcome};
use super::place::{Host, Place};
use crate::server::tcp;
use crate::server::tls::{Refusal, Verified};
use bytes::BytesMut;
use postgres_protocol::message::frontend;
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long a server may take to answer while a connection is made, at most.
const GREETING_PATIENCE: Duration = Duration::from_secs(10);
/// What a server answers that is ready for TLS.
const READY_FOR_TLS: u8 = b'S';
/// What a server answers that has none.
const NO_TLS: u8 = b'N';

/// A socket to a server.
pub(super) trait Stream: Read + Write + Send {
    /// How long the other end may be silent, and take nothing. Without that, a connection of which
    /// the other host lost its power would be waited on for ever.
    fn wait_for(&self, patience: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn wait_for(&self, patience: Duration) -> io::Result<()> {
        tcp::wait_for(self, patience)
    }
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn wait_for(&self, patience: Duration) -> io::Result<()> {
        tcp::wait_for(&self.sock, patience)
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
    match (place.socket(), &place.host) {
        (Some(socket), _) => {
            let stream = UnixStream::connect(socket)?;
            stream.wait_for(patience)?;
            Ok(Box::new(stream))
        }
        (None, Host::Name(name)) => by_address(place, name, patience),
        (None, Host::Folder(_)) => Err(io::Error::from(io::ErrorKind::NotFound).into()),
    }
}

fn by_address(place: &Place, name: &str, patience: Duration) -> Outcome<Box<dyn Stream>> {
    let addresses = tcp::addresses(name, place.port)?;
    let how = place.tls.to(name, tcp::are_here(&addresses));
    let how = how.map_err(|error| Failure::Unfit(error.to_string()))?;
    let stream = tcp::connect(&addresses, patience)?;
    Ok(match how {
        None => Box::new(stream),
        Some(verified) => Box::new(encrypted(&verified, name, stream)?),
    })
}

/// Asks a server for TLS. Nothing else has gone to it yet.
fn encrypted(
    verified: &Verified,
    name: &str,
    mut stream: TcpStream,
) -> Outcome<StreamOwned<ClientConnection, TcpStream>> {
    let mut question = BytesMut::new();
    frontend::ssl_request(&mut question);
    stream.write_all(&question)?;
    // No more than this: what follows is of TLS, or somebody else has put it there.
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    match answer[0] {
        READY_FOR_TLS => Ok(verified.encrypt(name, stream)?),
        NO_TLS => Err(Failure::Unfit(format!(
            "the server on {name} has no TLS, and nothing goes to it in the clear: set ssl = on in \
             postgresql.conf"
        ))),
        _ => Err(Failure::Unfit(format!("what answers on {name} is no PostgreSQL server"))),
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        match refusal {
            Refusal::Lost(error) => Failure::Lost(error),
            Refusal::Unfit(text) => Failure::Unfit(text),
        }
    }
}
