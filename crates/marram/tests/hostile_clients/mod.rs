//! Clients of the control socket that lie, send garbage or descriptors, stop reading, and vanish.
//!
//! All that one does follows from its seed.

use marram_client::Transaction;
use rustix::fs::{Mode, OFlags, openat};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// How long a client waits for an answer that may not come.
const PATIENCE: Duration = Duration::from_millis(50);
/// Most steps of a conversation.
const STEPS_MAX: u64 = 5;
/// Most conversations and transactions that are left lying open.
const LEFT_MAX: usize = 6;
/// More than a request may have.
const LONG_BYTES: usize = 5 << 20;
/// What is no request, or not one that makes sense.
const NONSENSE: [&str; 12] = [
    "",
    "{}",
    "null",
    "[[[[[[[[",
    "{\"begin\":7}",
    "{\"begin\":{\"directory\":\"/\",\"author\":{\"user\":0,\"command\":\"x\"}}}",
    "{\"commit\":\"\"}",
    "{\"abort\":\"00000000000000000000000000000000\"}",
    "{\"commit\":\"../../etc/passwd\"}",
    "{\"unmounted\":{}}",
    "\"transactions\"",
    "{\"locate\":{\"directory\":\"/nowhere\",\"ino\":18446744073709551615}}",
];

/// One client.
pub(crate) struct Hostile {
    /// Where the daemon listens.
    pub(crate) socket: PathBuf,
    /// The mount, as the daemon has made it.
    pub(crate) mount: PathBuf,
    /// A directory in it that the client may write.
    pub(crate) place: PathBuf,
    /// What all follows from.
    pub(crate) seed: u64,
    /// The last transactions of which it knows.
    ids: Vec<String>,
    streams: Vec<UnixStream>,
    transactions: Vec<Transaction>,
    files: Vec<File>,
}

impl Hostile {
    pub(crate) fn new(socket: PathBuf, mount: PathBuf, place: PathBuf, seed: u64) -> Hostile {
        let (ids, streams) = (Vec::new(), Vec::new());
        let (transactions, files) = (Vec::new(), Vec::new());
        Hostile { socket, mount, place, seed, ids, streams, transactions, files }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 16) % below
    }

    /// Holds so many conversations, and leaves lying what it has in the end.
    pub(crate) fn converse(mut self, count: u64) {
        for _ in 0..count {
            match self.random(4) {
                0 => self.work(),
                _ => self.talk(),
            }
            while self.streams.len() > LEFT_MAX {
                self.streams.remove(0);
            }
            while self.files.len() > LEFT_MAX {
                self.files.remove(0);
            }
            while self.transactions.len() > LEFT_MAX {
                let at = self.random(LEFT_MAX as u64) as usize;
                drop(self.transactions.remove(at));
            }
        }
        // As a process that is killed: nothing is said any more.
        std::process::exit(0);
    }

    /// Works in a transaction of the library, which is left lying or ends in any way.
    fn work(&mut self) {
        let inside = self.random(2) == 0;
        let outer = self.transactions.last().filter(|_| inside);
        let begun = match outer {
            Some(outer) => outer.begin_inside(),
            None => Transaction::begin(&self.place),
        };
        // Too many may be open, or held by descriptors.
        let Ok(tx) = begun else { return };
        self.ids.push(tx.id().to_owned());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let name = format!("file-{}", self.random(4));
        if let Ok(file) = openat(tx.directory(), name, flags, Mode::from(0o644)) {
            let mut file = File::from(file);
            let _an_end_may_have_come = file.write_all(&[7; 20_000]);
            self.files.push(file);
        }
        match self.random(4) {
            0 => drop(tx.commit()),
            1 => tx.abort(),
            _ => self.transactions.push(tx),
        }
    }

    /// Says anything to the daemon.
    fn talk(&mut self) {
        let Ok(stream) = UnixStream::connect(&self.socket) else { return };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        for _ in 0..=self.random(STEPS_MAX) {
            // It has closed the conversation.
            if self.step(&stream).is_err() {
                return;
            }
        }
        if self.random(8) == 0 {
            self.streams.push(stream);
        }
    }

    fn step(&mut self, mut stream: &UnixStream) -> std::io::Result<()> {
        let known = self.random(self.ids.len() as u64 + 1) as usize;
        let id = self.ids.get(known).cloned().unwrap_or_default();
        let (mount, random) = (self.mount.display().to_string(), self.random(1 << 40));
        let author = r#""author":{"user":0,"command":"\u0000\u001b[2J"}"#;
        let begin =
            format!(r#"{{"begin":{{"directory":"{mount}",{author},"descriptor":true}}}}"#) + "\n";
        match self.random(12) {
            0 => stream.read(&mut [0; 4096]).map(|_| ()),
            1 => stream.write_all(&random.to_le_bytes()),
            2 => stream.write_all(format!("{random:b}\u{fffd}\n").as_bytes()),
            3 => {
                let line = NONSENSE[random as usize % NONSENSE.len()];
                stream.write_all(format!("{line}\n").as_bytes())
            }
            4 | 5 => stream.write_all(begin.as_bytes()),
            6 => {
                let inside =
                    begin.replace("\"descriptor\"", &format!("\"inside\":\"{id}\",\"descriptor\""));
                stream.write_all(inside.as_bytes())
            }
            7 => {
                let word = ["commit", "abort"][random as usize % 2];
                stream.write_all(format!("{{\"{word}\":\"{id}\"}}\n").as_bytes())
            }
            8 => send_descriptors(stream, begin.as_bytes()),
            9 => send_descriptors(stream, b"x"),
            10 if random % 16 == 0 => stream.write_all(&vec![b'['; LONG_BYTES]),
            10 => stream.write_all(&begin.as_bytes()[..random as usize % begin.len()]),
            _ => stream.shutdown(Shutdown::Write),
        }
    }
}

/// Sends what nobody has asked for.
fn send_descriptors(stream: &UnixStream, bytes: &[u8]) -> std::io::Result<()> {
    let files = [File::open("/dev/null")?, File::open("/")?, File::open("/proc/self/mem")?];
    let sent = files.each_ref().map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&sent)));
    sendmsg(stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}
