//! Inode numbers of a mount: the number that an inode has in its own file system in the low forty
//! bits, and above it the slot of that file system.
//!
//! Forty bits are a million new files a second for twelve days; a file beyond them cannot be made
//! or shown, and has an error of its own. The highest bit stays clear, since some
//! programs take inode numbers for signed.

use marram_vfs::{Error, Ino, Result};

/// Bits of a number that are the file system's own.
const INNER_BITS: u32 = 40;
const INNER_MASK: u64 = (1 << INNER_BITS) - 1;
/// The slot of the dataset itself.
pub(super) const BASE_SLOT: u32 = 0;
/// The slot of `.marram` and what is in it before members begin.
pub(super) const CONTROL_SLOT: u32 = 1;
/// The slot of `.marram` below another directory of the dataset, by the number of that.
pub(super) const PAST_SLOT: u32 = 2;
/// The slot of `snapshots` in that, by the same number.
pub(super) const PAST_SNAPSHOTS_SLOT: u32 = 3;
/// The first slot of a member.
pub(super) const FIRST_MEMBER_SLOT: u32 = 4;
/// How many slots there are.
pub(super) const SLOTS: u32 = 1 << 23;

/// The slot of a number.
pub(super) fn slot_of(ino: Ino) -> u32 {
    u32::try_from(ino.0 >> INNER_BITS).expect("24 bits are left")
}

/// A number without its slot.
pub(super) fn inner_of(ino: Ino) -> Ino {
    Ino(ino.0 & INNER_MASK)
}

/// The number in the mount of an inode of the file system in `slot`.
///
/// # Errors
/// [`Error::NumberTooLarge`].
pub(super) fn join(slot: u32, inner: Ino) -> Result<Ino> {
    match inner.0 <= INNER_MASK && slot < SLOTS {
        true => Ok(Ino(u64::from(slot) << INNER_BITS | inner.0)),
        false => Err(Error::NumberTooLarge),
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, INNER_MASK, Ino, SLOTS, inner_of, join, slot_of};

    #[test]
    fn a_number_comes_apart_as_it_was_joined() {
        for (slot, inner) in [(0, 1), (1, 3), (2, INNER_MASK), (SLOTS - 1, 7)] {
            let ino = join(slot, Ino(inner)).unwrap();
            assert_eq!((slot_of(ino), inner_of(ino)), (slot, Ino(inner)));
            assert!(i64::try_from(ino.0).is_ok());
        }
        assert_eq!(join(2, Ino(INNER_MASK + 1)), Err(Error::NumberTooLarge));
        assert_eq!(slot_of(Ino(u64::MAX)), u32::MAX >> 8);
    }
}
