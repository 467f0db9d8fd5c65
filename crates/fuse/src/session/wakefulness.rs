//! Processors that do not halt while requests flow.
//!
//! A request goes from the caller to a serving thread and its reply back, and both sleep while the
//! other works. In a virtual machine the processor that has nothing to do is given back to the
//! host at once, and waking it takes longer (20 to 50 us) than most requests take to be served. A
//! request to the kernel's power management for a latency of zero, which holds as long as
//! `/dev/cpu_dma_latency` is open with a zero written to it, makes it wait in a loop instead. See
//! docs/decisions/0009-idle-processors.md.
//!
//! Waiting in a loop uses up processors, so it must end soon after the last request. A thread (the
//! keeper) looks at every tick whether requests came: it takes the hold when some came in two ticks
//! in a row, so that a lone request costs nothing, and drops it after [`QUIET_TICKS`] without any.
//! While nothing comes at all the keeper sleeps, and the first request wakes it. Serving threads
//! pay one load of a flag that they share and seldom write.

use parking_lot::{Condvar, Mutex};
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often to look whether requests came.
const TICK: Duration = Duration::from_millis(15);
/// After how many ticks without a request processors may halt again.
const QUIET_TICKS: u32 = 5;
/// Takes requests for a latency in microseconds: four bytes in the machine's order.
const LATENCY_DEVICE: &str = "/dev/cpu_dma_latency";
/// Names the driver that decides what idle processors do.
const IDLE_DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
/// The driver of virtual machines, which gives a processor back to the host when it halts, and
/// knows only two latencies: any, and zero.
const HALTING_DRIVER: &str = "haltpoll";

/// Whether this process may keep processors awake: root may.
pub fn can_be_wakeful() -> bool {
    open_device().is_some()
}

/// Whether keeping processors awake is worth its price here: in a virtual machine whose processors
/// halt.
pub fn should_be_wakeful() -> bool {
    fs::read_to_string(IDLE_DRIVER).is_ok_and(|driver| driver.trim() == HALTING_DRIVER)
}

fn open_device() -> Option<OwnedFd> {
    rustix::fs::open(LATENCY_DEVICE, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// Keeps processors awake until it is dropped.
pub(super) fn hold_processors() -> Option<OwnedFd> {
    let device = open_device()?;
    rustix::io::write(&device, &[0; 4]).ok().map(|_written| device)
}

/// What serving threads and the keeper tell each other.
#[derive(Debug)]
pub(super) struct Wakefulness {
    /// Requests came since the last tick. Always set where nobody keeps.
    busy: AtomicBool,
    /// The keeper waits to be woken.
    asleep: AtomicBool,
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Wakefulness {
    /// `kept` says whether [`Wakefulness::keep`] will run.
    pub(super) fn new(kept: bool) -> Wakefulness {
        Wakefulness {
            busy: AtomicBool::new(!kept),
            asleep: AtomicBool::new(false),
            closed: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// A request has come.
    pub(super) fn notice(&self) {
        if !self.busy.load(Ordering::Relaxed) {
            self.notice_first();
        }
    }

    /// The keeper says that it sleeps before it looks for requests a last time, and this says that
    /// there is one before it looks for a sleeper: one of the two sees the other.
    #[cold]
    fn notice_first(&self) {
        self.busy.store(true, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) {
            drop(self.closed.lock());
            self.changed.notify_one();
        }
    }

    /// Ends [`Wakefulness::keep`].
    pub(super) fn close(&self) {
        *self.closed.lock() = true;
        self.changed.notify_one();
    }

    /// The keeper: has what `hold` gives while requests flow, until [`Wakefulness::close`]. Ends
    /// also when `hold` gives nothing.
    pub(super) fn keep<H>(&self, hold: impl Fn() -> Option<H>) {
        while self.sleep_until_busy() {
            if !self.was_busy_for_a_tick() {
                continue;
            }
            let Some(held) = hold() else {
                // Nobody will look: requests need not be noticed any more.
                return self.busy.store(true, Ordering::Relaxed);
            };
            self.wait_until_quiet();
            drop(held);
        }
    }

    /// Waits for a request; false when it is over.
    fn sleep_until_busy(&self) -> bool {
        let mut closed = self.closed.lock();
        self.asleep.store(true, Ordering::SeqCst);
        while !*closed && !self.busy.load(Ordering::SeqCst) {
            self.changed.wait(&mut closed);
        }
        self.asleep.store(false, Ordering::SeqCst);
        !*closed
    }

    fn wait_until_quiet(&self) {
        let mut quiet_ticks = 0;
        while quiet_ticks < QUIET_TICKS && !*self.closed.lock() {
            quiet_ticks = if self.was_busy_for_a_tick() { 0 } else { quiet_ticks + 1 };
        }
    }

    /// Waits for a tick and returns whether requests came in it.
    fn was_busy_for_a_tick(&self) -> bool {
        self.busy.store(false, Ordering::Relaxed);
        let mut closed = self.closed.lock();
        if !*closed {
            self.changed.wait_for(&mut closed, TICK);
        }
        self.busy.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::{TICK, Wakefulness};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::thread;
    use std::time::{Duration, Instant};

    /// How many holds there are now, and how many there were.
    #[derive(Default)]
    struct Holds {
        now: AtomicUsize,
        ever: AtomicUsize,
    }

    struct Held(Arc<Holds>);

    impl Drop for Held {
        fn drop(&mut self) {
            self.0.now.fetch_sub(1, SeqCst);
        }
    }

    /// Runs `requests` beside a keeper.
    fn kept(requests: impl FnOnce(&Wakefulness, &Holds)) {
        let wakefulness = Wakefulness::new(true);
        let holds = Arc::new(Holds::default());
        thread::scope(|scope| {
            scope.spawn(|| {
                wakefulness.keep(|| {
                    holds.now.fetch_add(1, SeqCst);
                    holds.ever.fetch_add(1, SeqCst);
                    Some(Held(Arc::clone(&holds)))
                });
            });
            requests(&wakefulness, &holds);
            wakefulness.close();
        });
        assert_eq!(holds.now.load(SeqCst), 0);
    }

    /// Does `meanwhile` again and again until there are `count` holds.
    fn until(holds: &Holds, count: usize, meanwhile: impl Fn()) {
        let begin = Instant::now();
        while holds.now.load(SeqCst) != count {
            assert!(begin.elapsed() < Duration::from_secs(20), "waited in vain");
            meanwhile();
            thread::sleep(TICK / 30);
        }
    }

    #[test]
    fn the_hold_lasts_as_long_as_requests_flow() {
        kept(|wakefulness, holds| {
            for _ in 0..3 {
                until(holds, 1, || wakefulness.notice());
                until(holds, 0, || ());
            }
            until(holds, 1, || wakefulness.notice());
        });
    }

    #[test]
    fn a_lone_request_does_not_keep_anyone_awake() {
        kept(|wakefulness, holds| {
            for _ in 0..2 {
                wakefulness.notice();
                thread::sleep(TICK * 30);
            }
            assert_eq!(holds.ever.load(SeqCst), 0);
        });
    }

    #[test]
    fn a_keeper_that_gets_no_hold_ends() {
        let wakefulness = Wakefulness::new(true);
        thread::scope(|scope| {
            let keeper = scope.spawn(|| wakefulness.keep(|| None::<()>));
            while !keeper.is_finished() {
                wakefulness.notice();
                thread::sleep(TICK / 10);
            }
        });
    }
}
