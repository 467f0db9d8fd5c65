//! Why bytes from media are not what they should be.

use crate::version::FormatVersion;
use thiserror::Error;

/// What is wrong with encoded bytes. Offsets are in bytes from the start of the structure.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FormatError {
    /// The bytes end before a field does.
    #[error("{what} is cut short: {field} at byte {offset} needs {needed} bytes, {left} are left")]
    Short {
        /// The structure.
        what: &'static str,
        /// The field that does not fit.
        field: &'static str,
        /// Where the field starts.
        offset: usize,
        /// Bytes that the field takes.
        needed: usize,
        /// Bytes that are there.
        left: usize,
    },
    /// Bytes follow after the end of the structure.
    #[error("{what} ends at byte {offset}, but {extra} bytes follow")]
    Trailing {
        /// The structure.
        what: &'static str,
        /// Where it ends.
        offset: usize,
        /// Bytes that follow.
        extra: usize,
    },
    /// A field holds a value that it cannot have.
    #[error("{what}: {field} at byte {offset} is {found}, expected {expected}")]
    Unexpected {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// Where the field starts.
        offset: usize,
        /// What it holds.
        found: u64,
        /// What it could hold.
        expected: &'static str,
    },
    /// Entries that must ascend do not.
    #[error("{what}: {field} {index} at byte {offset} is not greater than the one before")]
    Order {
        /// The structure.
        what: &'static str,
        /// What is out of order.
        field: &'static str,
        /// Which of them, from 0.
        index: usize,
        /// Where it starts.
        offset: usize,
    },
    /// Text is not UTF-8.
    #[error("{what}: {field} at byte {offset} is not UTF-8")]
    Text {
        /// The structure.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// Where the first bad byte lies.
        offset: usize,
    },
    /// All bytes are zero: nothing has been written here.
    #[error("{what} is blank: all bytes are zero")]
    Blank {
        /// The structure.
        what: &'static str,
    },
    /// The bytes do not start with the structure's magic: something else lies here.
    #[error("not a Marram {what}: it starts with {found:02x?}")]
    Foreign {
        /// The structure.
        what: &'static str,
        /// The first bytes, as many as the magic has.
        found: Vec<u8>,
    },
    /// The checksum does not match: torn while being written, or damaged.
    #[error("{what} is torn or damaged: checksum {found:032x}, expected {expected:032x}")]
    Checksum {
        /// The structure.
        what: &'static str,
        /// Checksum of the bytes.
        found: u128,
        /// Checksum that is stored with them.
        expected: u128,
    },
    /// A later version wrote it, in a layout that this one cannot know.
    #[error("{what} has format version {found}; this program reads up to {supported}: use a newer")]
    Newer {
        /// The structure.
        what: &'static str,
        /// The version that wrote it.
        found: FormatVersion,
        /// The latest version that is known here.
        supported: FormatVersion,
    },
    /// Features are in use without which the pool cannot be read.
    #[error("{what} uses features unknown to this program: {names}: use a newer one")]
    Features {
        /// The structure.
        what: &'static str,
        /// The bits.
        bits: u64,
        /// Their names, or their numbers where they have none yet.
        names: String,
    },
}
