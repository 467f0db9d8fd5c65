//! Small inodes without names, many freed in one batch.
//!
//! The removal of a tree leaves them by the thousand, as the kernel lets go of an inode a little
//! after its last name has gone. Each in a batch of its own moves the same counters and sums again,
//! and is searched for by itself; those that were made one after the other have numbers one after
//! the other, so one scan finds what they all have.
//!
//! **The orphan item of each goes in the batch that removes the inode**, so a crash before it
//! leaves all of them to be found again. Whatever does not fit into this (a large file, a tail,
//! damage, a store that has little space) is left to be done alone.

use crate::frame::change::Change;
use crate::volume::Volume;
use marram_format::FormatError;
use marram_format::record::{Inode, state};
use marram_records::failure::{from_record, from_store};
use marram_records::inode::inode_key;
use marram_records::orphans::orphan_key;
use marram_store::{Admission, Item, Key, kind};
use marram_vfs::Result;

/// Most items of one batch.
const TOGETHER_ITEMS_MAX: usize = 256;
/// With less free space than this each is done alone: a batch that removes so much may be taken to
/// need half of that.
const FREE_BYTES_MIN: u64 = 8 << 20;

/// What became of some inodes.
pub(super) struct Together {
    /// Items that have been removed.
    pub(super) items: usize,
    /// Inodes that are to be done alone.
    pub(super) apart: Vec<u64>,
}

/// What there is of some inodes.
#[derive(Default)]
struct Remains {
    /// In the order of their numbers.
    inodes: Vec<(u64, Inode)>,
    /// Keys of all items, in order, as far as they have been looked for.
    keys: Vec<Key>,
    failed: Option<(u64, FormatError)>,
}

impl Remains {
    /// Takes an item in; returns whether there is room for more.
    fn note(&mut self, key: Key, item: &Item) -> bool {
        self.keys.push(key);
        if key.kind == kind::INODE {
            match Inode::decode(&item.value) {
                Ok(inode) => self.inodes.push((key.object, inode)),
                Err(error) => self.failed = Some((key.object, error)),
            }
        }
        self.failed.is_none() && !self.is_full()
    }

    fn is_full(&self) -> bool {
        self.keys.len() >= TOGETHER_ITEMS_MAX
    }

    /// Whether all items of an inode have been seen.
    fn has_all_of(&self, ino: u64) -> bool {
        !self.is_full() || self.keys.last().is_some_and(|last| ino < last.object)
    }

    fn inode(&self, ino: u64) -> Option<&Inode> {
        let at = self.inodes.binary_search_by_key(&ino, |(ino, _)| *ino).ok()?;
        Some(&self.inodes[at].1)
    }

    fn keys_of(&self, ino: u64) -> &[Key] {
        let start = self.keys.partition_point(|key| key.object < ino);
        let end = self.keys.partition_point(|key| key.object <= ino);
        &self.keys[start..end]
    }
}

/// Frees those of some inodes, whose numbers ascend, that are small and not in use. An error
/// is found again where they are taken one by one.
pub(crate) fn reclaim_together(volume: &Volume, inos: &[u64]) -> Together {
    let all_apart = || Together { items: 0, apart: inos.to_vec() };
    if inos.len() < 2 || volume.view.space().free_bytes < FREE_BYTES_MIN {
        return all_apart();
    }
    try_together(volume, inos).unwrap_or_else(|_| all_apart())
}

fn try_together(volume: &Volume, inos: &[u64]) -> Result<Together> {
    let _held = volume.locks.write_many(inos);
    let remains = remains_of(volume, inos)?;
    let mut change = Change::begin(volume)?;
    change.batch.admission = Admission::Freeing;
    let mut apart = Vec::new();
    for ino in inos.iter().copied() {
        let inode = remains.inode(ino);
        if !remains.has_all_of(ino) || inode.is_some_and(has_tail) {
            apart.push(ino);
            continue;
        }
        let is_used = inode.is_some_and(|inode| inode.links > 0)
            || (inode.is_some() && volume.pins.set_nameless(ino, true));
        if is_used {
            continue;
        }
        for key in remains.keys_of(ino) {
            change.batch.remove(*key);
        }
        change.batch.remove(orphan_key(ino));
        if let Some(inode) = inode {
            change.uncount(ino, inode);
        }
    }
    let items = change.batch.edits.len();
    if items > 0 {
        change.commit()?;
    }
    Ok(Together { items, apart })
}

/// The locks are held.
fn remains_of(volume: &Volume, inos: &[u64]) -> Result<Remains> {
    let mut remains = Remains::default();
    for run in inos.chunk_by(|one, next| one + 1 == *next) {
        if let [first, .., last] | [first @ last] = run
            && !remains.is_full()
        {
            let to = Key::new(*last, u8::MAX, u64::MAX);
            let mut note = |key: Key, item: &Item| remains.note(key, item);
            volume.view.scan(inode_key(*first), to, &mut note).map_err(from_store)?;
        }
    }
    match &remains.failed {
        Some((ino, error)) => Err(from_record(*ino, error)),
        None => Ok(remains),
    }
}

/// Whether a file that has a name was cut, and what was past the cut is still there.
fn has_tail(inode: &Inode) -> bool {
    inode.links > 0 && inode.state & state::TAIL != 0
}
