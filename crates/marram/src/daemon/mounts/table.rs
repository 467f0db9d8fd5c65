//! The table of mounts: what is mounted, is being mounted, or must not be mounted.
//!
//! A dataset is served by one mount at a time, since two would keep two views of one thing in the
//! kernel's caches; it can be seen in several places, see [`again`](super::again). A snapshot
//! cannot change, so any number of mounts may show it. A mount stays in the table until its last
//! request has been answered, and its file system has let go of the home by then.
//!
//! What is being destroyed is **withheld**: what is only looked at below `.marram` is taken from
//! there before it is destroyed, and stays closed until the destruction has ended or failed. A
//! program that goes on listing it would have it open again at once. A look-up is answered that it
//! is busy, which no kernel remembers.

use super::checks::fuse_error;
use super::mounted::{Mounted, Served};
use super::sight::is_used;
use crate::control::protocol::{ENDING, MountReport, UnmountedPlace};
use crate::daemon::namespace::Namespace;
use crate::engine::Volume;
use crate::error::{Error, Result};
use crate::mountinfo::own_namespace;
use crate::process::own_pid;
use marram_fuse::{SessionHandle, Unmount};
use marram_store::Source;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long to wait for a first mount that is just being made.
const MAKING_PATIENCE: Duration = Duration::from_secs(10);
/// How often to look.
pub(super) const USED_TICK: Duration = Duration::from_millis(50);

/// All mounts of the daemon.
#[derive(Default)]
pub(in crate::daemon) struct MountTable {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    mounts: Vec<Arc<Mounted>>,
    /// What is being mounted at this moment, or destroyed now that its mount has ended.
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

impl MountTable {
    /// What is mounted, in the order in which it was. What the kernel has let go of is not: its
    /// device number may be that of a mount of another daemon.
    pub(in crate::daemon) fn reports(&self) -> Vec<MountReport> {
        let state = self.state.lock();
        let mounts = state.mounts.iter().filter(|mount| mount.session.is_connected());
        mounts.flat_map(|mount| mount.reports()).collect()
    }

    /// The volumes behind the mounts.
    pub(in crate::daemon) fn volumes(&self) -> Vec<Arc<dyn Volume>> {
        self.served().iter().flat_map(|mount| mount.namespace.volumes()).collect()
    }

    /// How many inodes of all of them the kernel knows.
    pub(in crate::daemon) fn known_inodes(&self) -> usize {
        self.volumes().iter().filter_map(|open| Some(open.known()?.count())).sum()
    }

    /// The mounts as operations change what they show.
    pub(in crate::daemon) fn served(&self) -> Vec<Served> {
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
    pub(in crate::daemon) fn namespace_at(
        &self,
        directory: &Path,
    ) -> Option<(Source, Arc<Namespace>)> {
        let state = self.state.lock();
        let mount = state.mounts.iter().rev().find(|mount| mount.is_at(directory))?;
        Some((mount.source.clone(), Arc::clone(&mount.namespace)))
    }

    /// The mounts through which something can be changed.
    pub(super) fn writable_sessions(&self) -> Vec<SessionHandle> {
        let state = self.state.lock();
        let writable = state.mounts.iter().filter(|mount| !mount.report.read_only);
        writable.map(|mount| mount.session.clone()).collect()
    }

    /// Returns when nothing is mounted any more, or the daemon has given up on what is.
    pub(in crate::daemon) fn wait_until_empty(&self) {
        let mut state = self.state.lock();
        while !state.is_over() {
            self.changed.wait(&mut state);
        }
        state.shut = true;
    }

    /// The same within a time limit; tells whether it has come to that.
    pub(in crate::daemon) fn wait_until_empty_for(&self, limit: Duration) -> bool {
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
    pub(in crate::daemon) fn give_up(&self) {
        self.state.lock().given_up = true;
        self.changed.notify_all();
    }

    /// Takes no more mounts.
    pub(in crate::daemon) fn shut(&self) {
        self.state.lock().shut = true;
    }

    /// Notes that nobody has the mount any more to which `destroyed` belongs. If that was the last
    /// one, no more are taken from then on, and true comes back.
    pub(super) fn note_destroyed(&self, destroyed: &AtomicBool) -> bool {
        let mut state = self.state.lock();
        destroyed.store(true, Ordering::Relaxed);
        let all = state.mounts.iter().all(|mount| mount.destroyed.load(Ordering::Relaxed));
        let is_last = all && state.making.is_empty();
        state.shut |= is_last;
        is_last
    }

    /// Whether the daemon is ending.
    pub(in crate::daemon) fn is_shut(&self) -> bool {
        self.state.lock().shut
    }

    /// Returns when the mount is gone that somebody has taken from `place`, or is known to stay.
    /// False if it was made there and is still used elsewhere, in a place that nobody asked for.
    /// One that ended before may have had the same device number: that is waited for too.
    pub(in crate::daemon) fn has_ended(&self, place: &UnmountedPlace) -> bool {
        let is_meant = |mount: &&Arc<Mounted>| mount.session.device() == place.device.into();
        let found: Vec<_> =
            self.state.lock().mounts.iter().filter(is_meant).map(Arc::clone).collect();
        let meant = found.into_iter().filter(|_| !place.detached);
        let have_ended: Vec<bool> = meant.map(|mount| self.one_has_ended(mount, place)).collect();
        have_ended.into_iter().all(|has_ended| has_ended)
    }

    fn one_has_ended(&self, mount: Arc<Mounted>, place: &UnmountedPlace) -> bool {
        if !mount.session.is_served() {
            return self.wait_until_gone(mount);
        }
        let directory = &place.directory;
        let is_made = mount.is_at(directory) && place.namespace == own_namespace();
        if is_made && mount.is_seen_beside(directory) || !is_made && mount.session.is_mounted() {
            return true;
        }
        self.wait_until_gone(mount) || !is_made
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
            // What is not served any more, or nobody's, is only being made durable.
            let is_somebodys = session.is_served() && !session.is_destroyed();
            // Looking for them reads all of `/proc`.
            let look = || is_used(&session, began.elapsed());
            if is_somebodys && MutexGuard::unlocked(&mut state, look) {
                return false;
            }
            self.changed.wait_for(&mut state, USED_TICK);
        }
        true
    }

    /// Takes all mounts away, busy ones out of sight at least; returns what could not be.
    pub(in crate::daemon) fn unmount_all(&self) -> Vec<Error> {
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
    pub(super) fn begin(&self, source: &Source, pool: &Path) -> Result<()> {
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
                own_pid()
            ))
            .hint(
                "unmount it first, show it in another place too with `mount --bind`, or mount a \
                 snapshot or clone of it",
            ));
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
    pub(in crate::daemon) fn open_alone(
        &self,
        source: &Source,
        pool: &Path,
    ) -> Result<OpenAlone<'_>> {
        self.begin(source, pool)?;
        Ok(OpenAlone { mounts: self, source: source.clone() })
    }

    pub(super) fn finish(&self, source: &Source, mounted: Option<Arc<Mounted>>) {
        let mut state = self.state.lock();
        if let Some(at) = state.making.iter().position(|making| making == source) {
            state.making.swap_remove(at);
        }
        state.mounts.extend(mounted);
        drop(state);
        self.changed.notify_all();
    }

    /// The mount of `source` that others can be added to.
    pub(super) fn first_of(&self, source: &Source) -> Option<Arc<Mounted>> {
        let mut state = self.state.lock();
        let making = |state: &mut State| state.making.contains(source);
        self.changed.wait_while_for(&mut state, making, MAKING_PATIENCE);
        let first = state.mounts.iter().find(|mount| mount.source == *source).cloned();
        first.filter(|mount| mount.report.block_device.is_some() && mount.session.is_mounted())
    }

    pub(super) fn remove(&self, mounted: &Arc<Mounted>) {
        let mut state = self.state.lock();
        state.mounts.retain(|mount| !Arc::ptr_eq(mount, mounted));
    }

    /// The same of the view of a fork, which goes now: the daemon stays until
    /// [`MountTable::finish`].
    pub(super) fn remove_with_fork(&self, mounted: &Arc<Mounted>) {
        let mut state = self.state.lock();
        state.mounts.retain(|mount| !Arc::ptr_eq(mount, mounted));
        state.making.push(mounted.source.clone());
    }

    pub(super) fn notify(&self) {
        self.changed.notify_all();
    }
}

/// A dataset that is open for one operation: it is not mounted meanwhile, nor opened for another.
pub(in crate::daemon) struct OpenAlone<'m> {
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
pub(in crate::daemon) struct Borrowed {
    mounts: Weak<MountTable>,
    source: Source,
}

impl Borrowed {
    /// Takes `source` for a mount that shows it below another.
    ///
    /// # Errors
    /// [`marram_vfs::Error::Busy`]: another mount has it.
    pub(in crate::daemon) fn take(
        mounts: &Arc<MountTable>,
        source: &Source,
    ) -> marram_vfs::Result<Borrowed> {
        let mut state = mounts.state.lock();
        let mounted = state.mounts.iter().any(|mount| mount.source == *source);
        if mounted || state.making.contains(source) || state.borrowed.contains(source) {
            return Err(marram_vfs::Error::Busy);
        }
        state.borrowed.push(source.clone());
        Ok(Borrowed { mounts: Arc::downgrade(mounts), source: source.clone() })
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(mounts) = self.mounts.upgrade() {
            mounts.state.lock().borrowed.retain(|source| *source != self.source);
        }
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.given_up || (self.mounts.is_empty() && self.making.is_empty())
    }
}

/// Sources that stay closed as long as this lives.
pub(in crate::daemon) struct Withheld<'m> {
    mounts: &'m MountTable,
    sources: Vec<Source>,
}

impl MountTable {
    /// Keeps `sources` from being opened. What is open already stays so.
    pub(in crate::daemon) fn withhold(&self, sources: &[Source]) -> Withheld<'_> {
        self.state.lock().withheld.extend_from_slice(sources);
        Withheld { mounts: self, sources: sources.to_vec() }
    }

    /// Refuses to open below `.marram` what is being destroyed.
    pub(in crate::daemon) fn refuse_withheld(&self, source: &Source) -> marram_vfs::Result<()> {
        match self.state.lock().withheld.contains(source) {
            true => Err(marram_vfs::Error::Busy),
            false => Ok(()),
        }
    }
}

impl State {
    /// Refuses to mount what is being destroyed.
    fn refuse_to_mount_withheld(&self, source: &Source, pool: &Path) -> Result<()> {
        match self.withheld.contains(source) {
            true => {
                let pool = pool.display();
                Err(Error::in_use(format!("{source} of {pool} is just being destroyed")))
            }
            false => Ok(()),
        }
    }
}

impl Drop for Withheld<'_> {
    fn drop(&mut self) {
        let mut state = self.mounts.state.lock();
        for source in &self.sources {
            // Another destruction may keep the same from being opened.
            if let Some(at) = state.withheld.iter().position(|held| held == source) {
                state.withheld.swap_remove(at);
            }
        }
    }
}
