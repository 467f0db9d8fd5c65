//! A lane over io_uring: a thread, its ring, and one entry in the queue of one processor.
//!
//! A caller's request goes to the queue of the processor that the caller runs on, and there to the
//! lane that became free last. Reply and next request are one system call. As long as the request
//! is not answered the lane's thread has nothing else to do, so it may wait for the devices; the
//! kernel finds the other lanes of the queue.
//!
//! Forgets, interrupts and messages from here go over `/dev/fuse` all the same.
//!
//! A request whose caller has been killed and let go lives on in the thread that serves it, but its
//! entry goes to a new lane ([`RingLane::let_the_killed_go`]): an entry that waits for a thread
//! that waits for a disk would be the trap of the next caller. The thread ends when it comes back.

use super::calls::{self, Calls, Fate};
use super::entry::Entry;
use super::ring::{Command, Ring};
use super::{ClassicTransport, Transport, answered_call};
use crate::protocol::reply_header;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Fewer lanes of a queue than this that wait for a request are too few.
const WAITING_LANES_MIN: usize = 8;

/// The lanes of one processor.
#[derive(Debug)]
pub(crate) struct RingQueue {
    /// The processor's number.
    pub(crate) number: u16,
    /// Lanes that wait for a request.
    waiting: AtomicUsize,
    lanes: AtomicUsize,
    lanes_max: usize,
    /// Where no request is in work.
    spaces: Mutex<Vec<Space>>,
}

/// Memory to serve a request in. Lanes of a queue share some: of many lanes that wait few are at
/// work at a time, and the space that was used last is still in the processor's cache.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Takes the request.
    pub(crate) buffer: Vec<u8>,
    /// Takes the reply.
    pub(crate) out: Vec<u8>,
}

impl RingQueue {
    pub(crate) fn new(number: u16, lanes_max: usize) -> RingQueue {
        RingQueue {
            number,
            waiting: AtomicUsize::new(0),
            lanes: AtomicUsize::new(0),
            lanes_max,
            spaces: Mutex::new(Vec::new()),
        }
    }

    /// The space that was used last, if one is free.
    pub(crate) fn take_space(&self) -> Option<Space> {
        self.spaces.lock().pop()
    }

    /// Lets others use a space. There are no more than lanes.
    pub(crate) fn give_space(&self, space: Space) {
        self.spaces.lock().push(space);
    }

    /// Whether too few lanes wait for the next request and one more may be opened; that one then
    /// counts.
    pub(crate) fn may_grow(&self) -> bool {
        let more = |lanes: usize| (lanes < self.lanes_max).then_some(lanes + 1);
        self.waiting.load(Ordering::Relaxed) < WAITING_LANES_MIN
            && self.lanes.load(Ordering::Relaxed) < self.lanes_max
            && self.lanes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// A lane has been opened without being asked for by [`RingQueue::may_grow`].
    pub(crate) fn count_lane(&self) {
        self.lanes.fetch_add(1, Ordering::Relaxed);
    }
}

/// Where the entry of a lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not known to the kernel.
    New,
    /// The kernel has it, or is about to: it waits for a request.
    Waiting,
    /// There is a request in it that nobody has looked at.
    Arrived,
    /// There is a request of this number and name in it.
    InWork { unique: u64, commit: u64 },
    /// There is the reply to the request of this name in it.
    Answered { commit: u64 },
    /// The lane has none any more.
    Over,
}

struct State {
    phase: Phase,
    /// Taken while the kernel has it.
    entry: Option<Entry>,
}

/// A lane of a queue.
pub(crate) struct RingLane {
    pub(crate) queue: Arc<RingQueue>,
    /// For what does not go over rings.
    device: Arc<ClassicTransport>,
    ring: Mutex<Ring>,
    state: Mutex<State>,
    /// The request in work has been answered, or taken away.
    answered: Condvar,
    calls: Calls,
}

impl RingLane {
    /// A lane with a ring and memory of its own; the kernel does not know of it yet.
    ///
    /// # Errors
    /// There is no io_uring for this process, or no more memory.
    pub(crate) fn open(
        device: &Arc<ClassicTransport>,
        queue: &Arc<RingQueue>,
        payload_bytes_max: usize,
    ) -> Result<RingLane, Errno> {
        let ring = Ring::open(device.as_fd())?;
        let entry = Entry::new(payload_bytes_max)?;
        Ok(RingLane::with(device, queue, ring, State { phase: Phase::New, entry: Some(entry) }))
    }

    fn with(
        device: &Arc<ClassicTransport>,
        queue: &Arc<RingQueue>,
        ring: Ring,
        state: State,
    ) -> RingLane {
        RingLane {
            queue: Arc::clone(queue),
            device: Arc::clone(device),
            ring: Mutex::new(ring),
            state: Mutex::new(state),
            answered: Condvar::new(),
            calls: Calls::default(),
        }
    }

    /// Makes the kernel give up rings for this mount; only before it has begun to use them.
    pub(crate) fn make_kernel_refuse(&self) {
        if let Some(entry) = &mut self.state.lock().entry {
            self.ring.lock().refuse(entry);
        }
    }

    /// Whether it has no entry any more.
    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().phase == Phase::Over
    }

    /// Whether the kernel must be notified of something that was done after its caller was let go.
    pub(crate) fn has_written_late(&self) -> bool {
        self.calls.has_written_late()
    }

    /// Tells the kernel of that.
    pub(crate) fn tell_written_late(&self) {
        let nodes = self.calls.take_written_late();
        nodes.into_iter().for_each(|node| self.device.forget_content(node));
    }

    /// Gives the entry back without a word, as the request in work has none to come.
    pub(crate) fn hand_back(&self, errno: Option<Errno>) {
        let unique = match self.state.lock().phase {
            Phase::InWork { unique, .. } => unique,
            _ => return,
        };
        let header = reply_header(unique, errno.map_or(0, Errno::raw_os_error), 0);
        let _taken_away = self.send(&[IoSlice::new(&header)]);
    }

    /// Lets the caller go if it has been killed and waits since the last time that this was called.
    /// The entry then goes to a new lane, which is to be given a thread. `spare` is a ring for it,
    /// and is opened when one may be needed.
    pub(crate) fn let_the_killed_go(&self, spare: &mut Option<Ring>) -> Option<RingLane> {
        if self.calls.is_empty() {
            return None;
        }
        if spare.is_none() {
            *spare = Ring::open(self.device.as_fd()).ok();
        }
        let ring = spare.take()?;
        let killed = self.calls.cut_short(calls::is_killed);
        let mut state = self.state.lock();
        let commit = match (killed.first(), state.phase) {
            (Some(call), Phase::InWork { unique, commit }) if unique == call.unique => commit,
            _ => {
                *spare = Some(ring);
                return None;
            }
        };
        let mut entry = state.entry.take().expect("a lane has its entry while it works");
        state.phase = Phase::Over;
        drop(state);
        self.answered.notify_all();
        let header = reply_header(killed[0].unique, Errno::INTR.raw_os_error(), 0);
        entry.reply(&[IoSlice::new(&header)]).expect("a header alone always fits");
        let state = State { phase: Phase::Answered { commit }, entry: Some(entry) };
        Some(RingLane::with(&self.device, &self.queue, ring, state))
    }

    /// The entry and what to do with it, when the request in work has been answered; `None` when it
    /// has been taken away.
    fn take_answered(&self) -> Option<(Entry, Command)> {
        let mut state = self.state.lock();
        loop {
            let command = match state.phase {
                Phase::InWork { .. } => {
                    self.answered.wait(&mut state);
                    continue;
                }
                Phase::New => Command::Register,
                Phase::Answered { commit } => Command::Commit(commit),
                Phase::Waiting | Phase::Arrived | Phase::Over => return None,
            };
            state.phase = Phase::Waiting;
            return state.entry.take().map(|entry| (entry, command));
        }
    }

    /// Waits for a request in `entry`. When the mount ends meanwhile the memory goes with it.
    fn exchange(&self, mut entry: Entry, command: Command) -> Result<Option<Entry>, Errno> {
        loop {
            self.queue.waiting.fetch_add(1, Ordering::Relaxed);
            let came = self.ring.lock().exchange(&mut entry, self.queue.number, command);
            self.queue.waiting.fetch_sub(1, Ordering::Relaxed);
            match came {
                Ok(()) => return Ok(Some(entry)),
                // The command was not begun.
                Err(Errno::AGAIN | Errno::INTR) => (),
                Err(error) => {
                    self.state.lock().phase = Phase::Over;
                    if !matches!(error, Errno::NOTCONN | Errno::CONNABORTED | Errno::NODEV) {
                        return Err(error);
                    }
                    entry.release();
                    return Ok(None);
                }
            }
        }
    }
}

impl Drop for RingLane {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        if state.phase == Phase::New
            && let Some(entry) = state.entry.take()
        {
            entry.release();
        }
    }
}

impl RingLane {
    /// Hands in the last answer when it is there, and waits for a request; false when there will be
    /// none.
    ///
    /// # Errors
    /// As for [`Transport::receive`], which then takes the request.
    pub(crate) fn wait(&self) -> Result<bool, Errno> {
        let Some((entry, command)) = self.take_answered() else {
            return Ok(false);
        };
        let Some(entry) = self.exchange(entry, command)? else {
            return Ok(false);
        };
        let mut state = self.state.lock();
        state.phase = Phase::Arrived;
        state.entry = Some(entry);
        Ok(true)
    }
}

impl Transport for RingLane {
    fn receive(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        let has_arrived = self.state.lock().phase == Phase::Arrived;
        if !has_arrived && !self.wait()? {
            return Ok(None);
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        let entry = state.entry.as_mut().expect("what has arrived is in the entry");
        match entry.request(buffer) {
            Ok(parts) => {
                self.calls.begin(&buffer[..parts.len]);
                state.phase = Phase::InWork { unique: parts.unique, commit: parts.commit };
                Ok(Some(parts.len))
            }
            Err(senseless) => {
                let header = reply_header(senseless.unique, Errno::IO.raw_os_error(), 0);
                entry.reply(&[IoSlice::new(&header)]).expect("a header alone always fits");
                state.phase = Phase::Answered { commit: senseless.commit };
                Err(Errno::BADMSG)
            }
        }
    }

    fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        let Some((answered, well)) = parts.first().and_then(|header| answered_call(header)) else {
            return self.device.send(parts);
        };
        let mut state = self.state.lock();
        let commit = match state.phase {
            Phase::InWork { unique, commit } if unique == answered => Some(commit),
            _ => None,
        };
        // A reply that is too long leaves everything as it is, so that another can be sent.
        if let (Some(_), Some(entry)) = (commit, &mut state.entry) {
            entry.reply(parts)?;
        }
        if self.calls.end(answered, well) == Fate::Drop {
            return Err(Errno::CANCELED);
        }
        state.phase = Phase::Answered { commit: commit.ok_or(Errno::NOENT)? };
        drop(state);
        self.answered.notify_all();
        Ok(())
    }
}
