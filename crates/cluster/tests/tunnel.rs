//! A way to a server that a test can cut, as the link between two hosts.

use crate::server::Server;
use marram_cluster::postgres::Place;
use parking_lot::Mutex;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use tempfile::TempDir;

/// What a tunnel lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// All.
    Open,
    /// What is asked, and no answers.
    Questions,
    /// Nothing, and it does not say so.
    Nothing,
}

/// A socket or port of its own, from which bytes go to that of a server.
pub(crate) struct Tunnel {
    folder: TempDir,
    to: PathBuf,
    port: u16,
    ends: Arc<Mutex<Ends>>,
}

struct Ends {
    flow: Flow,
    /// With the first question in which this stands, answers are lost.
    last_word: Option<&'static str>,
    connections: Vec<End>,
    /// What was asked, from its beginning on.
    said: Vec<u8>,
}

/// Bytes of what was asked that are kept.
const SAID_MAX: usize = 1 << 20;

/// One end of a connection.
enum End {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Where the ends come from, and where they lead.
type Ways = (Box<dyn Fn() -> io::Result<End> + Send>, Box<dyn Fn() -> io::Result<End> + Send>);

impl Tunnel {
    /// An open tunnel.
    pub(crate) fn to(server: &Server) -> Tunnel {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(socket(folder.path())).unwrap();
        let (to, end) = (server.folder().to_owned(), socket(server.folder()));
        let accept = move || listener.accept().map(|(end, _)| End::Unix(end));
        let ways: Ways =
            (Box::new(accept), Box::new(move || UnixStream::connect(&end).map(End::Unix)));
        Tunnel { folder, to, port: 0, ends: dug(ways) }
    }

    /// The same to a port of this host.
    pub(crate) fn to_port(to: u16) -> Tunnel {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let accept = move || listener.accept().map(|(end, _)| End::Tcp(end));
        let connect = move || TcpStream::connect(("127.0.0.1", to)).map(End::Tcp);
        let ends = dug((Box::new(accept), Box::new(connect)));
        Tunnel { folder: tempfile::tempdir().unwrap(), to: PathBuf::new(), port, ends }
    }

    /// Its own port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// A place as it is reached through the tunnel.
    pub(crate) fn place(&self, place: &Place) -> Place {
        let folder = |path: &Path| path.to_string_lossy().into_owned();
        let (from, to) = (folder(&self.to), folder(self.folder.path()));
        place.to_string().replace(&from, &to).parse().unwrap()
    }

    /// Connections that were made through it and have lost nothing.
    pub(crate) fn connections(&self) -> usize {
        self.ends.lock().connections.len() / 2
    }

    /// Lets through more or less. Connections of which something was lost end once more goes
    /// through.
    pub(crate) fn let_through(&self, flow: Flow) {
        let mut ends = self.ends.lock();
        (ends.flow, ends.last_word) = (flow, None);
        if flow == Flow::Open {
            ends.connections.drain(..).for_each(|end| end.close());
        }
    }

    /// What was asked through it, from its beginning or since that was forgotten.
    pub(crate) fn said(&self) -> Vec<u8> {
        self.ends.lock().said.clone()
    }

    /// Forgets what was asked.
    pub(crate) fn forget(&self) {
        self.ends.lock().said.clear();
    }

    /// Lets answers through until something is asked in which a word stands.
    pub(crate) fn lose_answers_from(&self, word: &'static str) {
        self.ends.lock().last_word = Some(word);
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join(".s.PGSQL.5432")
}

impl End {
    fn close(&self) {
        // It may have ended itself.
        let _is_closed = match self {
            End::Unix(end) => end.shutdown(Shutdown::Both),
            End::Tcp(end) => end.shutdown(Shutdown::Both),
        };
    }

    fn copy(&self) -> End {
        match self {
            End::Unix(end) => End::Unix(end.try_clone().unwrap()),
            End::Tcp(end) => End::Tcp(end.try_clone().unwrap()),
        }
    }

    fn take(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        match self {
            End::Unix(end) => end.read(chunk),
            End::Tcp(end) => end.read(chunk),
        }
    }

    fn give(&mut self, chunk: &[u8]) -> io::Result<()> {
        match self {
            End::Unix(end) => end.write_all(chunk),
            End::Tcp(end) => end.write_all(chunk),
        }
    }
}

fn dug((accept, connect): Ways) -> Arc<Mutex<Ends>> {
    let ends =
        Ends { flow: Flow::Open, last_word: None, connections: Vec::new(), said: Vec::new() };
    let ends = Arc::new(Mutex::new(ends));
    let shared = Arc::clone(&ends);
    thread::spawn(move || {
        while let Ok(near) = accept() {
            // The server may be gone.
            connect().into_iter().for_each(|far| dig(&shared, near.copy(), far));
        }
    });
    ends
}

/// Connects one that comes with the server.
fn dig(ends: &Arc<Mutex<Ends>>, near: End, far: End) {
    ends.lock().connections.extend([near.copy(), far.copy()]);
    for (from, to, is_answer) in [(near.copy(), far.copy(), false), (far, near, true)] {
        let ends = Arc::clone(ends);
        thread::spawn(move || carry(&ends, (from, to), is_answer));
    }
}

fn carry(ends: &Mutex<Ends>, (mut from, mut to): (End, End), is_answer: bool) {
    let mut chunk = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.take(&mut chunk) {
        let passes = ends.lock().passes(&chunk[..count], is_answer);
        if passes && to.give(&chunk[..count]).is_err() {
            break;
        }
    }
    [from, to].iter().for_each(End::close);
}

impl Ends {
    fn passes(&mut self, chunk: &[u8], is_answer: bool) -> bool {
        let has = |word: &str| chunk.windows(word.len()).any(|it| it == word.as_bytes());
        if !is_answer && self.last_word.is_some_and(has) {
            (self.flow, self.last_word) = (Flow::Questions, None);
        }
        if !is_answer && self.said.len() < SAID_MAX {
            self.said.extend_from_slice(chunk);
        }
        match self.flow {
            Flow::Open => true,
            Flow::Questions => !is_answer,
            Flow::Nothing => false,
        }
    }
}
