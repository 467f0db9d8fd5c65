//! Transactions: begun, committed, aborted.
//!
//! One lives as long as the conversation in which it was begun, or until nothing has been done in
//! it for a time that was named. What it works in is a fork that no list shows, mounted at a place
//! in the folder of the control sockets.
//!
//! One may begin inside of another: in a fork of that one's fork. It commits into that one, and
//! what it has read counts for that one however it ends.
//!
//! The invariant: a transaction that is taken from the table answers nothing any more to the
//! programs in it, before anything of it is read for a commit. What they have written through maps
//! of files is in the commit, or the commit fails: no map outlives it, since the kernel lets go of
//! all content of the view.

use super::invalidation;
use super::mounts::mount_view;
use super::open_transactions::{Idle, OpenTransaction, not_open};
use super::state::Daemon;
use crate::control::protocol::{Answer, BeginOrder, BegunTransaction, MountReport};
use crate::engine::home::{CommitOrder, Transactions as Capability, lacks};
use crate::error::{Error, Result};
use crate::names::hexadecimal;
use crate::paths;
use crate::timestamps::now_seconds;
use marram_fuse::{SessionHandle, Unmount};
use marram_store::{DatasetName, Source};
use marram_tx::Recording;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of an id.
const ID_BYTES: usize = 16;
/// With this the name of a place begins.
const PLACE_PREFIX: &str = "tx-";
/// What is in a place: the view.
const VIEW: &str = "view";

/// Begins a transaction in the dataset of a mount.
///
/// # Errors
/// What refuses it, before anything has been made.
pub(super) fn begin(daemon: &Arc<Daemon>, order: &BeginOrder) -> Result<Answer> {
    let directory = match &order.inside {
        Some(outer) => daemon.transactions.place_of(outer).ok_or_else(|| not_open(outer))?,
        None => order.directory.clone(),
    };
    let (source, like) = mounted_at(daemon, &directory)?;
    let id = new_id()?;
    let fork = Source::live(DatasetName::of_transaction(&id)?);
    let (entry, inside) = ((id.as_str(), &fork), source.dataset.transaction());
    daemon.transactions.reserve(entry, &order.author, inside)?;
    let place = place_of(daemon, &id);
    let made = open_view(daemon, &source, (&id, &place), &like);
    let (base, recording, session) = made.inspect_err(|_| daemon.transactions.cancel(entry))?;
    let device = session.device().into();
    let open = OpenTransaction {
        fork,
        dataset: source.dataset.clone(),
        base,
        recording,
        session: session.clone(),
        place: place.clone(),
        seconds: now_seconds(),
        author: order.author.clone(),
        idle: order.idle_seconds.map(|seconds| Idle::new(Duration::from_secs(seconds))),
    };
    daemon.log.write(&format!("transaction {id} has begun: {}", order.author.command));
    let has_place = daemon.transactions.put(&id, open);
    let shown = match (has_place, order.descriptor) {
        (false, _) => Err(not_open(inside.unwrap_or_default())),
        (true, true) => take_out_of_sight(&session, &place).map(|view| Some(Arc::new(view))),
        (true, false) => Ok(None),
    };
    let view = shown.inspect_err(|_| abort(daemon, &id))?;
    let outlives = order.idle_seconds.is_some();
    Ok(Answer::Begun(BegunTransaction { id, place, outlives, device: Some(device), view }))
}

/// What a view shows at first, what it notes, and its mount.
type OpenedView = ((Source, u64), Arc<Recording>, SessionHandle);

/// Makes the fork of a transaction, and mounts it.
///
/// # Errors
/// What refuses it; then there is neither.
fn open_view(
    daemon: &Arc<Daemon>,
    source: &Source,
    (id, place): (&str, &Path),
    like: &MountReport,
) -> Result<OpenedView> {
    let fork = capability(daemon)?.begin(&source.dataset, id)?;
    let made = make_place(place)
        .and_then(|()| capability(daemon)?.base(&fork))
        .and_then(|base| Ok((base, mount_view(daemon, &fork, place, like)?)));
    let (base, (recording, session)) = made.inspect_err(|_| {
        let _destroyed_by_the_next_daemon = capability(daemon).map(|it| it.discard(&fork));
        remove_place(place);
    })?;
    Ok((base, recording, session))
}

/// The root of a view whose mount is taken from its place: it lives as long as its descriptors.
///
/// A descriptor of this kind is made by the kernel alone. Any other would ask the file system,
/// which is this process: a thread would wait for the daemon itself while it holds the connection
/// open, and a daemon that is killed then would never end.
///
/// # Errors
/// The kernel refuses. What is in use of the view ends with its last descriptor.
fn take_out_of_sight(session: &SessionHandle, place: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(place, flags, Mode::empty())
        .map_err(|error| Error::system("open the view", place, error));
    let hidden = match &root {
        Ok(root) => session.hide(place, root.as_fd()),
        Err(_) => session.unmount_from(place, Unmount::Lazily),
    };
    remove_place(place);
    hidden.map_err(|error| Error::failed(error.to_string()))?;
    root
}

/// Commits a transaction, whose command has ended.
///
/// # Errors
/// Why it could not be; then nothing of it is there, and it is no more.
pub(super) fn commit(daemon: &Daemon, id: &str) -> Result<Answer> {
    let open = daemon.transactions.take_alone(id)?;
    open.recording.end();
    invalidation::forget_content(&daemon.mounts, &open.fork);
    let done = match open.recording.has_lost() {
        true => Err(written_meanwhile()),
        false => {
            let reads = open.recording.reads();
            let order = CommitOrder { fork: &open.fork, reads: &reads, author: &open.author };
            capability(daemon).and_then(|it| it.commit(&order, daemon))
        }
    };
    let outcome = match &done {
        Ok(summary) if summary.committed => "committed".to_owned(),
        Ok(summary) => format!("refused, {} conflicts", summary.conflicts.len()),
        Err(error) => format!("not committed: {error}"),
    };
    close(daemon, (id, &outcome), open);
    done.map(Answer::Concluded)
}

fn written_meanwhile() -> Error {
    Error::in_use("a file of the transaction was written through a map while it was committed")
        .hint("end what has mapped it before the commit; nothing was changed")
}

/// Aborts a transaction, if it is open, after all that is open inside of it.
pub(super) fn abort(daemon: &Daemon, id: &str) {
    for inner in daemon.transactions.open_inside(id) {
        abort(daemon, &inner);
    }
    if let Ok(open) = daemon.transactions.take(id) {
        open.recording.end();
        close(daemon, (id, "aborted"), open);
    }
}

/// Aborts those in which nothing has been done for too long.
pub(super) fn abort_forgotten(daemon: &Daemon) {
    for id in daemon.transactions.forgotten() {
        daemon.log.write(&format!("transaction {id}: nothing was done in it for too long"));
        abort(daemon, &id);
    }
}

/// Takes the view away; the fork goes with it. What was read in it was read by what it is inside
/// of, which has heard of its end.
fn close(daemon: &Daemon, (id, outcome): (&str, &str), open: OpenTransaction) {
    daemon.log.write(&format!("transaction {id}: {outcome}"));
    if let Some(outer) = daemon.transactions.recording_around(id) {
        outer.take_over(&open.recording.reads());
    }
    daemon.transactions.has_ended(id);
    let OpenTransaction { recording, session, place, .. } = open;
    drop(recording);
    if let Err(error) = session.unmount_from(&place, Unmount::Lazily) {
        daemon.log.write(&format!("the view of transaction {id}: {error}"));
    }
}

fn capability(daemon: &Daemon) -> Result<&dyn Capability> {
    daemon.home.transactions().ok_or_else(|| lacks(&*daemon.home, "transactions"))
}

/// The dataset of a mount that can have transactions, and the mount.
fn mounted_at(daemon: &Daemon, directory: &Path) -> Result<(Source, MountReport)> {
    let place = directory.display();
    let reports = daemon.mounts.reports();
    let report = reports.into_iter().find(|report| report.directory == directory);
    let missing = || Error::not_found(format!("nothing is mounted at {place}"));
    let report = report.ok_or_else(missing)?;
    let source: Source = report.source.parse()?;
    let has = |word: &str| report.options.split(',').any(|one| one == word);
    if report.read_only || source.snapshot.is_some() {
        return Err(Error::usage(format!("{place} is mounted read-only")));
    }
    if has("writeback") {
        return Err(Error::usage(format!(
            "{place} is mounted with writeback: the kernel holds back what others write there"
        ))
        .hint("mount it without that option"));
    }
    Ok((source, report))
}

fn new_id() -> Result<String> {
    let source = Path::new("/dev/urandom");
    let mut bytes = [0; ID_BYTES];
    File::open(source)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Error::system("read", source, error))?;
    Ok(hexadecimal(&bytes))
}

/// What the names of a daemon's places begin with.
fn own_prefix(daemon: &Daemon) -> String {
    format!("{PLACE_PREFIX}{}-", daemon.id)
}

/// Where the view of a transaction is mounted: in a folder of its own, since what a view shows may
/// be open to all.
fn place_of(daemon: &Daemon, id: &str) -> PathBuf {
    paths::control_folder().join(format!("{}{id}", own_prefix(daemon))).join(VIEW)
}

fn make_place(place: &Path) -> Result<()> {
    place.parent().map_or(Ok(()), paths::make_private_folder)?;
    paths::make_private_folder(place)
}

/// Removes the place of a view that is not mounted there any more. What is left of it is cleared
/// by the next daemon.
pub(super) fn remove_place(place: &Path) {
    for folder in [Some(place), place.parent()].into_iter().flatten() {
        let _left_empty_at_worst = std::fs::remove_dir(folder);
    }
}

/// Clears the places that a daemon of the same pool has left when it was killed.
pub(super) fn clear_places(daemon: &Daemon) {
    let entries = std::fs::read_dir(paths::control_folder()).into_iter().flatten();
    let prefix = own_prefix(daemon);
    for entry in entries.filter_map(std::result::Result::ok) {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            let place = entry.path().join(VIEW);
            let _was_unmounted = marram_fuse::unmount(&place, true);
            remove_place(&place);
        }
    }
}
