//! What waits for a commit, added up over all datasets: the memory that it takes, and the space
//! that it will take.

use std::sync::atomic::{AtomicU64, Ordering};

/// What waits, or by how much that has grown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dirty {
    /// Bytes of memory for content; what is let go of stays in it.
    pub(crate) memory_bytes: u64,
    /// Bytes that content takes on media at most. Wraps around where a batch takes away more of
    /// what waits than it brings, and so comes to the right sum.
    pub(crate) content_bytes: u64,
    /// Changed keys.
    pub(crate) edits: u64,
}

impl Dirty {
    /// Both together.
    pub(crate) fn plus(self, other: Dirty) -> Dirty {
        Dirty {
            memory_bytes: self.memory_bytes + other.memory_bytes,
            content_bytes: self.content_bytes.wrapping_add(other.content_bytes),
            edits: self.edits + other.edits,
        }
    }

    /// What is left of it without a part.
    pub(crate) fn without(self, part: Dirty) -> Dirty {
        self.since(part)
    }

    /// By how much it has grown.
    pub(crate) fn since(self, before: Dirty) -> Dirty {
        Dirty {
            memory_bytes: self.memory_bytes - before.memory_bytes,
            content_bytes: self.content_bytes.wrapping_sub(before.content_bytes),
            edits: self.edits - before.edits,
        }
    }
}

/// Bytes that an edit without content is taken to occupy in memory.
const EDIT_MEMORY_BYTES: u64 = 256;

/// What waits of all datasets, and how many batches and freezes there have been.
pub(crate) struct DirtyCounters {
    memory_bytes: AtomicU64,
    content_bytes: AtomicU64,
    edits: AtomicU64,
    /// Batches applied since the pool was opened.
    pub(crate) batches: AtomicU64,
    /// Number of the last freeze; it changes while no batch is under way.
    pub(crate) freezes: AtomicU64,
}

impl DirtyCounters {
    /// Of a pool in which so much waits since it was opened.
    pub(crate) fn new(dirty: Dirty, first_freeze: u64) -> DirtyCounters {
        DirtyCounters {
            memory_bytes: AtomicU64::new(dirty.memory_bytes),
            content_bytes: AtomicU64::new(dirty.content_bytes),
            edits: AtomicU64::new(dirty.edits),
            batches: AtomicU64::new(0),
            freezes: AtomicU64::new(first_freeze),
        }
    }

    /// A batch has been applied.
    pub(crate) fn add(&self, grown: Dirty) {
        self.memory_bytes.fetch_add(grown.memory_bytes, Ordering::AcqRel);
        self.content_bytes.fetch_add(grown.content_bytes, Ordering::AcqRel);
        self.edits.fetch_add(grown.edits, Ordering::AcqRel);
    }

    /// A commit has taken something in, or it was taken away again.
    pub(crate) fn subtract(&self, gone: Dirty) {
        self.memory_bytes.fetch_sub(gone.memory_bytes, Ordering::AcqRel);
        self.content_bytes.fetch_sub(gone.content_bytes, Ordering::AcqRel);
        self.edits.fetch_sub(gone.edits, Ordering::AcqRel);
    }

    /// All that waits, while no batch is under way.
    pub(crate) fn all(&self) -> Dirty {
        Dirty {
            memory_bytes: self.memory_bytes.load(Ordering::Acquire),
            content_bytes: self.content_bytes.load(Ordering::Acquire),
            edits: self.edits.load(Ordering::Acquire),
        }
    }

    /// Changed keys that wait.
    pub(crate) fn edits(&self) -> u64 {
        self.edits.load(Ordering::Acquire)
    }

    /// Bytes of memory that wait to be committed.
    pub(crate) fn waiting_memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Ordering::Acquire) + self.edits() * EDIT_MEMORY_BYTES
    }

    /// Bytes that the content that waits takes on media at most. A batch that takes something away
    /// may be counted before the one that brought it: that one's bytes are among what is admitted
    /// until then.
    pub(crate) fn content_bytes_to_write(&self) -> u64 {
        let bytes = self.content_bytes.load(Ordering::Acquire);
        u64::try_from(bytes.cast_signed()).unwrap_or(0)
    }
}
