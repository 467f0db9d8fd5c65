//! Fresh blocks become stored ones: compressed, checksummed, allocated, queued.

use super::queue::Payload;
use crate::commit::draft::Commit;
use crate::memtable::settings::Settings;
use crate::space::Purpose;
use bytes::Bytes;
use marram_codec::{ChecksumKind, Compression, checksum, compress};
use marram_format::pointer::{
    Checksum, EMBEDDED_BYTES_MAX, Extent, PIECES_MAX, Place, Pointer, PointerFlags, codec_id,
    grains_needed,
};
use marram_store::{Error, FreshBlock, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

/// Most blocks that are prepared before any of them is queued.
const PREPARE_BLOCKS_MAX: usize = 64;
/// With this many bytes the queue is written out while the next blocks are prepared. Less is not
/// worth a thread.
const WRITE_BESIDE_BYTES_MIN: usize = 2 << 20;
/// Fewer blocks than this are not worth another thread.
const THREAD_BLOCKS_MIN: usize = 4;

/// A block ready to be written.
struct Prepared {
    codec: u8,
    payload: Payload,
    checksum: Checksum,
}

fn prepare(block: &Arc<FreshBlock>, settings: &Settings) -> Prepared {
    if let Some(form) = block.form() {
        let payload = Payload::Owned(form.bytes.clone());
        let checksum = Checksum { kind: form.checksum_kind, bytes: form.checksum };
        return Prepared { codec: form.codec, payload, checksum };
    }
    let mut output = Vec::new();
    let is_compressed =
        !block.is_as_is() && compress(settings.compression, block.data(), &mut output);
    let (codec, payload) = if is_compressed {
        (settings.compression.id(), Payload::Owned(Arc::new(output)))
    } else {
        (codec_id::OFF, Payload::Fresh(block.clone()))
    };
    let checksum = checksum_of(settings.checksum, payload.bytes());
    Prepared { codec, payload, checksum }
}

fn checksum_of(kind: ChecksumKind, bytes: &[u8]) -> Checksum {
    Checksum { kind: kind.id(), bytes: checksum(kind, bytes) }
}

/// Prepares blocks on several threads; the order is kept.
fn prepare_all(blocks: &[Arc<FreshBlock>], settings: &Settings, threads: usize) -> Vec<Prepared> {
    let threads = threads.min(blocks.len() / THREAD_BLOCKS_MIN).max(1);
    if threads == 1 {
        return blocks.iter().map(|block| prepare(block, settings)).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut mine = Vec::new();
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(block) = blocks.get(index)
        {
            mine.push((index, prepare(block, settings)));
        }
        mine
    };
    let mut all: Vec<(usize, Prepared)> = std::thread::scope(|scope| {
        // Where the system has no thread to give, those that there are do all of it.
        let start = |_| Builder::new().spawn_scoped(scope, work).ok();
        let workers: Vec<_> = (1..threads).map_while(start).collect();
        let mut all = work();
        for worker in workers {
            all.extend(worker.join().expect("preparing a block does not panic"));
        }
        all
    });
    all.sort_unstable_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, prepared)| prepared).collect()
}

/// Lengths of blocks are far below 4 GiB.
fn len_u32(len: usize) -> u32 {
    u32::try_from(len).expect("a block is shorter than 4 GiB")
}

/// Writes fresh blocks and returns their pointers, in the same order.
pub(super) fn write_fresh(
    commit: &mut Commit<'_>,
    blocks: &[Arc<FreshBlock>],
    settings: &Settings,
) -> Result<Vec<Pointer>> {
    let mut pointers = Vec::with_capacity(blocks.len());
    for some in blocks.chunks(PREPARE_BLOCKS_MAX) {
        let prepared = prepare_beside_writing(commit, some, settings)?;
        for (block, prepared) in some.iter().zip(prepared) {
            pointers.push(write_prepared(commit, block.data().len(), prepared)?);
        }
    }
    Ok(pointers)
}

/// Prepares blocks while the device takes what was queued before: the one needs processors, the
/// other mostly waits.
fn prepare_beside_writing(
    commit: &mut Commit<'_>,
    blocks: &[Arc<FreshBlock>],
    settings: &Settings,
) -> Result<Vec<Prepared>> {
    let threads = commit.pool.options.threads;
    if threads == 1 || commit.queue.bytes() < WRITE_BESIDE_BYTES_MIN {
        return Ok(prepare_all(blocks, settings, threads));
    }
    let queue = &mut commit.queue;
    let (prepared, written) = std::thread::scope(|scope| {
        let writer = Builder::new().spawn_scoped(scope, || queue.write_out()).ok();
        let prepared = prepare_all(blocks, settings, threads);
        let ended = writer.map(|it| it.join().expect("writing to a device does not panic"));
        (prepared, ended)
    });
    // Where the system had no thread for it, it is still to be done.
    written.unwrap_or_else(|| commit.queue.write_out())?;
    Ok(prepared)
}

fn write_prepared(
    commit: &mut Commit<'_>,
    logical_len: usize,
    prepared: Prepared,
) -> Result<Pointer> {
    let bytes = prepared.payload.bytes();
    let place = if bytes.len() <= EMBEDDED_BYTES_MAX {
        Place::Embedded(Bytes::copy_from_slice(bytes))
    } else {
        let copy = place_copy(commit, 0, Purpose::Data, &prepared.payload)?;
        commit.has_scattered |= copy.len() > PIECES_MAX;
        Place::Stored { checksum: prepared.checksum, copies: vec![copy] }
    };
    let physical_len = len_u32(bytes.len());
    Ok(Pointer {
        birth: commit.group,
        logical_len: len_u32(logical_len),
        physical_len,
        codec: prepared.codec,
        flags: PointerFlags::default(),
        place,
    })
}

/// Writes one of our own structures: two copies, whatever the dataset wants for its data.
pub(super) fn write_metadata(
    commit: &mut Commit<'_>,
    content: &[u8],
    kind: ChecksumKind,
) -> Result<Pointer> {
    let mut output = Vec::new();
    let (codec, stored) = if compress(Compression::Lz4, content, &mut output) {
        (Compression::Lz4.id(), output)
    } else {
        (codec_id::OFF, content.to_vec())
    };
    let payload = Payload::Owned(Arc::new(stored));
    let first = place_copy(commit, 0, Purpose::Metadata, &payload)?;
    let second = place_copy(commit, 1, Purpose::MetadataCopy, &payload)?;
    let checksum = checksum_of(kind, payload.bytes());
    Ok(Pointer {
        birth: commit.group,
        logical_len: len_u32(content.len()),
        physical_len: len_u32(payload.bytes().len()),
        codec,
        flags: PointerFlags::METADATA,
        place: Place::Stored { checksum, copies: vec![first, second] },
    })
}

fn place_copy(
    commit: &mut Commit<'_>,
    copy: usize,
    purpose: Purpose,
    payload: &Payload,
) -> Result<Vec<Extent>> {
    let grains = grains_needed(len_u32(payload.bytes().len()));
    let grains = u32::try_from(grains).expect("a block has few grains");
    let pieces = allocate(commit, grains, purpose)?;
    commit.queue.push(copy, &pieces, payload)?;
    Ok(pieces)
}

pub(crate) fn allocate(
    commit: &mut Commit<'_>,
    grains: u32,
    purpose: Purpose,
) -> Result<Vec<Extent>> {
    let mut space = commit.pool.space.lock();
    space.allocate(grains, purpose, &commit.pool.committed())?.ok_or(Error::NoSpace)
}
