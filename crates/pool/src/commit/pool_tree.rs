//! The pool's own tree, the tail and the superblock: the last steps of a commit.

use super::trees::TreeSink;
use crate::base::planted::{PlantedBug, is_planted};
use crate::base::pointers::decode_pointer;
use crate::commit::blocks;
use crate::commit::draft::Commit;
use crate::commit::owners;
use crate::space::Purpose;
use crate::tree::{self, Change};
use bytes::Bytes;
use marram_codec::{ChecksumKind, checksum};
use marram_format::group::Group;
use marram_format::pointer::{
    Checksum, Extent, Place, Pointer, PointerFlags, codec_id, grains_needed,
};
use marram_format::space::{
    DEAD_CHUNK_BYTES_MAX, DeadChunk, SUMMARY_ZONES, Tail, cursor_key, dataset_key, dead_key,
    reclaim_key, summary_key, transaction_key, zone_key,
};
use marram_format::superblock::{RING_OFFSETS, Superblock, slot_offset};
use marram_format::version::{FormatVersion, feature};
use marram_store::{BLOCK_BYTES_MAX, Error, Key, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The pool's own tree has this number; datasets start at 1.
pub(super) const POOL_TREE: u64 = 0;
/// Chunks that one commit may add to one dead list.
const CHUNKS_MAX: u64 = 1 << 24;
/// How often the place of the tail is looked for; each time it may need one more piece.
const TAIL_TRIES_MAX: usize = 16;

/// The items that put pointers onto a dead list.
pub(super) fn dead_chunks(list: u64, group: Group, pointers: Vec<Bytes>) -> Vec<(Key, Bytes)> {
    let mut sequence = group.0 * CHUNKS_MAX;
    let mut chunks = Vec::new();
    let mut chunk = DeadChunk::default();
    for pointer in pointers {
        let grown = chunk.encoded_len() + DeadChunk::entry_bytes(pointer.len());
        if grown > DEAD_CHUNK_BYTES_MAX {
            chunks.push((dead_key(list, sequence), std::mem::take(&mut chunk).encode()));
            sequence += 1;
        }
        chunk.pointers.push(pointer);
    }
    chunks.push((dead_key(list, sequence), chunk.encode()));
    chunks
}

/// Steps 4 to 6. Returns the superblock that is now the newest.
pub(super) fn write_pool_tree(
    commit: &mut Commit<'_>,
    mut superblock: Superblock,
) -> Result<Superblock> {
    collect_records(commit);
    collect_reclaims(commit);
    collect_transactions(commit);
    collect_dead(commit);
    owners::collect_owners(commit);
    collect_bitmaps(commit);
    superblock.pool_tree = update_pool_tree(commit, superblock.pool_tree.as_ref())?;
    superblock.tail = Some(write_tail(commit, superblock.tail.as_ref())?);
    let is_too_late = is_planted(PlantedBug::SuperblockBeforeBlocks);
    if !is_too_late {
        commit.queue.write_out()?;
    }
    if !is_too_late && !is_planted(PlantedBug::MissingFlush) {
        commit.pool.media.flush()?;
    }
    superblock.group = commit.group;
    superblock.label.clone_from(&commit.label);
    superblock.version = superblock.version.max(FormatVersion::CURRENT);
    superblock.features_read_compatible |= commit.features;
    superblock.features_read_compatible &= !feature::RECLAIM;
    if !commit.reclaims.is_empty() {
        superblock.features_read_compatible |= feature::RECLAIM;
    }
    superblock.features_incompatible |= feature::NAME_PLACES;
    superblock.features_incompatible &= !feature::TWO_POOLS;
    if !commit.transactions.is_empty() {
        superblock.features_incompatible |= feature::TWO_POOLS;
    }
    if commit.has_scattered {
        superblock.features_incompatible |= feature::SCATTERED;
    }
    if commit.frozen.steps.merges > 0 {
        // From now on frames may have merges.
        superblock.features_incompatible |= feature::LOGGED_MERGES;
    }
    superblock.committed_seconds = commit.now_seconds;
    superblock.next_dataset = commit.pool.next_dataset.load(Ordering::Acquire);
    {
        let space = commit.pool.space.lock();
        superblock.allocated_grains = space.total_grains() - space.free_grains_after();
    }
    refresh_devices(commit, &mut superblock)?;
    if let Some(log) = commit.pool.log.get() {
        let (start, included) = (commit.frozen.log_start, commit.frozen.number);
        superblock.intent_log = Some(log.head(start, included, commit.group));
        superblock.features_incompatible |= feature::INTENT_LOG;
    }
    let slot = superblock.encode();
    for ring in 0..RING_OFFSETS.len() {
        commit.pool.media.write(0, slot_offset(ring, commit.group), &slot)?;
    }
    commit.pool.media.flush()?;
    if is_too_late {
        commit.queue.write_out()?;
        commit.pool.media.flush()?;
    }
    Ok(superblock)
}

/// A pool that was grown says so from the next commit on.
fn refresh_devices(commit: &Commit<'_>, superblock: &mut Superblock) -> Result<()> {
    let size_bytes = *commit.pool.size_bytes.lock();
    match superblock.devices.first_mut() {
        Some(device) => device.size_bytes = size_bytes,
        None => return Err(Error::Invalid("the pool has no device".to_owned())),
    }
    Ok(())
}

fn collect_records(commit: &mut Commit<'_>) {
    for (id, record) in &commit.records {
        let value = record.as_ref().map(|record| record.encode());
        if value.is_none() {
            commit.items.insert(cursor_key(*id), None);
        }
        commit.items.insert(dataset_key(*id), value);
    }
}

/// Puts the records of lists in reclaim that have changed.
fn collect_reclaims(commit: &mut Commit<'_>) {
    let before = Arc::clone(commit.pool.records.read().reclaims());
    if Arc::ptr_eq(&before, &commit.reclaims) {
        return;
    }
    for list in before.keys().filter(|list| !commit.reclaims.contains_key(list)) {
        commit.items.insert(reclaim_key(*list), None);
    }
    for (list, record) in commit.reclaims.iter() {
        if before.get(list) != Some(record) {
            commit.items.insert(reclaim_key(*list), Some(record.encode()));
        }
    }
}

/// Puts the records of transactions over two pools that have changed.
fn collect_transactions(commit: &mut Commit<'_>) {
    let before = Arc::clone(commit.pool.records.read().transactions());
    if Arc::ptr_eq(&before, &commit.transactions) {
        return;
    }
    for number in before.keys().filter(|number| !commit.transactions.contains_key(number)) {
        commit.items.insert(transaction_key(*number), None);
    }
    for (number, record) in commit.transactions.iter() {
        if before.get(number) != Some(record) {
            commit.items.insert(transaction_key(*number), Some(record.encode()));
        }
    }
}

/// Cuts what has died into chunks; their sequence numbers grow from commit to commit.
fn collect_dead(commit: &mut Commit<'_>) {
    for (list, pointers) in std::mem::take(&mut commit.dead) {
        let chunks = dead_chunks(list, commit.group, pointers);
        commit.items.extend(chunks.into_iter().map(|(key, chunk)| (key, Some(chunk))));
    }
}

fn collect_bitmaps(commit: &mut Commit<'_>) {
    let mut space = commit.pool.space.lock();
    let images = space.serialize();
    let mut summaries: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for image in images {
        let run = image.zone / SUMMARY_ZONES;
        let counts = summaries.entry(run).or_insert_with(|| space.free_counts(run));
        let place = usize::try_from(image.zone % SUMMARY_ZONES).expect("a run is short");
        counts[place] = image.free_grains;
        commit.items.insert(zone_key(0, image.zone), Some(Bytes::copy_from_slice(&image.bitmap)));
    }
    for (run, counts) in summaries {
        let bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        commit.items.insert(summary_key(0, run), Some(Bytes::from(bytes)));
    }
}

fn update_pool_tree(commit: &mut Commit<'_>, root: Option<&Pointer>) -> Result<Option<Pointer>> {
    let items = std::mem::take(&mut commit.items);
    let changes: Vec<Change> = items
        .into_iter()
        .map(|(key, value)| Change { key, item: value.map(|value| (value, None)) })
        .collect();
    let root = root.map(Pointer::encode);
    let mut sink = TreeSink::new(commit, ChecksumKind::Xxh3);
    let root = tree::update(&mut sink, POOL_TREE, root.as_ref(), &changes)?;
    for pointer in std::mem::take(&mut sink.dropped_nodes) {
        owners::free(commit, &decode_pointer(&pointer)?)?;
    }
    root.as_deref().map(decode_pointer).transpose()
}

/// Writes the tail, which names the grains that it lies in itself.
fn write_tail(commit: &mut Commit<'_>, old: Option<&Pointer>) -> Result<Pointer> {
    if let Some(old) = old {
        owners::free(commit, old)?;
    }
    let mut pieces = 2;
    for _ in 0..TAIL_TRIES_MAX {
        let grains = tail_grains(commit, pieces)?;
        let first = blocks::allocate(commit, grains, Purpose::Metadata)?;
        let second = blocks::allocate(commit, grains, Purpose::MetadataCopy)?;
        if tail_grains(commit, 0)? == grains {
            return queue_tail(commit, vec![first, second]);
        }
        pieces = first.len() + second.len();
        for extent in first.into_iter().chain(second) {
            commit.pool.space.lock().free(extent, &commit.pool.committed())?;
        }
        pieces *= 2;
    }
    Err(Error::NoSpace)
}

/// Grains that the tail takes with this many more extents in it.
fn tail_grains(commit: &Commit<'_>, more: usize) -> Result<u32> {
    let mut tail = commit.pool.space.lock().tail();
    let extent = Extent { device: 0, start: 0, grains: 1 };
    tail.allocated.extend(std::iter::repeat_n(extent, more));
    let len = u32::try_from(tail.encode().len()).map_err(|_| Error::NoSpace)?;
    u32::try_from(grains_needed(len)).map_err(|_| Error::NoSpace)
}

fn queue_tail(commit: &mut Commit<'_>, copies: Vec<Vec<Extent>>) -> Result<Pointer> {
    let tail: Tail = commit.pool.space.lock().tail();
    let bytes = tail.encode().to_vec();
    if bytes.len() > BLOCK_BYTES_MAX {
        return Err(Error::NoSpace);
    }
    let len = u32::try_from(bytes.len()).map_err(|_| Error::NoSpace)?;
    let kind = ChecksumKind::Xxh3;
    let checksum = Checksum { kind: kind.id(), bytes: checksum(kind, &bytes) };
    let payload = super::queue::Payload::Owned(Arc::new(bytes));
    for (number, copy) in copies.iter().enumerate() {
        commit.queue.push(number, copy, &payload)?;
    }
    Ok(Pointer {
        birth: commit.group,
        logical_len: len,
        physical_len: len,
        codec: codec_id::OFF,
        flags: PointerFlags::METADATA,
        place: Place::Stored { checksum, copies },
    })
}
