//! The daemon: one process for each mounted pool, serving any number of its datasets and snapshots.
//!
//! It ends with its last mount: first the mounts go, then a last group commit makes everything
//! durable, then the lock on the pool falls. Whoever waits for the process to end knows that the
//! device is free. Who only waits for `umount(2)` may give a block device to somebody else, whom
//! the lock does not stop: so, where the kernel lets us answer before that returns, nothing is
//! written after the answer. Else a last commit lands in the file system that `mkfs` makes there
//! next. If it crashes, the kernel drops lock and connection, and what it leaves (a
//! socket file, a mount that answers nothing) is cleared by the next command that meets it.

mod administration;
mod background;
mod catalogue;
mod damage;
mod dedup;
pub(crate) mod heaps;
mod image;
mod invalidation;
mod keeping;
pub(crate) mod launch;
mod log;
mod loop_device;
mod mounts;
mod namespace;
mod passes;
mod rewriting;
mod steps;
mod streams;
#[cfg(test)]
mod tests;
mod undo;

pub(crate) use launch::{Launch, Ready};
pub(crate) use log::Log;

use crate::control::protocol::{
    Answer, CompareOrder, DaemonReport, Greeting, MountReport, MountRequest, Operation, PassOrder,
    ReceiveOrder, Request, SendOrder, StatusReport, VERSION,
};
use crate::control::server::{ControlSocket, Service, clear_abandoned};
use crate::engine::{self, CACHE_BYTES_DEFAULT, OpenMode, OpenPool, hexadecimal};
use crate::error::{Error, Result};
use crate::timestamps::now_seconds;
use crate::{mountinfo, paths};
use damage::DamageList;
use dedup::Deduplication;
use marram_pool::Pool;
use marram_store::Store;
use mounts::MountTable;
use parking_lot::Mutex;
use rewriting::Rewriting;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use steps::Steps;
use streams::Streams;

/// Most seconds between two group commits, if nobody says.
pub(crate) const COMMIT_SECONDS_DEFAULT: u64 = 5;

/// What all threads of the daemon share.
pub(crate) struct Daemon {
    pool: OpenPool,
    pool_id: String,
    mounts: MountTable,
    streams: Streams,
    damage: Arc<DamageList>,
    dedup: Deduplication,
    rewriting: Rewriting,
    steps: Steps,
    /// Held by the one operation on a whole dataset that nobody has open.
    alone: Mutex<()>,
    log: Arc<Log>,
    cache_bytes: u64,
    commit_seconds: u64,
    /// Between two passes of rewriting in the background; 0 is never.
    rewriting_seconds: u64,
    read_only: bool,
    no_recovery: bool,
    started_seconds: i64,
    /// Set when nothing is written any more.
    closed: OnceLock<Result<Closed>>,
}

/// Serves what `launch` says until the last mount is gone. Calls `ready` once the first mount
/// answers.
///
/// # Errors
/// When the pool cannot be opened or mounted (then `ready` was not called), or when something
/// could not be made durable at the end.
pub(crate) fn run(launch: &Launch, log: Log, ready: impl FnOnce(&Ready)) -> Result<()> {
    // A daemon that writes back for others must not wait for memory that waits for it.
    let _best_effort = rustix::process::configure_io_flusher_behavior(true);
    allow_many_open_files();
    let signals = background::Signals::catch()?;
    if !launch.streams.is_empty() {
        return image::run(launch, log, signals, ready);
    }
    let daemon = Arc::new(Daemon::open(launch, log)?);
    daemon.let_go_of_left();
    let socket = daemon.serve_control()?;
    background::start(&daemon, signals)?;
    let mounted = daemon.mount(&launch.mount);
    if mounted.is_ok() {
        daemon.announce(ready);
        daemon.take_in_replay();
        daemon.mounts.wait_until_empty();
    }
    daemon.mounts.shut();
    let closed = daemon.close_for_good();
    // First the name goes, then the lock: the next daemon makes a socket of the same name.
    let conversations = socket.withdraw();
    daemon.pool.unlock();
    conversations.drain();
    match &closed {
        Ok(Closed::AsItWas) => daemon.log.write("left the pool as it was when it was shut down"),
        Ok(Closed::Durable) => daemon.log.write("closed the pool: everything is durable"),
        Err(error) => daemon.log.write(&format!("closing failed: {error}")),
    }
    mounted.and(closed.map(|_how| ()))
}

/// How a pool was closed.
#[derive(Clone, Copy)]
enum Closed {
    /// With everything that was done.
    Durable,
    /// As it was when it was halted on demand: what it had not written is meant to be lost.
    AsItWas,
}

/// Each lane of a mount is an open file, and so is each caller of the control socket. The usual
/// soft limit is meant for programs that use `select`.
fn allow_many_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _fewer_lanes = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

impl Daemon {
    /// Destroys what a comparison, a merge or a stream has left that a crash cut short.
    fn let_go_of_left(&self) {
        if self.read_only {
            return;
        }
        match marram_posix::let_go_of_left(&**self.pool.pool()) {
            Ok(gone) => {
                for source in gone {
                    self.log.write(&format!("destroyed {source}, which a crash had left"));
                }
            }
            Err(error) => self.log.write(&format!("what a crash has left stays: {error}")),
        }
        if let Err(error) = self.pool.pool().drop_empty_partials() {
            self.log.write(&format!("beginnings of streams stay: {error}"));
        }
    }

    fn open(launch: &Launch, log: Log) -> Result<Daemon> {
        let options = &launch.mount.options;
        let cache_bytes = options.cache_bytes.unwrap_or(CACHE_BYTES_DEFAULT);
        let mode =
            OpenMode { read_only: options.read_only, skip_log: options.no_recovery, cache_bytes };
        let pool = OpenPool::open(&launch.pool, &mode)?;
        let pool_id = hexadecimal(&pool.pool().status().pool_id);
        Ok(Daemon {
            pool,
            pool_id,
            mounts: MountTable::default(),
            streams: Streams::default(),
            damage: Arc::default(),
            dedup: Deduplication::default(),
            rewriting: Rewriting::default(),
            steps: Steps::default(),
            alone: Mutex::new(()),
            log: Arc::new(log),
            cache_bytes,
            commit_seconds: options.commit_seconds.unwrap_or(COMMIT_SECONDS_DEFAULT),
            rewriting_seconds: options
                .defragment_seconds
                .unwrap_or(rewriting::INTERVAL_SECONDS_DEFAULT),
            read_only: options.read_only,
            no_recovery: options.no_recovery,
            started_seconds: now_seconds(),
            closed: OnceLock::new(),
        })
    }

    /// Makes everything durable, and writes nothing from then on. The mounts are shut. Comes first
    /// with the last mount, if the kernel tells of its end, and else when the daemon ends.
    fn close_for_good(&self) -> Result<Closed> {
        let close = || {
            self.streams.wait_until_none();
            match self.pool.pool().is_halted() {
                true => Ok(Closed::AsItWas),
                false => self.pool.close_for_good().map(|()| Closed::Durable),
            }
        };
        self.closed.get_or_init(close).clone()
    }

    fn serve_control(self: &Arc<Self>) -> Result<ControlSocket> {
        let folder = paths::control_folder();
        paths::make_private_folder(&folder)?;
        clear_abandoned(&folder);
        let path = folder.join(format!("{}.sock", self.pool_id));
        ControlSocket::serve(&path, Arc::new(Shared(Arc::clone(self))))
    }

    fn announce(&self, ready: impl FnOnce(&Ready)) {
        let reports = self.mounts.reports();
        for mount in &reports {
            self.log.write(&format!(
                "marram {VERSION}: mounted {} of {} at {}",
                mount.source,
                self.pool.path().display(),
                mount.directory.display()
            ));
        }
        ready(&Ready { pid: own_pid(), mounts: reports });
    }

    /// Has what a replay found committed, once it is served: the first sync need not do it then. A
    /// mount does not wait for it, since its flush may take as long as the host has writes left
    /// from before the crash.
    fn take_in_replay(&self) {
        let frames = self.pool.pool().status().replayed_frames;
        if frames > 0 && !self.read_only {
            self.log.write(&format!("replayed {frames} syncs of the intent log"));
            self.pool.pool().wake();
        }
    }

    /// Refuses what holds for the whole daemon and is asked for differently by a later mount.
    fn check_same_terms(&self, request: &MountRequest) -> Result<()> {
        let options = &request.options;
        let differs = |what: &str, now: String| {
            Err(Error::usage(format!(
                "{what} holds for all mounts of a pool, and {} is mounted with {now} already",
                self.pool.path().display()
            ))
            .hint("leave the option out, or unmount the pool first"))
        };
        if options.cache_bytes.is_some_and(|bytes| bytes != self.cache_bytes) {
            return differs("cache", format!("cache={}", self.cache_bytes));
        }
        if options.commit_seconds.is_some_and(|seconds| seconds != self.commit_seconds) {
            return differs("commit", format!("commit={}", self.commit_seconds));
        }
        if options.defragment_seconds.is_some_and(|seconds| seconds != self.rewriting_seconds) {
            return differs("defragment", format!("defragment={}", self.rewriting_seconds));
        }
        if self.read_only && !options.read_only && options.snapshot.is_none() {
            return differs("read-only", "ro".to_owned());
        }
        if options.no_recovery && !self.no_recovery {
            return differs("norecovery", "recovery".to_owned());
        }
        Ok(())
    }

    fn unmount(&self, directory: &Path, detach: bool) -> Result<Answer> {
        let is_gone = self.mounts.unmount(directory, detach)?;
        self.log.write(&format!("unmounted {}", directory.display()));
        let nothing_to_write = self.read_only || self.pool.pool().is_halted();
        let synced = if nothing_to_write { Ok(()) } else { self.pool.pool().sync() };
        // With the last mount the pool is closed, which makes everything durable too.
        let not_durable = match self.mounts.is_shut() {
            true => self.close_for_good().err(),
            false => synced.err().map(Error::from),
        };
        Ok(Answer::Unmounted {
            mounts_left: self.mounts.reports().len(),
            not_durable,
            used_elsewhere: !is_gone,
        })
    }

    fn perform(&self, pool: &Pool, operation: &Operation) -> Result<Answer> {
        let changes = !matches!(
            operation,
            Operation::Status
                | Operation::List
                | Operation::Log
                | Operation::Space { .. }
                | Operation::Footprints(_)
                | Operation::Sharing
                | Operation::Get { .. }
                | Operation::Owners { .. }
                | Operation::Partials
                | Operation::Sync
        );
        let answer = self.perform_seen(pool, operation);
        if matches!(operation, Operation::Set { .. } | Operation::SetLimit { .. }) {
            self.reload()?;
        }
        if changes {
            let outcome = answer.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned());
            self.log.write(&format!("{}: {outcome}", name_of(operation)));
        }
        match answer? {
            Answer::Status(status) => Ok(Answer::Status(Box::new(self.complete(*status)))),
            other => Ok(other),
        }
    }

    /// Lets mounted file systems know of properties and limits that have been set.
    pub(super) fn reload(&self) -> Result<()> {
        for files in self.mounts.file_systems() {
            files.reload_properties();
            files.reload_limits()?;
        }
        Ok(())
    }

    /// Adds what the daemon knows to what the pool knows.
    fn complete(&self, mut status: StatusReport) -> StatusReport {
        // A pool that was closed takes no changes either, but nothing is wrong with it.
        let is_closed = matches!(self.closed.get(), Some(Ok(Closed::Durable)));
        if is_closed && status.health == "read-only" {
            (status.health, status.reason) = ("online".to_owned(), None);
        }
        let files = self.damage.rows();
        if !files.is_empty() && status.health == "online" {
            status.health = "damaged".to_owned();
            status.reason = Some("stored bytes are damaged; see below".to_owned());
        }
        status.damage.splice(0..0, files);
        status.mounts = self.mounts.reports();
        status.mounts.iter_mut().for_each(note_remount);
        status.daemon = Some(DaemonReport {
            pid: own_pid(),
            version: VERSION.to_owned(),
            started_seconds: self.started_seconds,
            commit_seconds: self.commit_seconds,
            log: self.log.path().map(Path::to_owned),
            known_inodes: self.mounts.known_inodes(),
            dedup: self.dedup_totals(),
            rewriting: self.rewriting_report(),
        });
        status
    }
}

/// The daemon as the control socket knows it.
struct Shared(Arc<Daemon>);

impl Service for Shared {
    fn greeting(&self) -> Greeting {
        Greeting {
            version: VERSION.to_owned(),
            pid: own_pid(),
            pool_id: self.0.pool_id.clone(),
            pool: self.0.pool.path().to_owned(),
            served: Some(self.0.pool.identity()),
            mounts: self.0.mounts.reports(),
            shows_streams: false,
            shown: Vec::new(),
        }
    }

    fn handle(&self, request: Request) -> Result<Answer> {
        let daemon = &self.0;
        match request {
            Request::Perform(operation) => daemon.perform(daemon.pool.pool(), &operation),
            Request::PerformFor { operation, author } => {
                let pool = engine::undo::acting_for(daemon.pool.pool(), &author);
                daemon.perform(&pool, &operation)
            }
            Request::Mount(request) => {
                daemon.check_same_terms(&request)?;
                let report = daemon.mount(&request)?;
                daemon.log.write(&format!(
                    "mounted {} at {}",
                    report.source,
                    report.directory.display()
                ));
                Ok(Answer::Mounted(report))
            }
            Request::Locate { directory, ino } => daemon.locate(&directory, ino),
            Request::Unmount { directory, detach } => daemon.unmount(&directory, detach),
            Request::Compare(_)
            | Request::Send(_)
            | Request::Receive(_)
            | Request::Dedup(_)
            | Request::Defragment(_) => {
                Err(Error::usage("this request is answered in another way"))
            }
        }
    }

    fn deduplicate(
        &self,
        order: &PassOrder,
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Answer> {
        self.0.deduplicate(order, is_wanted)
    }

    fn defragment(&self, order: &PassOrder, is_wanted: &mut dyn FnMut() -> bool) -> Result<Answer> {
        self.0.defragment(order, is_wanted)
    }

    fn compare(&self, order: &CompareOrder, out: &mut dyn Write) -> Result<Answer> {
        self.0.compare(order, out)
    }

    fn send(&self, order: &SendOrder, out: &mut dyn Write) -> Result<Answer> {
        self.0.send(order, out)
    }

    fn receive(&self, order: &ReceiveOrder, input: &mut dyn Read) -> Result<Answer> {
        self.0.receive(order, input)
    }

    fn is_over(&self) -> bool {
        self.0.mounts.is_shut()
    }
}

/// A remount is between its caller and the kernel: only the kernel's table tells of it.
fn note_remount(mount: &mut MountReport) {
    let Ok(Some(entry)) = mountinfo::mount_on(&mount.directory) else {
        return;
    };
    let now_read_only = entry.options.split(',').any(|word| word == "ro");
    if entry.is_marram() && now_read_only && !mount.read_only {
        mount.read_only = true;
        mount.options = format!("ro{}", mount.options.trim_start_matches("rw"));
    }
}

/// An operation in the words that it came in over the socket.
fn name_of(operation: &Operation) -> String {
    serde_json::to_string(operation).unwrap_or_else(|error| error.to_string())
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}
