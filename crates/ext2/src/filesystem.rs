//! The file system: each method of the contract is led to its operation, under the one lock.

use crate::error::{ImageError, failed};
use crate::part::Part;
use crate::state::journal::log::{Bytes, JournalBug};
use crate::state::journal::{replay, replayed};
use crate::state::rules::Rule;
use crate::state::{Access, AccessTimes, Move, State, Work, number, read_target, reading, shown};
use crate::superblock::{Geometry, SUPERBLOCK_AT, SUPERBLOCK_BYTES, decode, decode_header, field};
use marram_device::Device;
use marram_locks::{Mutex, MutexGuard, Rank};
use marram_patch::{Bug, Cache, Content, Counters, Discipline, Study};
use marram_vfs::{
    AccessRules, Attributes, Caller, Capabilities, Clock, DirectoryEntry, Error, FileSystem,
    GroupSync, Ino, Labelled, Name, NewNode, Patchgroup, Patchgroups, QuietReads, RenameMode,
    Result, SetAttributes, SpaceReport, StoredAccessLists, SyncScope, SystemClock, WriteOptions,
    XattrMode,
};
use std::sync::Arc;

/// The place of the lock of an image; it is the only one.
const IMAGE: Rank = Rank { order: 1, name: "image" };
/// Longest label, in bytes.
const LABEL_BYTES_MAX: usize = 16;

/// What a crash may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consistency {
    /// What `e2fsck` finds are things in use that nothing uses, and counts that are too high.
    SoftUpdates,
    /// Anything.
    Async,
    /// One moment of all metadata; new bytes of files are there before it.
    Journal,
    /// One moment of all that there is.
    JournalFull,
    /// One moment of all metadata; new parts of files may have any bytes.
    JournalWriteback,
}

/// The orders of writes with their words.
const ORDERS: [(&str, Consistency); 5] = [
    ("soft-updates", Consistency::SoftUpdates),
    ("async", Consistency::Async),
    ("journal", Consistency::Journal),
    ("journal-full", Consistency::JournalFull),
    ("journal-writeback", Consistency::JournalWriteback),
];

impl Consistency {
    /// What an option says.
    ///
    /// # Errors
    /// There is no such order.
    pub fn parse(text: &str) -> std::result::Result<Consistency, ImageError> {
        let known = ORDERS.iter().find(|(word, _)| *word == text).map(|(_, order)| *order);
        known.ok_or_else(|| {
            let words: Vec<&str> = ORDERS.iter().map(|(word, _)| *word).collect();
            let words = words.join(", ");
            ImageError::Consistency(format!("{text} is no order of writes; there are {words}"))
        })
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        ORDERS.iter().find(|(_, order)| *order == self).map_or("", |(word, _)| word)
    }

    /// The order of an image that is opened without one being asked for.
    fn of(geometry: &Geometry) -> Consistency {
        match geometry.journal_ino {
            Some(_) => Consistency::Journal,
            None => Consistency::SoftUpdates,
        }
    }

    /// What a commit of the journal waits for, if the journal is written.
    fn journal(self) -> Option<Bytes> {
        match self {
            Consistency::SoftUpdates | Consistency::Async => None,
            Consistency::Journal => Some(Bytes::Ordered),
            Consistency::JournalFull => Some(Bytes::Logged),
            Consistency::JournalWriteback => Some(Bytes::Unordered),
        }
    }

    fn discipline(self) -> Discipline {
        match self {
            Consistency::Async => Discipline::Unordered,
            _ => Discipline::SoftUpdates,
        }
    }
}

/// A bug that is put in, for tests of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// One of the cache.
    Cache(Bug),
    /// A rule of soft updates is left out.
    Rule(Rule),
    /// A rule of the journal is left out.
    Journal(JournalBug),
}

/// How an image is opened.
#[derive(Clone)]
pub struct Ext2Options {
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// When reading moves the access time, until [`Ext2::set_access_times`] says otherwise.
    pub access_times: AccessTimes,
    /// Whether anything may be changed.
    pub writable: bool,
    /// What a crash may leave; none leaves it to the image.
    pub consistency: Option<Consistency>,
    /// Where on the device the image begins, in bytes: a multiple of 512.
    pub offset_bytes: u64,
    /// Every caller may do what only the superuser may: set owners, enter and change everything.
    pub fakeroot: bool,
    /// How the cache works, for studies.
    pub study: Study,
    /// A bug, for tests of tests.
    pub planted: Option<Planted>,
}

impl Default for Ext2Options {
    /// The machine's clock, relative access times, changes allowed.
    fn default() -> Ext2Options {
        Ext2Options {
            clock: Arc::new(SystemClock),
            access_times: AccessTimes::default(),
            writable: true,
            consistency: None,
            offset_bytes: 0,
            fakeroot: false,
            study: Study::default(),
            planted: None,
        }
    }
}

/// A file system in an image, as operations see it that belong to some groups or to none.
pub struct Ext2 {
    image: Arc<Image>,
    /// The groups that changes belong to.
    engaged: Vec<Patchgroup>,
}

/// What all handles of an image share.
struct Image {
    state: Mutex<State>,
    options: Ext2Options,
    consistency: Consistency,
    has_xattrs: bool,
    label: Mutex<String>,
}

/// The place of the lock of the label.
const LABEL: Rank = Rank { order: 2, name: "label" };

impl Ext2 {
    /// Opens the image on a device.
    ///
    /// One that only is to be read is not written at all: a journal is then replayed in memory.
    ///
    /// # Errors
    /// There is none, it makes no sense, or it has features that cannot be served.
    pub fn open(
        device: Arc<dyn Device>,
        options: Ext2Options,
    ) -> std::result::Result<Ext2, ImageError> {
        let part = Part::from(device, options.offset_bytes)?;
        let (mut bytes, medium_bytes) = read_superblock(&part)?;
        let mut geometry = decode(&bytes, medium_bytes, options.writable)?;
        let own_bytes = geometry.blocks * geometry.block_bytes as u64;
        let mut device: Arc<dyn Device> = Arc::new(part.first(own_bytes));
        if geometry.needs_replay {
            let cache = Cache::new(Arc::clone(&device), 0, geometry.block_bytes);
            let soft = Discipline::SoftUpdates;
            // What is torn before the replay has a wrong checksum, and is made good by it.
            let before = Geometry { checksums: None, ..geometry };
            let state = State::open(cache, before, soft, options.writable)?;
            match options.writable {
                true => replay(&*device, state)?,
                false => device = replayed(device, state)?,
            }
            (bytes, _) = read_superblock(&*device)?;
            geometry = decode(&bytes, own_bytes, options.writable)?;
        }
        let label = decode_header(&bytes)?.label;
        let consistency = options.consistency.unwrap_or_else(|| Consistency::of(&geometry));
        let mut cache = Cache::new(device, 0, geometry.block_bytes);
        cache.set_study(options.study);
        if let Some(Planted::Cache(bug)) = options.planted {
            cache.plant(bug);
        }
        let mut state = State::open(cache, geometry, consistency.discipline(), options.writable)?;
        if let Some(Planted::Rule(rule)) = options.planted {
            state.left_out = Some(rule);
        }
        state.access = Access { times: options.access_times, of_directories: true };
        if options.writable {
            if let Some(bytes) = consistency.journal() {
                write_journal(&mut state, (consistency, bytes), options.planted)?;
            }
            state.load_groups()?;
            state.end_orphans(options.clock.now())?;
            state.begin_census()?;
        }
        let has_xattrs = state.geometry.has_xattrs;
        let (state, label) = (Mutex::new(IMAGE, state), Mutex::new(LABEL, label));
        let image = Arc::new(Image { state, options, consistency, has_xattrs, label });
        Ok(Ext2 { image, engaged: Vec::new() })
    }

    /// The parts, for an operation of the groups of this handle.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.image.state.lock();
        state.engaged.clone_from(&self.engaged);
        state
    }

    /// The same for what belongs to no group.
    fn lock_apart(&self) -> MutexGuard<'_, State> {
        let mut state = self.image.state.lock();
        state.engaged.clear();
        state
    }

    /// What a crash may leave.
    pub fn consistency(&self) -> Consistency {
        self.image.consistency
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.lock().geometry.block_bytes
    }

    /// What has been written so far, and what waits.
    pub fn counters(&self) -> Counters {
        self.lock().cache.counters()
    }

    /// Transactions of the journal that were committed so far.
    pub fn commits(&self) -> u64 {
        self.lock().commits
    }

    /// The failed write or flush after which nothing is written any more, or what makes no sense in
    /// the image, so that nothing is changed any more.
    pub fn failure(&self) -> Option<String> {
        let state = self.lock();
        let failed = state.cache.failure().map(ToString::to_string);
        failed.or_else(|| state.damage.as_ref().map(|what| format!("damaged: {what}")))
    }

    /// Sets when reading moves the access time.
    pub fn set_access_times(&self, access_times: AccessTimes, of_directories: bool) {
        self.lock().access = Access { times: access_times, of_directories };
    }

    /// Makes everything durable and says in the image that it is not in use any more.
    ///
    /// # Errors
    /// Something could not be written.
    pub fn close(&self) -> Result<()> {
        if !self.image.options.writable {
            return Ok(());
        }
        let mut state = self.lock_apart();
        state.forget_all(self.image.options.clock.now());
        // Nothing is written any more when it has said that it is not in use.
        state.is_closed = true;
        state.unmark()
    }

    /// Runs an operation: it happens wholly, or nothing has changed. If space is only just being
    /// freed, it is begun anew when that is done.
    fn change<R>(&self, run: impl FnMut(&mut Work<'_>) -> Result<R>) -> Result<R> {
        self.change_in(&mut self.lock(), run)
    }

    fn change_in<R>(
        &self,
        state: &mut State,
        mut run: impl FnMut(&mut Work<'_>) -> Result<R>,
    ) -> Result<R> {
        if !self.image.options.writable {
            return Err(Error::ReadOnly);
        }
        if state.damage.is_some() {
            return Err(Error::ReadOnly);
        }
        state.patchgroups.lives.check(&state.engaged)?;
        state.make_room()?;
        let now = self.image.options.clock.now();
        let mut attempt = |state: &mut State| {
            let mut work = Work::new(state, now);
            let done = run(&mut work);
            let to_cut = work.to_cut;
            let done = work.end(done)?;
            if let Some((number, keep)) = to_cut {
                state.cut_in_pieces(shown(number), keep, &[], now)?;
            }
            Ok(done)
        };
        let done = match attempt(state) {
            Err(Error::NoSpace) if !state.freed.is_empty() => {
                state.settle()?;
                attempt(state)
            }
            done => done,
        };
        self.noticed(state, done)
    }

    /// What was found, after the image has been marked if it makes no sense.
    fn noticed<R>(&self, state: &mut State, found: Result<R>) -> Result<R> {
        if let (true, Err(Error::Damaged(what))) = (self.image.options.writable, &found) {
            state.note_damage(what, self.image.options.clock.now());
        }
        found
    }

    /// Writes what is ready, and the counts of what is free; whether there was anything to write.
    ///
    /// # Errors
    /// A failed write or flush, after which nothing is written any more.
    pub fn step(&self) -> Result<bool> {
        let mut state = self.lock_apart();
        if self.image.options.writable && !state.is_closed { state.step() } else { Ok(false) }
    }

    /// Looks for what a crash under soft updates has left in use without a user, and gives it back:
    /// at so many directories or inodes at once, or a group. Operations go on between two calls.
    /// Says whether there is more to be done.
    ///
    /// # Errors
    /// Something makes no sense, or could not be written. The search has ended, and `e2fsck` is to
    /// look at the image.
    pub fn reclaim(&self, most: u64) -> Result<bool> {
        let mut state = self.lock_apart();
        if state.is_closed {
            return Ok(false);
        }
        let more = state.reclaim(most, self.image.options.clock.now());
        self.noticed(&mut state, more)
    }

    /// As [`Ext2::change`], then pins the inode that the operation names: under the same lock, or
    /// another operation could remove it before.
    fn change_and_pin(&self, run: impl FnMut(&mut Work<'_>) -> Result<u64>) -> Result<Attributes> {
        let mut state = self.lock();
        let number = self.change_in(&mut state, run)?;
        state.pinned(number)
    }

    /// As [`Ext2::change`], then removes the inode that has no name any more: under the same lock,
    /// or its last pin could go meanwhile, and it would be removed twice.
    fn change_and_remove(
        &self,
        run: impl FnMut(&mut Work<'_>) -> Result<Option<u64>>,
    ) -> Result<()> {
        let mut state = self.lock();
        match self.change_in(&mut state, run)? {
            Some(number) => {
                let now = self.image.options.clock.now();
                let removed = state.remove_unless_pinned(number, now);
                self.noticed(&mut state, removed)
            }
            None => Ok(()),
        }
    }

    fn make_anonymous(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: (u32, u32),
    ) -> Result<Attributes> {
        let mut state = self.lock();
        let create = |work: &mut Work<'_>| work.create_anonymous(caller, parent, permissions);
        let number = self.change_in(&mut state, create)?;
        // Without a name it is there by its pin alone.
        state.pin(number);
        state.attributes(shown(number))
    }

    fn sync_files(&self, inodes: &[(Ino, SyncScope)]) -> Result<()> {
        let mut state = self.lock();
        for (ino, _) in inodes {
            state.attributes(*ino)?;
        }
        if self.image.options.writable { state.sync_inodes(inodes) } else { Ok(()) }
    }

    fn put_xattr(
        &self,
        ino: Ino,
        attribute: (&[u8], &[u8]),
        mode: XattrMode,
        clear_setgid: bool,
    ) -> Result<()> {
        if !self.image.has_xattrs {
            return Err(Error::NotSupported);
        }
        self.change(|work| work.set_xattr(ino, attribute, mode, clear_setgid))
    }

    /// Moves the access time of what was read.
    fn note_access(&self, ino: Ino) -> Result<()> {
        let (times, is_damaged) = {
            let state = self.lock();
            let is_damaged = state.damage.is_some() || state.cache.failure().is_some();
            (state.access.times, is_damaged)
        };
        // What makes no sense somewhere, or cannot be written, is no reason not to read the rest.
        if !self.image.options.writable || is_damaged || times == AccessTimes::Never {
            return Ok(());
        }
        let stamp = |work: &mut Work<'_>| work.stamp_access(ino, times == AccessTimes::Strict);
        self.change_in(&mut self.lock_apart(), stamp)
    }

    fn read_only<R>(&self, run: impl FnOnce(&mut Work<'_>) -> Result<R>) -> Result<R> {
        let mut state = self.lock();
        let found = reading(&mut state, run);
        self.noticed(&mut state, found)
    }
}

/// The superblock of an image, and how many bytes its medium has.
fn read_superblock(device: &dyn Device) -> std::result::Result<(Vec<u8>, u64), ImageError> {
    let medium_bytes = device.size()?;
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    if medium_bytes < SUPERBLOCK_AT + SUPERBLOCK_BYTES as u64 {
        return Err(ImageError::NoImage(format!("{medium_bytes} bytes are too few")));
    }
    device.read(SUPERBLOCK_AT, &mut bytes)?;
    Ok((bytes, medium_bytes))
}

/// Lets a mount write the journal of its image.
fn write_journal(
    state: &mut State,
    (consistency, bytes): (Consistency, Bytes),
    planted: Option<Planted>,
) -> std::result::Result<(), ImageError> {
    let (word, other) = (consistency.name(), "take soft-updates or async");
    if state.geometry.journal_ino.is_none() {
        let why = format!("{word} needs a journal, and the image has none of its own; {other}");
        return Err(ImageError::Consistency(why));
    }
    let bug = match planted {
        Some(Planted::Journal(bug)) => Some(bug),
        _ => None,
    };
    state.write_journal(bytes, bug).map_err(|error| match error {
        ImageError::Damaged(what) => {
            ImageError::Consistency(format!("{word} cannot be had: {what}; {other}"))
        }
        other => other,
    })
}

impl FileSystem for Ext2 {
    fn space(&self) -> Result<SpaceReport> {
        let state = self.lock();
        let block_bytes = state.geometry.block_bytes as u64;
        Ok(SpaceReport {
            total_bytes: state.geometry.blocks * block_bytes,
            free_bytes: state.available_blocks() * block_bytes,
            inodes_used: state.geometry.inodes - state.free_inodes.min(state.geometry.inodes),
            inodes_free: state.free_inodes,
        })
    }

    fn lookup(&self, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        let mut state = self.lock();
        let found = reading(&mut state, |work| work.lookup(parent, name));
        let found = found.and_then(|number| state.pinned(number));
        self.noticed(&mut state, found)
    }

    fn parent(&self, ino: Ino) -> Result<Attributes> {
        self.lock().parent(ino)
    }

    fn pin(&self, ino: Ino) -> Result<Attributes> {
        self.lock().pinned(number(ino)?)
    }

    fn attributes(&self, ino: Ino) -> Result<Attributes> {
        self.lock().attributes(ino)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.lock_apart().forget(ino, count, self.image.options.clock.now());
    }

    fn forget_all(&self) {
        self.lock_apart().forget_all(self.image.options.clock.now());
    }

    fn set_attributes(&self, _caller: Caller, ino: Ino, set: &SetAttributes) -> Result<Attributes> {
        let mut state = self.lock();
        self.change_in(&mut state, |work| work.set_attributes(ino, set))?;
        state.attributes(ino)
    }

    fn read_link(&self, ino: Ino) -> Result<Vec<u8>> {
        let target = self.read_only(|work| read_target(work, ino))?;
        self.note_access(ino)?;
        Ok(target)
    }

    fn create(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
    ) -> Result<Attributes> {
        self.change_and_pin(|work| work.create(caller, parent, name, (node, 0)))
    }

    fn create_anonymous(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
    ) -> Result<Attributes> {
        self.make_anonymous(caller, parent, (permissions, 0))
    }

    fn link(&self, ino: Ino, parent: Ino, name: Name<'_>) -> Result<Attributes> {
        self.change_and_pin(|work| {
            work.link(ino, parent, name)?;
            number(ino)
        })
    }

    fn unlink(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        self.change_and_remove(|work| work.unlink(parent, name))
    }

    fn remove_directory(&self, parent: Ino, name: Name<'_>) -> Result<()> {
        self.change_and_remove(|work| work.remove_directory(parent, name))
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
        self.change_and_remove(|work| work.rename(caller, way, mode))
    }

    fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        self.read_unnoticed(ino, offset, len, out)?;
        self.note_access(ino)
    }

    /// As a write: each piece goes to the end as it is then.
    fn append(&self, ino: Ino, data: &[u8], options: WriteOptions<'_>) -> Result<u64> {
        let most = self.lock().piece_bytes_max();
        let append = |piece: &[u8]| {
            self.change(|work| {
                let (_, inode) = work.regular(ino)?;
                work.write_file(ino, inode.size(), piece, options)?;
                Ok(inode.size())
            })
        };
        let (first, rest) = data.split_at(data.len().min(most));
        let began = append(first)?;
        for piece in rest.chunks(most) {
            append(piece)?;
        }
        Ok(began)
    }

    /// A write of more than 1 MiB, or of what a transaction takes, is done in pieces; if one fails,
    /// those before it stay.
    fn write(&self, ino: Ino, offset: u64, data: &[u8], options: WriteOptions<'_>) -> Result<()> {
        let most = self.lock().piece_bytes_max();
        if data.len() <= most {
            return self.change(|work| work.write_file(ino, offset, data, options));
        }
        self.change(|work| {
            work.regular(ino)?;
            work.range_end(offset, data.len() as u64)
        })?;
        for (which, piece) in data.chunks(most).enumerate() {
            let at = offset + (which * most) as u64;
            self.change(|work| work.write_file(ino, at, piece, options))?;
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
        self.read_only(|work| work.read_directory(ino, after, with_attributes, visit))?;
        let moves = self.lock().access.of_directories;
        if moves { self.note_access(ino) } else { Ok(()) }
    }

    fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.read_only(|work| work.xattr(ino, name))
    }

    fn set_xattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.put_xattr(ino, (name, value), mode, false)
    }

    fn list_xattrs(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.read_only(|work| work.list_xattrs(ino))
    }

    fn access_rules(&self) -> AccessRules<'_> {
        if self.image.options.fakeroot {
            return AccessRules::Own(self);
        }
        if self.image.has_xattrs { AccessRules::PosixLists } else { AccessRules::ModeBits }
    }

    fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.change(|work| work.remove_xattr(ino, name))
    }

    fn sync(&self, ino: Ino, scope: SyncScope) -> Result<()> {
        self.sync_files(&[(ino, scope)])
    }

    fn sync_all(&self) -> Result<()> {
        if self.image.options.writable { self.lock().sync() } else { Ok(()) }
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let lists: &dyn StoredAccessLists = self;
        Capabilities {
            label: Some(self),
            quiet_reads: Some(self),
            group_sync: Some(self),
            patchgroups: Some(self),
            access_lists: self.image.has_xattrs.then_some(lists),
            ..Capabilities::default()
        }
    }
}

impl StoredAccessLists for Ext2 {
    fn create_masked(
        &self,
        caller: Caller,
        parent: Ino,
        name: Name<'_>,
        node: NewNode<'_>,
        umask: u32,
    ) -> Result<Attributes> {
        self.change_and_pin(|work| work.create(caller, parent, name, (node, umask)))
    }

    fn create_anonymous_masked(
        &self,
        caller: Caller,
        parent: Ino,
        permissions: u32,
        umask: u32,
    ) -> Result<Attributes> {
        self.make_anonymous(caller, parent, (permissions, umask))
    }

    fn set_access_list(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        clear_setgid: bool,
    ) -> Result<()> {
        self.put_xattr(ino, (name, value), XattrMode::Any, clear_setgid)
    }
}

impl GroupSync for Ext2 {
    /// What they wait for is written together, so they share its flushes.
    fn sync_many(&self, inodes: &[(Ino, SyncScope)]) -> Vec<Result<()>> {
        let found: Vec<Result<()>> =
            inodes.iter().map(|(ino, _)| self.attributes(*ino).map(drop)).collect();
        let there: Vec<(Ino, SyncScope)> = inodes
            .iter()
            .zip(&found)
            .filter(|(_, found)| found.is_ok())
            .map(|(one, _)| *one)
            .collect();
        let synced = self.sync_files(&there);
        found.into_iter().map(|found| found.and_then(|()| synced.clone())).collect()
    }
}

impl Patchgroups for Ext2 {
    fn make_group(&self) -> Result<Patchgroup> {
        if self.image.options.writable {
            self.lock().make_patchgroup()
        } else {
            Err(Error::ReadOnly)
        }
    }

    fn depend(&self, later: Patchgroup, earlier: Patchgroup) -> Result<()> {
        self.lock().depend(later, earlier)
    }

    fn engaged(&self, groups: &[Patchgroup]) -> Result<Arc<dyn FileSystem>> {
        self.lock().engage(groups)?;
        Ok(Arc::new(Ext2 { image: Arc::clone(&self.image), engaged: groups.to_vec() }))
    }

    fn sync_group(&self, group: Patchgroup) -> Result<()> {
        self.lock_apart().sync_patchgroup(group)
    }

    fn close_group(&self, group: Patchgroup) -> Result<()> {
        self.lock().close_patchgroup(group)
    }
}

impl Labelled for Ext2 {
    fn label(&self) -> Result<String> {
        Ok(self.image.label.lock().clone())
    }

    fn set_label(&self, _caller: Caller, label: &str) -> Result<()> {
        if label.len() > LABEL_BYTES_MAX {
            return Err(Error::InvalidArgument("a label has at most 16 bytes"));
        }
        let mut bytes = [0; LABEL_BYTES_MAX];
        bytes[..label.len()].copy_from_slice(label.as_bytes());
        self.change(|work| {
            let (block, at) = work.state.geometry.superblock();
            let place = (block, Content::Metadata);
            let cache = &mut work.state.cache;
            let written = work.plan.write(cache, place, at + field::LABEL, &bytes, &[]);
            written.map(drop).map_err(failed)
        })?;
        self.lock().sync()?;
        *self.image.label.lock() = label.to_owned();
        Ok(())
    }
}

impl QuietReads for Ext2 {
    fn read_unnoticed(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        self.read_only(|work| work.read_file(ino, offset, len, out))
    }
}
