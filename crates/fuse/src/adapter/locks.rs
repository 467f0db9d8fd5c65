//! Locks of files, on mounts whose file system keeps them between hosts; elsewhere the kernel's own
//! are enough, and nothing of this is asked for.
//!
//! **What ends a lock.** The kernel says when a process has closed a file (FLUSH, with the process
//! as the owner), and when nobody has an open file any more (RELEASE, with its handle). Locks of
//! open files ([`flock`](LockFamily::Whole), and those of ranges) end with the second, and the
//! kernel does not name their owner then: so the owners of each handle are
//! remembered.

use super::{Adapter, Answer, Outcome, Refusal};
use crate::errno::Errno;
use crate::protocol::flags::lock;
use crate::protocol::{Encoder, Header, LockIn, Operation, Request};
use marram_vfs::{Ino, LockFamily, LockMode, LockRequest};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// A lock that its caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedLock {
    pub(crate) ino: Ino,
    /// The open file through which it is asked for.
    pub(crate) handle: u64,
    pub(crate) asked: LockRequest,
}

/// The owners of the locks of each open file.
#[derive(Default)]
pub(super) struct LockOwners(Mutex<Owners>);

#[derive(Default)]
struct Owners {
    of_handle: BTreeMap<u64, BTreeSet<(Ino, u64)>>,
    handles: BTreeMap<(Ino, u64), BTreeSet<u64>>,
}

impl LockOwners {
    fn note(&self, handle: u64, of: (Ino, u64)) {
        let mut owners = self.0.lock();
        owners.of_handle.entry(handle).or_default().insert(of);
        owners.handles.entry(of).or_default().insert(handle);
    }

    /// Forgets an owner's locks of a file; whether there may be any.
    fn take(&self, of: (Ino, u64)) -> bool {
        let mut owners = self.0.lock();
        let Some(handles) = owners.handles.remove(&of) else { return false };
        for handle in handles {
            let left = owners.of_handle.get_mut(&handle).is_some_and(|owners| {
                owners.remove(&of);
                !owners.is_empty()
            });
            if !left {
                owners.of_handle.remove(&handle);
            }
        }
        true
    }

    /// Those that have locked through a handle.
    fn of_handle(&self, handle: u64) -> Vec<(Ino, u64)> {
        let owners = self.0.lock();
        owners.of_handle.get(&handle).into_iter().flatten().copied().collect()
    }

    fn all(&self) -> Vec<(Ino, u64)> {
        self.0.lock().handles.keys().copied().collect()
    }
}

impl Adapter {
    /// Tries to set a lock, or lets go of one.
    pub(super) fn serve_lock(
        &self,
        header: &Header,
        (lock, waits): (&LockIn, bool),
        out: &mut Vec<u8>,
    ) -> Answer {
        let wanted = match self.wanted(header, lock) {
            Ok(wanted) => wanted,
            Err(refusal) => return Answer::Reply(self.conclude(header, Err(refusal), out)),
        };
        self.note_owner(&wanted);
        match self.try_lock(header, &wanted) {
            Some(outcome) => Answer::Reply(outcome),
            None if waits => Answer::Wait(wanted),
            None => Answer::Reply(Err(Errno::AGAIN)),
        }
    }

    /// What ends a lock finds its owner from now on.
    fn note_owner(&self, wanted: &WantedLock) {
        if wanted.asked.mode.is_some() {
            self.lock_owners.note(wanted.handle, (wanted.ino, wanted.asked.owner));
        }
    }

    /// Tries to set a lock; nothing if another one is in the way.
    pub(crate) fn try_lock(
        &self,
        header: &Header,
        wanted: &WantedLock,
    ) -> Option<Result<(), Errno>> {
        let tried = self.file_system.set_lock(wanted.ino, &wanted.asked);
        match tried {
            Ok(None) => {
                // While it waited, its process may have closed the same file elsewhere.
                self.note_owner(wanted);
                Some(Ok(()))
            }
            Ok(Some(_)) => None,
            Err(error) => Some(self.conclude(header, Err(error.into()), &mut Vec::new())),
        }
    }

    fn wanted(&self, header: &Header, lock: &LockIn) -> Result<WantedLock, Refusal> {
        if !self.agreement.locks {
            return Err(Errno::NO_OPERATION.into());
        }
        let mode = match lock.kind {
            lock::SHARED => Some(LockMode::Shared),
            lock::EXCLUSIVE => Some(LockMode::Exclusive),
            lock::NONE => None,
            _ => return Err(Errno::INVALID.into()),
        };
        if lock.first > lock.last {
            return Err(Errno::INVALID.into());
        }
        let family = if lock.is_whole { LockFamily::Whole } else { LockFamily::Ranges };
        let LockIn { owner, first, last, process, .. } = *lock;
        let asked = LockRequest { family, owner, first, last, mode, process };
        Ok(WantedLock { ino: Ino(header.node), handle: lock.handle, asked })
    }

    /// Finds what is in the way of a lock.
    pub(super) fn get_lock(
        &self,
        header: &Header,
        lock: &LockIn,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let wanted = self.wanted(header, lock)?;
        match self.file_system.find_lock(wanted.ino, &wanted.asked)? {
            None => out.u64(lock.first).u64(lock.last).u32(lock::NONE).u32(0),
            Some(held) => {
                let kind = match held.mode {
                    LockMode::Shared => lock::SHARED,
                    LockMode::Exclusive => lock::EXCLUSIVE,
                };
                let last = held.last.min(lock::LAST_BYTE);
                out.u64(held.first.min(last)).u64(last).u32(kind).u32(held.process)
            }
        };
        Ok(())
    }

    /// A process has closed a file: its locks of ranges end, whatever else it has open. What it has
    /// written is durable before that, if the mount is to wait for it.
    pub(super) fn flush(&self, ino: Ino, owner: u64) -> Outcome {
        if !self.agreement.locks && !self.closes.are_of_interest() {
            return Err(Errno::NO_OPERATION.into());
        }
        let synced = self.closes.close(&*self.file_system, ino);
        if self.lock_owners.take((ino, owner)) {
            self.let_go(ino, owner, LockFamily::Ranges);
        }
        Ok(synced?)
    }

    /// Nobody has an open file any more.
    pub(super) fn release(&self, handle: u64) {
        let owners = self.lock_owners.of_handle(handle);
        owners.into_iter().for_each(|of| self.let_go_of_all(of));
    }

    /// The mount has ended.
    pub(super) fn release_all(&self) {
        self.lock_owners.all().into_iter().for_each(|of| self.let_go_of_all(of));
    }

    fn let_go_of_all(&self, (ino, owner): (Ino, u64)) {
        if self.lock_owners.take((ino, owner)) {
            self.let_go(ino, owner, LockFamily::Ranges);
            self.let_go(ino, owner, LockFamily::Whole);
        }
    }

    fn let_go(&self, ino: Ino, owner: u64, family: LockFamily) {
        let (first, last, mode, process) = (0, u64::MAX, None, 0);
        let all = LockRequest { family, owner, first, last, mode, process };
        let _never_fails = self.file_system.set_lock(ino, &all);
    }

    /// Whether a lock that was set may show content that the kernel does not know.
    pub(crate) fn is_taken_beside_others(&self, wanted: &WantedLock) -> bool {
        wanted.asked.mode.is_some() && self.file_system.is_shared()
    }

    /// The lock that a request has set.
    pub(crate) fn lock_of(&self, request: &Request<'_>) -> Option<WantedLock> {
        match &request.operation {
            Operation::SetLock { lock, .. } => self.wanted(&request.header, lock).ok(),
            _ => None,
        }
    }
}

/// Whether somebody may have let go of a lock by a request.
pub(crate) fn may_let_go(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Flush { .. } | Operation::Release { .. } => true,
        Operation::SetLock { lock, .. } => lock.is_whole || lock.kind != lock::EXCLUSIVE,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::LockOwners;
    use marram_vfs::Ino;

    #[test]
    fn owners_end_with_a_process_or_with_an_open_file() {
        let owners = LockOwners::default();
        let (process, file) = ((Ino(7), 1), (Ino(7), 2));
        owners.note(10, process);
        owners.note(11, process);
        owners.note(10, file);
        owners.note(10, (Ino(8), 1));
        assert!(owners.take(process) && !owners.take(process), "also through the other handle");
        assert!(owners.of_handle(11).is_empty());
        assert_eq!(owners.of_handle(10), [file, (Ino(8), 1)]);
        assert_eq!(owners.all(), [file, (Ino(8), 1)]);
        assert!(owners.take(file) && owners.take((Ino(8), 1)));
        assert!(owners.of_handle(10).is_empty() && owners.all().is_empty());
    }
}
