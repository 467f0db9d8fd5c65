//! Freeing the space of inodes that have lost their last name.
//!
//! An inode that loses its last name goes at once, in the same batch, if it is small and not open.
//! Else it gets an orphan item in that batch: so it is found again after a crash. Orphans that are
//! no longer in use, and files with a tail (see `tail`), wait in a queue for [`reclaim_step`]. That
//! removes their items in batches of bounded size: of small ones many in one (see
//! `batch_reclaim`), of large ones each in several. The orphan item goes with the last of them.
//!
//! An operation that finds the store full, or an owner's limit reached, waits before it fails: for
//! operations that free something at that moment, and for inodes that have just lost their last
//! name, since the kernel lets go of those a little after the removal. A program that removes a
//! file and writes another one would else find no space.

mod batch_reclaim;

use self::batch_reclaim::Together;
use crate::frame::change::Change;
use crate::frame::{access_times, tail, together};
use crate::volume::Volume;
use crate::volume::orphans::{AtWork, SEARCH_ITEMS_MAX};
use marram_format::record::{InodeKind, OrphanReason, state};
use marram_records::failure::from_store;
use marram_records::inode::{content_keys, inode_key};
use marram_records::orphans::{orphan_item, orphan_key};
use marram_store::{Admission, Item, Key};
use marram_vfs::{Error, Result, Timestamp};
use std::time::Duration;

/// Items that are removed together with the last name.
const INLINE_ITEMS_MAX: usize = 64;
/// Items that are removed at a time while the store is full.
const FULL_ITEMS: usize = 8;
/// How much shorter a sync of everything waits than an operation that finds no space.
const SYNC_PATIENCE_DIVISOR: u32 = 20;
/// Most steps of [`SEARCH_ITEMS_MAX`] items that a sync of everything does.
const SYNC_STEPS_MAX: usize = 64;

/// What one step did.
struct Step {
    items: usize,
    more: bool,
}

/// Frees space of inodes that have no name and are not in use, and of files that were cut:
/// removes about `max_items` items, and returns whether more is left to do. To be called in
/// the background, and until it returns false before the file system is closed (what is left
/// waits for the next time).
///
/// # Errors
/// A failed read or a full store. The inode at hand is left for the next mount, or, if there
/// was no space even for so few, for the next call.
pub(crate) fn reclaim_step(volume: &Volume, max_items: usize) -> Result<bool> {
    // Beside others, what has no name may be in use elsewhere: it waits until they have gone.
    if !volume.view.writable() || together::has_company(volume) {
        return Ok(false);
    }
    let seeing = together::seeing(volume)?;
    access_times::write_old_lazy_times(volume);
    let mut left = max_items.max(1);
    while left > 0 {
        let Some(work) = next_orphans(volume)? else {
            return Ok(false);
        };
        match reclaim_some(volume, &work.inos, left) {
            Ok(removed) => left = left.saturating_sub(removed.max(1)),
            // The next step sees it as it is then.
            Err(Error::Overtaken) if seeing.is_some() => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    Ok(volume.orphans.pending())
}

/// Frees space of some inodes, together as far as that can be; those that are not come to
/// wait again. Returns how many items were removed.
fn reclaim_some(volume: &Volume, inos: &[u64], max_items: usize) -> Result<usize> {
    let Together { items, apart } = batch_reclaim::reclaim_together(volume, inos);
    let mut removed = items;
    let mut apart = apart.into_iter();
    let mut outcome = Ok(());
    while outcome.is_ok()
        && removed < max_items
        && let Some(ino) = apart.next()
    {
        outcome = reclaim_what_fits(volume, ino, max_items - removed).map(|step| {
            removed += step.items;
            if step.more {
                volume.orphans.push(ino);
            }
        });
    }
    apart.for_each(|ino| volume.orphans.push(ino));
    if removed > 0 {
        volume.orphans.note_freed();
    }
    outcome.map(|()| removed)
}

fn next_orphans(volume: &Volume) -> Result<Option<AtWork<'_>>> {
    loop {
        if let Some(work) = volume.orphans.pop() {
            return Ok(Some(work));
        }
        let Some((search, from)) = volume.orphans.search() else {
            return Ok(None);
        };
        let mut found = Vec::new();
        let mut visit = |key: Key, _: &Item| {
            found.push(key.offset);
            found.len() < SEARCH_ITEMS_MAX
        };
        volume.view.scan(orphan_key(from), orphan_key(u64::MAX), &mut visit).map_err(from_store)?;
        volume.orphans.note_found(search, found);
    }
}

/// A batch that removes much may change many nodes, and so is taken to need more space than a
/// full store has left: then less is removed at a time. A small pool that one file had filled
/// stayed full for good when its removal was always asked for in one large batch.
fn reclaim_what_fits(volume: &Volume, ino: u64, max_items: usize) -> Result<Step> {
    let mut items = max_items;
    loop {
        match reclaim(volume, ino, items) {
            Err(Error::NoSpace) if items > FULL_ITEMS => items = (items / 8).max(FULL_ITEMS),
            Err(error @ (Error::NoSpace | Error::Overtaken)) => {
                volume.orphans.push(ino);
                return Err(error);
            }
            other => return other,
        }
    }
}

fn reclaim(volume: &Volume, ino: u64, max_items: usize) -> Result<Step> {
    let _held = volume.locks.write(&[ino]);
    let Some(inode) = volume.find_inode(ino)? else {
        let mut change = Change::begin(volume)?;
        change.batch.admission = Admission::Freeing;
        change.batch.remove(orphan_key(ino));
        change.commit()?;
        return Ok(Step { items: 1, more: false });
    };
    if inode.links > 0 && inode.state & state::TAIL != 0 {
        let more = tail::remove_tail(volume, ino, max_items)?;
        return Ok(Step { items: max_items, more });
    }
    if inode.links > 0 || volume.pins.set_nameless(ino, true) {
        return Ok(Step { items: 0, more: false });
    }
    let keys = content_keys(&*volume.view, ino, max_items)?;
    let more = keys.len() == max_items;
    let mut change = Change::begin(volume)?;
    change.batch.admission = Admission::Freeing;
    for key in &keys {
        change.batch.remove(*key);
    }
    if !more {
        change.batch.remove(orphan_key(ino));
        change.batch.remove(inode_key(ino));
        change.uncount(ino, &inode);
    }
    change.commit()?;
    Ok(Step { items: keys.len() + 1, more })
}

/// An inode loses a name, and with the last one perhaps everything. `locked` is an inode
/// whose lock the operation holds beside that of `ino`. Returns the inode if it becomes an
/// orphan: to be given to [`settle`] when the batch has been applied.
pub(crate) fn lose_name(
    volume: &Volume,
    change: &mut Change<'_, '_>,
    ino: u64,
    locked: u64,
) -> Result<Option<u64>> {
    let now = change.now;
    let inode = change.inode_mut(ino)?;
    let is_directory = inode.kind == InodeKind::Directory;
    inode.links = if is_directory { 0 } else { inode.links.saturating_sub(1) };
    inode.changed = now;
    let tail = inode.state & state::TAIL != 0;
    if inode.links > 0 {
        return Ok(None);
    }
    if !volume.pins.pinned(ino) && !together::has_company(volume) {
        let keys = content_keys(&*volume.view, ino, INLINE_ITEMS_MAX)?;
        if keys.len() < INLINE_ITEMS_MAX {
            for key in keys {
                change.batch.remove(key);
            }
            if tail {
                change.batch.remove(orphan_key(ino));
            }
            change.remove_inode(ino, locked)?;
            volume.orphans.note_freed();
            return Ok(None);
        }
    }
    let item = orphan_item(OrphanReason::Nameless);
    change.batch.put(orphan_key(ino), item);
    Ok(Some(ino))
}

/// An inode has become an orphan: its last pin, or the queue, takes care of it.
pub(crate) fn settle(volume: &Volume, orphan: Option<u64>) {
    let Some(ino) = orphan else { return };
    if !volume.options.patience.is_zero() {
        // Before it can be let go of, so that it is always seen here or there.
        volume.orphans.note_leaving(ino, volume.options.clock.now());
    }
    if !volume.pins.set_nameless(ino, true) {
        volume.orphans.push(ino);
    }
}

/// Waits for something to free; see [`crate::volume::orphans::Orphans::await_more`].
fn await_orphans(volume: &Volume, pieces: u64, patience: &mut Duration) -> bool {
    let all = volume.options.patience;
    volume
        .orphans
        .await_more(pieces, patience, |lost| since(lost, volume.options.clock.now()) < all)
}

/// Runs an operation, and again as long as it finds no space, or a limit in its way, and more
/// is freed.
pub(crate) fn with_reclaim<T>(
    volume: &Volume,
    mut operation: impl FnMut() -> Result<T>,
) -> Result<T> {
    let mut pieces = volume.orphans.pieces();
    let mut result = operation();
    let mut patience = volume.options.patience;
    while let Err(Error::NoSpace | Error::QuotaExceeded) = &result {
        if together::has_company(volume) || !await_orphans(volume, pieces, &mut patience) {
            break;
        }
        while reclaim_step(volume, SEARCH_ITEMS_MAX)? {}
        pieces = volume.orphans.pieces();
        result = operation();
    }
    result
}

/// Frees what has been removed so far, for a moment; what is left is freed in the background.
/// Whether something has been freed since the last call that only a commit lets others use.
pub(crate) fn reclaim_for_sync(volume: &Volume) -> bool {
    if !volume.view.writable() || together::has_company(volume) {
        return false;
    }
    let mut patience = volume.options.patience / SYNC_PATIENCE_DIVISOR;
    for _ in 0..SYNC_STEPS_MAX {
        let pieces = volume.orphans.pieces();
        // What cannot be freed now fails no sync: nothing of it is lost.
        if !await_orphans(volume, pieces, &mut patience)
            || reclaim_step(volume, SEARCH_ITEMS_MAX).is_err()
        {
            break;
        }
    }
    volume.orphans.take_freed()
}

/// How long ago `past` was; nothing if the clock has been set back.
fn since(past: Timestamp, now: Timestamp) -> Duration {
    let nanoseconds =
        |time: Timestamp| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    let passed = nanoseconds(now).saturating_sub(nanoseconds(past));
    Duration::from_nanos(u64::try_from(passed.max(0)).unwrap_or(u64::MAX))
}
