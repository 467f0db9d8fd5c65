//! Pages that the kernel has to forget because of a write.
//!
//! **Direct writes.** Before one the kernel drops what it has cached of the range, and after one
//! that its caller waits for once more. After one by AIO it does not: what a cached read in between
//! found was there before the write, and would stay. So where a file is read through the cache too,
//! a notification drops the range once the write is done. The write is answered after that: a
//! program that has seen its end sees its bytes.
//!
//! **Appends that went elsewhere** than the kernel thought. Their pages are locked until they are
//! answered, so they are dropped right after that.
//!
//! Not by the thread that wrote: to drop a page the kernel waits until it has been read, and that
//! may be a request which waits for a thread that serves.

use super::lane::Lane;
use super::reply::reply;
use crate::adapter::{Adapter, OldPages};
use crate::protocol::{Encoder, NotifyCode};
use crate::transport::Transport;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::thread::{Builder, Scope};

/// A write that is done. How many there are is bounded by the kernel, which sends only so many
/// requests at a time.
pub(super) struct Done {
    pub(super) lane: Lane,
    pub(super) pages: OldPages,
    /// What is to be answered when the pages are gone.
    pub(super) unanswered: Option<Unanswered>,
}

/// The answer of a write.
pub(super) struct Unanswered {
    pub(super) unique: u64,
    pub(super) payload: Vec<u8>,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Done>,
    has_thread: bool,
    closed: bool,
}

/// The line of such writes and its thread, which is started when there is a first one.
#[derive(Default)]
pub(super) struct PageLane {
    line: Mutex<Line>,
    changed: Condvar,
}

impl PageLane {
    /// Has the pages dropped, and then the write answered. Where no thread can be had it is only
    /// answered.
    pub(super) fn submit<'scope, 'env>(
        &'scope self,
        adapter: &'scope Adapter,
        scope: &'scope Scope<'scope, 'env>,
        done: Done,
    ) {
        let mut line = self.line.lock();
        if !line.has_thread {
            let thread = Builder::new().name("marram-pages".into());
            line.has_thread = thread.spawn_scoped(scope, move || self.run(adapter)).is_ok();
        }
        if line.has_thread {
            line.waiting.push_back(done);
            drop(line);
            self.changed.notify_one();
            return;
        }
        drop(line);
        answer(adapter, &done);
    }

    /// No more will come: the thread ends when it has nothing to do.
    pub(super) fn close(&self) {
        self.line.lock().closed = true;
        self.changed.notify_all();
    }

    fn run(&self, adapter: &Adapter) {
        while let Some(done) = self.next() {
            drop_pages(&done.lane, done.pages);
            answer(adapter, &done);
        }
    }

    fn next(&self) -> Option<Done> {
        let mut line = self.line.lock();
        loop {
            if let Some(done) = line.waiting.pop_front() {
                return Some(done);
            }
            if line.closed {
                return None;
            }
            self.changed.wait(&mut line);
        }
    }
}

fn answer(adapter: &Adapter, done: &Done) {
    if let Some(Unanswered { unique, payload }) = &done.unanswered {
        reply(adapter, &done.lane, *unique, Ok(()), payload);
    }
}

/// Has the kernel drop what it has cached of a range, and the attributes.
fn drop_pages(lane: &dyn Transport, pages: OldPages) {
    let mut payload = Vec::new();
    Encoder(&mut payload).u64(pages.ino.0).i64(pages.offset).i64(pages.len);
    let header = NotifyCode::Inode.header(payload.len());
    let _unknown_by_now = lane.send(&[IoSlice::new(&header), IoSlice::new(&payload)]);
}
