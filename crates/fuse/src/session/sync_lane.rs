//! Requests that wait for the devices stand in one line.
//!
//! A sync lasts until the devices have flushed. The thread at the devices takes along all syncs
//! that stand in line at that moment, and answers them all; those that come meanwhile wait for the
//! next flush. So any number of programs that call fsync costs one flush at a time and one thread
//! that wakes up for it. Else a thread each would wait for the same lock.
//!
//! A worker goes to the devices itself while enough others wait for requests, since handing over
//! wakes one more thread on the way of a lone sync; else threads of this lane go. If the threads
//! that serve everything else waited for devices, as many programs as there are threads could stop
//! all others by calling fsync.

use super::lane::Lane;
use super::worker::serve_syncs;
use crate::adapter::{Adapter, SyncJob};
use crate::protocol::Header;
use parking_lot::{Condvar, Mutex};
use std::thread::{Builder, Scope};

/// Threads of the lane: one waits for the devices while the other answers whose sync is done.
const THREADS_MAX: usize = 2;

/// A sync to be done and answered. Each has a caller that waits, which bounds their number.
pub(super) struct Waiting {
    pub(super) header: Header,
    pub(super) job: SyncJob,
    pub(super) lane: Lane,
}

#[derive(Default)]
struct Line {
    waiting: Vec<Waiting>,
    /// A thread is at the devices; when it comes back it calls another if syncs wait.
    is_flushing: bool,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Line {
    /// Takes everybody along to the devices, if anybody waits and nobody is there.
    fn depart(&mut self) -> Option<Vec<Waiting>> {
        if self.is_flushing || self.waiting.is_empty() {
            return None;
        }
        self.is_flushing = true;
        Some(std::mem::take(&mut self.waiting))
    }
}

/// The line of syncs and the threads that serve it; threads are started as they are needed.
#[derive(Default)]
pub(super) struct SyncLane {
    line: Mutex<Line>,
    changed: Condvar,
}

impl SyncLane {
    /// Puts a sync in line; it is answered when it is done. A caller that has the time, and finds
    /// nobody at the devices, goes itself.
    pub(super) fn submit<'scope, 'env>(
        &'scope self,
        adapter: &'scope Adapter,
        scope: &'scope Scope<'scope, 'env>,
        waiting: Waiting,
        has_time: bool,
    ) {
        let mut line = self.line.lock();
        line.waiting.push(waiting);
        if line.is_flushing || (!has_time && self.call(&mut line, adapter, scope)) {
            return;
        }
        let group = line.depart().expect("one waits, and nobody is at the devices");
        drop(line);
        self.serve(adapter, scope, group);
    }

    /// Calls a thread; returns whether one will come.
    fn call<'scope, 'env>(
        &'scope self,
        line: &mut Line,
        adapter: &'scope Adapter,
        scope: &'scope Scope<'scope, 'env>,
    ) -> bool {
        if line.idle > 0 {
            self.changed.notify_one();
            return true;
        }
        if line.threads < THREADS_MAX {
            let thread = Builder::new().name("marram-sync".into());
            let started = thread.spawn_scoped(scope, move || self.run(adapter, scope));
            line.threads += usize::from(started.is_ok());
        }
        line.threads > 0
    }

    /// Goes to the devices for a group, lets the next go, and answers. Where no thread can be had
    /// for the next, it goes again.
    fn serve<'scope, 'env>(
        &'scope self,
        adapter: &'scope Adapter,
        scope: &'scope Scope<'scope, 'env>,
        group: Vec<Waiting>,
    ) {
        let mut next = Some(group);
        while let Some(group) = next.take() {
            serve_syncs(adapter, &group, || {
                let mut line = self.line.lock();
                line.is_flushing = false;
                if !line.waiting.is_empty() && !self.call(&mut line, adapter, scope) {
                    next = line.depart();
                }
            });
        }
    }

    /// No more will come: threads that have nothing to do end.
    pub(super) fn close(&self) {
        self.line.lock().closed = true;
        self.changed.notify_all();
    }

    fn run<'scope, 'env>(
        &'scope self,
        adapter: &'scope Adapter,
        scope: &'scope Scope<'scope, 'env>,
    ) {
        while let Some(group) = self.next() {
            self.serve(adapter, scope, group);
        }
    }

    fn next(&self) -> Option<Vec<Waiting>> {
        let mut line = self.line.lock();
        loop {
            if let Some(group) = line.depart() {
                return Some(group);
            }
            if line.closed && line.waiting.is_empty() {
                return None;
            }
            line.idle += 1;
            self.changed.wait(&mut line);
            line.idle -= 1;
        }
    }
}
