//! What waits for a commit, added up over all datasets: the memory that it takes, and the space
//! that it will take.

use crate::front::Inner;
use std::sync::atomic::Ordering;

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

    /// By how much it has grown.
    pub(crate) fn since(self, before: Dirty) -> Dirty {
        Dirty {
            memory_bytes: self.memory_bytes - before.memory_bytes,
            content_bytes: self.content_bytes.wrapping_sub(before.content_bytes),
            edits: self.edits - before.edits,
        }
    }
}

impl Inner {
    /// A batch has been applied.
    pub(crate) fn add_dirty(&self, grown: Dirty) {
        self.dirty_bytes.fetch_add(grown.memory_bytes, Ordering::AcqRel);
        self.dirty_content_bytes.fetch_add(grown.content_bytes, Ordering::AcqRel);
        self.dirty_edits.fetch_add(grown.edits, Ordering::AcqRel);
    }

    /// A commit has taken something in, or it was taken away again.
    pub(crate) fn subtract_dirty(&self, gone: Dirty) {
        self.dirty_bytes.fetch_sub(gone.memory_bytes, Ordering::AcqRel);
        self.dirty_content_bytes.fetch_sub(gone.content_bytes, Ordering::AcqRel);
        self.dirty_edits.fetch_sub(gone.edits, Ordering::AcqRel);
    }

    /// All that waits, while no batch is under way.
    pub(crate) fn all_dirty(&self) -> Dirty {
        Dirty {
            memory_bytes: self.dirty_bytes.load(Ordering::Acquire),
            content_bytes: self.dirty_content_bytes.load(Ordering::Acquire),
            edits: self.dirty_edits.load(Ordering::Acquire),
        }
    }

    /// Bytes that the content that waits takes on media at most. Whoever takes something away may
    /// be faster to tell of it than the one who brought it: its bytes are among what is admitted
    /// until then.
    pub(crate) fn content_bytes_to_write(&self) -> u64 {
        let bytes = self.dirty_content_bytes.load(Ordering::Acquire);
        u64::try_from(bytes.cast_signed()).unwrap_or(0)
    }
}
