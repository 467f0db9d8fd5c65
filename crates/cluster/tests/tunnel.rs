//! A way to a server that a test can cut, as the link between two hosts.

use crate::server::Server;
use marram_cluster::postgres::Place;
use parking_lot::Mutex;
use std::io::{Read, Write};
use std::net::Shutdown;
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

/// A socket of its own, from which bytes go to that of a server.
pub(crate) struct Tunnel {
    folder: TempDir,
    to: PathBuf,
    ends: Arc<Mutex<Ends>>,
}

struct Ends {
    flow: Flow,
    connections: Vec<UnixStream>,
}

impl Tunnel {
    /// An open tunnel.
    pub(crate) fn to(server: &Server) -> Tunnel {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(socket(folder.path())).unwrap();
        let ends = Arc::new(Mutex::new(Ends { flow: Flow::Open, connections: Vec::new() }));
        let (shared, end) = (Arc::clone(&ends), socket(server.folder()));
        thread::spawn(move || {
            listener.incoming().filter_map(Result::ok).for_each(|from| dig(&shared, from, &end));
        });
        Tunnel { folder, to: server.folder().to_owned(), ends }
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
        ends.flow = flow;
        if flow == Flow::Open {
            ends.connections.drain(..).for_each(|end| close(&end));
        }
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join(".s.PGSQL.5432")
}

fn close(end: &UnixStream) {
    // It may have ended itself.
    let _is_closed = end.shutdown(Shutdown::Both);
}

/// Connects one that comes with the server, which may be gone.
fn dig(ends: &Arc<Mutex<Ends>>, near: UnixStream, to: &Path) {
    let Ok(far) = UnixStream::connect(to) else { return };
    let copy = |end: &UnixStream| end.try_clone().unwrap();
    ends.lock().connections.extend([copy(&near), copy(&far)]);
    for (from, to, is_answer) in [(copy(&near), copy(&far), false), (far, near, true)] {
        let ends = Arc::clone(ends);
        thread::spawn(move || carry(&ends, (from, to), is_answer));
    }
}

fn carry(ends: &Mutex<Ends>, (mut from, mut to): (UnixStream, UnixStream), is_answer: bool) {
    let mut chunk = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut chunk) {
        let passes = match ends.lock().flow {
            Flow::Open => true,
            Flow::Questions => !is_answer,
            Flow::Nothing => false,
        };
        if passes && to.write_all(&chunk[..count]).is_err() {
            break;
        }
    }
    [from, to].iter().for_each(close);
}
