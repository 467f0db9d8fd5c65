//! The file system: each method of the contract is led to its operation, under the one lock.

use crate::error::ImageError;
use crate::image::Header;
use crate::layout::{INODES, PAGE, SlotKind};
use crate::memory::{Memory, Tally};
use crate::opening::{Opening, Scan};
use crate::state::{Access, AccessTimes, Move, PIECE_BYTES_MAX, ROOT_NAME, Slot, State, Which};
use foldhash::{HashMap, HashMapExt};
use marram_locks::{Mutex, MutexGuard, Rank};
use marram_vfs::{
    AccessRules, Attributes, Caller, Capabilities, Clock, DirectoryEntry, Error, FILE_BYTES_MAX,
    FileSystem, Ino, Labelled, Name, NewNode, QuietReads, RenameMode, Result, SetAttributes,
    SpaceReport, SyncScope, SystemClock, Timestamp, WriteOptions, XattrMode,
};
use std::sync::Arc;

/// A checkpoint is made with this one held, and that of the image only for moments.
const CHECKPOINT: Rank = Rank { order: 2, name: "checkpoint" };
/// The place of the lock of an image.
const IMAGE: Rank = Rank { order: 3, name: "image" };

/// A dataset or snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetReport {
    /// `DATASET` or `DATASET@SNAPSHOT`.
    pub name: String,
    /// It is a snapshot.
    pub is_snapshot: bool,
    /// The snapshot that a dataset began as, if that is there still.
    pub origin: Option<String>,
    /// A number that no other one has, nor will have.
    pub number: u64,
    /// When it was made, in seconds since 1970.
    pub created_seconds: i64,
    /// Bytes of its pages, shared ones too.
    pub referenced_bytes: u64,
    /// Bytes of the pages that it alone has.
    pub unique_bytes: u64,
}

/// What goes, or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destroyed {
    /// The names.
    pub names: Vec<String>,
    /// Bytes that come back.
    pub freed_bytes: u64,
}

/// How an image is opened.
#[derive(Clone)]
pub struct PmemOptions {
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// When reading moves the access time, until [`Pmem::set_access_times`] says otherwise.
    pub access_times: AccessTimes,
    /// Whether anything may be changed.
    pub writable: bool,
}

impl Default for PmemOptions {
    /// The machine's clock, relative access times, changes allowed.
    fn default() -> PmemOptions {
        PmemOptions {
            clock: Arc::new(SystemClock),
            access_times: AccessTimes::default(),
            writable: true,
        }
    }
}

/// A file system in an image: a dataset, or a snapshot, which refuses all changes.
pub struct Pmem {
    image: Arc<Mutex<State>>,
    /// One checkpoint at a time.
    checkpoints: Arc<Mutex<()>>,
    /// Finds out which pages are free.
    scan: Arc<Scan>,
    /// The number of the dataset or snapshot.
    number: u64,
    /// Its root directory when it was opened.
    root: Attributes,
    options: PmemOptions,
}

impl Pmem {
    /// Opens the image in `memory`, as its root dataset, when all of it has been looked through.
    /// [`Opening`] opens one at once.
    ///
    /// # Errors
    /// There is none, or it makes no sense.
    pub fn open(memory: Memory, options: PmemOptions) -> std::result::Result<Pmem, ImageError> {
        let opening = Opening::begin(memory, options)?;
        opening.scan().run();
        opening.finish()
    }

    /// Opens an image whose records are settled.
    pub(crate) fn begun(
        mut state: State,
        scan: Arc<Scan>,
        options: PmemOptions,
    ) -> std::result::Result<Pmem, ImageError> {
        let number = state.slots.find(Which { dataset: ROOT_NAME, snapshot: None })?.number;
        state.enter(number)?;
        state.dataset.handles = 1;
        state.dataset.access = Access { times: options.access_times, of_directories: true };
        let root = root_of(&mut state)?;
        let checkpoints = Arc::new(Mutex::new(CHECKPOINT, ()));
        let image = Arc::new(Mutex::new(IMAGE, state));
        let files = Pmem { image, checkpoints, scan, number, root, options };
        if files.options.writable {
            files.begin()?;
        }
        Ok(files)
    }

    /// Finds out which pages are free, or waits until another thread has; whether that was not
    /// known before. From then on `df` and all reports are exact.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the image makes no sense. Then nothing is changed any more.
    pub fn find_space(&self) -> Result<bool> {
        let found = self.scan.learn(|found| {
            let mut state = self.locked();
            if let Some(why) = state.failure() {
                return Err(Error::Io(why.to_owned()));
            }
            let learned = found.and_then(|found| state.learn(*found));
            // As long as the medium says that the live state is right anywhere, it stays as it is.
            let is_begun = state.memory.host().is_none() || !state.is_closed_on_medium()?;
            let may_change = self.options.writable && is_begun && state.check_changeable().is_ok();
            let settled =
                learned.and_then(|()| if may_change { state.settle_in() } else { Ok(()) });
            settled.inspect_err(|error| state.fail(error))
        })?;
        let state = self.locked();
        match state.failure().filter(|_| !state.space.is_known()) {
            Some(why) => Err(Error::Io(why.to_owned())),
            None => Ok(found),
        }
    }

    /// Begins to change the image. Where its pages are written back in any order, there is a
    /// checkpoint first, and then the live state is right in this run of the machine alone.
    fn begin(&self) -> std::result::Result<(), ImageError> {
        let (host, is_closed) = {
            let state = self.locked();
            (state.memory.host(), state.is_closed_on_medium()?)
        };
        if let (Some(host), true) = (host, is_closed) {
            self.checkpoint()?;
            self.live_for(host)?;
        }
        let mut state = self.locked();
        state.drop_stale();
        if state.space.is_known() {
            state.settle_in()?;
        }
        state.enter(self.number)?;
        Ok(())
    }

    /// Says durably for which run of the machine the live state is right.
    fn live_for(&self, host: u64) -> Result<()> {
        let mut state = self.locked();
        let set = state.set_lives_for(host).and_then(|()| state.memory.write_back());
        set.inspect_err(|error| state.fail(error))
    }

    /// Opens another dataset of the image, or a snapshot. As long as that is open, no other may
    /// open the same dataset.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn open_other(&self, which: Which<'_>) -> Result<Pmem> {
        let mut state = self.locked();
        let number = state.slots.find(which)?.number;
        state.enter(number)?;
        let root = root_of(&mut state)?;
        state.dataset.handles += 1;
        let writable = self.options.writable && which.snapshot.is_none();
        let access_times = if writable { self.options.access_times } else { AccessTimes::Never };
        state.dataset.access = Access { times: access_times, of_directories: true };
        let options = PmemOptions { access_times, writable, ..self.options.clone() };
        let (image, checkpoints) = (Arc::clone(&self.image), Arc::clone(&self.checkpoints));
        let scan = Arc::clone(&self.scan);
        Ok(Pmem { image, checkpoints, scan, number, root, options })
    }

    /// What the image says of itself.
    ///
    /// # Errors
    /// It is damaged.
    pub fn header(&self) -> std::result::Result<Header, ImageError> {
        self.locked().header()
    }

    /// What was stored, flushed and fenced since it was opened.
    pub fn tally(&self) -> Tally {
        self.image.lock().memory.tally()
    }

    /// Looks through the whole image, and compares what is in use with what is known of it.
    ///
    /// # Errors
    /// What differs.
    pub fn audit(&self) -> Result<()> {
        self.find_space()?;
        let mut state = self.locked();
        state.end_epoch();
        state.audit()
    }

    /// Sets when reading moves the access time.
    pub fn set_access_times(&self, access_times: AccessTimes, of_directories: bool) {
        if let Ok(mut state) = self.state()
            && self.options.writable
        {
            state.dataset.access = Access { times: access_times, of_directories };
        }
    }

    /// Gives back the numbers that were promised and not given away, at the end of a mount.
    ///
    /// # Errors
    /// The image is damaged. Its medium has failed: then it is left as it is, and what was stored
    /// may not be durable.
    pub fn close(&self) -> Result<()> {
        if !self.options.writable {
            return Ok(());
        }
        {
            let mut state = self.locked();
            if let Some(why) = state.failure() {
                return Err(Error::Io(why.to_owned()));
            }
            state.end_epoch();
            state.give_back_numbers()?;
            if state.space.is_known() {
                state.fill_spare()?;
            }
            if state.memory.host().is_none() {
                return Ok(());
            }
            state.is_closed = true;
            let written = state.memory.write_back();
            written.inspect_err(|error| state.fail_write_back(error))?;
        }
        self.live_for(0)
    }

    /// Makes all that was done so far durable, as one moment, where a power cut could else tear it.
    /// A caller that wants the same meanwhile waits, and everything else goes on.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::Io`], and then nothing is changed any more.
    pub fn checkpoint(&self) -> Result<()> {
        let was_known = self.locked().space.is_known();
        let mut done = self.make_checkpoint();
        if matches!(done, Err(Error::NoSpace)) && !was_known {
            self.find_space()?;
            done = self.make_checkpoint();
        }
        self.locked().full_at = None;
        done
    }

    fn make_checkpoint(&self) -> Result<()> {
        let _turn = self.checkpoints.lock();
        let (way, held) = {
            let mut state = self.locked();
            if let Some(why) = state.failure() {
                return Err(Error::Io(why.to_owned()));
            }
            state.end_epoch();
            let Some(way) = state.memory.unordered().filter(|_| self.may_checkpoint(&state)) else {
                return Ok(());
            };
            let Some(held) = run_in(&mut state, 0, State::begin_checkpoint)? else { return Ok(()) };
            (way, held)
        };
        let placed = way.write_back().and_then(|()| {
            self.locked().place_checkpoint(&held)?;
            way.write_back()
        });
        let mut state = self.locked();
        match placed {
            Ok(()) => {
                state.end_checkpoint(held);
                state.drop_waiting();
                Ok(())
            }
            Err(error) => {
                state.fail_write_back(&error);
                Err(error)
            }
        }
    }

    /// A closed image has all that it had.
    fn may_checkpoint(&self, state: &State) -> bool {
        self.options.writable && !state.is_closed
    }

    /// The inodes that are pinned.
    pub fn pinned_inodes(&self) -> Vec<Ino> {
        let pins =
            |state: MutexGuard<'_, State>| state.dataset.pins.keys().copied().map(Ino).collect();
        self.state().map_or_else(|_| Vec::new(), pins)
    }

    /// Whether an inode is pinned.
    pub fn is_pinned(&self, ino: Ino) -> bool {
        self.state().is_ok_and(|state| state.is_pinned(ino.0))
    }

    /// All datasets and snapshots, in the order in which they were made.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn datasets(&self) -> Result<Vec<DatasetReport>> {
        self.find_space()?;
        let state = self.locked();
        let mut known = HashMap::new();
        state.slots.iter().map(|slot| report(&state, slot, &mut known)).collect()
    }

    /// The names of the snapshots of a dataset.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn snapshot_names(&self, dataset: &str) -> Result<Vec<String>> {
        let state = self.locked();
        let number = state.slots.find(Which { dataset, snapshot: None })?.number;
        Ok(state.slots.snapshots_of(number).map(|slot| slot.name.clone()).collect())
    }

    /// The number of a dataset or snapshot, which no other one has or will have.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn number_of(&self, which: Which<'_>) -> Result<u64> {
        Ok(self.locked().slots.find(which)?.number)
    }

    /// Keeps the present state of a dataset under a name.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`], or no space for a name more.
    pub fn snapshot(&self, dataset: &str, name: &str) -> Result<()> {
        self.change_image(State::kept_for_removals, |state, now| state.snapshot(dataset, name, now))
    }

    /// Makes a dataset that begins as a snapshot.
    ///
    /// # Errors
    /// As [`Pmem::snapshot`].
    pub fn clone_snapshot(&self, snapshot: Which<'_>, name: &str) -> Result<()> {
        self.change_image(State::kept_for_removals, |state, now| {
            state.clone_of(snapshot, name, now)
        })
    }

    /// Lets a dataset go on from a snapshot of it, and keeps what it was as another. Inodes that
    /// the snapshot does not have are stale from then on.
    ///
    /// # Errors
    /// As [`Pmem::snapshot`].
    pub fn roll_back(&self, dataset: &str, snapshot: &str, keep: &str) -> Result<()> {
        // What the scan finds of a dataset is about the state that it leaves.
        self.find_space()?;
        self.change_image(State::kept_for_checkpoint, |state, now| {
            state.roll_back(dataset, (snapshot, keep), now)
        })
    }

    /// Destroys datasets, with their snapshots, and snapshots: all of them or none. With
    /// `dry_run` it only says what would go.
    ///
    /// # Errors
    /// [`Error::NotFound`]; the root dataset is among them.
    pub fn destroy(&self, named: &[Which<'_>], dry_run: bool) -> Result<Destroyed> {
        self.find_space()?;
        let destroyed = {
            let state = self.locked();
            let going = state.going(named)?;
            let freed_bytes = state.would_free(&going)? * PAGE;
            let names = going.iter().map(|slot| name_of(&state, slot)).collect();
            Destroyed { names, freed_bytes }
        };
        if !dry_run {
            self.change_image(State::kept_for_checkpoint, |state, _| {
                let going = state.going(named)?;
                state.destroy(&going)
            })?;
            // What there was no space to take away before may go now.
            self.locked().drop_waiting();
        }
        Ok(destroyed)
    }

    /// Why nothing is stored any more, if that is so: the medium has failed. What can be had still
    /// is shown, as it was before the operation that failed or after it.
    pub fn failure(&self) -> Option<String> {
        self.locked().failure().map(ToOwned::to_owned)
    }

    /// The state. What has failed is known.
    fn locked(&self) -> MutexGuard<'_, State> {
        let mut state = self.image.lock();
        state.notice_failure();
        state
    }

    /// The state, turned to this dataset.
    fn state(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.locked();
        state.check_readable()?;
        state.enter(self.number)?;
        Ok(state)
    }

    /// Runs an operation on the whole image, as [`Pmem::change`] does on the dataset.
    fn change_image<R>(
        &self,
        kept: fn(&State) -> u64,
        run: impl Fn(&mut State, Timestamp) -> Result<R>,
    ) -> Result<R> {
        self.with_space(|| {
            let mut state = self.locked();
            let kept = kept(&state);
            run_in(&mut state, kept, |state| run(state, self.options.clock.now()))
        })
    }

    /// Runs an operation: it happens wholly and is durable, or nothing has changed.
    fn change<R>(&self, run: impl Fn(&mut State, Timestamp) -> Result<R>) -> Result<R> {
        self.with_space(|| {
            let mut state = self.state()?;
            state.drop_forgotten();
            let kept = state.kept_for_removals();
            run_in(&mut state, kept, |state| run(state, self.options.clock.now()))
        })
    }

    /// As [`Pmem::change`], for what gives space back: on a full image it takes what is kept for
    /// that.
    fn remove<R>(&self, run: impl Fn(&mut State, Timestamp) -> Result<R>) -> Result<R> {
        self.with_space(|| {
            let mut state = self.state()?;
            let kept = state.kept_for_checkpoint();
            run_in(&mut state, kept, |state| run(state, self.options.clock.now()))
        })
    }

    /// Runs an operation of an image that may be changed. If there is no space, it waits for the
    /// scan, which finds some perhaps. Then it is tried again after a checkpoint: the one before
    /// may hold what has been removed since. The first one makes room for what waits to be taken
    /// away, and the next one lets go of that. If they have not helped, none is made for another
    /// operation, until something else was removed or another checkpoint was made.
    fn with_space<R>(&self, run: impl Fn() -> Result<R>) -> Result<R> {
        if !self.options.writable {
            return Err(Error::ReadOnly);
        }
        // Another thread may take in what was found while this one waits for it.
        let was_known = self.locked().space.is_known();
        let mut done = run();
        if matches!(done, Err(Error::NoSpace)) && !was_known {
            self.find_space()?;
            done = run();
        }
        let is_full = |done: &Result<R>| matches!(done, Err(Error::NoSpace));
        if !is_full(&done) || !self.may_make_space() {
            return done;
        }
        for _ in 0..2 {
            self.make_checkpoint()?;
            done = run();
            if !is_full(&done) {
                return done;
            }
        }
        let mut state = self.locked();
        state.full_at = Some(state.removals);
        done
    }

    /// Whether a checkpoint could make space.
    fn may_make_space(&self) -> bool {
        let state = self.locked();
        state.memory.host().is_some() && state.full_at != Some(state.removals)
    }

    /// Moves the access time of what was read.
    fn note_access(&self, state: &mut State, ino: Ino) -> Result<()> {
        let never = state.dataset.access.times == AccessTimes::Never || state.failure().is_some();
        if !self.options.writable || never {
            return Ok(());
        }
        let always = state.dataset.access.times == AccessTimes::Strict;
        let kept = state.kept_for_removals();
        run_in(state, kept, |state| state.stamp_access(ino, self.options.clock.now(), always))
    }
}

impl Drop for Pmem {
    /// With it go its pins, as long as the image stays open: with that all pins go.
    fn drop(&mut self) {
        if Arc::strong_count(&self.image) == 1 {
            self.scan.end();
        }
        if Arc::strong_count(&self.image) > 1
            && let Ok(mut state) = self.state()
        {
            state.dataset.handles -= 1;
            if state.dataset.handles == 0 {
                state.kept_free = state.kept_for_checkpoint();
                state.forget_all(self.options.writable);
                if !self.options.writable {
                    state.leave();
                }
            }
        }
    }
}

/// The root directory, when a dataset is opened. Before a scan its entries are not counted: there
/// can be many.
fn root_of(state: &mut State) -> Result<Attributes> {
    match state.space.is_known() {
        true => state.attributes_of(Ino::ROOT),
        false => state.counted_attributes(state.node(Ino::ROOT)?, 0, 0),
    }
}

/// Runs an operation that leaves `kept` pages free, and ends it.
fn run_in<R>(state: &mut State, kept: u64, run: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
    state.check_changeable()?;
    state.end_epoch();
    state.kept_free = kept;
    let done = run(state);
    match &done {
        Ok(_) => state.end_change(),
        Err(_) => state.give_up(),
    }
    done
}

fn name_of(state: &State, slot: &Slot) -> String {
    let dataset = state.slots.get(slot.of).filter(|_| slot.kind == SlotKind::Snapshot);
    dataset.map_or_else(|| slot.name.clone(), |of| format!("{}@{}", of.name, slot.name))
}

fn report(state: &State, slot: &Slot, known: &mut HashMap<u64, u64>) -> Result<DatasetReport> {
    let origin = state.slots.get(slot.of).filter(|_| slot.kind == SlotKind::Dataset);
    Ok(DatasetReport {
        name: name_of(state, slot),
        is_snapshot: slot.kind == SlotKind::Snapshot,
        origin: origin.map(|of| name_of(state, of)),
        number: slot.number,
        created_seconds: slot.created,
        referenced_bytes: state.pages_of(slot, known)? * PAGE,
        unique_bytes: state.would_free(std::slice::from_ref(slot))? * PAGE,
    })
}

impl FileSystem for Pmem {
    fn space(&self) -> Result<SpaceReport> {
        self.find_space()?;
        let mut state = self.state()?;
        state.end_epoch();
        let free = state.space.free().saturating_sub(state.kept_for_removals());
        Ok(SpaceReport {
            total_bytes: state.space.pages() * PAGE,
            free_bytes: free * PAGE,
            inodes_used: state.inodes_used()?,
            inodes_free: free * INODES,
        })
    }

    fn lookup(&self, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        self.state()?.lookup(parent, name)
    }

    fn parent(&self, ino: Ino) -> Result<Attributes> {
        self.state()?.parent(ino)
    }

    fn pin(&self, ino: Ino) -> Result<Attributes> {
        self.state()?.pinned(ino)
    }

    /// A root directory that cannot be had any more is shown as it was when it was opened: so its
    /// mount is found, asked for its status, and unmounted.
    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        match self.state().and_then(|mut state| state.attributes_of(ino)) {
            Err(Error::Io(_)) if ino == Ino::ROOT => Ok(self.root.clone()),
            found => found,
        }
    }

    fn forget(&self, ino: Ino, count: u64) {
        if let Ok(mut state) = self.state() {
            state.kept_free = state.kept_for_checkpoint();
            state.forget(ino, count, self.options.writable);
        }
    }

    fn forget_all(&self) {
        if let Ok(mut state) = self.state() {
            state.kept_free = state.kept_for_checkpoint();
            state.forget_all(self.options.writable);
        }
    }

    fn set_attributes(&self, _caller: Caller, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        match set.size {
            Some(size) => self.remove(|state, now| {
                // To cut a file gives space back; to extend it takes some.
                if size >= state.regular(ino)?.1.size {
                    state.kept_free = state.kept_for_removals();
                }
                state.set_attributes(ino, set, now)
            }),
            None => self.change(|state, now| state.set_attributes(ino, set, now)),
        }
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let mut state = self.state()?;
        let target = state.read_link(ino)?;
        self.note_access(&mut state, ino)?;
        Ok(target)
    }

    fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
    ) -> Result<Attributes> {
        self.change(|state, now| state.create(caller, parent, name, node, now))
    }

    fn create_anonymous(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
    ) -> Result<Attributes> {
        self.change(|state, now| state.create_anonymous(caller, parent, permissions, now))
    }

    fn link(&self, ino: Ino, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        self.change(|state, now| state.link(ino, parent, name, now))
    }

    fn unlink(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        self.remove(|state, now| state.unlink(parent, name, now))
    }

    fn remove_directory(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        self.remove(|state, now| state.remove_directory(parent, name, now))
    }

    fn rename(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        new_parent: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<()> {
        let way = Move { parent, name, new_parent, new_name };
        self.change(|state, now| state.rename(caller, way, mode, now))
    }

    fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let mut state = self.state()?;
        state.read(ino, offset, len, out)?;
        self.note_access(&mut state, ino)
    }

    /// As a write: each piece of 1 MiB goes to the end as it is then.
    fn append(&self, ino: Ino, data: &[u8], options: WriteOptions<'_>) -> Result<u64> {
        let append = |piece: &[u8]| {
            self.change(|state, now| {
                let (_, basics) = state.regular(ino)?;
                state.write(ino, basics.size, piece, options, now)?;
                Ok(basics.size)
            })
        };
        let (first, rest) = data.split_at(data.len().min(PIECE_BYTES_MAX));
        let began = append(first)?;
        for piece in rest.chunks(PIECE_BYTES_MAX) {
            append(piece)?;
        }
        Ok(began)
    }

    /// A write of more than 1 MiB is done in pieces; if one fails, those before it stay.
    fn write(&self, ino: Ino, offset: u64, data: &[u8], options: WriteOptions<'_>) -> Result<()> {
        if data.len() <= PIECE_BYTES_MAX {
            return self.change(|state, now| state.write(ino, offset, data, options, now));
        }
        self.change(|state, _| state.regular(ino).map(drop))?;
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Error::FileTooLarge);
        }
        for (which, piece) in data.chunks(PIECE_BYTES_MAX).enumerate() {
            let at = offset + (which * PIECE_BYTES_MAX) as u64;
            self.change(|state, now| state.write(ino, at, piece, options, now))?;
        }
        Ok(())
    }

    fn read_directory(
        &self,
        ino: Ino,
        after: u64,
        with_attributes: bool,
        visit: &mut dyn FnMut(DirectoryEntry<'_>) -> bool,
    ) -> Result<()> {
        let mut state = self.state()?;
        state.read_directory(ino, after, with_attributes, visit)?;
        if state.dataset.access.of_directories {
            self.note_access(&mut state, ino)?;
        }
        Ok(())
    }

    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.state()?.xattr(ino, name)
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.change(|state, now| state.set_xattr(ino, (name, value), mode, now))
    }

    fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.state()?.list_xattrs(ino)
    }

    fn access_rules(&self) -> AccessRules<'_> {
        AccessRules::ModeBits
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.change(|state, now| state.remove_xattr(ino, name, now))
    }

    /// Everything is durable when its call returns, but where pages are written back in any order.
    fn sync(&self, ino: Ino, _scope: SyncScope) -> Result<()> {
        self.state()?.node(ino)?;
        self.sync_all()
    }

    fn sync_all(&self) -> Result<()> {
        self.checkpoint()
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { label: Some(self), quiet_reads: Some(self), ..Capabilities::default() }
    }
}

impl Labelled for Pmem {
    fn label(&self) -> Result<String> {
        let header = self.locked().header();
        header.map(|header| header.label).map_err(|error| Error::Damaged(error.to_string()))
    }

    fn set_label(&self, _caller: Caller, label: &str) -> Result<()> {
        self.change(|state, _| state.set_label(label))
    }
}

impl QuietReads for Pmem {
    fn read_unnoticed(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        self.state()?.read(ino, offset, len, out)
    }
}

#[cfg(test)]
mod tests;
