//! What a running pool reports of itself.

use crate::admission::room;
use crate::front::Pool;
use crate::io::DamageReport;
use crate::log::IntentLog;
use marram_format::pointer::GRAIN_BYTES;
use std::sync::atomic::Ordering;

/// Whether the pool does all that it promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Online,
    /// It takes no more changes; the text says since what.
    ReadOnly(String),
}

/// A device and what it has done wrong since the pool was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceStatus {
    /// Its path.
    pub name: String,
    /// Its size in bytes, as far as the pool uses it.
    pub size_bytes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes and flushes that failed.
    pub write_errors: u64,
    /// Reads that gave wrong bytes.
    pub checksum_errors: u64,
    /// Bytes written to it since the pool was opened.
    pub written_bytes: u64,
    /// Flushes that it was asked for since the pool was opened.
    pub flushes: u64,
}

/// The state of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStatus {
    /// The pool's id.
    pub pool_id: [u8; 16],
    /// The pool's label.
    pub label: String,
    /// Whether it takes changes.
    pub health: Health,
    /// Number of the last group commit.
    pub group: u64,
    /// When that was, in seconds since 1970.
    pub last_commit_seconds: i64,
    /// Size of the pool in bytes, without superblocks.
    pub total_bytes: u64,
    /// Bytes in use, all copies counted, as of the last commit.
    pub allocated_bytes: u64,
    /// Bytes that can still be written: what is not in use, less what is kept back so that a full
    /// pool can be emptied or for datasets with a reservation, less what waits to be committed.
    pub free_bytes: u64,
    /// Bytes that are kept back.
    pub reserved_bytes: u64,
    /// The devices.
    pub devices: Vec<DeviceStatus>,
    /// Blocks of which a bad copy was made good.
    pub healed_blocks: u64,
    /// Blocks of which no copy is good.
    pub damage: Vec<DamageReport>,
    /// Bytes of memory in the cache.
    pub cache_bytes: u64,
    /// Bytes of memory that wait to be committed.
    pub dirty_bytes: u64,
    /// Frames that syncs have written into the intent log since the pool was opened.
    pub log_frames: u64,
    /// Frames of the intent log that were replayed when the pool was opened.
    pub replayed_frames: u64,
}

impl Pool {
    /// The pool's state at this moment.
    pub fn status(&self) -> PoolStatus {
        let state = &self.session.state;
        let space = room::space(state);
        let kept_free = state.ledger.kept_free_bytes.load(Ordering::Acquire);
        let (reserved, total) = (state.gauge.reserved_grains(), state.gauge.total_grains());
        let health = match state.health.lock().clone() {
            None => Health::Online,
            Some(reason) => Health::ReadOnly(reason),
        };
        let superblock = state.superblock.lock().clone();
        PoolStatus {
            pool_id: superblock.pool_id,
            label: superblock.label,
            health,
            group: superblock.group.0,
            last_commit_seconds: superblock.committed_seconds,
            total_bytes: total * GRAIN_BYTES,
            allocated_bytes: superblock.allocated_grains * GRAIN_BYTES,
            free_bytes: space.free_bytes.saturating_sub(kept_free),
            reserved_bytes: kept_free.saturating_add(reserved * GRAIN_BYTES),
            devices: self.device_status(),
            healed_blocks: state.media.counters.healed_blocks.load(Ordering::Relaxed),
            damage: state.media.damage(),
            cache_bytes: state.media.cached_bytes(),
            dirty_bytes: state.dirty.waiting_memory_bytes(),
            log_frames: state.log.get().map_or(0, IntentLog::frames),
            replayed_frames: state.replayed_frames,
        }
    }

    fn device_status(&self) -> Vec<DeviceStatus> {
        let counters = &self.session.state.media.counters;
        let size_bytes = *self.session.state.size_bytes.lock();
        let devices = self.session.state.media.devices().iter();
        devices
            .map(|device| DeviceStatus {
                name: device.name(),
                size_bytes,
                read_errors: counters.read_errors.load(Ordering::Relaxed),
                write_errors: counters.write_errors.load(Ordering::Relaxed),
                checksum_errors: counters.checksum_errors.load(Ordering::Relaxed),
                written_bytes: counters.written_bytes.load(Ordering::Relaxed),
                flushes: counters.flushes.load(Ordering::Relaxed),
            })
            .collect()
    }
}
