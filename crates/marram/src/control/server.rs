//! The daemon's end of the control socket.
//!
//! Each connection has a thread, and there are only so many of each user (`connections`); a request
//! is read with a time limit and a length limit, so that a client that misbehaves costs nothing
//! lasting. Slow requests are answered from their own thread and never hold up the mounts.
//!
//! A client is the user that made the connection, as the kernel says at each request. The service
//! admits requests of users other than root and its own one by one.

use crate::control::chunks::{ChunkReader, ChunkWriter, Patient};
use crate::control::connections::{Connections, Place};
use crate::control::credentials::Credentials;
use crate::control::peer;
use crate::control::protocol::{
    Answer, BegunTransaction, CompareOrder, Greeting, PassOrder, REQUEST_BYTES_MAX, ReceiveOrder,
    Request, Response, SendOrder,
};
use crate::error::{Error, Result};
use crate::paths;
use marram_client::control::DATASETS_MAX;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a client may take to send its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a stream that stands still looks whether it is to be given up.
const STREAM_TICK: Duration = Duration::from_secs(1);
/// How often work that takes long looks whether its client is still there.
const PRESENCE_TICK: Duration = Duration::from_millis(100);
/// How long a daemon that ends waits for the last answers to be sent. One of them may be that of
/// an unmount whose `umount(2)` returns only when the kernel has let go of a million inodes.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a daemon that nobody asks looks whether its socket still has its name: the folder of a
/// user's sockets goes when that user logs out.
const NAME_TICK: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// What a daemon does with requests.
pub(crate) trait Service: Send + Sync + 'static {
    /// What is said to every client first.
    fn greeting(&self) -> Greeting;

    /// Whether other users than root and the daemon's own may ask.
    fn is_open_to_others(&self) -> bool {
        false
    }

    /// The request of another user as it is to be performed: within the rights of that user.
    fn admit(&self, _by: &Credentials, _request: Request) -> Result<Request> {
        Err(Error::refused("only its own user and root may ask this daemon"))
    }

    /// What of an answer another user may see.
    fn reveal(&self, _by: &Credentials, answer: Answer) -> Answer {
        answer
    }

    /// Does what is asked.
    fn handle(&self, request: Request) -> Result<Answer>;

    /// Finds and shares equal content for as long as it `is_wanted`.
    fn deduplicate(&self, order: &PassOrder, is_wanted: &mut dyn FnMut() -> bool)
    -> Result<Answer>;

    /// Rewrites what lies in crumbs for as long as it `is_wanted`.
    fn defragment(&self, order: &PassOrder, is_wanted: &mut dyn FnMut() -> bool) -> Result<Answer>;

    /// Tells `out` what differs between two states.
    fn compare(&self, order: &CompareOrder, out: &mut dyn Write) -> Result<Answer>;

    /// Sends a snapshot to `out`.
    fn send(&self, order: &SendOrder, out: &mut dyn Write) -> Result<Answer>;

    /// Receives the stream that comes from `input`.
    fn receive(&self, order: &ReceiveOrder, input: &mut dyn Read) -> Result<Answer>;

    /// Whether streams that stand still are to be given up.
    fn is_over(&self) -> bool;

    /// The conversation has ended in which this transaction was begun.
    fn abandon(&self, _transaction: &str) {}
}

/// A socket that is being served; taking it away ends that.
pub(crate) struct ControlSocket {
    name: Name,
    connections: Connections,
}

/// Where a socket is found; nowhere once it was taken away.
type Name = Arc<Mutex<Option<PathBuf>>>;

impl ControlSocket {
    /// Serves `service` on a socket at `path`, in place of one that a crashed daemon left. The
    /// caller holds the pool's lock, so any other daemon behind it serves a copy of the pool.
    ///
    /// # Errors
    /// When the socket cannot be made, or another daemon has it.
    pub(crate) fn serve(path: &Path, service: Arc<dyn Service>) -> Result<ControlSocket> {
        let listener = bind(path, &*service)?;
        let (connections, name) = (Connections::default(), Arc::new(Mutex::new(Some(path.into()))));
        let (counted, known) = (connections.clone(), Arc::clone(&name));
        std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || accept(listener, &known, &service, &counted))
            .map_err(|error| Error::system("make the control socket", path, error))?;
        Ok(ControlSocket { name, connections })
    }

    /// Takes the name away, so that no new client finds it; those that are there go on.
    pub(crate) fn withdraw(self) -> Conversations {
        Conversations(self.connections.clone())
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Without the name no client finds it; a name that is left does no harm.
        let _gone_or_harmless = self.name.lock().take().map(std::fs::remove_file);
    }
}

/// Makes a socket with this name.
fn bind(path: &Path, service: &dyn Service) -> Result<UnixListener> {
    let failed = |error| Error::system("make the control socket", path, error);
    let _nobody_clears_it = path.parent().map(hold_folder).transpose().map_err(failed)?;
    if peer::connect(path).is_ok() {
        return Err(served_elsewhere(path));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    let mode = if service.is_open_to_others() { 0o666 } else { 0o600 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(failed)?;
    Ok(listener)
}

/// Makes the socket anew, in the folder that is to be had now, if its name is gone; none if not.
fn bind_again(name: &Name, service: &dyn Service) -> Option<UnixListener> {
    let mut name = name.lock();
    let path = name.as_ref()?;
    let gone = std::fs::symlink_metadata(path).err()?;
    if gone.kind() != ErrorKind::NotFound {
        return None;
    }
    let folder = paths::control_folder();
    let path = folder.join(path.file_name()?);
    // What fails now is tried again.
    paths::make_control_folder(&folder).ok()?;
    let listener = bind(&path, service).ok()?;
    *name = Some(path);
    Some(listener)
}

/// Waits for a client; false if nobody has come for a while.
fn has_client(listener: &UnixListener) -> bool {
    let mut asked = [PollFd::new(listener, PollFlags::IN)];
    !matches!(poll(&mut asked, Some(&NAME_TICK)), Ok(0))
}

/// Removes the sockets in `folder` that crashed daemons have left. Others stay.
pub(crate) fn clear_abandoned(folder: &Path) {
    let (Ok(_held), Ok(entries)) = (hold_folder(folder), std::fs::read_dir(folder)) else {
        return;
    };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let is_socket = path.extension().is_some_and(|end| end == "sock");
        let refused = |error: &std::io::Error| error.kind() == ErrorKind::ConnectionRefused;
        if is_socket && peer::connect(&path).is_err_and(|error| refused(&error)) {
            let _harmless_if_it_stays = std::fs::remove_file(&path);
        }
    }
}

fn served_elsewhere(socket: &Path) -> Error {
    let place = socket.display();
    Error::in_use(format!("another process serves {place}: a pool with the same id, so a copy"))
        .hint("unmount that one first: `marram status` tells which it is")
}

/// Keeps others from clearing a socket that has been bound and does not listen yet.
fn hold_folder(folder: &Path) -> std::io::Result<File> {
    let held = File::open(folder)?;
    held.lock()?;
    Ok(held)
}

/// The conversations that are still being held.
pub(crate) struct Conversations(Connections);

impl Conversations {
    /// Returns when they have their answers, after [`DRAIN_TIMEOUT`] at the latest.
    pub(crate) fn drain(self) {
        let began = Instant::now();
        while self.0.count() > 0 && began.elapsed() < DRAIN_TIMEOUT {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The transaction of a conversation, which is abandoned with it.
struct Begun<'s> {
    service: &'s dyn Service,
    id: Option<String>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            self.service.abandon(id);
        }
    }
}

fn accept(
    mut listener: UnixListener,
    name: &Name,
    service: &Arc<dyn Service>,
    connections: &Connections,
) {
    loop {
        if !has_client(&listener) {
            listener = bind_again(name, service.as_ref()).unwrap_or(listener);
            continue;
        }
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors: those that are there end soon.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let by = Credentials::of_peer(&stream).ok();
        let by = by.filter(|by| by.is_unbound() || service.is_open_to_others());
        // One that may not ask, or of which there are too many, is closed.
        let Some(slot) = by.and_then(|by| connections.take(&by)) else { continue };
        let service = Arc::clone(service);
        let connection = move || converse(stream, service.as_ref(), slot);
        // A connection that gets no thread is closed, and its client sees that.
        let _closed_on_error =
            std::thread::Builder::new().name("request".to_owned()).spawn(connection);
    }
}

/// Holds one conversation. A client that goes away in the middle is no loss. After a question where
/// something is comes what is to be done there. The word of an unmount comes when the kernel has
/// let go of it, which may take as long as it likes.
///
/// A transaction is open between its beginning and the next request, or the end, unless it is one
/// that outlives the conversation.
fn converse(stream: UnixStream, service: &dyn Service, mut slot: Place) {
    if send(&stream, &service.greeting()).is_err() {
        return;
    }
    let mut reader = BufReader::new(&stream);
    let mut patience = Some(REQUEST_TIMEOUT);
    let mut begun = Begun { service, id: None };
    loop {
        let request = read_request(&stream, &mut reader, patience).transpose();
        let Some(request) = request else { return };
        slot.work();
        let unmounts = matches!(request, Ok(Request::Unmounting));
        let goes_on = unmounts || matches!(request, Ok(Request::Locate { .. }));
        let request = match request {
            Ok(Request::Begin(_)) if begun.id.is_some() => {
                Err(Error::usage("a transaction is open in this conversation already"))
            }
            other => other,
        };
        let response =
            request.and_then(|request| respond((&stream, &mut reader), request, service));
        // A refused client waits no longer than others.
        patience = Some(REQUEST_TIMEOUT).filter(|_| !unmounts || response.is_err());
        let sent = match &response {
            Ok(Answer::Begun(BegunTransaction { views, .. })) if !views.is_empty() => {
                let views: Vec<BorrowedFd<'_>> = views.iter().map(|view| view.as_fd()).collect();
                send_with(&stream, &response, &views)
            }
            _ => send(&stream, &response),
        };
        let begins = matches!(&response, Ok(Answer::Begun(begun)) if !begun.outlives);
        if let Ok(Answer::Begun(transaction)) = response
            && begins
        {
            begun.id = Some(transaction.id);
            patience = None;
            slot.rest();
        }
        if sent.is_err() || !goes_on && !begins {
            return;
        }
    }
}

/// Answers, within the rights of the client.
fn respond(
    (stream, reader): (&UnixStream, &mut BufReader<&UnixStream>),
    request: Request,
    service: &dyn Service,
) -> Response {
    let unknown = |error| Error::refused(format!("the kernel does not tell the client: {error}"));
    let by = Credentials::of_peer(stream).map_err(unknown)?;
    if by.is_unbound() {
        return answer((stream, reader), request, service);
    }
    let is_streamed = matches!(request, Request::Compare(_) | Request::Send(_));
    let request = match service.admit(&by, request) {
        // The client reads pieces up to the answer, whatever that is.
        Err(error) if is_streamed => return send_stream(stream, service, |_| Err(error)),
        other => other?,
    };
    let answer = answer((stream, reader), request, service)?;
    Ok(service.reveal(&by, answer))
}

fn answer(
    (stream, reader): (&UnixStream, &mut BufReader<&UnixStream>),
    request: Request,
    service: &dyn Service,
) -> Response {
    match request {
        Request::Compare(order) => send_stream(stream, service, |out| service.compare(&order, out)),
        Request::Send(order) => send_stream(stream, service, |out| service.send(&order, out)),
        Request::Receive(order) => receive_stream(reader, &order, service),
        Request::Dedup(order) => {
            let mut looked = Instant::now();
            service.deduplicate(&order, &mut || is_there(stream, &mut looked))
        }
        Request::Defragment(order) => {
            let mut looked = Instant::now();
            service.defragment(&order, &mut || is_there(stream, &mut looked))
        }
        request => service.handle(request),
    }
}

/// Whether the client still waits for its answer, as far as it has been looked for of late.
fn is_there(mut stream: &UnixStream, looked: &mut Instant) -> bool {
    if looked.elapsed() < PRESENCE_TICK {
        return true;
    }
    *looked = Instant::now();
    let read = stream.set_nonblocking(true).and_then(|()| stream.read(&mut [0]));
    let waits = read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    waits && stream.set_nonblocking(false).is_ok()
}

fn send_stream(
    stream: &UnixStream,
    service: &dyn Service,
    write: impl FnOnce(&mut dyn Write) -> Result<Answer>,
) -> Response {
    let failed = |error: std::io::Error| Error::failed(format!("cannot send a stream: {error}"));
    stream.set_write_timeout(Some(STREAM_TICK)).map_err(failed)?;
    let socket = Patient { socket: stream, is_over: &|| service.is_over() };
    let mut pieces = ChunkWriter::new(socket);
    let answer = write(&mut pieces);
    pieces.finish().map_err(failed)?;
    stream.set_write_timeout(None).map_err(failed)?;
    answer
}

fn receive_stream(
    reader: &mut BufReader<&UnixStream>,
    order: &ReceiveOrder,
    service: &dyn Service,
) -> Response {
    let failed = |error: std::io::Error| Error::failed(format!("cannot read a stream: {error}"));
    reader.get_ref().set_read_timeout(Some(STREAM_TICK)).map_err(failed)?;
    let socket = Patient { socket: reader, is_over: &|| service.is_over() };
    service.receive(order, &mut BufReader::new(ChunkReader::new(socket)))
}

fn send(mut stream: &UnixStream, line: &impl serde::Serialize) -> std::io::Result<()> {
    stream.write_all(&line_of(line)?)
}

/// Sends a line, and descriptors with its beginning.
fn send_with(
    mut stream: &UnixStream,
    line: &impl serde::Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> std::io::Result<()> {
    let bytes = line_of(line)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DATASETS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let _has_room = ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    let parts = [IoSlice::new(&bytes)];
    let sent = retry_on_intr(|| sendmsg(stream, &parts, &mut ancillary, SendFlags::NOSIGNAL))?;
    stream.write_all(&bytes[sent..])
}

fn line_of(line: &impl serde::Serialize) -> std::io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn read_request(
    stream: &UnixStream,
    reader: &mut BufReader<&UnixStream>,
    patience: Option<Duration>,
) -> Result<Option<Request>> {
    let failed = |error: std::io::Error| Error::failed(format!("cannot read a request: {error}"));
    stream.set_read_timeout(patience).map_err(failed)?;
    let mut line = String::new();
    reader.take(REQUEST_BYTES_MAX).read_line(&mut line).map_err(failed)?;
    if line.is_empty() {
        return Ok(None);
    }
    if !line.ends_with('\n') {
        return Err(Error::usage(format!(
            "a request is one line of at most {REQUEST_BYTES_MAX} bytes"
        )));
    }
    serde_json::from_str(&line)
        .map(Some)
        .map_err(|error| Error::usage(format!("not a request: {error}")))
}

#[cfg(test)]
mod tests {
    use super::{ControlSocket, Service, clear_abandoned};
    use crate::control::client::Client;
    use crate::control::protocol::{
        Answer, Author, CompareOrder, Greeting, Operation, PassOrder, ReceiveOrder, Request,
        SendOrder, VERSION,
    };
    use crate::error::{Error, Kind, Result};
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    struct Fake {
        version: &'static str,
        ended: Arc<AtomicBool>,
        greeted: Arc<AtomicUsize>,
    }

    impl Service for Fake {
        fn greeting(&self) -> Greeting {
            self.greeted.fetch_add(1, Ordering::AcqRel);
            Greeting {
                version: self.version.to_owned(),
                pid: 42,
                pool_id: "ab".to_owned(),
                pool: "/x".into(),
                served: None,
                namespace: None,
                mounts: Vec::new(),
                shows_streams: false,
                shown: Vec::new(),
                transactions: 0,
            }
        }

        fn handle(&self, request: Request) -> Result<Answer> {
            match request {
                Request::PerformFor { operation: Operation::Sync, .. } => Ok(Answer::Done),
                Request::Locate { ino, .. } => {
                    Ok(Answer::Located { source: "root".to_owned(), ino, root: 1 })
                }
                _ => Err(Error::in_use("busy")),
            }
        }

        fn deduplicate(
            &self,
            order: &PassOrder,
            is_wanted: &mut dyn FnMut() -> bool,
        ) -> Result<Answer> {
            let waits_for_the_end = !order.dry_run;
            while waits_for_the_end && is_wanted() {
                std::thread::yield_now();
            }
            self.ended.store(waits_for_the_end, Ordering::Release);
            Ok(Answer::Done)
        }

        fn defragment(
            &self,
            _order: &PassOrder,
            _is_wanted: &mut dyn FnMut() -> bool,
        ) -> Result<Answer> {
            Ok(Answer::Done)
        }

        fn compare(&self, _order: &CompareOrder, out: &mut dyn Write) -> Result<Answer> {
            out.write_all(b"{}").unwrap();
            Ok(Answer::Done)
        }

        fn send(&self, order: &SendOrder, out: &mut dyn Write) -> Result<Answer> {
            out.write_all(&vec![7; 3_000_000]).unwrap();
            match order.base {
                None => Ok(Answer::Done),
                Some(_) => Err(Error::failed("in the middle")),
            }
        }

        fn receive(&self, order: &ReceiveOrder, input: &mut dyn Read) -> Result<Answer> {
            if order.force {
                return Err(Error::failed("not wanted"));
            }
            let mut read = Vec::new();
            input.read_to_end(&mut read).unwrap();
            Ok(Answer::Grown { size_bytes: read.len() as u64 })
        }

        fn is_over(&self) -> bool {
            false
        }
    }

    fn serve(version: &'static str) -> (tempfile::TempDir, ControlSocket) {
        let (folder, socket, _) = serve_watched(version);
        (folder, socket)
    }

    fn serve_watched(version: &'static str) -> (tempfile::TempDir, ControlSocket, Arc<AtomicBool>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sock");
        let ended = Arc::new(AtomicBool::new(false));
        let fake = Fake { version, ended: Arc::clone(&ended), greeted: Arc::default() };
        let socket = ControlSocket::serve(&path, Arc::new(fake)).unwrap();
        (folder, socket, ended)
    }

    #[test]
    fn work_is_given_up_when_its_client_goes_away() {
        let (folder, _socket, ended) = serve_watched(VERSION);
        let connect = || Client::connect(&folder.path().join("x.sock"), None).unwrap().unwrap();
        let order = |dry_run| Request::Dedup(PassOrder { places: Vec::new(), dry_run });
        assert!(matches!(connect().ask(&order(true)), Ok(Answer::Done)));
        let mut stream = UnixStream::connect(folder.path().join("x.sock")).unwrap();
        // A client that goes with the greeting unread takes its request with it.
        BufReader::new(&stream).read_line(&mut String::new()).unwrap();
        let mut line = serde_json::to_vec(&order(false)).unwrap();
        line.push(b'\n');
        stream.write_all(&line).unwrap();
        drop(stream);
        let began = Instant::now();
        while !ended.load(Ordering::Acquire) {
            assert!(began.elapsed() < Duration::from_secs(60), "the work goes on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn answers_and_errors_come_back_as_they_were_given() {
        let (folder, _socket) = serve(VERSION);
        let connect = || Client::connect(&folder.path().join("x.sock"), None).unwrap().unwrap();
        assert!(matches!(connect().perform(&Operation::Sync), Ok(Answer::Done)));
        let error = connect().perform(&Operation::List).unwrap_err();
        assert_eq!(error.kind, Kind::InUse);
        assert_eq!(connect().greeting().pid, 42);
    }

    #[test]
    fn streams_go_both_ways_and_errors_come_through() {
        let (folder, _socket) = serve(VERSION);
        let connect = || Client::connect(&folder.path().join("x.sock"), None).unwrap().unwrap();
        for base in [None, Some("a@b".to_owned())] {
            let mut out = Vec::new();
            let fails = base.is_some();
            let order = SendOrder { snapshot: "a@c".to_owned(), base, resume: None };
            assert_eq!(connect().send_stream(&order, &mut out).is_err(), fails);
            assert_eq!(out.len(), 3_000_000);
        }
        for (force, len) in [(false, 5_000_000), (true, 5_000_000), (true, 0)] {
            let content = vec![9; len];
            let order = ReceiveOrder {
                dataset: "a".to_owned(),
                force,
                resumable: false,
                author: Author { user: 0, command: String::new(), bound: None },
            };
            match connect().receive_stream(&order, &mut &content[..]) {
                Ok(Answer::Grown { size_bytes }) => assert_eq!(size_bytes, len as u64),
                Err(error) => assert!(force && error.message == "not wanted", "{error}"),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn who_asks_too_much_is_told_so() {
        let (folder, _socket) = serve(VERSION);
        let client = Client::connect(&folder.path().join("x.sock"), None).unwrap().unwrap();
        let label = "x".repeat(5 << 20);
        let error = client.perform(&Operation::Label { label }).unwrap_err();
        assert_eq!(error.kind, Kind::Usage, "{error}");
        assert!(error.message.contains("at most 4194304 bytes"), "{error}");
    }

    #[test]
    fn a_daemon_of_another_version_is_named() {
        let (folder, _socket) = serve("9.9.9");
        let client = Client::connect(&folder.path().join("x.sock"), None).unwrap();
        let error = client.unwrap().perform(&Operation::Sync).unwrap_err();
        assert!(error.message.contains("9.9.9") && error.message.contains(VERSION));
        assert!(error.hint.is_some());
    }

    #[test]
    fn a_socket_that_a_crash_left_is_no_daemon_and_not_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sock");
        assert!(Client::connect(&path, None).unwrap().is_none());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        assert!(Client::connect(&path, None).unwrap().is_none());
        let fake = Fake { version: VERSION, ended: Arc::default(), greeted: Arc::default() };
        let _socket = ControlSocket::serve(&path, Arc::new(fake)).unwrap();
        assert!(Client::connect(&path, None).unwrap().is_some());
        let other = Fake { version: VERSION, ended: Arc::default(), greeted: Arc::default() };
        let refused = ControlSocket::serve(&path, Arc::new(other)).err().unwrap();
        assert_eq!(refused.kind, Kind::InUse);
        assert!(Client::connect(&path, None).unwrap().is_some(), "the first one goes on");
    }

    #[test]
    fn who_asks_where_something_is_goes_on_in_the_same_conversation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sock");
        let greeted = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&greeted);
        let fake = Fake { version: VERSION, ended: Arc::default(), greeted: counted };
        let _socket = ControlSocket::serve(&path, Arc::new(fake)).unwrap();
        let mut client = Client::connect(&path, None).unwrap().unwrap();
        for ino in [7, 8] {
            let answer = client.locate("/mnt".into(), ino).unwrap();
            assert!(matches!(answer, Answer::Located { ino: found, .. } if found == ino));
        }
        assert!(matches!(client.perform(&Operation::Sync), Ok(Answer::Done)));
        assert_eq!(greeted.load(Ordering::Acquire), 1);
    }

    #[test]
    fn only_sockets_that_nobody_serves_are_cleared() {
        let (folder, _socket) = serve(VERSION);
        let (abandoned, other) = (folder.path().join("old.sock"), folder.path().join("file"));
        drop(std::os::unix::net::UnixListener::bind(&abandoned).unwrap());
        std::fs::write(&other, "").unwrap();
        clear_abandoned(folder.path());
        assert!(!abandoned.exists() && other.exists());
        assert!(Client::connect(&folder.path().join("x.sock"), None).unwrap().is_some());
    }

    #[test]
    fn nonsense_and_endless_requests_are_refused() {
        let (folder, _socket) = serve(VERSION);
        for request in [b"{\"no\":1}\n".to_vec(), vec![b'x'; 5 << 20]] {
            let mut stream = UnixStream::connect(folder.path().join("x.sock")).unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            lines.next().unwrap().unwrap();
            // The daemon may have stopped reading already.
            let _refused_early = stream.write_all(&request);
            if let Some(Ok(answer)) = lines.next() {
                assert!(answer.contains("usage"), "{answer}");
            }
        }
    }
}
