//! What callers have announced by a control call, until the call comes that performs it; see
//! `protocol::file_calls` for why there are two.
//!
//! Whoever can open a file can announce something for it, and never perform it: so only so many
//! announcements are remembered, the oldest go first, and a call that finds its own gone does no
//! harm.

use super::caller::{Capability, acts_as_user, acts_in_group, has_capability};
use super::{Adapter, Outcome};
use crate::errno::Errno;
use crate::protocol::{Deed, Encoder, FileCall, Header, Ioctl, Prepared};
use crate::protocol::{EXTENTS_MAX, PREPARED_BYTES_MIN, encode_extents, encode_usage};
use marram_vfs::{Allocate, Error, FILE_BYTES_MAX, Ino, UsageOwner};
use parking_lot::Mutex;
use std::collections::VecDeque;

/// Most announcements that are remembered.
const ANNOUNCEMENTS_MAX: usize = 256;
/// Lengths that are handed out before they repeat.
const LENGTHS: u64 = 1 << 40;

/// An allocation to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allocation {
    pub(super) how: Allocate,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// A range of a file.
type Range = (u64, u64);

enum Announcement {
    /// Done by zeroing so many bytes.
    Allocation { zeroed: u64, allocation: Allocation },
    /// Done by copying into the range.
    Share(Range),
}

/// Announcements, the oldest first.
#[derive(Default)]
pub(super) struct Announced {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<(Ino, Announcement)>,
    count: u64,
}

impl Queue {
    fn push(&mut self, ino: Ino, announcement: Announcement) {
        if self.entries.len() == ANNOUNCEMENTS_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back((ino, announcement));
    }

    fn take(&mut self, wanted: impl Fn(&(Ino, Announcement)) -> bool) -> Option<Announcement> {
        let at = self.entries.iter().position(wanted)?;
        self.entries.remove(at).map(|(_, announcement)| announcement)
    }
}

impl Announced {
    /// Remembers an allocation; returns how many bytes to zero for it.
    fn add_allocation(&self, ino: Ino, allocation: Allocation) -> u64 {
        let mut queue = self.queue.lock();
        queue.count += 1;
        let zeroed = PREPARED_BYTES_MIN + 1 + queue.count % LENGTHS;
        queue.push(ino, Announcement::Allocation { zeroed, allocation });
        zeroed
    }

    /// The allocation that a zeroing of a range from the beginning on stands for, if it does.
    ///
    /// # Errors
    /// It looks as if it did, and nothing fits: there is no room for so many zeros.
    pub(super) fn take_allocation(
        &self,
        ino: Ino,
        (offset, len): Range,
    ) -> Result<Option<Allocation>, Error> {
        if offset != 0 || len <= PREPARED_BYTES_MIN {
            return Ok(None);
        }
        let is_it = |entry: &(Ino, Announcement)| {
            entry.0 == ino
                && matches!(entry.1, Announcement::Allocation { zeroed, .. } if zeroed == len)
        };
        match self.queue.lock().take(is_it) {
            Some(Announcement::Allocation { allocation, .. }) => Ok(Some(allocation)),
            _ => Err(Error::NoSpace),
        }
    }

    /// Whether what is copied into a range is to be shared. That is so once.
    pub(super) fn take_share(&self, ino: Ino, range: Range) -> bool {
        let is_it = |entry: &(Ino, Announcement)| {
            entry.0 == ino && matches!(entry.1, Announcement::Share(known) if known == range)
        };
        self.queue.lock().take(is_it).is_some()
    }
}

impl Adapter {
    /// Serves one of our own control calls.
    pub(super) fn file_call(
        &self,
        header: &Header,
        ioctl: &Ioctl<'_>,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let call = FileCall::decode(ioctl.command, ioctl.input).ok_or(Errno::INVALID)?;
        let ino = Ino(header.node);
        let answer = match call {
            FileCall::Prepare { deed, offset, len } => self.prepare(ino, deed, (offset, len))?,
            FileCall::Withdraw { offset, len } => {
                let was_there = self.announced.take_share(ino, (offset, len));
                [u64::from(was_there).to_le_bytes(), [0; 8]].concat()
            }
            FileCall::Extents { offset } => {
                encode_extents(&self.file_system.extents(ino, offset, EXTENTS_MAX)?)
            }
            FileCall::Usage { owner } => {
                if !self.may_know_of(header, owner)? {
                    return Err(Errno::NOT_PERMITTED.into());
                }
                encode_usage(&self.file_system.usage(ino, owner)?)
            }
        };
        if u32::try_from(answer.len()).is_ok_and(|bytes| bytes > ioctl.output_bytes_max) {
            return Err(Errno::INVALID.into());
        }
        out.zeros(super::ioctl::REPLY_BYTES).bytes(&answer);
        Ok(())
    }

    /// Whether the caller may know what `owner` uses: as with the kernel's own quotas everybody may
    /// know of himself and his groups, and of the project of a file that he has open.
    fn may_know_of(&self, header: &Header, owner: UsageOwner) -> Result<bool, Error> {
        let is_his = match owner {
            UsageOwner::User(id) => acts_as_user(header, id),
            UsageOwner::Group(id) => acts_in_group(header, id),
            UsageOwner::Project(id) => self.file_system.marks(Ino(header.node))?.project == id,
        };
        Ok(is_his || has_capability(header, Capability::Administer))
    }

    fn prepare(&self, ino: Ino, deed: Deed, (offset, len): Range) -> Result<Vec<u8>, Error> {
        if offset.checked_add(len).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Error::FileTooLarge);
        }
        let len = match deed {
            Deed::Allocate(how) => {
                self.announced.add_allocation(ino, Allocation { how, offset, len })
            }
            Deed::Share => {
                self.announced.queue.lock().push(ino, Announcement::Share((offset, len)));
                0
            }
        };
        Ok(Prepared { len, kernel_owns_sizes: self.agreement.writeback }.encode())
    }
}

#[cfg(test)]
mod tests {
    use super::{ANNOUNCEMENTS_MAX, Allocation, Announced, Announcement};
    use crate::protocol::PREPARED_BYTES_MIN;
    use marram_vfs::{Allocate, Error, Ino};

    const COLLAPSE: Allocation = Allocation { how: Allocate::Collapse, offset: 3, len: 4 };

    #[test]
    fn an_announcement_is_for_one_file_and_counts_once() {
        let announced = Announced::default();
        let zeroed = announced.add_allocation(Ino(7), COLLAPSE);
        assert_eq!(announced.take_allocation(Ino(8), (0, zeroed)), Err(Error::NoSpace));
        assert_eq!(announced.take_allocation(Ino(7), (1, zeroed)), Ok(None), "not our business");
        assert_eq!(announced.take_allocation(Ino(7), (0, zeroed)), Ok(Some(COLLAPSE)));
        assert_eq!(announced.take_allocation(Ino(7), (0, zeroed)), Err(Error::NoSpace));
        announced.queue.lock().push(Ino(7), Announcement::Share((1, 2)));
        assert!(!announced.take_share(Ino(7), (1, 3)));
        assert!(announced.take_share(Ino(7), (1, 2)) && !announced.take_share(Ino(7), (1, 2)));
    }

    #[test]
    fn only_so_many_are_remembered() {
        let announced = Announced::default();
        let first = announced.add_allocation(Ino(7), COLLAPSE);
        assert!(first > PREPARED_BYTES_MIN);
        for _ in 0..ANNOUNCEMENTS_MAX {
            announced.add_allocation(Ino(8), COLLAPSE);
        }
        assert_eq!(announced.queue.lock().entries.len(), ANNOUNCEMENTS_MAX);
        assert_eq!(announced.take_allocation(Ino(7), (0, first)), Err(Error::NoSpace));
    }
}
