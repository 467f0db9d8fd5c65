//! Mounts as they are made, attended and ended.

use super::again;
use super::checks::{check_directory, check_for_own_rules, check_wakeful, fuse_error};
use super::fuse::{describe, options_of};
use super::mounted::Mounted;
use super::table::USED_TICK;
use crate::control::protocol::{MountReport, MountRequest};
use crate::daemon::catalogue::HomeCatalogue;
use crate::daemon::invalidation::give_back;
use crate::daemon::loop_device::LoopDevice;
use crate::daemon::namespace::{Catalogue, Namespace};
use crate::daemon::state::Daemon;
use crate::engine::volume::Opened;
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::options::{AccessTimes, BlockDevice, MountOptions};
use crate::paths;
use marram_store::Source;
use marram_vfs::{AccessRules, FileSystem};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The kernel may hold back as much data as this part of what a full home keeps back, over all
/// mounts. Twice as much has its space then: room for records, and for programs that go on writing.
const HELD_BACK_DIVISOR: u64 = 4;
/// How long the kernel may keep a block device after a mount of it.
const CLAIM_PATIENCE: Duration = Duration::from_secs(10);

/// Mounts what `request` says.
///
/// # Errors
/// Why it cannot be mounted; then nothing has changed.
pub(in crate::daemon) fn mount(
    daemon: &Arc<Daemon>,
    request: &MountRequest,
) -> Result<MountReport> {
    let source = request.options.source()?;
    check_directory(&request.directory)?;
    check_wakeful(&request.options)?;
    give_back(&daemon.mounts, &source);
    if let Some(report) = again::mount_again(daemon, request, &source)? {
        return Ok(report);
    }
    daemon.mounts.begin(&source, daemon.home.path())?;
    let made = make_mount(daemon, request, &source);
    let mounted = made.as_ref().ok().map(|(mounted, _)| Arc::clone(mounted));
    daemon.mounts.finish(&source, mounted);
    let (mounted, session) = made?;
    limit_held_back(daemon);
    let report = mounted.report.clone();
    let here = Arc::clone(daemon);
    std::thread::Builder::new()
        .name("mount".to_owned())
        .spawn(move || attend(&here, mounted, session))
        .map_err(|error| Error::failed(format!("cannot start a thread: {error}")))?;
    Ok(report)
}

/// Shares out among the mounts how much data the kernel may hold back.
fn limit_held_back(daemon: &Daemon) {
    let Some(bytes) = daemon.home.held_back_bytes() else { return };
    let sessions = daemon.mounts.writable_sessions();
    for session in &sessions {
        session.limit_held_back(bytes / HELD_BACK_DIVISOR / sessions.len() as u64);
    }
}

/// Waits for the end of a mount and takes it off the table.
fn attend(daemon: &Daemon, mounted: Arc<Mounted>, session: marram_fuse::Session) {
    let directory = mounted.report.directory.display();
    match session.wait() {
        Ok(()) => daemon.log.write(&format!("the mount at {directory} has ended")),
        Err(error) => daemon.log.write(&format!("the mount at {directory}: {error}")),
    }
    let had_device = mounted.report.block_device.as_deref() == Some(daemon.home.path());
    daemon.mounts.remove(&mounted);
    drop(mounted);
    // Only now may the pool be closed: the file system is gone.
    daemon.mounts.notify();
    if had_device {
        claim_again(daemon);
    }
}

/// Keeps others from the pool's block device, of which the kernel has let go with a mount, as
/// long as there are other mounts.
fn claim_again(daemon: &Daemon) {
    let Some(claim) = daemon.home.claim() else { return };
    let began = Instant::now();
    while !daemon.mounts.is_shut() && !daemon.mounts.reports().is_empty() && !claim.take_again() {
        if began.elapsed() > CLAIM_PATIENCE {
            let device = daemon.home.path().display();
            return daemon.log.write(&format!("{device} is held exclusively by somebody else"));
        }
        std::thread::sleep(USED_TICK);
    }
}

fn make_mount(
    daemon: &Arc<Daemon>,
    request: &MountRequest,
    source: &Source,
) -> Result<(Arc<Mounted>, marram_fuse::Session)> {
    let options = &request.options;
    let read_only = options.read_only || source.snapshot.is_some();
    let (namespace, access_times) = namespace(daemon, source, read_only, options)?;
    let namespace = Arc::new(namespace);
    let kernel_checks = !matches!(namespace.access_rules(), AccessRules::Own(_));
    if !kernel_checks {
        check_for_own_rules(options)?;
    }
    let loop_device = loop_device(daemon, options, read_only)?;
    let block_device = block_device(daemon, options, loop_device.as_ref());
    let mut fuse = options_of(daemon, request, read_only, access_times, block_device.clone());
    fuse.allow_devices &= kernel_checks;
    let destroyed = Arc::<AtomicBool>::default();
    fuse.on_destroyed = let_go_after(daemon, &destroyed);
    let mut report = MountReport {
        directory: request.directory.clone(),
        source: source.to_string(),
        read_only,
        options: describe(&fuse, options, kernel_checks),
        block_device,
        device: None,
        has_ended: false,
        in_sight: None,
        elsewhere: Vec::new(),
    };
    let file_system: Arc<dyn FileSystem> = namespace.clone();
    let session = marram_fuse::mount(file_system, fuse).map_err(fuse_error)?;
    report.options += &format!(",transport={}", session.handle().transport());
    report.device = Some(session.handle().device().into());
    let mounted = Mounted {
        report,
        source: source.clone(),
        namespace,
        session: session.handle(),
        destroyed,
        access_times,
        elsewhere: Mutex::default(),
        _loop_device: loop_device,
    };
    Ok((Arc::new(mounted), session))
}

/// What is to be done when nobody has the mount any more to which `destroyed` belongs, before
/// `umount(2)` returns. After the last mount the device may serve something else, and no lock of
/// ours is in the way: so nothing is written to it any more.
fn let_go_after(daemon: &Arc<Daemon>, destroyed: &Arc<AtomicBool>) -> Arc<dyn Fn() + Send + Sync> {
    let (daemon, destroyed) = (Arc::downgrade(daemon), Arc::clone(destroyed));
    Arc::new(move || {
        let Some(daemon) = daemon.upgrade() else { return };
        if daemon.mounts.note_destroyed(&destroyed) {
            let _told_when_the_daemon_ends = daemon.close_for_good();
        }
    })
}

/// What a mount of `source` shows, and when reading moves access times there. A snapshot is shown
/// alone: what belongs to its dataset is seen through that.
pub(super) fn namespace(
    daemon: &Arc<Daemon>,
    source: &Source,
    read_only: bool,
    asked: &MountOptions,
) -> Result<(Namespace, AccessTimes)> {
    let access_times = if read_only { Some(AccessTimes::Never) } else { asked.access_times };
    let Opened { volume, root, access_times } = daemon.open(source, access_times, asked)?;
    let has_members = source.snapshot.is_none() && daemon.home.snapshots().is_some();
    let members = has_members.then(|| {
        let catalogue = HomeCatalogue::new(daemon, &source.dataset, asked, access_times);
        let catalogue: Box<dyn Catalogue> = Box::new(catalogue);
        (catalogue, paths::own_identity())
    });
    Ok((Namespace::new(volume, root, members), access_times))
}

/// The loop device that is to stand for the pool, where one is needed.
fn loop_device(
    daemon: &Daemon,
    options: &MountOptions,
    read_only: bool,
) -> Result<Option<LoopDevice>> {
    let wanted = options.block_device;
    if wanted == BlockDevice::On && !paths::is_root() {
        return Err(Error::usage("only root can mount through a block device (blkdev=on)"));
    }
    if let Identity::Url { .. } = daemon.home.identity() {
        return match wanted {
            BlockDevice::On => Err(Error::usage("a home on a server has no block device")),
            _ => Ok(None),
        };
    }
    let free_device = daemon.home.claim().is_some() && daemon.mounts.reports().is_empty();
    if wanted == BlockDevice::Off || !paths::is_root() || free_device {
        return Ok(None);
    }
    match LoopDevice::attach(daemon.home.path(), read_only) {
        Ok(device) => Ok(Some(device)),
        Err(error) if wanted == BlockDevice::On => Err(error),
        Err(error) => {
            daemon.log.write(&format!("{error}: mounting without a block device"));
            Ok(None)
        }
    }
}

/// What shows as the source of the mount, if it is a block device.
fn block_device(
    daemon: &Daemon,
    options: &MountOptions,
    found: Option<&LoopDevice>,
) -> Option<PathBuf> {
    let off = options.block_device == BlockDevice::Off || !paths::is_root();
    if let Some(device) = found {
        return Some(device.path().to_owned());
    }
    let usable = !off && daemon.mounts.reports().is_empty();
    let claim = daemon.home.claim().filter(|_| usable)?;
    claim.release();
    Some(daemon.home.path().to_owned())
}
