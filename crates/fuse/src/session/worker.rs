//! The threads that serve.
//!
//! Syncs wait for the devices and go to the [`SyncLane`].

use super::handshake::request_buffer_bytes;
use super::lane::Lane;
use super::late::LateNames;
use super::lock_lane::{self, Answering, LockLane};
use super::memory::RequestMemory;
use super::page_lane::{Done, PageLane, Unanswered};
use super::reply::{reply, report_panic};
use super::rings::{Rings, stay_with};
use super::sync_lane::{SyncLane, Waiting};
use super::wakefulness::Wakefulness;
use crate::adapter::{Adapter, Answer, SyncJob, may_let_go};
use crate::errno::Errno;
use crate::event::Event;
use crate::protocol::{Encoder, Header, Malformed, NotifyCode, Operation, Request, parse};
use crate::transport::{RingLane, Transport};
use bytes::Bytes;
use std::io::IoSlice;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Builder, Scope};

/// What the workers of a mount share.
pub(super) struct Crew {
    pub(super) adapter: Adapter,
    pub(super) syncs: SyncLane,
    /// Writes that wait until old pages are gone.
    pub(super) pages: PageLane,
    /// Requests that wait for a lock.
    pub(super) locks: LockLane,
    /// What has been done after its caller had been let go.
    pub(super) late_names: Arc<LateNames>,
    pub(super) wakefulness: Wakefulness,
    /// Where requests are received.
    pub(super) memory: Arc<RequestMemory>,
    /// How many workers wait for a request.
    waiting: AtomicUsize,
    /// How many workers there are if all read `/dev/fuse`.
    pub(super) workers: usize,
    /// How many must be left waiting when one goes into a sync: half of all, at least one.
    spare: usize,
}

impl Crew {
    /// A crew of `workers`; `wakeful` says whether somebody keeps processors awake for them.
    pub(super) fn new(adapter: Adapter, workers: usize, wakeful: bool) -> Crew {
        let buffer_bytes = request_buffer_bytes(adapter.agreement.transfer_bytes_max);
        Crew {
            adapter,
            memory: RequestMemory::new(buffer_bytes),
            syncs: SyncLane::default(),
            pages: PageLane::default(),
            locks: LockLane::default(),
            late_names: Arc::default(),
            wakefulness: Wakefulness::new(wakeful),
            waiting: AtomicUsize::new(0),
            workers,
            spare: (workers / 2).max(1),
        }
    }

    /// Starts a thread for each lane of `rings`. If one cannot be had, the kernel is asked to use
    /// no rings, and false comes back.
    pub(super) fn start_rings<'scope, 'env>(
        &'scope self,
        rings: &'scope Rings,
        scope: &'scope Scope<'scope, 'env>,
    ) -> bool {
        self.start_fresh(rings, scope);
        let has_all = !rings.has_fresh();
        if !has_all {
            rings.give_up();
            let reason = "no threads for io_uring: requests come over /dev/fuse".into();
            (self.adapter.on_event)(Event::Disconnected { reason });
        }
        has_all
    }

    /// Gives lanes of rings that have no thread one.
    pub(super) fn start_fresh<'scope, 'env>(
        &'scope self,
        rings: &'scope Rings,
        scope: &'scope Scope<'scope, 'env>,
    ) {
        rings.start_fresh(|lane| {
            let thread = Builder::new().name("marram-ring".into());
            let run = move || {
                let _until_it_ends = RingThread(rings);
                stay_with(&lane.queue);
                self.work(Lane::Ring(lane), Some(rings), scope);
            };
            thread.spawn_scoped(scope, run).is_ok()
        });
    }

    /// Serves one lane until the mount has ended, or the lane has been given to another.
    pub(super) fn work<'scope, 'env>(
        &'scope self,
        lane: Lane,
        rings: Option<&'scope Rings>,
        scope: &'scope Scope<'scope, 'env>,
    ) {
        let mut own_space = None;
        loop {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let came = lane.wait();
            let space = own_space.take().or_else(|| lane.take_space());
            let mut space = space.unwrap_or_default();
            if space.buffer.is_empty() {
                space.buffer = self.memory.take();
            }
            let received = came.and_then(|came| match came {
                true => lane.receive(&mut space.buffer),
                false => Ok(None),
            });
            // Of all threads that stop waiting one is the last, and sees that none is left.
            let others_waiting = self.waiting.fetch_sub(1, Ordering::Relaxed) - 1;
            self.wakefulness.notice();
            let len = match received {
                Ok(Some(len)) => Some(len),
                Ok(None) => return,
                Err(rustix::io::Errno::BADMSG) => None,
                Err(error) => {
                    let reason = error.to_string();
                    return (self.adapter.on_event)(Event::Disconnected { reason });
                }
            };
            let lent = len.and_then(|len| self.memory.lend(&mut space.buffer, len));
            let bytes = lent.as_deref().unwrap_or(&space.buffer);
            let request = match len {
                Some(len) => parse(&bytes[..len]),
                None => Err((None, Malformed::Parts)),
            };
            let sync = request.as_ref().ok().and_then(SyncJob::of);
            if let (Lane::Ring(lane), Some(rings)) = (&lane, rings) {
                self.reinforce(lane, rings, scope);
            }
            match request {
                Ok(request) => match sync {
                    Some(job) => {
                        let waiting = Waiting { header: request.header, job, lane: lane.clone() };
                        let has_time = lane.waits_for_answers() || others_waiting >= self.spare;
                        self.syncs.submit(&self.adapter, scope, waiting, has_time);
                    }
                    None => self.serve(&lane, (&request, lent.as_ref()), scope, &mut space.out),
                },
                Err((header, reason)) => self.refuse(&lane, header, reason),
            }
            drop(lent);
            own_space = lane.give_space(space);
        }
    }

    fn serve<'scope, 'env>(
        &'scope self,
        lane: &Lane,
        (request, memory): (&Request<'_>, Option<&Bytes>),
        scope: &'scope Scope<'scope, 'env>,
        out: &mut Vec<u8>,
    ) {
        let adapter = &self.adapter;
        let answering = Answering { adapter, pages: &self.pages, scope };
        if let (Operation::Interrupt { unique }, true) =
            (&request.operation, adapter.agreement.locks)
        {
            self.locks.interrupt(answering, *unique);
        }
        let served = catch_unwind(AssertUnwindSafe(|| adapter.serve(request, memory, out)));
        let answer = served.unwrap_or_else(|panic| {
            out.clear();
            report_panic(adapter, &request.header, &*panic);
            Answer::Reply(Err(Errno::IO))
        });
        if adapter.agreement.locks && may_let_go(&request.operation) {
            self.locks.wake();
        }
        let waiting =
            |wanted| lock_lane::Waiting { header: request.header, wanted, lane: lane.clone() };
        let outcome = match answer {
            Answer::Silence => return lane.hand_back(None),
            Answer::Wait(wanted) => return self.locks.submit(answering, waiting(wanted)),
            Answer::Reply(outcome) => outcome,
        };
        if let Some(wanted) = adapter.lock_of(request) {
            return answering.answer(waiting(wanted), outcome);
        }
        let moved = adapter.moved_append(request);
        if outcome.is_ok()
            && let Some(pages) = adapter.direct_write(request)
        {
            let payload = std::mem::take(out);
            let unanswered = Some(Unanswered { unique: request.header.unique, payload });
            let done = Done { lane: lane.clone(), pages, unanswered };
            return self.pages.submit(adapter, scope, done);
        }
        // Before the reply: a program that has seen the end of it may look at once.
        if outcome.is_ok() && request.operation.changes_unseen() {
            forget_attributes(lane, request.header.node);
        }
        let is_taken = reply(adapter, lane, request.header.unique, outcome, out);
        if !is_taken && outcome.is_ok() {
            take_back(adapter, request, out);
            self.late_names.note(request);
        }
        if let Some(pages) = moved {
            let done = Done { lane: lane.clone(), pages, unanswered: None };
            self.pages.submit(adapter, scope, done);
        }
    }

    /// Answers what is no request, as far as it can be answered.
    fn refuse(&self, lane: &Lane, header: Option<Header>, reason: Malformed) {
        (self.adapter.on_event)(Event::Malformed { reason });
        match header {
            Some(header) => {
                reply(&self.adapter, lane, header.unique, Err(Errno::IO), &[]);
            }
            None => lane.hand_back(Some(rustix::io::Errno::IO)),
        }
    }

    /// Opens another lane beside `lane` if few of its queue wait.
    fn reinforce<'scope, 'env>(
        &'scope self,
        lane: &RingLane,
        rings: &'scope Rings,
        scope: &'scope Scope<'scope, 'env>,
    ) {
        if rings.reinforce(lane) {
            self.start_fresh(rings, scope);
        }
    }
}

/// Tells that a thread has ended, however that came.
struct RingThread<'a>(&'a Rings);

impl Drop for RingThread<'_> {
    fn drop(&mut self) {
        self.0.end_thread();
    }
}

/// Lets the kernel ask for the attributes of an inode anew; its content stays.
fn forget_attributes(lane: &dyn Transport, ino: u64) {
    let mut payload = Vec::new();
    Encoder(&mut payload).u64(ino).i64(-1).i64(0);
    let header = NotifyCode::Inode.header(payload.len());
    let _unknown_by_now = lane.send(&[IoSlice::new(&header), IoSlice::new(&payload)]);
}

/// Serves requests that wait for the devices, all at once; `done` is called before anyone is
/// answered.
pub(super) fn serve_syncs(adapter: &Adapter, group: &[Waiting], done: impl FnOnce()) {
    let jobs: Vec<_> = group.iter().map(|waiting| (&waiting.header, waiting.job)).collect();
    let served = catch_unwind(AssertUnwindSafe(|| adapter.sync(&jobs)));
    done();
    let outcomes = served.unwrap_or_else(|panic| {
        report_panic(adapter, &group[0].header, &*panic);
        vec![Err(Errno::IO); group.len()]
    });
    for (waiting, outcome) in group.iter().zip(outcomes) {
        reply(adapter, &waiting.lane, waiting.header.unique, outcome, &[]);
    }
}

/// Takes back the pins of a reply that the kernel never gets: it will not forget what it has not
/// heard of.
fn take_back(adapter: &Adapter, request: &Request<'_>, payload: &[u8]) {
    let nodes = match request.operation {
        Operation::Lookup { .. }
        | Operation::MakeNode(_)
        | Operation::MakeDirectory(_)
        | Operation::Symlink { .. }
        | Operation::Link { .. }
        | Operation::CreateAnonymous(_) => node_at(payload, 0).into_iter().collect(),
        Operation::ReadDirectoryPlus(_) => listed_nodes(payload),
        _ => Vec::new(),
    };
    for node in nodes.into_iter().filter(|node| *node != 0) {
        let header = Header { node, ..request.header };
        let forget = Request { header, operation: Operation::Forget { count: 1 } };
        let _has_no_reply = adapter.serve(&forget, None, &mut Vec::new());
    }
}

/// The inodes in a listing with attributes; those of `.` and `..` are 0.
fn listed_nodes(payload: &[u8]) -> Vec<u64> {
    const NAME_BYTES_AT: usize = 128 + 16;
    const NAME_AT: usize = 128 + 24;
    let mut nodes = Vec::new();
    let mut at = 0;
    while let (Some(node), Some(name)) =
        (node_at(payload, at), node_at(payload, at + NAME_BYTES_AT))
    {
        nodes.push(node);
        // The length of the name is the lower half of the word, its type the upper.
        let name_bytes = usize::try_from(name & u64::from(u32::MAX)).expect("32 bits");
        at += NAME_AT + name_bytes.next_multiple_of(8);
    }
    nodes
}

fn node_at(payload: &[u8], at: usize) -> Option<u64> {
    payload.get(at..at + 8)?.try_into().map(u64::from_le_bytes).ok()
}
