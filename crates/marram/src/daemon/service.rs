//! What a daemon answers over its control socket.

use super::authority::Authority;
use super::mounts::mount;
use super::namespace::Resolved;
use super::state::Daemon;
use super::{transactions, two_pools};
use crate::control::credentials::Credentials;
use crate::control::protocol::{
    Answer, Author, CompareOrder, DaemonReport, GrantOrder, Greeting, MountReport, MountRequest,
    Operation, PassOrder, ReceiveOrder, Request, SendOrder, StatusReport, UnmountedPlace, VERSION,
};
use crate::control::server::Service;
use crate::engine::home::{Pass, Streams, Watched, lacks};
use crate::error::{Error, Result};
use crate::mountinfo;
use crate::options::{Consistency, Durable};
use crate::paths;
use crate::process::own_pid;
use marram_client::control::PROTOCOL;
use marram_vfs::{Ino, Kind};
use std::io::{BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

/// Bytes of lines that are handed on at once.
const LINES_BYTES: usize = 256 << 10;

/// The daemon as the control socket knows it.
pub(super) struct Shared(pub(super) Arc<Daemon>);

impl Service for Shared {
    fn greeting(&self) -> Greeting {
        Greeting {
            version: VERSION.to_owned(),
            pid: own_pid(),
            pool_id: self.0.id.clone(),
            pool: self.0.home.path().to_owned(),
            served: Some(self.0.home.identity()),
            namespace: mountinfo::own_namespace(),
            mounts: self.0.mounts.reports(),
            shows_streams: false,
            shown: Vec::new(),
            transactions: PROTOCOL,
        }
    }

    fn is_open_to_others(&self) -> bool {
        paths::is_root()
    }

    fn admit(&self, by: &Credentials, request: Request) -> Result<Request> {
        Authority::new(&self.0, by).admit(request)
    }

    fn reveal(&self, by: &Credentials, answer: Answer) -> Answer {
        Authority::new(&self.0, by).reveal(answer)
    }

    fn handle(&self, request: Request) -> Result<Answer> {
        let daemon = &self.0;
        match request {
            Request::Perform(operation) => perform(daemon, &operation, None),
            Request::PerformFor { operation, author } => perform(daemon, &operation, Some(&author)),
            Request::Mount(request) => {
                check_same_terms(daemon, &request)?;
                let report = mount(daemon, &request)?;
                daemon.log.write(&format!(
                    "mounted {} at {}",
                    report.source,
                    report.directory.display()
                ));
                Ok(Answer::Mounted(report))
            }
            Request::Locate { directory, ino } => locate(daemon, &directory, ino),
            Request::Unmounting => Ok(Answer::Done),
            Request::Unmounted(place) => Ok(unmounted(daemon, &place)),
            Request::Begin(order) => transactions::begin(daemon, &order),
            Request::Commit(id) => transactions::commit(daemon, &id),
            Request::Abort(id) => {
                transactions::abort(daemon, &id);
                Ok(Answer::Done)
            }
            Request::Prepare(joint) => two_pools::prepare(daemon, &joint),
            Request::Decide(joint) => two_pools::decide(daemon, &joint),
            Request::Standing(of) => two_pools::standing(daemon, &of),
            Request::Resolve(of, resolution) => {
                two_pools::capability(daemon)?.resolve(&of, resolution, &**daemon)?;
                Ok(Answer::Done)
            }
            Request::Transactions => Ok(Answer::Transactions(daemon.transactions.rows())),
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
        pass(&self.0, Pass::Dedup, order, is_wanted)
    }

    fn defragment(&self, order: &PassOrder, is_wanted: &mut dyn FnMut() -> bool) -> Result<Answer> {
        pass(&self.0, Pass::Defragment, order, is_wanted)
    }

    fn compare(&self, order: &CompareOrder, out: &mut dyn Write) -> Result<Answer> {
        compare(&self.0, order, out)
    }

    fn send(&self, order: &SendOrder, out: &mut dyn Write) -> Result<Answer> {
        send(&self.0, order, out)
    }

    fn receive(&self, order: &ReceiveOrder, input: &mut dyn Read) -> Result<Answer> {
        receive(&self.0, order, input)
    }

    fn is_over(&self) -> bool {
        self.0.mounts.is_shut()
    }

    fn abandon(&self, transaction: &str) {
        transactions::abort(&self.0, transaction);
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

/// Makes a pass for as long as it is wanted.
fn pass(
    daemon: &Daemon,
    pass: Pass,
    order: &PassOrder,
    is_wanted: &mut dyn FnMut() -> bool,
) -> Result<Answer> {
    let _held = daemon.hold_stream()?;
    let passes = daemon.home.passes().ok_or_else(|| lacks(&*daemon.home, "passes over files"))?;
    passes.pass(pass, order, Some(Watched { mounts: daemon, is_wanted }))
}

/// Writes to `out` what differs between two states, a line for each difference.
fn compare(daemon: &Daemon, order: &CompareOrder, out: &mut dyn Write) -> Result<Answer> {
    let _held = daemon.hold_stream()?;
    let mut lines = BufWriter::with_capacity(LINES_BYTES, out);
    let failed =
        |error: std::io::Error| Error::failed(format!("cannot tell what differs: {error}"));
    let snapshots = daemon.home.snapshots().ok_or_else(|| lacks(&*daemon.home, "snapshots"))?;
    snapshots.compare(order, &mut |row| {
        let line = serde_json::to_vec(&row).map_err(|error| failed(error.into()))?;
        lines.write_all(&line).and_then(|()| lines.write_all(b"\n")).map_err(failed)
    })?;
    lines.flush().map_err(failed)?;
    Ok(Answer::Done)
}

/// Writes a stream to `out`.
fn send(daemon: &Daemon, order: &SendOrder, out: &mut dyn Write) -> Result<Answer> {
    let _held = daemon.hold_stream()?;
    let answer = streams(daemon)?.send(order, out);
    let outcome = answer.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned());
    let what = order.resume.as_ref().map_or(order.snapshot.as_str(), |_| "the rest of a stream");
    daemon.log.write(&format!("send {what}: {outcome}"));
    answer
}

/// Reads a stream, and has the mounts show what has been received, all at once.
fn receive(daemon: &Daemon, order: &ReceiveOrder, input: &mut dyn Read) -> Result<Answer> {
    let _held = daemon.hold_stream()?;
    let answer = streams(daemon)?.receive(order, input, Some(daemon));
    let outcome = answer.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned());
    daemon.log.write(&format!("receive {}: {outcome}", order.dataset));
    answer
}

fn streams(daemon: &Daemon) -> Result<&dyn Streams> {
    daemon.home.streams().ok_or_else(|| lacks(&*daemon.home, "streams"))
}

/// Refuses what holds for the whole daemon and is asked for differently by a later mount.
fn check_same_terms(daemon: &Daemon, request: &MountRequest) -> Result<()> {
    let options = &request.options;
    let differs = |what: &str, now: String| {
        Err(Error::usage(format!(
            "{what} holds for all mounts of a pool, and {} is mounted with {now} already",
            daemon.home.path().display()
        ))
        .hint("leave the option out, or unmount the pool first"))
    };
    if options.cache_bytes.is_some_and(|bytes| bytes != daemon.mode.cache_bytes) {
        return differs("cache", format!("cache={}", daemon.mode.cache_bytes));
    }
    if options.commit_seconds.is_some_and(|seconds| seconds != daemon.mode.pace.commit_seconds) {
        return differs("commit", format!("commit={}", daemon.mode.pace.commit_seconds));
    }
    if options
        .defragment_seconds
        .is_some_and(|seconds| seconds != daemon.mode.pace.rewriting_seconds)
    {
        return differs("defragment", format!("defragment={}", daemon.mode.pace.rewriting_seconds));
    }
    if options.consistency.is_some() && options.consistency != daemon.mode.consistency {
        let now = daemon.mode.consistency.map_or("its default", Consistency::name);
        return differs("consistency", format!("consistency={now}"));
    }
    let served = daemon.mode.offset_bytes.unwrap_or(0);
    if options.offset_bytes.is_some_and(|bytes| bytes != served) {
        return differs("offset", format!("offset={served}"));
    }
    if options.fakeroot != daemon.mode.fakeroot {
        let now = if daemon.mode.fakeroot { "fakeroot" } else { "owners as they are" };
        return differs("fakeroot", now.to_owned());
    }
    if options.casefold != daemon.mode.casefold {
        let now = if daemon.mode.casefold { "casefold" } else { "names with case" };
        return differs("casefold", now.to_owned());
    }
    if options.durable.is_some() && options.durable != daemon.mode.durable {
        let now = daemon.mode.durable.map_or("its default", Durable::name);
        return differs("durable", format!("durable={now}"));
    }
    if daemon.mode.read_only && !options.read_only && options.snapshot.is_none() {
        return differs("read-only", "ro".to_owned());
    }
    if options.no_recovery && !daemon.mode.skip_log {
        return differs("norecovery", "recovery".to_owned());
    }
    Ok(())
}

/// Makes everything durable after a mount has been taken from a place, and waits for its end.
pub(super) fn unmounted(daemon: &Daemon, place: &UnmountedPlace) -> Answer {
    let has_ended = daemon.mounts.has_ended(place);
    daemon.log.write(&format!("unmounted {}", place.directory.display()));
    let nothing_to_write = daemon.mode.read_only || daemon.home.is_halted();
    let synced = if nothing_to_write { Ok(()) } else { daemon.home.sync() };
    // With the last mount the pool is closed, which makes everything durable too.
    let not_durable = match daemon.mounts.is_shut() {
        true => daemon.close_for_good().err(),
        false => synced.err(),
    };
    Answer::Unmounted {
        mounts_left: daemon.mounts.reports().len(),
        not_durable,
        used_elsewhere: !has_ended,
    }
}

fn perform(daemon: &Daemon, operation: &Operation, author: Option<&Author>) -> Result<Answer> {
    let changes = !matches!(
        operation,
        Operation::Status
            | Operation::List
            | Operation::ForkPlace { .. }
            | Operation::Versions(_)
            | Operation::Log
            | Operation::Space { .. }
            | Operation::Footprints(_)
            | Operation::Sharing
            | Operation::Get { .. }
            | Operation::Owners { .. }
            | Operation::Partials
            | Operation::Sync
            | Operation::Grants(GrantOrder { change: None, .. })
    );
    let answer = daemon.home.perform(operation, author, Some(daemon));
    if changes {
        let outcome = answer.as_ref().map_or_else(ToString::to_string, |_| "done".to_owned());
        daemon.log.write(&format!("{}: {outcome}", name_of(operation)));
    }
    match answer? {
        Answer::Status(status) => Ok(Answer::Status(Box::new(complete(daemon, *status)))),
        other => Ok(other),
    }
}

/// What an inode of the mount on `directory` belongs to.
///
/// # Errors
/// Nothing is mounted there, or the inode is gone.
pub(super) fn locate(daemon: &Daemon, directory: &Path, ino: u64) -> Result<Answer> {
    let place = directory.display();
    let found = daemon.mounts.namespace_at(directory);
    let (mounted, namespace) =
        found.ok_or_else(|| Error::not_found(format!("nothing is mounted at {place}")))?;
    if namespace.is_control_directory(Ino(ino)) {
        let root = namespace.root().0;
        return Ok(Answer::Located { source: mounted.to_string(), ino: 0, root });
    }
    let gone = |error: marram_vfs::Error| Error::not_found(format!("{place}: {error}"));
    let Resolved { member, root, volume, ino: inner } =
        namespace.resolve(Ino(ino)).map_err(gone)?;
    let kind = volume.attributes(inner).map_err(gone)?.kind;
    let source = member.unwrap_or(mounted).to_string();
    let ino = if kind == Kind::Directory { inner.0 } else { 0 };
    Ok(Answer::Located { source, ino, root: root.0 })
}

/// Adds what the daemon knows to what the pool knows.
fn complete(daemon: &Daemon, mut status: StatusReport) -> StatusReport {
    // A pool that was closed takes no changes either, but nothing is wrong with it.
    if daemon.is_closed() && status.health == "read-only" {
        (status.health, status.reason) = ("online".to_owned(), None);
    }
    let mut files = daemon.damage.rows();
    files.retain(|row| !status.damage.iter().any(|known| known.is_same(row)));
    if !files.is_empty() && status.health == "online" {
        status.health = "damaged".to_owned();
        status.reason = Some("stored bytes are damaged; see below".to_owned());
    }
    status.damage.splice(0..0, files);
    status.mounts = daemon.mounts.reports();
    status.mounts.iter_mut().for_each(note_remount);
    let background = daemon.home.background();
    status.daemon = Some(DaemonReport {
        pid: own_pid(),
        version: VERSION.to_owned(),
        started_seconds: daemon.started_seconds,
        commit_seconds: daemon.mode.pace.commit_seconds,
        log: daemon.log.path().map(Path::to_owned),
        known_inodes: daemon.mounts.known_inodes(),
        dedup: background.dedup,
        rewriting: background.rewriting,
    });
    status
}
