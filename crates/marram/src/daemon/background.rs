//! What the daemon does without being asked: group commits, freeing what has no name any more,
//! and heeding signals.
//!
//! The engine has no threads of its own for this, so that tests can drive it step by step; these
//! loops are all that drives it here. They end with the process.

use super::{Daemon, invalidation};
use crate::error::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many items one step of freeing takes on: a fraction of a second's work.
const RECLAIM_ITEMS: usize = 1000;
/// How long to rest when there is nothing to free.
const RECLAIM_REST: Duration = Duration::from_secs(1);
/// How long to rest at most between two pieces of what destroyed datasets held.
const RECLAIM_PAUSE_MAX: Duration = Duration::from_secs(1);
/// How often to look for members of mounts that can be closed.
const MEMBERS_TICK: Duration = Duration::from_secs(1);
/// How long mounts may take to end after a signal before the daemon ends without them.
const SIGNAL_GRACE: Duration = Duration::from_secs(20);

/// Signals that mean the end, caught from here on.
pub(super) struct Signals(signal_hook::iterator::Signals);

impl Signals {
    /// Catches them.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn catch() -> Result<Signals> {
        signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])
            .map(Signals)
            .map_err(|error| Error::failed(format!("cannot catch signals: {error}")))
    }
}

impl Signals {
    /// Calls `end` at the first of them, in a thread of its own.
    ///
    /// # Errors
    /// When a thread cannot be had.
    pub(super) fn at_first(mut self, end: impl Fn(i32) + Send + 'static) -> Result<()> {
        spawn("signals", move || self.0.forever().for_each(end))
    }
}

/// Starts all of it.
///
/// # Errors
/// When a thread cannot be had.
pub(super) fn start(daemon: &Arc<Daemon>, signals: Signals) -> Result<()> {
    let here = Arc::clone(daemon);
    spawn("signals", move || heed(&here, signals))?;
    let here = Arc::clone(daemon);
    spawn("members", move || close_members(&here))?;
    if !daemon.read_only {
        let here = Arc::clone(daemon);
        spawn("commit", move || commit(&here))?;
        let here = Arc::clone(daemon);
        spawn("reclaim", move || reclaim(&here))?;
        let here = Arc::clone(daemon);
        spawn("dedup", move || here.deduplicate_recent())?;
        let here = Arc::clone(daemon);
        spawn("rewriting", move || here.rewrite_now_and_then())?;
    }
    Ok(())
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map(|_runs_until_the_end| ())
        .map_err(|error| Error::failed(format!("cannot start a thread: {error}")))
}

/// The first signal unmounts everything and so ends the daemon; further ones change nothing.
fn heed(daemon: &Daemon, mut signals: Signals) {
    for signal in signals.0.forever() {
        daemon.log.write(&format!("signal {signal}: unmounting everything"));
        for failure in daemon.mounts.unmount_all() {
            daemon.log.write(&failure.to_string());
        }
        if !daemon.mounts.wait_until_empty_for(SIGNAL_GRACE) {
            daemon.log.write("some mounts are still in use: they end with the daemon");
            daemon.mounts.give_up();
        }
    }
}

/// Closes snapshots and forks that nobody looks at any more. What nobody has used for long, the
/// kernel is asked to forget; then it is closed some time later.
fn close_members(daemon: &Daemon) {
    while !daemon.mounts.is_shut() {
        std::thread::sleep(MEMBERS_TICK);
        for mount in daemon.mounts.served() {
            for place in mount.namespace.close_unused() {
                invalidation::forget_member(&mount, &place);
            }
        }
    }
}

fn commit(daemon: &Daemon) {
    let interval = Duration::from_secs(daemon.commit_seconds);
    let pool = daemon.pool.pool();
    let mut failed = false;
    loop {
        pool.wait_for_work(interval);
        let outcome = pool.commit();
        if daemon.mounts.is_shut() {
            return;
        }
        if pool.is_halted() {
            daemon.log.write("shut down as by a power cut: nothing more is written");
            return;
        }
        if let (Err(error), false) = (&outcome, failed) {
            daemon.log.write(&format!("group commit: {error}"));
        }
        failed = outcome.is_err();
        if failed {
            // The pool has said what is wrong and takes no more changes; do not spin on that.
            std::thread::sleep(interval);
        }
    }
}

/// Frees a piece of what destroyed datasets held, and leaves the device to others for as long as
/// that took: at most half of the time goes into it. Who finds no space does not wait for this, but
/// frees such pieces himself.
fn reclaim_destroyed(daemon: &Daemon) -> bool {
    let began = Instant::now();
    let more = daemon.pool.pool().reclaim_step().unwrap_or_else(|error| {
        daemon.log.write(&format!("freeing destroyed datasets: {error}"));
        false
    });
    if more {
        std::thread::sleep(began.elapsed().min(RECLAIM_PAUSE_MAX));
    }
    more
}

fn reclaim(daemon: &Daemon) {
    while !daemon.mounts.is_shut() && !daemon.pool.pool().is_halted() {
        let mut more = reclaim_destroyed(daemon);
        for posix in daemon.mounts.file_systems() {
            let Some(_step) = daemon.begin_step(&posix) else { continue };
            match posix.reclaim_step(RECLAIM_ITEMS) {
                Ok(left) => more |= left,
                Err(error) => daemon.log.write(&format!("freeing deleted files: {error}")),
            }
        }
        if !more {
            std::thread::sleep(RECLAIM_REST);
        }
    }
}
