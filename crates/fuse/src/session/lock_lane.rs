//! Requests that wait for a lock stand in one line, and no thread that serves waits with them.
//!
//! A thread of the line tries each of them again: at once when somebody here has let go of a lock,
//! and from time to time, as somebody on another host may have. A caller that a signal interrupts
//! gets that for an answer, and so does one that is killed. The kernel may send an interruption
//! before the request stands in line, so those that find none are remembered for a while.

use super::lane::Lane;
use super::page_lane::{Done, PageLane, Unanswered};
use super::reply::{reply, report_panic};
use crate::adapter::{Adapter, OldPages, WantedLock};
use crate::errno::Errno;
use crate::protocol::Header;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, Scope};
use std::time::Duration;

/// Between two tries at first; doubled with each one in vain.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// Between two tries at most.
const PAUSE_MAX: Duration = Duration::from_millis(32);
/// Interruptions that are remembered.
const EARLY_MAX: usize = 1024;

/// A request that waits. Each has a caller that waits, which bounds their number.
pub(super) struct Waiting {
    pub(super) header: Header,
    pub(super) wanted: WantedLock,
    pub(super) lane: Lane,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    /// The request that is just being tried, and whether it was interrupted meanwhile.
    at_hand: Option<(u64, bool)>,
    /// Interruptions of requests that do not stand here, or not yet.
    early: VecDeque<u64>,
    has_changed: bool,
    has_thread: bool,
    closed: bool,
}

/// The line of requests for locks and its thread, which is started when there is a first one.
#[derive(Default)]
pub(super) struct LockLane {
    line: Mutex<Line>,
    changed: Condvar,
}

/// What is needed to answer.
#[derive(Clone, Copy)]
pub(super) struct Answering<'scope, 'env> {
    pub(super) adapter: &'scope Adapter,
    pub(super) pages: &'scope PageLane,
    pub(super) scope: &'scope Scope<'scope, 'env>,
}

impl Answering<'_, '_> {
    /// Answers a request for a lock. Beside others the kernel first lets go of what it has of a
    /// file that was locked: its user is to see what others did before they let go.
    pub(super) fn answer(&self, waiting: Waiting, outcome: Result<(), Errno>) {
        let Waiting { header, wanted, lane } = waiting;
        if outcome.is_ok() && self.adapter.is_taken_beside_others(&wanted) {
            let pages = OldPages { ino: wanted.ino, offset: 0, len: 0 };
            let unanswered = Some(Unanswered { unique: header.unique, payload: Vec::new() });
            return self.pages.submit(self.adapter, self.scope, Done { lane, pages, unanswered });
        }
        reply(self.adapter, &lane, header.unique, outcome, &[]);
    }
}

impl LockLane {
    /// Puts a request in line; it is answered when it has the lock, or is interrupted. Where no
    /// thread can be had it is refused.
    pub(super) fn submit<'scope>(&'scope self, answering: Answering<'scope, '_>, waiting: Waiting) {
        let mut line = self.line.lock();
        let unique = waiting.header.unique;
        let is_interrupted = line.early.iter().any(|early| *early == unique);
        if !line.has_thread && !is_interrupted {
            let thread = Builder::new().name("marram-locks".into());
            let run = move || self.run(answering);
            line.has_thread = thread.spawn_scoped(answering.scope, run).is_ok();
        }
        let refusal = match (is_interrupted || line.closed, line.has_thread) {
            (true, _) => Some(Errno::INTERRUPTED),
            (false, false) => Some(Errno::NO_LOCKS),
            (false, true) => None,
        };
        match refusal {
            Some(errno) => {
                drop(line);
                answering.answer(waiting, Err(errno));
            }
            None => {
                line.waiting.push_back(waiting);
                line.has_changed = true;
                drop(line);
                self.changed.notify_one();
            }
        }
    }

    /// A signal has come for the caller of a request.
    pub(super) fn interrupt(&self, answering: Answering<'_, '_>, unique: u64) {
        let mut line = self.line.lock();
        if let Some((at_hand, is_interrupted)) = &mut line.at_hand
            && *at_hand == unique
        {
            *is_interrupted = true;
            return;
        }
        let at = line.waiting.iter().position(|waiting| waiting.header.unique == unique);
        match at.and_then(|at| line.waiting.remove(at)) {
            Some(waiting) => {
                drop(line);
                answering.answer(waiting, Err(Errno::INTERRUPTED));
            }
            None => {
                if line.early.len() == EARLY_MAX {
                    line.early.pop_front();
                }
                line.early.push_back(unique);
            }
        }
    }

    /// Somebody may have let go of a lock.
    pub(super) fn wake(&self) {
        let mut line = self.line.lock();
        if !line.waiting.is_empty() || line.at_hand.is_some() {
            line.has_changed = true;
            drop(line);
            self.changed.notify_one();
        }
    }

    /// The mount has ended: all that wait are let go, and the thread ends.
    pub(super) fn close(&self, adapter: &Adapter) {
        let waiting = {
            let mut line = self.line.lock();
            line.closed = true;
            std::mem::take(&mut line.waiting)
        };
        self.changed.notify_all();
        for waiting in waiting {
            reply(adapter, &waiting.lane, waiting.header.unique, Err(Errno::INTERRUPTED), &[]);
        }
    }

    fn run(&self, answering: Answering<'_, '_>) {
        let mut pause = PAUSE_MIN;
        while let Some(count) = self.next_round(&mut pause) {
            for _ in 0..count {
                self.try_first(answering);
            }
        }
    }

    /// Waits until it is time to try; how many to try, or nothing when the line is closed.
    fn next_round(&self, pause: &mut Duration) -> Option<usize> {
        let mut line = self.line.lock();
        loop {
            if line.closed {
                return None;
            }
            if line.waiting.is_empty() {
                line.has_changed = false;
                self.changed.wait(&mut line);
                continue;
            }
            if std::mem::take(&mut line.has_changed) {
                *pause = PAUSE_MIN;
                return Some(line.waiting.len());
            }
            if self.changed.wait_for(&mut line, *pause).timed_out() {
                *pause = (*pause * 2).min(PAUSE_MAX);
                return Some(line.waiting.len());
            }
        }
    }

    fn try_first(&self, answering: Answering<'_, '_>) {
        let mut line = self.line.lock();
        let Some(waiting) = line.waiting.pop_front() else { return };
        line.at_hand = Some((waiting.header.unique, false));
        drop(line);
        let adapter = answering.adapter;
        let tried =
            catch_unwind(AssertUnwindSafe(|| adapter.try_lock(&waiting.header, &waiting.wanted)));
        let tried = tried.unwrap_or_else(|panic| {
            report_panic(adapter, &waiting.header, &*panic);
            Some(Err(Errno::IO))
        });
        let mut line = self.line.lock();
        let is_interrupted = line.at_hand.take().is_some_and(|(_, is_interrupted)| is_interrupted);
        let outcome = match tried {
            Some(outcome) => outcome,
            None if is_interrupted || line.closed => Err(Errno::INTERRUPTED),
            None => return line.waiting.push_back(waiting),
        };
        drop(line);
        answering.answer(waiting, outcome);
    }
}
