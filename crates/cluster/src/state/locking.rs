//! Locks between clients.
//!
//! While a client is alone its locks are in its memory. Before it answers that it is no longer
//! alone, it writes them down: a row for each locked object says what each client holds. From then
//! on a lock is taken by one guarded step, which is made only while the row is as it was read.
//!
//! What a row says of a client that does not have the store open counts for nothing: so the locks
//! of one that has died, or was expelled, are gone with the entry that says so. The clients that
//! are there are read behind the row: one had said that it comes before it wrote there.
//!
//! After the step a client looks at the log once more. It takes in what others published before
//! they let go. And one that was expelled before the step learns it, and is given no lock.

use super::Shared;
use crate::database::{Change, Table};
use crate::format::{LockPlace, LockRow};
use crate::locks::{Locks, RANGES_MAX, Ranges, conflicts, in_row};
use bytes::Bytes;
use marram_store::{Error, HeldLock, LockFamily, LockRequest, Result};

/// How often a row is read anew while others change it.
const TRIES_MAX: usize = 1000;

impl Shared {
    /// Sets a lock, or lets go of one; a lock of somebody else that is in the way.
    pub(crate) fn set_lock(
        &self,
        place: LockPlace,
        lock: &LockRequest,
    ) -> Result<Option<HeldLock>> {
        if lock.mode.is_some() {
            self.attend()?;
        }
        let mut locks = self.locks.lock();
        let mut ranges = locks.at(place);
        if lock.mode.is_none() {
            self.let_go(&mut locks, (place, ranges), lock);
            return Ok(None);
        }
        self.refuse_expelled()?;
        if lock.family == LockFamily::Whole && ranges.has_otherwise(lock) {
            self.let_go(&mut locks, (place, ranges), &LockRequest { mode: None, ..*lock });
            ranges = locks.at(place);
        }
        if let Some(held) = ranges.in_the_way(lock) {
            return Ok(Some(held));
        }
        ranges.set(lock);
        if ranges.count() > RANGES_MAX {
            let text = format!("{RANGES_MAX} ranges of an object are locked here");
            return Err(Error::LimitExceeded(text));
        }
        if locks.is_published {
            let taken = self.publish_lock(place, &ranges, Some(lock));
            let looked = |held| self.take_in(&mut self.publisher.lock()).map(|()| held);
            let taken = taken.and_then(looked);
            match taken {
                Ok(None) => {}
                Ok(held) => return Ok(held),
                Err(error) => {
                    // The row may say that it is held.
                    locks.unsure.insert(place);
                    return Err(error);
                }
            }
        }
        locks.set(place, ranges);
        Ok(None)
    }

    /// A lock of somebody else that would be in the way.
    pub(crate) fn find_lock(
        &self,
        place: LockPlace,
        lock: &LockRequest,
    ) -> Result<Option<HeldLock>> {
        self.attend()?;
        let locks = self.locks.lock();
        self.refuse_expelled()?;
        if let Some(held) = locks.at(place).in_the_way(lock) {
            return Ok(Some(held));
        }
        match locks.is_published {
            false => Ok(None),
            true => Ok(of_others(&self.lock_row(place)?.1, lock)),
        }
    }

    /// Writes down what is held, before others may read it.
    pub(super) fn publish_locks(&self) -> Result<()> {
        let mut locks = self.locks.lock();
        if locks.is_published {
            return Ok(());
        }
        for place in locks.places() {
            self.publish_lock(place, &locks.at(place), None)?;
        }
        locks.is_published = true;
        Ok(())
    }

    /// Keeps locks in memory if they are not yet, and nobody else has the store open.
    pub(super) fn unpublish_own_locks(&self) -> Result<()> {
        let is_published = self.locks.lock().is_published;
        let is_wanted = is_published && !self.has_company();
        if is_wanted { self.unpublish_locks() } else { Ok(()) }
    }

    /// Keeps locks in memory, and takes away all rows of them: nobody else is there.
    pub(super) fn unpublish_locks(&self) -> Result<()> {
        let mut locks = self.locks.lock();
        // Nothing is published meanwhile.
        let publisher = self.publisher.lock();
        let rows = self.rows.all(Table::Locks)?.into_iter();
        let gone: Vec<_> =
            rows.map(|(key, _)| Change::remove(Table::Locks, key.to_vec())).collect();
        // Where others have come since, rows stay: they count for nothing.
        if gone.is_empty() || self.rows.write_after(publisher.number, &gone)? {
            (locks.is_published, locks.unsure) = (false, Default::default());
        }
        Ok(())
    }

    /// Writes down once more what perhaps was not.
    pub(super) fn settle_locks(&self) -> Result<()> {
        let mut locks = self.locks.lock();
        let unsure: Vec<LockPlace> = locks.unsure.iter().copied().collect();
        for place in unsure {
            self.publish_lock(place, &locks.at(place), None)?;
            locks.unsure.remove(&place);
        }
        Ok(())
    }

    /// Lets go of a range. Where the row cannot be written now, it is later.
    fn let_go(
        &self,
        locks: &mut Locks,
        (place, mut ranges): (LockPlace, Ranges),
        lock: &LockRequest,
    ) {
        if !ranges.has(lock) {
            return;
        }
        ranges.set(lock);
        let is_written = !locks.is_published || self.publish_lock(place, &ranges, None).is_ok();
        if !is_written {
            locks.unsure.insert(place);
        }
        locks.set(place, ranges);
    }

    /// Has the row of a place say what is held here, unless a lock of another client is in the way
    /// of `lock`.
    fn publish_lock(
        &self,
        place: LockPlace,
        ranges: &Ranges,
        lock: Option<&LockRequest>,
    ) -> Result<Option<HeldLock>> {
        for _ in 0..TRIES_MAX {
            let (before, mut row) = self.lock_row(place)?;
            if let Some(held) = lock.and_then(|lock| of_others(&row, lock)) {
                return Ok(Some(held));
            }
            if !ranges.is_empty() {
                row.0.insert(self.session(), in_row(ranges));
            }
            if self.replace_lock_row(place, before, &row)? {
                return Ok(None);
            }
        }
        Err(Error::Io("a lock changes again and again: others ask for it all the time".to_owned()))
    }

    fn replace_lock_row(
        &self,
        place: LockPlace,
        before: Option<Bytes>,
        row: &LockRow,
    ) -> Result<bool> {
        let key = || place.encode();
        let change = |value: Option<Vec<u8>>| match value {
            Some(value) => self.rows.put(Table::Locks, key(), value),
            None => Change::remove(Table::Locks, key()),
        };
        let after = (!row.0.is_empty()).then(|| row.encode());
        match before.as_deref() == after.as_deref() {
            true => Ok(true),
            false => self.rows.replace(change(before.map(Vec::from)), change(after)),
        }
    }

    /// The row of a place as it is, and what other clients hold that are there.
    fn lock_row(&self, place: LockPlace) -> Result<(Option<Bytes>, LockRow)> {
        let before = self.rows.get(Table::Locks, place.encode())?;
        let mut row = before.as_deref().map(LockRow::decode).transpose()?.unwrap_or_default();
        // In this order: a client that wrote there had come before. Asked in any case: one that is
        // alone may have been taken for lost.
        self.take_in(&mut self.publisher.lock())?;
        let state = self.state.read();
        row.0.retain(|session, _| {
            *session != self.session() && state.company.clients.contains_key(session)
        });
        Ok((before, row))
    }

    fn refuse_expelled(&self) -> Result<()> {
        self.state.read().refuse_stopped()
    }
}

/// A range of another client that is in the way of a lock.
fn of_others(row: &LockRow, lock: &LockRequest) -> Option<HeldLock> {
    let held = row.0.values().flatten().map(|range| HeldLock {
        first: range.first,
        last: range.last,
        mode: range.mode,
        process: 0,
    });
    held.filter(|held| conflicts(held, lock)).min_by_key(|held| held.first)
}
