//! Where the content of a file lies, for people and for programs that ask.

/// A piece of a file's content. What no extent covers is a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where in the file it begins.
    pub offset: u64,
    /// Bytes of the file that it covers.
    pub len: u64,
    /// Where they are.
    pub place: ExtentPlace,
}

/// Where the content of an extent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentPlace {
    /// Nowhere: the space is promised, and nothing has been written.
    Reserved,
    /// In memory: it has been written, and not brought to a device yet, or only to the log.
    Waiting,
    /// Among the metadata: it is that small.
    Beside,
    /// In a block on a device. The extent may be a part of the block.
    Stored {
        /// Number of the device with the first copy.
        device: u16,
        /// Where on it the block begins, in bytes.
        address: u64,
        /// Bytes that the whole block takes, as it is stored, all copies together.
        stored_bytes: u64,
        /// Bytes of content that the whole block has.
        block_bytes: u64,
        /// Where in that content the extent begins.
        block_start: u64,
        /// Other places of the file system refer to the block too.
        shared: bool,
    },
}
