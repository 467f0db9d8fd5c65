//! One operation's batch in the making.
//!
//! A change reads inodes once, hands out the same record to every part of the operation, and puts
//! the records that were changed into the batch when it commits. An operation holds the locks of
//! the inodes that its change is about.

mod entries;

use crate::frame::flags::note_changed;
use crate::volume::Volume;
use crate::volume::counters::CountChange;
use crate::volume::reservations::ReservedChange;
use crate::volume::seen::apply;
use marram_format::record::{Inode, Time};
use marram_records::failure::from_store;
use marram_records::inode::{inode_key, time, touch_content};
use marram_records::section_edits::SectionEdits;
use marram_records::sections::section_key;
use marram_records::usage::{Share, UsageChange};
use marram_store::{Batch, Counter, Error as StoreError, Item};
use marram_vfs::Result;

/// Room that a batch begins with: few operations have more edits.
const EDITS_USUAL: usize = 8;

/// What is to become of an inode's record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Unchanged,
    Changed,
    Removed,
}

struct Record {
    ino: u64,
    inode: Inode,
    fate: Fate,
    /// What it counted for before; nothing if it is new.
    before: Option<Share>,
}

/// A batch and the inodes that it changes.
pub(crate) struct Change<'p, 'd> {
    volume: &'p Volume,
    /// The one time of the operation.
    pub(crate) now: Time,
    /// Edits of other items than inodes.
    pub(crate) batch: Batch<'d>,
    records: Vec<Record>,
    count: Option<CountChange>,
    /// What edits of the caller's remove, without a record here.
    uncounted: Vec<(u64, Share)>,
    /// Limits of owners do not bind the caller.
    pub(crate) lifts_limits: bool,
}

impl<'p, 'd> Change<'p, 'd> {
    /// Begins a change.
    pub(crate) fn begin(volume: &'p Volume) -> Result<Change<'p, 'd>> {
        volume.check_writable()?;
        let mut batch = Batch::new();
        batch.edits.reserve(EDITS_USUAL);
        Ok(Change {
            volume,
            now: time(volume.options.clock.now()),
            batch,
            records: Vec::new(),
            count: None,
            uncounted: Vec::new(),
            lifts_limits: false,
        })
    }

    fn index(&mut self, ino: u64) -> Result<usize> {
        if let Some(index) = self.records.iter().position(|record| record.ino == ino) {
            return Ok(index);
        }
        let inode = self.volume.load_inode(ino)?;
        self.know(ino, inode);
        Ok(self.records.len() - 1)
    }

    /// An inode's record that the operation has read already, under the lock that it still holds.
    pub(crate) fn know(&mut self, ino: u64, inode: Inode) {
        debug_assert!(self.records.iter().all(|record| record.ino != ino), "it is known already");
        let before = Some(Share::of(&inode));
        self.records.push(Record { ino, inode, fate: Fate::Unchanged, before });
    }

    /// An inode's record, with what the operation has changed so far.
    pub(crate) fn inode(&mut self, ino: u64) -> Result<&Inode> {
        let index = self.index(ino)?;
        Ok(&self.records[index].inode)
    }

    /// An inode's record, to be changed.
    pub(crate) fn inode_mut(&mut self, ino: u64) -> Result<&mut Inode> {
        let index = self.index(ino)?;
        let record = &mut self.records[index];
        record.fate = Fate::Changed;
        Ok(&mut record.inode)
    }

    /// Adds a new inode; `locked` is an inode whose lock the operation holds.
    pub(crate) fn add_inode(&mut self, ino: u64, inode: Inode, locked: u64) {
        self.records.push(Record { ino, inode, fate: Fate::Changed, before: None });
        self.count(locked, 1);
    }

    /// Removes an inode's record; `locked` is an inode whose lock the operation holds.
    pub(crate) fn remove_inode(&mut self, ino: u64, locked: u64) -> Result<()> {
        let index = self.index(ino)?;
        self.records[index].fate = Fate::Removed;
        self.count(locked, -1);
        Ok(())
    }

    /// The record of an inode without pins, whose lock the operation holds, goes by an edit of the
    /// caller's.
    pub(crate) fn uncount(&mut self, ino: u64, inode: &Inode) {
        self.uncounted.push((ino, Share::of(inode)));
        self.count(ino, -1);
    }

    /// What each inode counted for before the change, and what it will count for.
    pub(crate) fn shares(&self) -> impl Iterator<Item = (u64, Option<Share>, Option<Share>)> {
        let records = self.records.iter().filter(|record| record.fate != Fate::Unchanged);
        let shares = |record: &Record| {
            let stays = record.fate == Fate::Changed;
            (record.ino, record.before, stays.then(|| Share::of(&record.inode)))
        };
        records
            .map(shares)
            .chain(self.uncounted.iter().map(|(ino, share)| (*ino, Some(*share), None)))
    }

    /// By how much the change moves the sums.
    fn usage_change(&self) -> UsageChange {
        let mut usage = UsageChange::default();
        for (_, before, after) in self.shares() {
            usage.note(before, after);
        }
        usage
    }

    /// The inodes whose reserved bytes change.
    fn reserved_changes(&self) -> Vec<ReservedChange> {
        let reserved = |share: Option<Share>| share.map_or(0, |share| share.reserved_bytes());
        let change = |(ino, before, after)| ReservedChange {
            ino,
            before_bytes: reserved(before),
            after_bytes: reserved(after),
        };
        let changes = self.shares().map(change);
        changes.filter(|change| change.before_bytes != change.after_bytes).collect()
    }

    /// Puts edits of the sections of a file, and brings its record in step.
    pub(crate) fn put_sections(&mut self, ino: u64, edits: SectionEdits) -> Result<()> {
        for (offset, section) in edits.settle(self.inode_mut(ino)?) {
            match section {
                Some(section) => self.batch.put(section_key(ino, offset), section.into_item()),
                None => self.batch.remove(section_key(ino, offset)),
            };
        }
        Ok(())
    }

    /// The content of a file was changed up to `end`.
    pub(crate) fn touch_up_to(&mut self, ino: u64, end: u64) -> Result<()> {
        let now = self.now;
        let inode = self.inode_mut(ino)?;
        inode.size = inode.size.max(end);
        touch_content(inode, now);
        Ok(())
    }

    fn count(&mut self, locked: u64, by: i64) {
        self.count = Some(match self.count {
            None => CountChange::new(locked, by),
            Some(count) => count.and(by),
        });
    }

    /// Applies the batch.
    pub(crate) fn commit(self) -> Result<()> {
        self.commit_patches().map_err(from_store)
    }

    /// As [`Change::commit`], for a batch with patches: its error says when a block was not fresh.
    pub(crate) fn commit_patches(mut self) -> std::result::Result<(), StoreError> {
        for record in &self.records {
            if record.before.is_none() && record.fate == Fate::Changed {
                self.batch.begun.push(record.ino);
            }
            let key = inode_key(record.ino);
            match record.fate {
                Fate::Unchanged => (),
                Fate::Changed => {
                    note_changed(&record.inode);
                    self.batch.put(key, Item::plain(record.inode.encode().to_vec()));
                }
                Fate::Removed => {
                    self.batch.remove(key);
                }
            }
        }
        if let Some(count) = self.count {
            self.volume.counters.put(&mut self.batch, count);
        }
        let reserved = self.reserved_changes();
        self.batch.promised_bytes = self.volume.reservations.used_by(&reserved);
        let (usage, lifts, limits) = (self.usage_change(), self.lifts_limits, &self.volume.limits);
        usage.put(&mut self.batch, |owner, admission| match lifts {
            true => Counter::UNLIMITED,
            false => limits.at_most(owner, admission),
        });
        apply(&*self.volume.view, self.batch)?;
        for record in self.records.iter().filter(|record| record.fate != Fate::Unchanged) {
            self.volume.lazy_times.forget(record.ino);
        }
        if let Some(count) = self.count {
            self.volume.counters.applied(count);
        }
        self.volume.reservations.moved(&reserved, &*self.volume.view);
        Ok(())
    }
}
