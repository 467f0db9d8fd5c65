//! A command's end of the control socket.

use crate::control::chunks::{ChunkReader, ChunkWriter};
use crate::control::peer;
use crate::control::protocol::{
    ANSWER_BYTES_MAX, Answer, Author, BeginOrder, CompareOrder, DifferenceRow, GREETING_BYTES_MAX,
    Greeting, JointCommit, MERGE_ANSWER_BYTES_MAX, Operation, ReceiveOrder, Request, Response,
    SendOrder, VERSION,
};
use crate::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a daemon may take to greet. It greets without touching the pool.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait before a daemon that has hung up is asked again.
const HUNG_UP_PAUSE: Duration = Duration::from_millis(50);
/// Bytes of a stream that are handed on at once.
const PIECE_BYTES: usize = 256 << 10;

/// What an attempt to talk to a daemon comes to.
enum Attempt {
    Greeted(Box<Client>),
    /// No socket, one that a crashed daemon left, or one that somebody else serves.
    Absent,
    /// It has so many conversations that it takes no more; or it is ending, and gone in a moment.
    HungUp,
}

/// A daemon that has greeted.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
    greeting: Greeting,
    user: Option<u32>,
    patience: Option<Duration>,
}

impl Client {
    /// Greets the daemon behind `socket`, which is root's, this user's, or that of the `owner` of
    /// what it is asked about; `None` if there is none: no socket, one that a crashed daemon left,
    /// or one that somebody else serves, which is said.
    ///
    /// # Errors
    /// When something is there but does not greet as a daemon does.
    pub(crate) fn connect(socket: &Path, owner: Option<u32>) -> Result<Option<Client>> {
        let began = Instant::now();
        loop {
            match Client::attempt(socket, owner)? {
                Attempt::Greeted(client) => return Ok(Some(*client)),
                Attempt::Absent => return Ok(None),
                Attempt::HungUp if began.elapsed() > GREETING_TIMEOUT => {
                    let socket = socket.display();
                    let text = format!("the daemon ({socket}) has more to do than it takes");
                    return Err(Error::failed(text).hint("try again when others have ended"));
                }
                Attempt::HungUp => std::thread::sleep(HUNG_UP_PAUSE),
            }
        }
    }

    fn attempt(socket: &Path, owner: Option<u32>) -> Result<Attempt> {
        let stream = match peer::connect(socket) {
            Ok(stream) => stream,
            Err(error) if is_absent(&error) => return Ok(Attempt::Absent),
            Err(error) => return Err(Error::system("connect to", socket, error)),
        };
        let user = peer::user_of(&stream);
        if !peer::may_answer(socket, user, owner) {
            return Ok(Attempt::Absent);
        }
        let process = peer::process_of(&stream).map(|process| format!("process {process}, "));
        let broken = |reason: String| {
            let process = process.as_deref().unwrap_or_default();
            Error::failed(format!("the daemon ({process}{}) {reason}", socket.display()))
        };
        let mut stream = BufReader::new(stream);
        let line = match read_within(&mut stream, GREETING_BYTES_MAX, GREETING_TIMEOUT) {
            Ok(line) if line.is_empty() => return Ok(Attempt::HungUp),
            Ok(line) => line,
            Err(error) if is_end(&error) => return Ok(Attempt::HungUp),
            Err(error) => return Err(broken(format!("does not greet: {error}"))),
        };
        let greeting = serde_json::from_slice(&line)
            .map_err(|error| broken(format!("does not greet as one of ours: {error}")))?;
        let client = Client { stream, greeting, user, patience: None };
        Ok(Attempt::Greeted(Box::new(client)))
    }

    /// The user of the daemon; none if the kernel does not tell.
    pub(crate) fn user(&self) -> Option<u32> {
        self.user
    }

    /// What the daemon said of itself.
    pub(crate) fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// The same, which waits no longer than that for an answer.
    #[must_use]
    pub(crate) fn with_patience(self, patience: Option<Duration>) -> Client {
        Client { patience, ..self }
    }

    /// Asks, and waits for the answer as long as it takes, or as the patience lasts.
    ///
    /// # Errors
    /// What the daemon answers; a daemon of another version; a daemon that went away.
    pub(crate) fn ask(mut self, request: &Request) -> Result<Answer> {
        self.put(request)?;
        self.answer(answer_bytes_max(request))
    }

    /// The process of the daemon, which can be waited for. Its number in the greeting is that of
    /// its own PID namespace.
    pub(crate) fn process(&self) -> Process {
        Process::hold(peer::process_of(self.stream.get_ref()))
    }

    /// Where the kernel shows the mount namespace of the daemon; none if that is not seen here.
    pub(crate) fn namespace(&self) -> Option<PathBuf> {
        let process = peer::process_of(self.stream.get_ref())?;
        Some(PathBuf::from(format!("/proc/{process}/ns/mnt")))
    }

    /// Says that this process is about to unmount something of the daemon's. The conversation goes
    /// on.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub(crate) fn unmounting(&mut self) -> Result<Answer> {
        self.put(&Request::Unmounting)?;
        self.answer(ANSWER_BYTES_MAX)
    }

    /// Begins a transaction, which lives as long as this conversation.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub(crate) fn begin_transaction(&mut self, order: BeginOrder) -> Result<Answer> {
        self.put(&Request::Begin(order))?;
        self.answer(ANSWER_BYTES_MAX)
    }

    /// Commits a transaction: what the daemon answers.
    ///
    /// # Errors
    /// It was asked, and has not answered: it may or may not have been done.
    pub(crate) fn commit_transaction(self, id: &str) -> Result<Response> {
        self.commit_as(&Request::Commit(id.to_owned()))
    }

    /// Has a pool prepare its part of a transaction over two, and the other one decide: what the
    /// daemon answers.
    ///
    /// # Errors
    /// As [`Client::commit_transaction`].
    pub(crate) fn prepare(self, joint: &JointCommit) -> Result<Response> {
        self.commit_as(&Request::Prepare(joint.clone()))
    }

    /// Has a pool decide a transaction that another one has prepared: what the daemon answers.
    ///
    /// # Errors
    /// As [`Client::commit_transaction`].
    pub(crate) fn decide(self, joint: &JointCommit) -> Result<Response> {
        self.commit_as(&Request::Decide(joint.clone()))
    }

    fn commit_as(mut self, request: &Request) -> Result<Response> {
        match self.put(request) {
            Ok(()) => self.response(ANSWER_BYTES_MAX),
            // No daemon has taken it.
            Err(error) => Ok(Err(error)),
        }
    }

    /// Asks what an inode of the mount on a directory belongs to. The conversation goes on.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub(crate) fn locate(&mut self, directory: PathBuf, ino: u64) -> Result<Answer> {
        self.put(&Request::Locate { directory, ino })?;
        self.answer(ANSWER_BYTES_MAX)
    }

    /// Has two states compared; what differs.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub(crate) fn compare(self, order: &CompareOrder) -> Result<Vec<DifferenceRow>> {
        let mut rows = Vec::new();
        let visit = &mut |row| {
            rows.push(row);
            true
        };
        self.compare_while(order, visit).map(|()| rows)
    }

    /// The same, one difference after the other, for as long as `visit` wants more.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub(crate) fn compare_while(
        mut self,
        order: &CompareOrder,
        visit: &mut dyn FnMut(DifferenceRow) -> bool,
    ) -> Result<()> {
        self.put(&Request::Compare(order.clone()))?;
        let pieces = BufReader::new(ChunkReader::new(&mut self.stream));
        let rows = serde_json::Deserializer::from_reader(pieces).into_iter();
        for row in rows {
            let row = row.map_err(|error| match error.io_error_kind() {
                Some(kind) => lost(kind.into()),
                None => Error::failed(format!("the daemon's answer is garbled: {error}")),
            })?;
            if !visit(row) {
                return Ok(());
            }
        }
        self.answer(ANSWER_BYTES_MAX).map(|_| ())
    }

    /// Has a snapshot sent to `out`.
    ///
    /// # Errors
    /// As [`Client::ask`]; whatever `out` fails with.
    pub(crate) fn send_stream(mut self, order: &SendOrder, out: &mut dyn Write) -> Result<Answer> {
        self.put(&Request::Send(order.clone()))?;
        let mut pieces = ChunkReader::new(&mut self.stream);
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let read = pieces.read(&mut buffer).map_err(lost)?;
            if read == 0 {
                break;
            }
            let written = out.write_all(&buffer[..read]);
            written.map_err(|error| Error::failed(format!("cannot write the stream: {error}")))?;
        }
        let flushed = out.flush();
        flushed.map_err(|error| Error::failed(format!("cannot write the stream: {error}")))?;
        self.answer(ANSWER_BYTES_MAX)
    }

    /// Has the stream that comes from `input` received.
    ///
    /// # Errors
    /// As [`Client::ask`]; whatever `input` fails with.
    pub(crate) fn receive_stream(
        mut self,
        order: &ReceiveOrder,
        input: &mut dyn Read,
    ) -> Result<Answer> {
        self.put(&Request::Receive(order.clone()))?;
        let mut pieces = ChunkWriter::new(self.stream.get_mut());
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let read = match input.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read,
            };
            let read =
                read.map_err(|error| Error::failed(format!("cannot read the stream: {error}")))?;
            // A daemon that takes no more has said why, or is gone: the answer tells.
            if read == 0 || pieces.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _told_by_the_answer = pieces.finish();
        self.answer(ANSWER_BYTES_MAX)
    }

    fn put(&mut self, request: &Request) -> Result<()> {
        self.check_version()?;
        let socket = self.stream.get_mut();
        socket.set_read_timeout(None).map_err(lost)?;
        let mut line = serde_json::to_vec(request)
            .map_err(|error| Error::usage(format!("cannot say that to the daemon: {error}")))?;
        line.push(b'\n');
        let Err(error) = socket.write_all(&line) else { return Ok(()) };
        // A daemon that takes no more has said why, or is gone: the answer tells.
        Err(self.answer(ANSWER_BYTES_MAX).err().unwrap_or_else(|| lost(error)))
    }

    fn answer(&mut self, bytes_max: u64) -> Result<Answer> {
        self.response(bytes_max)?
    }

    /// The answer or refusal of the daemon.
    ///
    /// # Errors
    /// There is none that makes sense.
    fn response(&mut self, bytes_max: u64) -> Result<Response> {
        let line = match self.patience {
            None => read_line(&mut self.stream, bytes_max)?,
            Some(limit) => {
                let line = read_within(&mut self.stream, bytes_max, limit).map_err(lost)?;
                String::from_utf8(line).ok().filter(|line| !line.is_empty())
            }
        };
        let line = line.ok_or_else(|| lost(ErrorKind::UnexpectedEof.into()))?;
        serde_json::from_str(&line)
            .map_err(|error| Error::failed(format!("the daemon's answer is garbled: {error}")))
    }

    /// Asks for an operation on the pool.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub(crate) fn perform(self, operation: &Operation) -> Result<Answer> {
        let (operation, author) = (operation.clone(), Author::of_this_process());
        self.ask(&Request::PerformFor { operation, author })
    }

    fn check_version(&self) -> Result<()> {
        if self.greeting.version == VERSION {
            return Ok(());
        }
        Err(Error::failed(format!(
            "the daemon of {} (process {}) is marram {}, this command is marram {VERSION}",
            self.greeting.pool.display(),
            self.greeting.pid,
            self.greeting.version
        ))
        .hint("unmount the pool and mount it again, or use the command of the daemon's version"))
    }
}

/// A process that can be waited for although it is no child.
pub(crate) struct Process(Option<OwnedFd>);

impl Process {
    /// Takes hold of the process `pid`, so that its number cannot come to mean another.
    fn hold(pid: Option<i32>) -> Process {
        let pid = pid.and_then(Pid::from_raw);
        Process(pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()))
    }

    /// Returns when the process has ended.
    pub(crate) fn wait(&self) {
        let Some(process) = &self.0 else {
            return;
        };
        let mut polled = [PollFd::new(process, PollFlags::IN)];
        while poll(&mut polled, None) == Err(rustix::io::Errno::INTR) {}
    }
}

/// Largest answer to a request, in bytes.
fn answer_bytes_max(request: &Request) -> u64 {
    match request {
        Request::Perform(Operation::Merge(_))
        | Request::PerformFor { operation: Operation::Merge(_), .. } => MERGE_ANSWER_BYTES_MAX,
        _ => ANSWER_BYTES_MAX,
    }
}

/// Whether the error means that no daemon is there.
fn is_absent(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory
    )
}

/// Whether the other end has gone.
fn is_end(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof)
}

fn lost(error: std::io::Error) -> Error {
    Error::failed(format!("the daemon went away before it answered: {error}"))
        .hint("its log says why; see `marram status` or mount the pool again")
}

/// Reads one line of bounded length, which has to come as a whole within `limit`; nothing if the
/// stream ends before it.
fn read_within(
    stream: &mut BufReader<UnixStream>,
    bytes_max: u64,
    limit: Duration,
) -> std::io::Result<Vec<u8>> {
    let end = Instant::now() + limit;
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        let left = end.saturating_duration_since(Instant::now());
        match () {
            () if left.is_zero() => return Err(ErrorKind::TimedOut.into()),
            () if line.len() as u64 > bytes_max => return Err(ErrorKind::InvalidData.into()),
            () => stream.get_ref().set_read_timeout(Some(left))?,
        }
        let found = match stream.fill_buf() {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(ErrorKind::TimedOut.into());
            }
            found => found?,
        };
        if found.is_empty() && line.is_empty() {
            break;
        }
        if found.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let end_of_line = found.iter().position(|byte| *byte == b'\n');
        let taken = end_of_line.map_or(found.len(), |at| at + 1);
        line.extend_from_slice(&found[..taken]);
        stream.consume(taken);
    }
    Ok(line)
}

/// Reads one line of bounded length; `None` at the end of the stream.
fn read_line(stream: &mut BufReader<UnixStream>, bytes_max: u64) -> Result<Option<String>> {
    let mut line = String::new();
    let read = stream.take(bytes_max).read_line(&mut line).map_err(lost)?;
    match read {
        0 => Ok(None),
        _ if line.ends_with('\n') => Ok(Some(line)),
        _ => Err(lost(ErrorKind::UnexpectedEof.into())),
    }
}
