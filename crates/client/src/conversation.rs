//! A conversation with a daemon: lines each way, and descriptors that come with them.

use crate::protocol::{DATASETS_MAX, Request, Response};
use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{self, ErrorKind, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::socket::connect;

/// How long a daemon may take to greet. It greets without touching the pool.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest line that is read, in bytes.
const LINE_BYTES_MAX: usize = 64 << 20;
/// Bytes that are read at once.
const PIECE_BYTES: usize = 16 << 10;
/// Most descriptors that are taken with one piece; the kernel closes any others.
const DESCRIPTORS_MAX: usize = DATASETS_MAX;

/// A conversation.
#[derive(Debug)]
pub(crate) struct Conversation {
    stream: UnixStream,
    /// Where the daemon listens.
    socket: PathBuf,
    /// What was read behind the last line.
    read: Vec<u8>,
}

/// A line, and the descriptors that came with it.
pub(crate) struct Line {
    /// Without its end.
    pub(crate) bytes: Vec<u8>,
    /// The descriptors.
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Conversation {
    /// Connects; also the line with which the daemon greets.
    ///
    /// # Errors
    /// No daemon is there, or it does not greet in time.
    pub(crate) fn begin(socket: &Path) -> io::Result<(Conversation, Vec<u8>)> {
        let (stream, read) = (connect(socket)?, Vec::new());
        let mut conversation = Conversation { stream, socket: socket.to_owned(), read };
        conversation.stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
        let greeting = conversation.line()?.bytes;
        conversation.stream.set_read_timeout(None)?;
        Ok((conversation, greeting))
    }

    /// Begins another one with the same daemon, or with one that has taken its place.
    ///
    /// # Errors
    /// As [`Conversation::begin`].
    pub(crate) fn another(&self) -> io::Result<Conversation> {
        Conversation::begin(&self.socket).map(|(conversation, _)| conversation)
    }

    /// Whether the same daemon is behind another one.
    pub(crate) fn is_with(&self, other: &Conversation) -> bool {
        self.socket == other.socket
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The daemon has not taken it.
    pub(crate) fn put(&mut self, request: &Request<'_>) -> io::Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.write_all(&line)
    }

    /// The daemon's answer, however long it takes, and the descriptors that come with it.
    ///
    /// # Errors
    /// There is none that makes sense.
    pub(crate) fn answer(&mut self) -> io::Result<(Response, Vec<OwnedFd>)> {
        let Line { bytes, descriptors } = self.line()?;
        Ok((serde_json::from_slice(&bytes)?, descriptors))
    }

    /// The same, if each piece of it comes within that time. There is no later answer to this or
    /// anything else then.
    ///
    /// # Errors
    /// As [`Conversation::answer`].
    pub(crate) fn answer_within(
        &mut self,
        limit: Duration,
    ) -> io::Result<(Response, Vec<OwnedFd>)> {
        self.stream.set_read_timeout(Some(limit))?;
        self.answer()
    }

    fn line(&mut self) -> io::Result<Line> {
        let mut descriptors = Vec::new();
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let mut bytes: Vec<u8> = self.read.drain(..=end).collect();
                bytes.pop();
                return Ok(Line { bytes, descriptors });
            }
            if self.read.len() > LINE_BYTES_MAX {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "the daemon's line is too long",
                ));
            }
            self.piece(&mut descriptors)?;
        }
    }

    /// Reads a piece. What a signal interrupts goes on.
    fn piece(&mut self, descriptors: &mut Vec<OwnedFd>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut piece = [0; PIECE_BYTES];
        let received = retry_on_intr(|| {
            let mut into = [IoSliceMut::new(&mut piece)];
            recvmsg(&self.stream, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        })?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(found) = message {
                descriptors.extend(found);
            }
        }
        if received.bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        self.read.extend_from_slice(&piece[..received.bytes]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Conversation, Line};
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::io::{IoSlice, Write};
    use std::mem::MaybeUninit;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn lines_come_whole_however_they_were_cut_and_with_their_descriptors() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (socket, read) = (std::path::PathBuf::new(), Vec::new());
        let mut conversation = Conversation { stream: ours, socket, read };
        theirs.write_all(b"one\ntw").unwrap();
        assert_eq!(conversation.line().unwrap().bytes, b"one");
        let file = std::fs::File::open("/dev/null").unwrap();
        let sent = [file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&sent)));
        sendmsg(&theirs, &[IoSlice::new(b"o\nthree")], &mut ancillary, SendFlags::empty()).unwrap();
        let Line { bytes, descriptors } = conversation.line().unwrap();
        assert_eq!((bytes.as_slice(), descriptors.len()), (&b"two"[..], 1));
        drop(theirs);
        assert!(conversation.line().is_err(), "half a line is none");
    }
}
