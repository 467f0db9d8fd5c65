//! An open file system as plain parts: its view, and what is remembered beside it.
//!
//! Operations are functions over a [`Volume`]. Each part has its own rule: `locks` keep operations
//! on one inode apart, and `pins` count its uses. `counters` and `limits` are in the store too.
//! `reservations`, `lazytime`, `orphans` and `recent_writes` are in memory only.

pub(crate) mod counters;
pub(crate) mod lazytime;
pub(crate) mod limits;
pub(crate) mod locks;
pub(crate) mod orphans;
pub(crate) mod pins;
pub(crate) mod recent_writes;
pub(crate) mod reservations;
pub(crate) mod seen;

use self::counters::InodeCounters;
use self::lazytime::LazyTimes;
use self::limits::Limits;
use self::locks::Locks;
use self::orphans::Orphans;
use self::pins::Pins;
use self::recent_writes::RecentWrites;
use self::reservations::Reservations;
use crate::options::PosixOptions;
use marram_format::record::{Inode, InodeKind, NameRule};
use marram_records::failure::from_store;
use marram_records::inode::{check_living_directory, inode_key, new_inode, read_inode, time};
use marram_records::lists::AccessLists;
use marram_records::sections::record_bytes;
use marram_records::usage::{Share, UsageChange, make_sums};
use marram_store::{Batch, Counter, Item, Moment, Together, View};
use marram_vfs::{Error, Ino, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Permissions of a new root directory.
const ROOT_PERMISSIONS: u32 = 0o755;

/// The parts of an open file system. See the module.
pub(crate) struct Volume {
    pub(crate) view: Arc<dyn View>,
    pub(crate) options: PosixOptions,
    pub(crate) locks: Locks,
    pub(crate) pins: Pins,
    pub(crate) counters: InodeCounters,
    pub(crate) limits: Limits,
    pub(crate) reservations: Reservations,
    pub(crate) orphans: Orphans,
    pub(crate) lazy_times: LazyTimes,
    pub(crate) recent_writes: RecentWrites,
    pub(crate) shut_down: AtomicBool,
    /// Of which moment is what is kept here, where others change the dataset too.
    pub(crate) moment: AtomicU64,
    /// And of which history.
    pub(crate) history: AtomicU64,
    /// Which access control lists are obeyed.
    pub(crate) lists: AccessLists,
    record_bytes: AtomicU64,
}

impl Volume {
    /// Opens the file system that a view holds; makes one if the view is empty and writable.
    pub(crate) fn open(view: Arc<dyn View>, options: PosixOptions) -> Result<Volume> {
        let counters = open_counters(&*view, &options)?;
        check_root(&*view, options.root)?;
        make_sums(&*view)?;
        let limits = Limits::open(&*view)?;
        let properties = view.properties();
        let record_bytes = AtomicU64::new(record_bytes(&properties));
        let lists = AccessLists::of(&properties);
        Ok(Volume {
            view,
            options,
            locks: Locks::new(),
            pins: Pins::new(),
            counters,
            limits,
            reservations: Reservations::default(),
            orphans: Orphans::new(),
            lazy_times: LazyTimes::new(),
            recent_writes: RecentWrites::of(&properties),
            shut_down: AtomicBool::new(false),
            // The first look reads the counters again, if others came before it.
            moment: AtomicU64::new(0),
            history: AtomicU64::new(0),
            lists,
            record_bytes,
        })
    }

    /// Takes note of properties that have been set since.
    pub(crate) fn reload_properties(&self) {
        let properties = self.view.properties();
        self.record_bytes.store(record_bytes(&properties), Ordering::Relaxed);
        self.recent_writes.set(&properties);
    }

    /// The number of the root directory.
    pub(crate) fn root(&self) -> u64 {
        self.options.root.0
    }

    /// Largest new block of a file, in bytes: a power of two.
    pub(crate) fn record_bytes(&self) -> u64 {
        self.record_bytes.load(Ordering::Relaxed)
    }

    /// Whether it has been shut down.
    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::Acquire)
    }

    /// Refuses everything after a shutdown.
    pub(crate) fn check_running(&self) -> Result<()> {
        match self.is_shut_down() {
            true => Err(Error::Io("the file system has been shut down".to_owned())),
            false => Ok(()),
        }
    }

    /// Fails on a read-only file system.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.view.writable() { Ok(()) } else { Err(Error::ReadOnly) }
    }

    /// The record of an inode that exists: it has a name, or is pinned.
    pub(crate) fn load_inode(&self, ino: u64) -> Result<Inode> {
        let inode = self.find_inode(ino)?.ok_or(Error::Stale)?;
        if inode.links == 0 && !self.pins.pinned(ino) {
            return Err(Error::Stale);
        }
        Ok(inode)
    }

    /// The record of an inode, if there is one.
    pub(crate) fn find_inode(&self, ino: u64) -> Result<Option<Inode>> {
        let mut inode = read_inode(&*self.view, ino)?;
        if let Some(inode) = &mut inode {
            self.lazy_times.fill(ino, inode);
        }
        Ok(inode)
    }
}

fn check_root(view: &dyn View, root: Ino) -> Result<()> {
    check_living_directory(&read_inode(view, root.0)?.ok_or(Error::Stale)?)
}

/// The counters of the file system; makes one if there is none, unless another client does.
fn open_counters(view: &dyn View, options: &PosixOptions) -> Result<InodeCounters> {
    loop {
        let together = view.capabilities().together;
        let seen = together.map(Together::look).transpose().map_err(from_store)?;
        if let Some(counters) = InodeCounters::open(view)? {
            return Ok(counters);
        }
        match make_root(view, options, seen) {
            Err(Error::Overtaken) => {}
            made => return made,
        }
    }
}

fn make_root(
    view: &dyn View,
    options: &PosixOptions,
    seen: Option<Moment>,
) -> Result<InodeCounters> {
    if !view.writable() {
        return Err(Error::ReadOnly);
    }
    let now = time(options.clock.now());
    let seed = xxhash_rust::xxh3::xxh3_64_with_seed(
        &now.seconds.to_le_bytes(),
        u64::from(now.nanoseconds),
    );
    let mut batch = Batch { seen, ..Batch::new() };
    let folds = view.properties().0.get("casefold").is_some_and(|value| value == "on");
    let names = if folds { NameRule::Folded } else { NameRule::Exact };
    let counters = InodeCounters::create(seed, names, &mut batch);
    let mut root = new_inode(InodeKind::Directory, ROOT_PERMISSIONS, Ino::ROOT.0, now);
    root.links = 2;
    root.uid = options.root_owner.uid;
    root.gid = options.root_owner.gid;
    batch.put(inode_key(Ino::ROOT.0), Item::plain(root.encode().to_vec()));
    let mut usage = UsageChange::default();
    usage.note(None, Some(Share::of(&root)));
    usage.put(&mut batch, |_, _| Counter::UNLIMITED);
    view.apply(batch).map_err(from_store)?;
    Ok(counters)
}
