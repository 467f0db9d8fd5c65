//! The mount that shows a transaction its state, at a place of the daemon's own. Its command sees
//! it where the dataset is mounted (docs/decisions/0056-view-of-a-transaction.md).
//!
//! The invariant: the fork that it shows goes with it, however it ends.

use super::checks::fuse_error;
use super::fuse::{describe, options_of};
use super::making::namespace;
use super::mounted::Mounted;
use crate::control::protocol::{MountReport, MountRequest};
use crate::daemon::state::Daemon;
use crate::daemon::transactions::{remove_place, view_has_ended};
use crate::error::{Error, Kind, Result};
use crate::options::{AccessTimes, BlockDevice, MountOptions};
use marram_fuse::{Offer, SessionHandle};
use marram_store::Source;
use marram_tx::{ReadSet, Recording};
use marram_vfs::FileSystem;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait for what looks at all mounts, and at a view that has just ended among them.
const DISCARD_PATIENCE: Duration = Duration::from_secs(10);
/// How often to look whether that is over.
const DISCARD_TICK: Duration = Duration::from_millis(5);

/// Mounts `fork` on `place`, with what the mount `like` of its parent allows.
///
/// # Errors
/// It cannot be mounted; then nothing is.
pub(in crate::daemon) fn mount_view(
    daemon: &Arc<Daemon>,
    fork: &Source,
    place: &Path,
    like: &MountReport,
) -> Result<(Arc<Recording>, SessionHandle)> {
    daemon.mounts.begin(fork, daemon.home.path())?;
    let made = make(daemon, fork, place, like);
    let mounted = made.as_ref().ok().map(|(mounted, ..)| Arc::clone(mounted));
    daemon.mounts.finish(fork, mounted);
    let (mounted, session, recording) = made?;
    let view = (recording, session.handle());
    let here = Arc::clone(daemon);
    std::thread::Builder::new()
        .name("view".to_owned())
        .spawn(move || attend(&here, mounted, session))
        .map_err(|error| Error::failed(format!("cannot start a thread: {error}")))?;
    Ok(view)
}

type Made = (Arc<Mounted>, marram_fuse::Session, Arc<Recording>);

fn make(daemon: &Arc<Daemon>, fork: &Source, place: &Path, like: &MountReport) -> Result<Made> {
    let asked = options_like(like);
    let request = MountRequest { directory: place.to_owned(), options: asked.clone() };
    let times = AccessTimes::Never;
    // With `.marram` in it, so that no file of the dataset takes that name.
    let (namespace, _) = namespace(daemon, fork, false, &asked)?;
    let (root, namespace) = (namespace.root(), Arc::new(namespace));
    let files: Arc<dyn FileSystem> = namespace.clone();
    let recording = Arc::new(Recording::new(files, root, ReadSet::default()));
    let mut fuse = options_of(daemon, &request, false, times, None);
    // Each attribute that a program sees is asked for by itself.
    fuse.declined.push(Offer::AttributesWithNames);
    let mut report = MountReport {
        directory: place.to_owned(),
        source: fork.to_string(),
        read_only: false,
        options: describe(&fuse, &asked, false),
        block_device: None,
        device: None,
        in_sight: None,
        elsewhere: Vec::new(),
        has_ended: false,
    };
    let shown: Arc<dyn FileSystem> = recording.clone();
    let session = marram_fuse::mount(shown, fuse).map_err(fuse_error)?;
    report.device = Some(session.handle().device().into());
    let mounted = Mounted {
        report,
        source: fork.clone(),
        namespace,
        session: session.handle(),
        destroyed: Arc::default(),
        access_times: times,
        elsewhere: Mutex::default(),
        _loop_device: None,
    };
    Ok((Arc::new(mounted), session, recording))
}

/// What a mount allows, for another one.
fn options_like(like: &MountReport) -> MountOptions {
    let has = |word: &str| like.options.split(',').any(|one| one == word);
    MountOptions {
        access_times: Some(AccessTimes::Never),
        allow_other: Some(has("allow_other")),
        suid: Some(!has("nosuid")),
        dev: Some(false),
        exec: Some(!has("noexec")),
        no_handles: has("nohandles"),
        block_device: BlockDevice::Off,
        ..MountOptions::default()
    }
}

/// Destroys a fork that nothing shows any more. Whatever looks at all mounts may still be at it.
fn discard(daemon: &Daemon, fork: &Source) -> Result<()> {
    let Some(transactions) = daemon.home.transactions() else { return Ok(()) };
    let began = Instant::now();
    // A commit of it may go on though its client is gone, for as long as it takes.
    let id = fork.dataset.transaction();
    let waits = || {
        began.elapsed() < DISCARD_PATIENCE
            || id.is_some_and(|id| daemon.transactions.may_be_committed(id))
    };
    loop {
        match transactions.discard(fork) {
            Err(error) if error.kind == Kind::InUse && waits() => {
                std::thread::sleep(DISCARD_TICK);
            }
            done => return done,
        }
    }
}

/// Waits for the end of a view, and takes its fork away.
fn attend(daemon: &Daemon, mounted: Arc<Mounted>, session: marram_fuse::Session) {
    if let Err(error) = session.wait() {
        daemon.log.write(&format!("the view of {}: {error}", mounted.source));
    }
    let (fork, place) = (mounted.source.clone(), mounted.report.directory.clone());
    view_has_ended(daemon, &fork);
    daemon.transactions.forget(&fork);
    daemon.mounts.remove_with_fork(&mounted);
    drop(mounted);
    if let Err(error) = discard(daemon, &fork) {
        daemon.log.write(&format!("{fork} stays until the pool is opened again: {error}"));
    }
    remove_place(&place);
    // Only now may the pool be closed.
    daemon.mounts.finish(&fork, None);
}
