//! The io_uring lanes of a mount: made before the kernel hears of them, given threads, and more of
//! them where they are needed.
//!
//! Each processor has a queue, and the kernel uses none before all have a lane. A queue starts with
//! some lanes and gets another whenever a request leaves few waiting, up to a limit: a lane whose
//! request waits for a device serves nobody else. Lanes are opened ahead of the need: one that is
//! opened when requests wait in the kernel already gets none of those, only what comes after.

use crate::options::{MountOptions, TransportChoice};
use crate::transport::{ClassicTransport, Ring, RingLane, RingQueue};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use rustix::thread::CpuSet;
use std::fs;
use std::sync::Arc;

/// Lanes that a queue starts with, where there are not too many processors for it: as many slow
/// requests may come at once.
const LANES_AT_FIRST: usize = 16;
/// Most lanes of a queue: as many requests of one processor are in work at once. Others wait in
/// the kernel, where their callers can be killed.
const QUEUE_LANES_MAX: usize = 64;
/// Most lanes of a mount, where there are so many processors that this counts.
const LANES_MAX: usize = 1024;
/// Most lanes whose thread is stuck with a request that nobody waits for any more.
const STUCK_MAX: usize = 64;
/// Says whether the kernel offers io_uring to FUSE servers.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
/// Numbers of the processors that the machine can have.
const PROCESSORS: &str = "/sys/devices/system/cpu/possible";

/// All lanes of a mount.
pub(super) struct Rings {
    device: Arc<ClassicTransport>,
    payload_bytes_max: usize,
    /// Opened, and not yet given a thread.
    fresh: Mutex<Vec<Arc<RingLane>>>,
    /// Given a thread.
    lanes: Mutex<Vec<Arc<RingLane>>>,
    threads: Mutex<usize>,
    thread_ended: Condvar,
}

impl Rings {
    /// What `options` ask for: `None` for the classic way.
    ///
    /// # Errors
    /// Why there are no rings although they are asked for.
    pub(super) fn prepare(
        device: &Arc<ClassicTransport>,
        options: &MountOptions,
        payload_bytes_max: usize,
    ) -> Result<Option<Rings>, String> {
        if options.transport != TransportChoice::IoUring {
            return Ok(None);
        }
        if !is_offered() {
            return Err(format!("the kernel does not offer it (it does if {PARAMETER} is Y)"));
        }
        Rings::open(device, payload_bytes_max).map(Some).map_err(|error| error.to_string())
    }

    fn open(device: &Arc<ClassicTransport>, payload_bytes_max: usize) -> Result<Rings, Errno> {
        let processors = processors().ok_or(Errno::NOSYS)?;
        let most = (LANES_MAX / usize::from(processors)).clamp(1, QUEUE_LANES_MAX);
        let mut fresh = Vec::new();
        for number in 0..processors {
            let queue = Arc::new(RingQueue::new(number, most));
            for _ in 0..LANES_AT_FIRST.min(most) {
                queue.count_lane();
                fresh.push(Arc::new(RingLane::open(device, &queue, payload_bytes_max)?));
            }
        }
        Ok(Rings {
            device: Arc::clone(device),
            payload_bytes_max,
            fresh: Mutex::new(fresh),
            lanes: Mutex::new(Vec::new()),
            threads: Mutex::new(0),
            thread_ended: Condvar::new(),
        })
    }

    /// Gives every lane that has none a thread by `start`, which returns whether it could. Lanes
    /// that it could not give one stay for the next time.
    pub(super) fn start_fresh(&self, start: impl Fn(Arc<RingLane>) -> bool) {
        let fresh = std::mem::take(&mut *self.fresh.lock());
        for lane in fresh {
            *self.threads.lock() += 1;
            self.lanes.lock().push(Arc::clone(&lane));
            if !start(Arc::clone(&lane)) {
                self.lanes.lock().retain(|other| !Arc::ptr_eq(other, &lane));
                self.fresh.lock().push(lane);
                self.end_thread();
            }
        }
    }

    /// Whether lanes wait for threads.
    pub(super) fn has_fresh(&self) -> bool {
        !self.fresh.lock().is_empty()
    }

    /// The kernel is not to use rings after all: not every queue got a thread.
    pub(super) fn give_up(&self) {
        if let Some(lane) = self.fresh.lock().first() {
            lane.make_kernel_refuse();
        }
    }

    /// Opens a lane more for the queue of `lane`, if few others wait there.
    pub(super) fn reinforce(&self, lane: &RingLane) -> bool {
        if !lane.queue.may_grow() {
            return false;
        }
        let opened = RingLane::open(&self.device, &lane.queue, self.payload_bytes_max);
        let opened = opened.map(|lane| self.fresh.lock().push(Arc::new(lane)));
        opened.is_ok()
    }

    /// Lets callers go that have been killed. Their lanes' successors are fresh.
    pub(super) fn let_the_killed_go(&self, spare: &mut Option<Ring>) {
        let lanes = self.lanes();
        let mut stuck = lanes.iter().filter(|lane| lane.is_over()).count();
        for lane in &lanes {
            if stuck < STUCK_MAX
                && let Some(successor) = lane.let_the_killed_go(spare)
            {
                self.fresh.lock().push(Arc::new(successor));
                stuck += 1;
            }
        }
    }

    /// Tells the kernel what it does not know because callers were let go.
    pub(super) fn tell_written_late(&self) {
        self.lanes().iter().for_each(|lane| lane.tell_written_late());
    }

    /// The lanes that have a thread, and those that are over and have something left to tell. The
    /// lock is not held for long: a thread that serves a request may need it.
    fn lanes(&self) -> Vec<Arc<RingLane>> {
        let mut lanes = self.lanes.lock();
        lanes.retain(|lane| {
            !lane.is_over() || Arc::strong_count(lane) > 1 || lane.has_written_late()
        });
        lanes.clone()
    }

    /// A thread of a lane has ended.
    pub(super) fn end_thread(&self) {
        *self.threads.lock() -= 1;
        self.thread_ended.notify_all();
    }

    /// Waits until all threads of lanes have ended.
    pub(super) fn wait_for_threads(&self) {
        let mut threads = self.threads.lock();
        while *threads > 0 {
            self.thread_ended.wait(&mut threads);
        }
    }
}

/// Keeps this thread on the processor of its queue, where its callers are: they wake each other
/// without a word to another processor. Where that cannot be had it is slower and nothing else.
pub(super) fn stay_with(queue: &RingQueue) {
    let mut processors = CpuSet::new();
    processors.set(usize::from(queue.number));
    let _runs_anywhere = rustix::thread::sched_setaffinity(None, &processors);
}

fn is_offered() -> bool {
    fs::read_to_string(PARAMETER).is_ok_and(|value| value.trim() == "Y")
}

fn processors() -> Option<u16> {
    count_processors(fs::read_to_string(PROCESSORS).ok()?.trim())
}

/// How many there are in a list such as `0-3,8`; `None` also if their numbers are not from 0 on
/// without a gap, which is how queues are numbered.
fn count_processors(list: &str) -> Option<u16> {
    let mut count: u16 = 0;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        if first != count || last < first {
            return None;
        }
        count = last.checked_add(1)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::count_processors;

    #[test]
    fn processors_are_counted_if_their_numbers_have_no_gap() {
        assert_eq!(count_processors("0"), Some(1));
        assert_eq!(count_processors("0-1"), Some(2));
        assert_eq!(count_processors("0-3,4-7,8"), Some(9));
        for wrong in ["", "1", "0-3,8", "x", "0-65535", "3-1"] {
            assert_eq!(count_processors(wrong), None, "{wrong}");
        }
    }
}
