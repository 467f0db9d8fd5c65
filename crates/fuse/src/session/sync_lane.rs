//! Requests that wait for the devices, and that no worker can be spared for, are served by threads
//! of their own.
//!
//! A sync lasts until the devices have flushed. If the threads that serve everything else waited
//! for it, as many programs as there are threads could stop all others by calling fsync; and syncs
//! that wait together share one flush.

use super::worker::serve_sync;
use crate::adapter::{Adapter, SyncJob};
use crate::protocol::Header;
use crate::transport::ClassicTransport;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{Builder, Scope};

/// Most syncs that wait at the same time; more stand in line.
const THREADS_MAX: usize = 32;

/// A sync to be done and answered. How many there are is bounded by their callers, who wait.
pub(super) struct Waiting {
    pub(super) header: Header,
    pub(super) job: SyncJob,
    pub(super) lane: Arc<ClassicTransport>,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    threads: usize,
    idle: usize,
    closed: bool,
}

/// The line of syncs and the threads that serve it; threads are started as they are needed.
#[derive(Default)]
pub(super) struct SyncLane {
    line: Mutex<Line>,
    changed: Condvar,
}

impl SyncLane {
    /// Puts a sync in line; it is answered when it is done. Where no thread can be had, it is done
    /// at once.
    pub(super) fn submit<'scope>(
        &'scope self,
        adapter: &'scope Adapter,
        scope: &'scope Scope<'scope, '_>,
        waiting: Waiting,
    ) {
        let mut line = self.line.lock();
        if line.idle <= line.waiting.len() && line.threads < THREADS_MAX {
            let thread = Builder::new().name("marram-sync".into());
            match thread.spawn_scoped(scope, || self.run(adapter)) {
                Ok(_) => line.threads += 1,
                Err(_) if line.threads > 0 => (),
                Err(_) => {
                    drop(line);
                    return serve_sync(adapter, &waiting);
                }
            }
        }
        line.waiting.push_back(waiting);
        drop(line);
        self.changed.notify_one();
    }

    /// No more will come: threads that have nothing to do end.
    pub(super) fn close(&self) {
        self.line.lock().closed = true;
        self.changed.notify_all();
    }

    fn run(&self, adapter: &Adapter) {
        while let Some(waiting) = self.next() {
            serve_sync(adapter, &waiting);
        }
    }

    fn next(&self) -> Option<Waiting> {
        let mut line = self.line.lock();
        loop {
            if let Some(waiting) = line.waiting.pop_front() {
                return Some(waiting);
            }
            if line.closed {
                return None;
            }
            line.idle += 1;
            self.changed.wait(&mut line);
            line.idle -= 1;
        }
    }
}
