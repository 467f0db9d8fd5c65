//! Names that were made, moved or removed after their caller had been let go.
//!
//! A killed program waits no longer for what it asked for, and its kernel takes the operation for
//! failed. The kernel then goes on remembering that a name is not there that was made a moment
//! later. So when such an operation has been done, the kernel is notified of the directories and
//! names that it was about. It is not notified of the link count of a file that has lost one of
//! several names.
//!
//! The thread that did it does not notify: the kernel takes the directory's lock to forget a name,
//! and the holder of that lock may wait for a thread that serves. Nor does the thread that lets
//! callers go: the holder of that lock may be just the caller that is to be let go.
//!
//! A notification of a change behind the kernel's back is repeated a little later. A caller may
//! have an answer from before the change that the kernel had not taken in at the first
//! notification. A lookup of a known name takes no lock, and of an inode that is not known yet
//! nothing can be forgotten. What such a caller has the kernel remember then was no longer true.

use crate::protocol::{Encoder, NotifyCode, Operation, Request, flags};
use crate::transport::Transport;
use parking_lot::Mutex;
use std::io::IoSlice;

/// Most changes that are notified again.
const REPEATED_MAX: usize = 1 << 16;

/// The notifications that the kernel must still get.
#[derive(Debug, Default)]
pub(crate) struct LateNames {
    /// As many as callers were killed since the last time.
    fresh: Mutex<Vec<Change>>,
    /// What was notified: since the last time, and before that.
    notified: Mutex<[Vec<Change>; 2]>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A directory's list and attributes, or an inode's attributes.
    Inode(u64),
    /// An inode's attributes; its content stays.
    Attributes(u64),
    /// What a name in a directory leads to.
    Name(u64, Vec<u8>),
}

impl LateNames {
    /// Takes note of an operation that was done too late for its caller.
    pub(super) fn note(&self, request: &Request<'_>) {
        self.fresh.lock().extend(changes(request));
    }

    /// Takes note of a notification, to repeat it.
    pub(crate) fn note_notified(&self, change: Change) {
        let [since, before] = &mut *self.notified.lock();
        if since.len() + before.len() < REPEATED_MAX {
            since.push(change);
        }
    }

    /// Tells the kernel; to be called from time to time.
    pub(super) fn tell(&self, lane: &dyn Transport) {
        let fresh = std::mem::take(&mut *self.fresh.lock());
        for change in fresh.into_iter().chain(self.take_notified()) {
            let mut payload = Vec::new();
            let mut encoder = Encoder(&mut payload);
            let code = match change {
                Change::Inode(ino) => {
                    encoder.u64(ino).i64(0).i64(0);
                    NotifyCode::Inode
                }
                Change::Attributes(ino) => {
                    encoder.u64(ino).i64(-1).i64(0);
                    NotifyCode::Inode
                }
                Change::Name(parent, name) => {
                    let name_bytes = u32::try_from(name.len()).expect("requests are short");
                    let how = flags::notify::EXPIRE_ONLY;
                    encoder.u64(parent).u32(name_bytes).u32(how).bytes(&name).zeros(1);
                    NotifyCode::Entry
                }
            };
            let header = code.header(payload.len());
            let _unknown_by_now = lane.send(&[IoSlice::new(&header), IoSlice::new(&payload)]);
        }
    }

    /// What was notified before the last call of this.
    fn take_notified(&self) -> Vec<Change> {
        let [since, before] = &mut *self.notified.lock();
        std::mem::replace(before, std::mem::take(since))
    }
}

/// The directories, names and inodes that an operation has changed.
fn changes(request: &Request<'_>) -> Vec<Change> {
    let parent = request.header.node;
    let name =
        |parent: u64, name: &[u8]| [Change::Name(parent, name.to_vec()), Change::Inode(parent)];
    match &request.operation {
        Operation::MakeNode(node) | Operation::MakeDirectory(node) => {
            name(parent, node.name).into()
        }
        Operation::Symlink { name: made, .. } => name(parent, made).into(),
        Operation::Unlink { name: gone } | Operation::RemoveDirectory { name: gone } => {
            name(parent, gone).into()
        }
        Operation::Link { node, new_name } => {
            let mut changes = Vec::from(name(parent, new_name));
            changes.push(Change::Inode(*node));
            changes
        }
        Operation::Rename(rename) => {
            let mut changes = Vec::from(name(parent, rename.name));
            changes.extend(name(rename.new_parent, rename.new_name));
            changes
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Change, LateNames, changes};
    use crate::protocol::{Header, Operation, Rename, Request};

    fn request(operation: Operation<'_>) -> Request<'_> {
        let header = Header { opcode: 0, unique: 1, node: 7, uid: 0, gid: 0, pid: 1 };
        Request { header, operation }
    }

    #[test]
    fn both_ends_of_a_move_are_told() {
        let rename = Rename { name: b"a", new_parent: 8, new_name: b"b", flags: 0 };
        let name = |parent, name: &[u8]| Change::Name(parent, name.to_vec());
        let notified = changes(&request(Operation::Rename(rename)));
        assert_eq!(notified, [name(7, b"a"), Change::Inode(7), name(8, b"b"), Change::Inode(8)]);
    }

    #[test]
    fn what_changes_no_name_is_not_told() {
        assert_eq!(changes(&request(Operation::Lookup { name: b"a" })), []);
    }

    #[test]
    fn what_was_told_is_told_again_not_at_once_and_only_once() {
        let late = LateNames::default();
        late.note_notified(Change::Attributes(7));
        assert_eq!(late.take_notified(), []);
        late.note_notified(Change::Attributes(8));
        assert_eq!(late.take_notified(), [Change::Attributes(7)]);
        assert_eq!(late.take_notified(), [Change::Attributes(8)]);
        assert_eq!(late.take_notified(), []);
    }
}
