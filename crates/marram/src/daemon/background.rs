//! What the daemon does without being asked: the home's own work, closing members of mounts that
//! nobody looks at, and heeding signals. Each is a thread, which ends with the process.

use super::invalidation;
use super::state::Daemon;
use super::{transactions, two_pools};
use crate::error::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::Arc;
use std::time::Duration;

/// How often to look for members of mounts that can be closed.
const MEMBERS_TICK: Duration = Duration::from_secs(1);
/// How often to look for transactions in which nothing is done.
const TRANSACTIONS_TICK: Duration = Duration::from_secs(1);
/// How often the other pool of a transaction that is not over is asked about it.
const TWO_POOLS_TICK: Duration = Duration::from_secs(1);
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
    let here = Arc::clone(daemon);
    spawn("transactions", move || end_forgotten_transactions(&here))?;
    if daemon.home.transactions().is_some_and(|it| it.two_pools().is_some()) {
        let here = Arc::clone(daemon);
        spawn("two-pools", move || two_pools::run(&here, TWO_POOLS_TICK))?;
    }
    for task in Arc::clone(&daemon.home).tasks() {
        let here = Arc::clone(daemon);
        spawn(task.name, move || (task.run)(&*here))?;
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

fn end_forgotten_transactions(daemon: &Daemon) {
    while !daemon.mounts.is_shut() {
        std::thread::sleep(TRANSACTIONS_TICK);
        transactions::abort_forgotten(daemon);
    }
}

/// Closes snapshots and forks that nobody looks at any more. What nobody has used for long, the
/// kernel is asked to forget; then it is closed some time later.
fn close_members(daemon: &Daemon) {
    while !daemon.mounts.is_shut() {
        std::thread::sleep(MEMBERS_TICK);
        for mount in daemon.mounts.served() {
            for place in mount.namespace.close_unused() {
                invalidation::forget_unused(&mount, &place);
            }
        }
    }
}
