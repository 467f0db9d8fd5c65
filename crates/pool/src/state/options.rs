//! How a pool is to be opened.

use std::sync::Arc;

/// Pointers of dead lists that one commit reclaims at most, unless the options
/// say otherwise: some 7 MiB of lists.
const RECLAIM_POINTERS_MAX: usize = 100_000;

/// How a pool is to be opened.
///
/// The caller has the clock: what is made is dated by it, and what is kept for an undo goes by it.
/// So there are no options without one:
///
/// ```compile_fail
/// let options = marram_pool::OpenOptions::default();
/// ```
#[derive(Clone)]
pub struct OpenOptions {
    /// Change nothing, not even to heal.
    pub read_only: bool,
    /// Show what the last group commit holds, and do not read the intent log: for a log that
    /// cannot be replayed. Only with `read_only`, as a pool that went on from there would lose what
    /// was synced since.
    pub skip_log: bool,
    /// Bytes of memory for nodes and blocks that were read, and for inodes and names that were
    /// asked for lately.
    pub cache_bytes: usize,
    /// Bytes of unwritten content that start a commit; twice as many make writers wait for it.
    pub dirty_bytes_max: usize,
    /// Threads that compress and checksum during a commit.
    pub threads: usize,
    /// Pointers of dead lists that one commit reclaims at most, to give back what destroyed
    /// snapshots had.
    pub reclaim_pointers_max: usize,
    /// The present time, in seconds since 1970.
    pub now_seconds: Arc<dyn Fn() -> i64 + Send + Sync>,
}

impl OpenOptions {
    /// The usual options, with the clock that tells the present time in seconds since 1970.
    pub fn new(now_seconds: impl Fn() -> i64 + Send + Sync + 'static) -> OpenOptions {
        OpenOptions {
            read_only: false,
            skip_log: false,
            cache_bytes: 64 << 20,
            dirty_bytes_max: 64 << 20,
            threads: 1,
            reclaim_pointers_max: RECLAIM_POINTERS_MAX,
            now_seconds: Arc::new(now_seconds),
        }
    }

    /// With at least one thread, and one pointer of a dead list a commit.
    pub(crate) fn within_bounds(self) -> OpenOptions {
        let (threads, pointers) = (self.threads.max(1), self.reclaim_pointers_max.max(1));
        OpenOptions { threads, reclaim_pointers_max: pointers, ..self }
    }
}
