//! The intent log: what is durable before the next group commit.
//!
//! The log is a ring of grains, kept twice. A frame holds all that has changed since the frame or
//! the commit before it, for all datasets together; it counts wholly or not at all. The place of
//! the ring, and where to begin, are in the superblock: [`LogHead`].
//!
//! A part may be the batch of a merge that no commit has taken in: then it has the entry that the
//! log of operations is to have of it, and what the dataset was before and after are states of
//! their own.
//!
//! Invariants: a frame names its pool and its position, which never comes again, and its checksum
//! is seeded with the pool's secret. So neither what an earlier lap of the ring has left, nor a
//! frame that a torn write has left, nor content that a user has put into a frame, can pass for
//! the next frame: whatever is not the next frame ends the log, and is no error.

mod frame;
mod head;
mod writer;

pub use frame::{FrameHeader, LogBlock, LogEdit, LogPart, decode_frame, frame_header};
pub use head::LogHead;
pub use writer::FrameWriter;

/// What every frame starts with.
pub const FRAME_MAGIC: [u8; 8] = *b"MarramIL";
/// Bytes of a frame before its first part.
pub const FRAME_HEADER_BYTES: usize = 56;
/// Longest frame, in bytes, without what fills its last grain.
pub const FRAME_BYTES_MAX: usize = 8 << 20;
/// Bytes of a part before its first edit, or before the entry of its merge.
pub const PART_HEADER_BYTES: usize = 24;
/// Most bytes that an edit takes besides its value, its pointer, its content or its patch.
pub const EDIT_OVERHEAD_BYTES_MAX: usize = 28;
/// Longest value of an item in a frame, in bytes.
pub const LOG_VALUE_BYTES_MAX: usize = 4096;
/// Longest content of a block in a frame, in bytes; a patch ends inside of it.
pub const LOG_CONTENT_BYTES_MAX: usize = 1 << 20;
/// Positions in the log, in grains, are below this.
pub const POSITIONS_MAX: u64 = 1 << 56;
/// Numbers of freezes are below this.
pub const FREEZES_MAX: u64 = 1 << 62;

/// In the number of a part's freeze: the part is the batch of a merge, and begins with the entry of
/// that.
const MERGE_BIT: u64 = 1 << 63;

/// Where the checksum of a frame is.
const CHECKSUM_OFFSET: usize = 40;

/// The kinds of edits on media.
mod edit_kind {
    pub(super) const REMOVE: u8 = 0;
    pub(super) const PUT: u8 = 1;
    pub(super) const PUT_STORED: u8 = 2;
    pub(super) const PUT_CONTENT: u8 = 3;
    pub(super) const PUT_EARLIER: u8 = 4;
    pub(super) const PATCH: u8 = 5;
}
