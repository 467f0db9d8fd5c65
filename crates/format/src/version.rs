//! Versions and feature flags: what a program may do with a pool that another version wrote.
//!
//! A greater major number means that nothing but magic, version and checksum of the superblock is
//! where it was. A greater minor number adds what older programs can pass over. Everything in
//! between is a feature flag.

use std::fmt;

/// Version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FormatVersion {
    /// Programs that know a smaller number only must not touch the pool.
    pub major: u16,
    /// Counts additions that older programs of the same major number can pass over.
    pub minor: u16,
}

impl FormatVersion {
    /// The version that this crate writes.
    pub const CURRENT: FormatVersion = FormatVersion { major: 1, minor: 6 };
}

impl fmt::Display for FormatVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}", self.major, self.minor)
    }
}

/// Feature flags: bits of the superblock's three sets.
pub mod feature {
    /// Incompatible: the pool spreads over more than one device.
    pub const DEVICES: u64 = 1 << 0;
    /// Incompatible: devices of the kind mirror.
    pub const MIRROR: u64 = 1 << 1;
    /// Incompatible: devices of the kind parity.
    pub const PARITY: u64 = 1 << 2;
    /// Incompatible: encrypted blocks.
    pub const ENCRYPTION: u64 = 1 << 3;
    /// Incompatible: there is an intent log, and what is durable in it alone must be replayed.
    pub const INTENT_LOG: u64 = 1 << 4;
    /// Incompatible: inode records say where their name is, in bytes that were reserved.
    pub const NAME_PLACES: u64 = 1 << 5;
    /// Incompatible: the only copy of a block may lie in more than
    /// [`crate::pointer::PIECES_MAX`] pieces.
    pub const SCATTERED: u64 = 1 << 6;
    /// Incompatible: a transaction over two pools is prepared or decided here, and not over, see
    /// [`crate::transaction`]. Unlike the others it goes when there is none left.
    pub const TWO_POOLS: u64 = 1 << 7;
    /// Incompatible: a frame of the intent log may have the batch of a merge, with the entry that
    /// the log of operations is to have of it.
    pub const LOGGED_MERGES: u64 = 1 << 8;

    /// Names of the incompatible features, by bit.
    pub const INCOMPATIBLE_NAMES: [&str; 9] = [
        "devices",
        "mirror",
        "parity",
        "encryption",
        "intent-log",
        "name-places",
        "scattered",
        "two-pools",
        "logged-merges",
    ];
    /// The incompatible features that this version can read.
    pub const INCOMPATIBLE_KNOWN: u64 =
        INTENT_LOG | NAME_PLACES | SCATTERED | TWO_POOLS | LOGGED_MERGES;
    /// Read-compatible: what owners use is counted with each change, see
    /// [`crate::record::Usage`], and inodes have flags that forbid changes.
    pub const USAGE: u64 = 1 << 0;
    /// Read-compatible: blocks may have several owners, snapshots may be the last of a line or be
    /// held, and several lines of one dataset may begin as one snapshot.
    pub const OWNERS: u64 = 1 << 1;
    /// Read-compatible: there is a log of operations, see [`crate::operation`], and what an undo
    /// needs is kept under names of the pool's own.
    pub const OPERATIONS: u64 = 1 << 2;
    /// Read-compatible: the log of operations has kinds that version 1.4 did not know, see
    /// [`crate::operation::OperationKind::feature`].
    pub const OPERATION_KINDS: u64 = 1 << 3;
    /// Read-compatible: dead lists are in reclaim, see [`crate::space::ReclaimRecord`]. Unlike
    /// the others it goes when there are none left.
    pub const RECLAIM: u64 = 1 << 4;

    /// Names of the read-compatible features, by bit.
    pub const READ_COMPATIBLE_NAMES: [&str; 5] =
        ["usage", "owners", "operations", "operation-kinds", "reclaim"];
    /// The read-compatible features that this version can write.
    pub const READ_COMPATIBLE_KNOWN: u64 = USAGE | OWNERS | OPERATIONS | OPERATION_KINDS | RECLAIM;

    /// The names of incompatible features; those without a name by number.
    pub fn incompatible_names(bits: u64) -> String {
        names(bits, &INCOMPATIBLE_NAMES)
    }

    /// The names of read-compatible features; those without a name by number.
    pub fn read_compatible_names(bits: u64) -> String {
        names(bits, &READ_COMPATIBLE_NAMES)
    }

    fn names(bits: u64, known: &[&str]) -> String {
        let name = |bit: usize| match known.get(bit) {
            Some(name) => (*name).to_owned(),
            None => format!("bit {bit}"),
        };
        let set = (0..64).filter(|bit| bits & (1 << bit) != 0);
        set.map(name).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::feature;

    #[test]
    fn features_are_named_where_they_have_a_name() {
        let bits = feature::MIRROR | feature::ENCRYPTION | 1 << 60;
        assert_eq!(feature::incompatible_names(bits), "mirror, encryption, bit 60");
        assert_eq!(feature::read_compatible_names(feature::USAGE | 1 << 40), "usage, bit 40");
    }
}
