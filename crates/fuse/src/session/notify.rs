//! Notices to the kernel: that something changed behind its back.
//!
//! A file system that is rolled back, merged into, or gets a snapshot in a directory that shows
//! them changes without a request of the kernel's. What the kernel remembers of it is dropped
//! exactly: content and attributes inode by inode, names one by one, or all names at once.
//!
//! None of this may be called from within an operation of the file system, nor with a lock held
//! that one could wait for: the kernel takes the lock of the inode or directory for it, which the
//! caller of that operation may hold.

use super::SessionHandle;
use super::late::Change;
use crate::protocol::{Encoder, NotifyCode, flags};
use marram_vfs::{Ino, Name};
use std::ops::Range;

/// Most inodes of one notice.
const UNUSED_INODES_MAX: usize = 512;

impl SessionHandle {
    /// Tells the kernel that attributes of `ino` have changed behind its back, and its content in a
    /// range of bytes (of a directory its list of names, if there is a range at all). It forgets
    /// whole pages. An inode that it does not know is fine.
    pub fn notify_inode(&self, ino: Ino, content: &Range<u64>) {
        let (offset, len) = pages_of(content);
        let mut payload = Vec::new();
        Encoder(&mut payload).u64(ino.0).i64(offset).i64(len);
        let _unknown = self.notify(NotifyCode::Inode, &payload);
        self.tell_again(Change::Attributes(ino.0));
    }

    /// Tells the kernel that `name` in `parent` may mean something else than it remembers: it asks
    /// again before it uses it. A program in a directory of that name stays there, if the directory
    /// is still the same.
    pub fn notify_entry(&self, parent: Ino, name: Name<'_>) {
        self.notify_name(parent, name, flags::notify::EXPIRE_ONLY);
        self.tell_again(Change::Name(parent.0, name.as_bytes().to_vec()));
    }

    /// Has the kernel forget `name` in `parent` and all that it knows below it, but for open files
    /// and directories.
    pub fn notify_gone(&self, parent: Ino, name: Name<'_>) {
        self.notify_name(parent, name, 0);
    }

    /// Tells the kernel that any name may mean something else than it remembers; false if it is
    /// older than Linux 6.16 and has no such notice. What is mounted on a directory is taken away
    /// when that is next looked up, in every namespace.
    pub fn notify_all_names(&self) -> bool {
        self.notify(NotifyCode::AllNames, &[])
    }

    /// Has the kernel forget those of `inodes` that are not in use; a directory is in use while the
    /// kernel knows something in it. Before Linux 6.18 there is no such notice: nothing happens,
    /// and the answer is false.
    pub fn notify_unused(&self, inodes: &[Ino]) -> bool {
        let mut is_known = true;
        for part in inodes.chunks(UNUSED_INODES_MAX) {
            let mut payload = Vec::new();
            let count = u32::try_from(part.len()).expect("a part is small");
            let mut encoder = Encoder(&mut payload);
            encoder.u32(count).zeros(4 + 8);
            for ino in part {
                encoder.u64(ino.0);
            }
            is_known &= self.notify(NotifyCode::Unused, &payload);
        }
        is_known
    }

    fn notify_name(&self, parent: Ino, name: Name<'_>, how: u32) {
        let name = name.as_bytes();
        let name_bytes = u32::try_from(name.len()).expect("names are short");
        let mut payload = Vec::new();
        Encoder(&mut payload).u64(parent.0).u32(name_bytes).u32(how).bytes(name).zeros(1);
        let _unknown = self.notify(NotifyCode::Entry, &payload);
    }
}

/// A range as the kernel writes it: no content is an offset below zero, and no length is all up
/// to the end.
fn pages_of(content: &Range<u64>) -> (i64, i64) {
    if content.is_empty() {
        return (-1, 0);
    }
    let start = i64::try_from(content.start).unwrap_or(i64::MAX);
    (start, i64::try_from(content.end).map_or(0, |end| end - start))
}
