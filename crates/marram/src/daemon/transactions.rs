//! Transactions: begun, committed, aborted.
//!
//! One lives as long as the conversation in which it was begun, or until nothing has been done in
//! it for a time that was named. What it works in is a fork that no list shows, mounted at a place
//! in the folder of the control sockets; one over several datasets has a fork and a place of each.
//!
//! One may begin inside of another: in forks of that one's forks. It commits into that one, and
//! what it has read counts for that one however it ends.
//!
//! The invariant: a transaction that is taken from the table answers nothing any more to the
//! programs in it, before anything of it is read for a commit. What they have written through maps
//! of files is in the commit, or the commit fails: no map outlives it, since the kernel lets go of
//! all content of the view.

use super::mounts::mount_view;
use super::open_transactions::{Idle, OpenTransaction, Part, not_open};
use super::state::Daemon;
use super::{invalidation, two_pools};
use crate::control::protocol::{
    Answer, BeginOrder, BegunTransaction, BegunView, CommitSummary, MountReport,
};
use crate::engine::home::{CommitOrder, SeveralDatasets, Transactions as Capability, lacks};
use crate::error::{Error, Result};
use crate::names::hexadecimal;
use crate::paths;
use crate::timestamps::now_seconds;
use marram_client::control::DATASETS_MAX;
use marram_fuse::{SessionHandle, Unmount};
use marram_store::{DatasetName, Source};
use marram_tx::ReadSet;
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

/// Begins a transaction in the datasets of mounts.
///
/// # Errors
/// What refuses it, before anything has been made.
pub(super) fn begin(daemon: &Arc<Daemon>, order: &BeginOrder) -> Result<Answer> {
    let directories = match &order.inside {
        Some(outer) => daemon.transactions.places_of(outer).ok_or_else(|| not_open(outer))?,
        None => std::iter::once(&order.directory).chain(&order.also).cloned().collect(),
    };
    let mounted = all_mounted_at(daemon, &directories)?;
    if order.other.is_some() && mounted[0].0.dataset.transaction().is_some() {
        return Err(Error::usage("inside of another transaction none works in two pools")
            .hint("begin it inside of one of the two, or outside of other transactions"));
    }
    let id = match &order.id {
        Some(id) => checked_id(daemon, id)?,
        None => new_id()?,
    };
    let forks = (0..mounted.len()).map(|at| DatasetName::of_transaction_at(&id, at));
    let forks = forks.map(|name| Ok(Source::live(name?))).collect::<Result<Vec<_>>>()?;
    let (entry, inside) = ((id.as_str(), &*forks), mounted[0].0.dataset.transaction());
    daemon.transactions.reserve(entry, &order.author, inside)?;
    let parts = open_views(daemon, &mounted, &id);
    let parts = parts.inspect_err(|_| daemon.transactions.cancel(entry))?;
    let views = |part: &Part| (part.session.clone(), part.place.clone());
    let sessions: Vec<(SessionHandle, PathBuf)> = parts.iter().map(views).collect();
    let open = OpenTransaction {
        parts,
        seconds: now_seconds(),
        author: order.author.clone(),
        idle: order.idle_seconds.map(|seconds| Idle::new(Duration::from_secs(seconds))),
        other: order.other.clone(),
    };
    daemon.log.write(&format!("transaction {id} has begun: {}", order.author.command));
    let has_place = daemon.transactions.put(&id, open);
    let taken = |(session, place): &(SessionHandle, PathBuf)| {
        take_out_of_sight(session, place).map(Arc::new)
    };
    let shown = match (has_place, order.descriptor) {
        (false, _) => Err(not_open(inside.unwrap_or_default())),
        (true, true) => sessions.iter().map(taken).collect::<Result<Vec<_>>>(),
        (true, false) => Ok(Vec::new()),
    };
    let views = shown.inspect_err(|_| abort(daemon, &id))?;
    let outlives = order.idle_seconds.is_some();
    let mut also: Vec<BegunView> = sessions
        .into_iter()
        .map(|(session, place)| BegunView { place, device: Some(session.device().into()) })
        .collect();
    let BegunView { place, device } = also.remove(0);
    Ok(Answer::Begun(BegunTransaction { id, place, outlives, device, also, views }))
}

/// Makes the forks of a transaction, and mounts them.
///
/// # Errors
/// What refuses it; then there is none.
fn open_views(
    daemon: &Arc<Daemon>,
    mounted: &[(Source, MountReport)],
    id: &str,
) -> Result<Vec<Part>> {
    let forks = match mounted {
        [(source, _)] => vec![capability(daemon)?.begin(&source.dataset, id)?],
        several => {
            let datasets: Vec<DatasetName> =
                several.iter().map(|(source, _)| source.dataset.clone()).collect();
            capability_of_several(daemon)?.begin_in(&datasets, id)?
        }
    };
    let mut parts: Vec<Part> = Vec::with_capacity(forks.len());
    for (fork, (source, like)) in forks.iter().zip(mounted) {
        let place = place_of(daemon, id, parts.len());
        match open_view(daemon, (fork, source), &place, like) {
            Ok(part) => parts.push(part),
            Err(error) => {
                remove_place(&place);
                for fork in &forks[parts.len()..] {
                    let _destroyed_by_the_next_daemon =
                        capability(daemon).map(|it| it.discard(fork));
                }
                // Their forks go with these.
                parts.into_iter().for_each(|part| take_away(daemon, &part));
                return Err(error);
            }
        }
    }
    Ok(parts)
}

/// Mounts a fork of a transaction.
///
/// # Errors
/// What refuses it; then it is not mounted.
fn open_view(
    daemon: &Arc<Daemon>,
    (fork, source): (&Source, &Source),
    place: &Path,
    like: &MountReport,
) -> Result<Part> {
    make_place(place)?;
    let base = capability(daemon)?.base(fork)?;
    let directory = daemon.transactions.directory_of(&like.directory);
    let (recording, session) = mount_view(daemon, fork, place, like)?;
    Ok(Part {
        fork: fork.clone(),
        dataset: source.dataset.clone(),
        directory: directory.unwrap_or_else(|| like.directory.clone()),
        base,
        recording,
        session,
        place: place.to_owned(),
    })
}

/// Takes a view away; its fork goes with it.
fn take_away(daemon: &Daemon, part: &Part) {
    if let Err(error) = part.session.unmount_from(&part.place, Unmount::Lazily) {
        daemon.log.write(&format!("the view of {}: {error}", part.fork));
    }
}

/// A view has ended, that of `fork`. Its transaction ends too, if it is open, after all that is
/// open inside of it.
pub(super) fn view_has_ended(daemon: &Daemon, fork: &Source) {
    let id = fork.dataset.transaction().unwrap_or_default();
    abort_inside(daemon, id);
    if let Ok(mut open) = daemon.transactions.take(id) {
        open.end();
        hand_over(daemon, id, &open.parts);
        open.parts.retain(|part| part.fork != *fork);
        close(daemon, (id, "aborted: its view has ended"), open);
    }
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
    if let Some(other) = daemon.transactions.other_pool_of(id) {
        let other = other.path.display();
        return Err(Error::usage(format!("transaction {id} works in {other}, too"))
            .hint("it is committed in both pools together, by `marram tx commit`"));
    }
    let merges = |orders: &[CommitOrder<'_>]| merge(daemon, orders);
    let ending = Ending { merges: &merges, is_joint: false };
    commit_by(daemon, id, ending).map(Answer::Concluded)
}

/// How a transaction is committed.
#[derive(Clone, Copy)]
pub(super) struct Ending<'e> {
    /// Makes its merges.
    pub(super) merges: &'e dyn Fn(&[CommitOrder<'_>]) -> Result<Vec<CommitSummary>>,
    /// It works in another pool too.
    pub(super) is_joint: bool,
}

/// Commits a transaction, whose command has ended, in some way.
///
/// # Errors
/// As for [`commit`].
pub(super) fn commit_by(daemon: &Daemon, id: &str, ending: Ending<'_>) -> Result<CommitSummary> {
    let open = daemon.transactions.take_alone(id)?;
    open.end();
    for part in &open.parts {
        invalidation::forget_content(&daemon.mounts, &part.fork);
    }
    let done = match open.parts.iter().any(|part| part.recording.has_lost()) {
        true => Err(written_meanwhile()),
        false => merge_by(&open, ending),
    };
    let outcome = match &done {
        Ok(CommitSummary { unknown: Some(error), .. }) => {
            format!("whether it was committed is not known: {error}")
        }
        Ok(summary) if summary.committed => "committed".to_owned(),
        Ok(summary) => format!("refused, {} conflicts", summary.conflicts.len()),
        Err(error) => format!("not committed: {error}"),
    };
    close(daemon, (id, &outcome), open);
    done
}

/// Merges what was done in a transaction. Of several datasets the paths of conflicts are those of
/// their mounts.
fn merge_by(open: &OpenTransaction, ending: Ending<'_>) -> Result<CommitSummary> {
    let reads: Vec<ReadSet> = open.parts.iter().map(|part| part.recording.reads()).collect();
    let orders = open.parts.iter().zip(&reads);
    let orders: Vec<CommitOrder<'_>> = orders
        .map(|(part, reads)| CommitOrder { fork: &part.fork, reads, author: &open.author })
        .collect();
    let mut summaries = (ending.merges)(&orders)?;
    if let ([summary], false) = (&*summaries, ending.is_joint) {
        return Ok(summary.clone());
    }
    let committed = summaries.iter().all(|summary| summary.committed);
    let unknown = summaries.iter_mut().find_map(|summary| summary.unknown.take());
    let mut conflicts = Vec::new();
    for (part, summary) in open.parts.iter().zip(summaries) {
        let rows = summary.conflicts.into_iter().map(|row| row.below(&part.directory));
        conflicts.extend(rows);
    }
    Ok(CommitSummary { committed, conflicts, unknown })
}

fn merge(daemon: &Daemon, orders: &[CommitOrder<'_>]) -> Result<Vec<CommitSummary>> {
    match orders {
        [order] => Ok(vec![capability(daemon)?.commit(order, daemon)?]),
        several => capability_of_several(daemon)?.commit_all(several, daemon),
    }
}

fn written_meanwhile() -> Error {
    Error::in_use("a file of the transaction was written through a map while it was committed")
        .hint("end what has mapped it before the commit; nothing was changed")
}

/// Aborts a transaction, if it is open, after all that is open inside of it.
pub(super) fn abort(daemon: &Daemon, id: &str) {
    abort_inside(daemon, id);
    if let Ok(open) = daemon.transactions.take(id) {
        open.end();
        close(daemon, (id, "aborted"), open);
    }
}

fn abort_inside(daemon: &Daemon, id: &str) {
    for inner in daemon.transactions.open_inside(id) {
        abort(daemon, &inner);
    }
}

/// Aborts those in which nothing has been done for too long.
pub(super) fn abort_forgotten(daemon: &Daemon) {
    for id in daemon.transactions.forgotten() {
        // One over two pools is used where any of both is.
        let other = daemon.transactions.other_pool_of(&id);
        if other.is_some_and(|other| two_pools::is_in_use(daemon, &other, &id)) {
            continue;
        }
        daemon.log.write(&format!("transaction {id}: nothing was done in it for too long"));
        abort(daemon, &id);
    }
}

/// What was read in the views of a transaction was read by what it is inside of.
fn hand_over(daemon: &Daemon, id: &str, parts: &[Part]) {
    for (fork, outer) in daemon.transactions.recordings_around(id) {
        let inside = parts.iter().find(|part| part.dataset == fork.dataset);
        inside.into_iter().for_each(|part| outer.take_over(&part.recording.reads()));
    }
}

/// Takes the views away; the forks go with them. What it is inside of has heard of its end.
fn close(daemon: &Daemon, (id, outcome): (&str, &str), open: OpenTransaction) {
    daemon.log.write(&format!("transaction {id}: {outcome}"));
    hand_over(daemon, id, &open.parts);
    daemon.transactions.has_ended(id);
    for part in open.parts {
        take_away(daemon, &part);
    }
}

fn capability(daemon: &Daemon) -> Result<&dyn Capability> {
    daemon.home.transactions().ok_or_else(|| lacks(&*daemon.home, "transactions"))
}

fn capability_of_several(daemon: &Daemon) -> Result<&dyn SeveralDatasets> {
    let several = capability(daemon)?.several();
    several.ok_or_else(|| lacks(&*daemon.home, "transactions over several datasets"))
}

/// The datasets of mounts that can have one transaction, and the mounts.
fn all_mounted_at(daemon: &Daemon, directories: &[PathBuf]) -> Result<Vec<(Source, MountReport)>> {
    if directories.len() > DATASETS_MAX {
        return Err(Error::usage(format!(
            "a transaction works in {DATASETS_MAX} datasets at most"
        )));
    }
    let mut mounted: Vec<(Source, MountReport)> = Vec::with_capacity(directories.len());
    for directory in directories {
        let (source, report) = mounted_at(daemon, directory)?;
        if mounted.iter().any(|(known, _)| *known == source) {
            return Err(Error::usage(format!("{source} is named twice")));
        }
        if let Some((first, _)) = mounted.first()
            && first.dataset.transaction() != source.dataset.transaction()
        {
            let (first, other) = (mounted[0].1.directory.display(), directory.display());
            return Err(Error::usage(format!(
                "{first} and {other} are not seen in one and the same transaction"
            ))
            .hint("inside of a transaction work in datasets that it works in, too"));
        }
        mounted.push((source, report));
    }
    Ok(mounted)
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

/// An id that the command has from another pool.
fn checked_id(daemon: &Daemon, id: &str) -> Result<String> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if id.len() != 2 * ID_BYTES || !id.bytes().all(is_digit) {
        return Err(Error::usage(format!("{id:?} is no id of a transaction")));
    }
    let pools = daemon.home.transactions().and_then(|it| it.two_pools());
    let is_known = pools.is_some_and(|it| it.knows(id));
    match is_known || daemon.transactions.may_be_committed(id) {
        true => Err(Error::usage(format!("there is a transaction {id} already"))),
        false => Ok(id.to_owned()),
    }
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

/// Where the view of a transaction in one of its datasets is mounted: in a folder of its own, since
/// what a view shows may be open to all.
fn place_of(daemon: &Daemon, id: &str, at: usize) -> PathBuf {
    let name = match at {
        0 => format!("{}{id}", own_prefix(daemon)),
        at => format!("{}{id}-{at}", own_prefix(daemon)),
    };
    paths::control_folder().join(name).join(VIEW)
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
