//! How much of a stream there is.

/// How much has been sent or received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTotals {
    /// Items put.
    pub puts: u64,
    /// Items removed.
    pub removals: u64,
    /// Blocks that came with their content.
    pub blocks: u64,
    /// Stored bytes of those.
    pub stored_bytes: u64,
    /// Bytes of the stream.
    pub stream_bytes: u64,
}

/// Reports how far it is.
pub type Progress<'p> = &'p mut dyn FnMut(&StreamTotals);
