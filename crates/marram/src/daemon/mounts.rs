//! The mounts of a daemon: made, listed, taken away.
//!
//! A dataset is served by one mount at a time, since two would keep two views of one thing in the
//! kernel's caches; it can be seen in several places, see [`again`]. A snapshot cannot change, so
//! any number of mounts may show it. A mount stays in the table until its last request has been
//! answered, and its file system has let go of the pool by then.

mod again;
mod withheld;

use super::catalogue::PoolCatalogue;
use super::loop_device::LoopDevice;
use super::namespace::Namespace;
use super::{Daemon, Log, damage};
use crate::control::protocol::{ENDING, MountReport, MountRequest};
use crate::error::{Error, Result};
use crate::options::{AccessTimes, BlockDevice, MountOptions, Transport};
use crate::{engine, paths};
use marram_fuse::{SessionHandle, Unmount};
use marram_posix::{Posix, PosixOptions};
use marram_store::{Source, Store};
use marram_vfs::{AccessRules, FileSystem, Ino, SystemClock};
use parking_lot::{Condvar, Mutex};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Fewest threads that serve a mount: one that waits for a device must not hold up all.
const SERVING_THREADS_MIN: usize = 4;

/// The kernel may hold back as much data as this part of what a full pool keeps back, over all
/// mounts. Twice as much has its space then: room for records, and for who goes on writing.
const HELD_BACK_DIVISOR: u64 = 4;

/// How long somebody who finds the pool full waits for space that is just being freed.
const NO_SPACE_PATIENCE: Duration = Duration::from_secs(2);

/// How long a mount that has been taken from its directory may still be served before somebody is
/// taken to use it elsewhere.
const USED_PATIENCE: Duration = Duration::from_secs(5);
/// The same if it is seen elsewhere. Not at once: its device number may be another mount's already.
const SEEN_PATIENCE: Duration = Duration::from_millis(300);
/// How long the kernel may keep a block device after a mount of it.
const CLAIM_PATIENCE: Duration = Duration::from_secs(10);
/// How often to look.
const USED_TICK: Duration = Duration::from_millis(50);

/// All mounts of the daemon.
#[derive(Default)]
pub(super) struct MountTable {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    mounts: Vec<Arc<Mounted>>,
    /// What is being mounted at this moment.
    making: Vec<Source>,
    /// Forks that are open below `.marram` of a mount.
    borrowed: Vec<Source>,
    /// What is being destroyed, and is not opened meanwhile.
    withheld: Vec<Source>,
    /// The daemon does not wait for the mounts that are left.
    given_up: bool,
    /// The daemon ends: no more mounts.
    shut: bool,
}

struct Mounted {
    report: MountReport,
    source: Source,
    namespace: Arc<Namespace>,
    session: SessionHandle,
    /// Nobody has it any more, as the kernel says of mounts of block devices.
    destroyed: Arc<AtomicBool>,
    access_times: AccessTimes,
    /// Where else it has been mounted.
    elsewhere: Mutex<Vec<MountReport>>,
    _loop_device: Option<LoopDevice>,
}

/// A mount: what it shows, and the way to the kernel.
pub(super) struct Served {
    /// The dataset or snapshot.
    pub(super) source: Source,
    /// With what belongs to it.
    pub(super) namespace: Arc<Namespace>,
    /// The way to the kernel.
    pub(super) session: SessionHandle,
    /// Where it is.
    pub(super) directory: PathBuf,
    /// The kernel gathers what is written, and has lengths and times of its own.
    pub(super) writeback: bool,
}

impl MountTable {
    /// What is mounted, in the order in which it was.
    pub(super) fn reports(&self) -> Vec<MountReport> {
        self.state.lock().mounts.iter().flat_map(|mount| mount.reports()).collect()
    }

    /// The file systems behind the mounts.
    pub(super) fn file_systems(&self) -> Vec<Arc<Posix>> {
        self.served().iter().flat_map(|mount| mount.namespace.file_systems()).collect()
    }

    /// How many inodes of all of them the kernel knows.
    pub(super) fn known_inodes(&self) -> usize {
        self.file_systems().iter().map(|files| files.known_count()).sum()
    }

    /// The mounts as operations change what they show.
    pub(super) fn served(&self) -> Vec<Served> {
        let served = |mount: &Arc<Mounted>| Served {
            source: mount.source.clone(),
            namespace: Arc::clone(&mount.namespace),
            session: mount.session.clone(),
            directory: mount.report.directory.clone(),
            writeback: mount.report.options.split(',').any(|word| word == "writeback"),
        };
        self.state.lock().mounts.iter().map(served).collect()
    }

    /// The namespace of the mount on `directory`.
    pub(super) fn namespace_at(&self, directory: &Path) -> Option<(Source, Arc<Namespace>)> {
        let state = self.state.lock();
        let mount = state.mounts.iter().rev().find(|mount| mount.is_at(directory))?;
        Some((mount.source.clone(), Arc::clone(&mount.namespace)))
    }

    /// The mounts through which something can be changed.
    fn writable_sessions(&self) -> Vec<SessionHandle> {
        let state = self.state.lock();
        let writable = state.mounts.iter().filter(|mount| !mount.report.read_only);
        writable.map(|mount| mount.session.clone()).collect()
    }

    /// Returns when nothing is mounted any more, or the daemon has given up on what is.
    pub(super) fn wait_until_empty(&self) {
        let mut state = self.state.lock();
        while !state.is_over() {
            self.changed.wait(&mut state);
        }
        state.shut = true;
    }

    /// The same within a time limit; tells whether it has come to that.
    pub(super) fn wait_until_empty_for(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut state = self.state.lock();
        while !state.is_over() {
            if self.changed.wait_until(&mut state, end).timed_out() {
                return state.is_over();
            }
        }
        true
    }

    /// Lets the daemon end although something is mounted.
    pub(super) fn give_up(&self) {
        self.state.lock().given_up = true;
        self.changed.notify_all();
    }

    /// Takes no more mounts.
    pub(super) fn shut(&self) {
        self.state.lock().shut = true;
    }

    /// Notes that nobody has the mount any more to which `destroyed` belongs. If that was the last
    /// one, no more are taken from then on, and true comes back.
    fn note_destroyed(&self, destroyed: &AtomicBool) -> bool {
        let mut state = self.state.lock();
        destroyed.store(true, Ordering::Relaxed);
        let all = state.mounts.iter().all(|mount| mount.destroyed.load(Ordering::Relaxed));
        let is_last = all && state.making.is_empty();
        state.shut |= is_last;
        is_last
    }

    /// Whether the daemon is ending.
    pub(super) fn is_shut(&self) -> bool {
        self.state.lock().shut
    }

    /// Takes the mount on `directory` away, and returns when it is gone; with `detach`, when it is
    /// out of sight. False if it is gone from there and lives on elsewhere.
    pub(super) fn unmount(&self, directory: &Path, detach: bool) -> Result<bool> {
        let on = |mount: &&Arc<Mounted>| mount.is_at(directory);
        let found = self.state.lock().mounts.iter().rev().find(on).map(Arc::clone);
        let mount = found.ok_or_else(|| {
            Error::not_found(format!("nothing is mounted at {}", directory.display()))
        })?;
        let how = if detach { Unmount::Lazily } else { Unmount::WhenUnused };
        mount.session.unmount_from(directory, how).map_err(fuse_error)?;
        Ok(detach || mount.is_seen_beside(directory) || self.wait_until_gone(mount))
    }

    /// Whether it has gone: the file system behind a mount lives as long as it is bound to another
    /// place, or seen in another namespace.
    fn wait_until_gone(&self, mount: Arc<Mounted>) -> bool {
        // A weak hold: the file system must be able to go while this waits.
        let (waited_for, session) = (Arc::downgrade(&mount), mount.session.clone());
        drop(mount);
        let began = Instant::now();
        let mut state = self.state.lock();
        let is_there =
            |state: &State| state.mounts.iter().any(|one| Arc::as_ptr(one) == waited_for.as_ptr());
        while is_there(&state) && !state.given_up {
            let is_used = || {
                let waited = began.elapsed();
                waited > USED_PATIENCE || waited > SEEN_PATIENCE && session.is_mounted()
            };
            // What is not served any more, or nobody's, is only being made durable.
            if session.is_served() && !session.is_destroyed() && is_used() {
                return false;
            }
            self.changed.wait_for(&mut state, USED_TICK);
        }
        true
    }

    /// Takes all mounts away, busy ones out of sight at least; returns what could not be.
    pub(super) fn unmount_all(&self) -> Vec<Error> {
        let places = |mount: &Arc<Mounted>| {
            let session = mount.session.clone();
            let directories = mount.reports().into_iter().map(|report| report.directory);
            directories.map(move |directory| (session.clone(), directory)).collect::<Vec<_>>()
        };
        let mounts: Vec<_> = self.state.lock().mounts.iter().flat_map(places).collect();
        let unmount = |(session, directory): (SessionHandle, PathBuf)| {
            let outcome = session
                .unmount_from(&directory, Unmount::WhenUnused)
                .or_else(|_| session.unmount_from(&directory, Unmount::Lazily));
            outcome.err().map(fuse_error)
        };
        mounts.into_iter().rev().filter_map(unmount).collect()
    }

    /// Notes that `source` is about to be mounted, unless that must not be.
    fn begin(&self, source: &Source, pool: &Path) -> Result<()> {
        let mut state = self.state.lock();
        if state.shut || state.given_up {
            return Err(
                Error::in_use(format!("{} {ENDING}", pool.display())).hint("try again in a moment")
            );
        }
        state.refuse_to_mount_withheld(source, pool)?;
        let known = state.mounts.iter().find(|mount| mount.source == *source);
        if known.is_some_and(|mount| !mount.session.is_mounted()) {
            // The kernel is just writing it out, or somebody has a file of it open.
            return Err(Error::in_use(format!("{source} of {} {ENDING}", pool.display()))
                .hint("end those who still have something of it open, or try again in a moment"));
        }
        let place = known.map(|mount| mount.report.directory.clone());
        if state.borrowed.contains(source) {
            return Err(Error::in_use(format!(
                "{source} of {} is in use below .marram/forks of another mount",
                pool.display()
            ))
            .hint("close what is open there, and leave it with every shell"));
        }
        if let Some(place) = place.filter(|_| source.snapshot.is_none()) {
            return Err(Error::in_use(format!(
                "{source} of {} is mounted at {} already, by process {}",
                pool.display(),
                place.display(),
                super::own_pid()
            ))
            .hint("unmount it first, or mount a snapshot or clone of it beside it"));
        }
        if source.snapshot.is_none() && state.making.contains(source) {
            return Err(Error::in_use(format!(
                "{source} of {} is being mounted, or changed as a whole, by another command",
                pool.display()
            ))
            .hint("try again in a moment"));
        }
        state.making.push(source.clone());
        Ok(())
    }

    /// Takes a dataset that nobody has open for one operation.
    ///
    /// # Errors
    /// Somebody has it open, or opens it at the moment; the daemon ends.
    pub(super) fn open_alone(&self, source: &Source, pool: &Path) -> Result<OpenAlone<'_>> {
        self.begin(source, pool)?;
        Ok(OpenAlone { mounts: self, source: source.clone() })
    }

    fn finish(&self, source: &Source, mounted: Option<Arc<Mounted>>) {
        let mut state = self.state.lock();
        if let Some(at) = state.making.iter().position(|making| making == source) {
            state.making.swap_remove(at);
        }
        state.mounts.extend(mounted);
        drop(state);
        self.changed.notify_all();
    }

    fn remove(&self, mounted: &Arc<Mounted>) {
        let mut state = self.state.lock();
        state.mounts.retain(|mount| !Arc::ptr_eq(mount, mounted));
    }

    fn notify(&self) {
        self.changed.notify_all();
    }
}

/// A dataset that is open for one operation: it is not mounted meanwhile, nor opened for another.
pub(super) struct OpenAlone<'m> {
    mounts: &'m MountTable,
    source: Source,
}

impl Drop for OpenAlone<'_> {
    fn drop(&mut self) {
        self.mounts.finish(&self.source, None);
    }
}

/// A fork that is open below `.marram` of a mount, and so cannot be mounted on its own: two mounts
/// of it would be two caches of one thing.
pub(super) struct Borrowed {
    daemon: Weak<Daemon>,
    source: Source,
}

impl Borrowed {
    /// Takes `source` for a mount that shows it below another.
    ///
    /// # Errors
    /// [`marram_vfs::Error::Busy`]: another mount has it.
    pub(super) fn take(daemon: &Arc<Daemon>, source: &Source) -> marram_vfs::Result<Borrowed> {
        let mut state = daemon.mounts.state.lock();
        let mounted = state.mounts.iter().any(|mount| mount.source == *source);
        if mounted || state.making.contains(source) || state.borrowed.contains(source) {
            return Err(marram_vfs::Error::Busy);
        }
        state.borrowed.push(source.clone());
        Ok(Borrowed { daemon: Arc::downgrade(daemon), source: source.clone() })
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.upgrade() {
            daemon.mounts.state.lock().borrowed.retain(|source| *source != self.source);
        }
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.given_up || (self.mounts.is_empty() && self.making.is_empty())
    }
}

impl Daemon {
    /// Mounts what `request` says.
    ///
    /// # Errors
    /// Why it cannot be mounted; then nothing has changed.
    pub(super) fn mount(self: &Arc<Self>, request: &MountRequest) -> Result<MountReport> {
        let source = request.options.source()?;
        check_directory(&request.directory)?;
        check_wakeful(&request.options)?;
        self.give_back(&source);
        if let Some(report) = self.mount_again(request, &source)? {
            return Ok(report);
        }
        self.mounts.begin(&source, self.pool.path())?;
        let made = self.make_mount(request, &source);
        let mounted = made.as_ref().ok().map(|(mounted, _)| Arc::clone(mounted));
        self.mounts.finish(&source, mounted);
        let (mounted, session) = made?;
        self.limit_held_back();
        let report = mounted.report.clone();
        let daemon = Arc::clone(self);
        std::thread::Builder::new()
            .name("mount".to_owned())
            .spawn(move || daemon.attend(mounted, session))
            .map_err(|error| Error::failed(format!("cannot start a thread: {error}")))?;
        Ok(report)
    }

    /// Shares out among the mounts how much data the kernel may hold back.
    fn limit_held_back(&self) {
        let sessions = self.mounts.writable_sessions();
        let share = self.pool.pool().status().reserved_bytes / HELD_BACK_DIVISOR;
        for session in &sessions {
            session.limit_held_back(share / sessions.len() as u64);
        }
    }

    /// Waits for the end of a mount and takes it off the table.
    fn attend(&self, mounted: Arc<Mounted>, session: marram_fuse::Session) {
        let directory = mounted.report.directory.display();
        match session.wait() {
            Ok(()) => self.log.write(&format!("the mount at {directory} has ended")),
            Err(error) => self.log.write(&format!("the mount at {directory}: {error}")),
        }
        let had_device = mounted.report.block_device.as_deref() == Some(self.pool.path());
        self.mounts.remove(&mounted);
        drop(mounted);
        // Only now may the pool be closed: the file system is gone.
        self.mounts.notify();
        if had_device {
            self.claim_again();
        }
    }

    /// Keeps others from the pool's block device, of which the kernel has let go with a mount, as
    /// long as there are other mounts.
    fn claim_again(&self) {
        let began = Instant::now();
        while !self.mounts.is_shut()
            && !self.mounts.reports().is_empty()
            && !self.pool.claim_again()
        {
            if began.elapsed() > CLAIM_PATIENCE {
                let device = self.pool.path().display();
                return self.log.write(&format!("{device} is held exclusively by somebody else"));
            }
            std::thread::sleep(USED_TICK);
        }
    }

    fn make_mount(
        self: &Arc<Self>,
        request: &MountRequest,
        source: &Source,
    ) -> Result<(Arc<Mounted>, marram_fuse::Session)> {
        let options = &request.options;
        let read_only = options.read_only || source.snapshot.is_some();
        let access_times = self.access_times(options, source, read_only)?;
        let namespace = Arc::new(self.namespace(source, access_times, options)?);
        let kernel_checks = !matches!(namespace.access_rules(), AccessRules::Own(_));
        if !kernel_checks {
            check_for_own_rules(options)?;
        }
        let loop_device = self.loop_device(options, read_only)?;
        let block_device = self.block_device(options, loop_device.as_ref());
        let mut fuse = self.fuse_options(request, read_only, access_times, block_device.clone());
        fuse.allow_devices &= kernel_checks;
        let destroyed = Arc::<AtomicBool>::default();
        fuse.on_destroyed = self.let_go_after(&destroyed);
        let mut report = MountReport {
            directory: request.directory.clone(),
            source: source.to_string(),
            read_only,
            options: describe(&fuse, options, kernel_checks),
            block_device,
        };
        let file_system: Arc<dyn FileSystem> = namespace.clone();
        let session = marram_fuse::mount(file_system, fuse).map_err(fuse_error)?;
        report.options += &format!(",transport={}", session.handle().transport());
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
    /// whoever unmounts is let go. After the last mount he can have the device for something else,
    /// and no lock of ours keeps him from it: so nothing is written to it any more.
    fn let_go_after(self: &Arc<Self>, destroyed: &Arc<AtomicBool>) -> Arc<dyn Fn() + Send + Sync> {
        let (daemon, destroyed) = (Arc::downgrade(self), Arc::clone(destroyed));
        Arc::new(move || {
            let Some(daemon) = daemon.upgrade() else { return };
            if daemon.mounts.note_destroyed(&destroyed) {
                let _told_when_the_daemon_ends = daemon.close_for_good();
            }
        })
    }

    fn access_times(
        &self,
        options: &MountOptions,
        source: &Source,
        read_only: bool,
    ) -> Result<AccessTimes> {
        if read_only {
            return Ok(AccessTimes::Never);
        }
        if let Some(asked) = options.access_times {
            return Ok(asked);
        }
        let properties = self.pool.pool().properties(&source.dataset)?;
        Ok(match properties.get("atime").map(|(value, _)| value.as_str()) {
            Some("off") => AccessTimes::Never,
            Some("strict") => AccessTimes::Strict,
            _ => AccessTimes::Relative,
        })
    }

    /// What a mount of `source` shows. A snapshot is shown alone: what belongs to its dataset is
    /// seen through that.
    fn namespace(
        self: &Arc<Self>,
        source: &Source,
        access_times: AccessTimes,
        options: &MountOptions,
    ) -> Result<Namespace> {
        let reports = self.pool.pool().list()?;
        let report = reports.iter().find(|report| report.source == *source);
        let root = report.map_or(Ino::ROOT, |report| Ino(report.root_object));
        let base = Arc::new(self.file_system(source, root, access_times, options)?);
        let catalogue = || {
            let catalogue = PoolCatalogue::new(self, &source.dataset, options, access_times);
            let catalogue: Box<dyn super::namespace::Catalogue> = Box::new(catalogue);
            (catalogue, paths::own_identity())
        };
        let shelves = source.snapshot.is_none().then(catalogue);
        Ok(Namespace::new(base, root, shelves))
    }

    /// The file system of a dataset or snapshot, of which the directory `root` is shown.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn file_system(
        &self,
        source: &Source,
        root: Ino,
        access_times: AccessTimes,
        asked: &MountOptions,
    ) -> Result<Posix> {
        self.steps.wait();
        let view = self.pool.pool().open(source)?;
        let (log, damage, dataset) =
            (Arc::clone(&self.log), Arc::clone(&self.damage), source.to_string());
        let options = PosixOptions {
            clock: Arc::new(SystemClock),
            root_owner: paths::own_identity(),
            access_times: match access_times {
                AccessTimes::Never => marram_posix::AccessTimes::Never,
                AccessTimes::Relative => marram_posix::AccessTimes::Relative,
                AccessTimes::Strict => marram_posix::AccessTimes::Strict,
            },
            directory_access_times: !asked.no_directory_access_times,
            lazy_times: asked.lazy_times,
            on_damage: Arc::new(move |range: marram_posix::DamagedRange| {
                let row = damage::row(&dataset, &range);
                let line = format!(
                    "damaged: {} at offset {} for {} bytes: {}",
                    row.place, range.offset, range.len, row.reason
                );
                if damage.add(row) {
                    log.write(&line);
                }
            }),
            root,
            patience: NO_SPACE_PATIENCE,
        };
        Ok(Posix::new(view, options)?)
    }

    /// The loop device that is to stand for the pool, where one is needed.
    fn loop_device(&self, options: &MountOptions, read_only: bool) -> Result<Option<LoopDevice>> {
        let wanted = options.block_device;
        if wanted == BlockDevice::On && !paths::is_root() {
            return Err(Error::usage("only root can mount through a block device (blkdev=on)"));
        }
        let free_device = self.pool.is_block_device() && self.mounts.reports().is_empty();
        if wanted == BlockDevice::Off || !paths::is_root() || free_device {
            return Ok(None);
        }
        match LoopDevice::attach(self.pool.path(), read_only) {
            Ok(device) => Ok(Some(device)),
            Err(error) if wanted == BlockDevice::On => Err(error),
            Err(error) => {
                self.log.write(&format!("{error}: mounting without a block device"));
                Ok(None)
            }
        }
    }

    /// What shows as the source of the mount, if it is a block device.
    fn block_device(&self, options: &MountOptions, found: Option<&LoopDevice>) -> Option<PathBuf> {
        let off = options.block_device == BlockDevice::Off || !paths::is_root();
        if let Some(device) = found {
            return Some(device.path().to_owned());
        }
        let usable = !off && self.pool.is_block_device() && self.mounts.reports().is_empty();
        usable.then(|| {
            self.pool.release_claim();
            self.pool.path().to_owned()
        })
    }

    fn fuse_options(
        &self,
        request: &MountRequest,
        read_only: bool,
        access_times: AccessTimes,
        block_device: Option<PathBuf>,
    ) -> marram_fuse::MountOptions {
        let source = self.pool.path();
        let mut fuse = fuse_options(&self.log, source, request, (read_only, access_times));
        fuse.block_device = block_device;
        fuse
    }
}

/// The options of a mount that shows `source`.
pub(super) fn fuse_options(
    log: &Arc<Log>,
    source: &Path,
    request: &MountRequest,
    (read_only, access_times): (bool, AccessTimes),
) -> marram_fuse::MountOptions {
    let (options, root) = (&request.options, paths::is_root());
    let source = source.to_string_lossy().into_owned();
    let mut fuse = marram_fuse::MountOptions::new(&request.directory, source);
    fuse.read_only = read_only;
    fuse.allow_other = options.allow_other.unwrap_or(root);
    fuse.allow_setuid = options.suid.unwrap_or(root);
    fuse.allow_devices = options.dev.unwrap_or(root);
    fuse.allow_programs = options.exec.unwrap_or(true);
    fuse.access_times = match access_times {
        AccessTimes::Never => marram_fuse::AccessTimes::Never,
        AccessTimes::Relative => marram_fuse::AccessTimes::Relative,
        AccessTimes::Strict => marram_fuse::AccessTimes::Strict,
    };
    fuse.writeback = options.writeback && !read_only;
    fuse.threads = engine::threads().max(SERVING_THREADS_MIN);
    fuse.strict_open = options.strict_open;
    fuse.file_handles = !options.no_handles;
    fuse.wakeful = wakeful(options);
    fuse.transport = match options.transport {
        Transport::Auto => marram_fuse::TransportChoice::Auto,
        Transport::Classic => marram_fuse::TransportChoice::Classic,
        Transport::IoUring => marram_fuse::TransportChoice::IoUring,
    };
    let log = Arc::clone(log);
    fuse.on_event = Arc::new(move |event| log.write(&event.to_string()));
    fuse
}

/// Refuses what nothing can be mounted on, before a pool or device is touched for it.
pub(super) fn check_directory(directory: &Path) -> Result<()> {
    let found = std::fs::metadata(directory)
        .map_err(|error| Error::system("mount on", directory, error))?;
    if found.is_dir() {
        return Ok(());
    }
    Err(Error::failed(format!("cannot mount on {}: it is no directory", directory.display())))
}

/// Refuses what a dataset with NFSv4 access control lists cannot have: a mount whose permissions
/// the kernel does not check cannot let it hold data back, nor open device nodes.
fn check_for_own_rules(options: &MountOptions) -> Result<()> {
    let asked = [(options.writeback, "writeback"), (options.dev == Some(true), "dev")];
    match asked.iter().find(|(asked, _)| *asked) {
        None => Ok(()),
        Some((_, word)) => {
            Err(Error::usage(format!("mount option {word} is not for a dataset with acl=nfsv4"))
                .hint("leave the option out, or set acl=posix or acl=off"))
        }
    }
}

/// Whether processors are to be kept from halting while requests flow.
fn wakeful(options: &MountOptions) -> bool {
    let worth_it = || marram_fuse::should_be_wakeful() && marram_fuse::can_be_wakeful();
    options.wakeful.unwrap_or_else(worth_it)
}

pub(super) fn check_wakeful(options: &MountOptions) -> Result<()> {
    if options.wakeful != Some(true) || marram_fuse::can_be_wakeful() {
        return Ok(());
    }
    Err(Error::failed("mount option wakeful: /dev/cpu_dma_latency cannot be opened for writing")
        .hint("mount as root, or leave the option out"))
}

/// The options of a mount in words, as `/proc/mounts` would have them.
pub(super) fn describe(
    fuse: &marram_fuse::MountOptions,
    asked: &MountOptions,
    kernel_checks: bool,
) -> String {
    let words = [
        (true, if fuse.read_only { "ro" } else { "rw" }),
        (!fuse.allow_setuid, "nosuid"),
        (!fuse.allow_devices, "nodev"),
        (!fuse.allow_programs, "noexec"),
        (fuse.access_times == marram_fuse::AccessTimes::Never, "noatime"),
        (fuse.access_times == marram_fuse::AccessTimes::Relative, "relatime"),
        (fuse.access_times == marram_fuse::AccessTimes::Strict, "strictatime"),
        (asked.no_directory_access_times, "nodiratime"),
        (asked.lazy_times, "lazytime"),
        (fuse.allow_other, "allow_other"),
        (kernel_checks, "default_permissions"),
        (true, if fuse.writeback { "writeback" } else { "ordered" }),
        (fuse.strict_open, "strictopen"),
        (!fuse.file_handles, "nohandles"),
        (fuse.wakeful, "wakeful"),
    ];
    let said: Vec<&str> = words.iter().filter(|(said, _)| *said).map(|(_, word)| *word).collect();
    said.join(",")
}

pub(super) fn fuse_error(error: marram_fuse::MountError) -> Error {
    use marram_fuse::MountError as Fuse;
    let text = error.to_string();
    match error {
        Fuse::Busy { .. } => Error::in_use(text)
            .hint("end those programs, or use --detach to take it out of sight until they do"),
        Fuse::DeviceMounted { .. } => Error::in_use(text),
        Fuse::IoUring { .. } => Error::failed(text).hint(
            "as root: echo Y > /sys/module/fuse/parameters/enable_uring (Linux 6.14 and later), \
             or leave the option transport out",
        ),
        Fuse::Device { .. } | Fuse::Fusermount { .. } => {
            Error::failed(text).hint("`marram doctor` tells what is missing")
        }
        _ => Error::failed(text),
    }
}
