//! Opening files, and what `access` asks: for file systems that check permissions themselves.
//!
//! Elsewhere all of this is answered "no such operation", and the kernel does it alone; but a
//! strict mount has each opening of a file served, since the kernel knows nothing of flags. A
//! handle is no more than the answer to what its file may be used for, so there is no table of
//! them. Where locks are kept here it also has a number, of which no two are the same.

use super::caller::Requester;
use super::names::made_unseen;
use super::{Adapter, Outcome, Refusal, caller, name};
use crate::errno::Errno;
use crate::options::Offer;
use crate::protocol::flags::{access, open, opened};
use crate::protocol::{Create, Encoder, Header};
use marram_vfs::{AccessControl, Action, Error, Ino, InodeFlags, Kind, NewNode, Opened, Opening};
use std::sync::atomic::Ordering;

/// A file that may be used as it was opened.
pub(super) const PLAIN: u64 = 0;
/// A file that may only grow: a bit.
const APPEND_ONLY: u64 = 1;

impl Adapter {
    fn asked(&self) -> Result<&dyn AccessControl, Errno> {
        self.control().ok_or(Errno::NO_OPERATION)
    }

    pub(super) fn open(
        &self,
        header: &Header,
        caller_flags: u32,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let (ino, how) = (Ino(header.node), opening(caller_flags));
        let is_strict = self.strict_open || self.declines(Offer::UnaskedOpens);
        let opened = match self.control() {
            Some(control) => control.authorize_open(&Requester::of(header), ino, how)?,
            None if is_strict || self.agreement.locks => Opened::AsAsked,
            None => return Err(Errno::NO_OPERATION.into()),
        };
        if how.write && (is_strict || self.control().is_some()) {
            self.check_marks(ino, how)?;
        }
        self.encode_opened(opened, out);
        Ok(())
    }

    /// Refuses to open for writing what does not change, and for more than appending what only
    /// grows.
    fn check_marks(&self, ino: Ino, how: Opening) -> Outcome {
        let flags = match self.file_system.marks(ino) {
            Err(Error::NotSupported) => return Ok(()),
            marks => marks?.flags,
        };
        let grows = how.append || !flags.any(InodeFlags::APPEND_ONLY);
        match grows && !flags.any(InodeFlags::IMMUTABLE) {
            true => Ok(()),
            false => Err(Errno::NOT_PERMITTED.into()),
        }
    }

    pub(super) fn open_directory(&self, header: &Header, out: &mut Encoder<'_>) -> Outcome {
        if !self.declines(Offer::UnaskedDirectoryOpens) {
            self.asked()?;
        }
        self.authorize(header, Action::List(Ino(header.node)))?;
        out.u64(PLAIN).u32(0).zeros(4);
        Ok(())
    }

    /// Makes a file and opens it: its maker may use it as the call asked, whatever its permissions
    /// are.
    pub(super) fn create(
        &self,
        header: &Header,
        create: &Create<'_>,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        self.asked()?;
        let parent = Ino(header.node);
        self.authorize(header, Action::Create { parent, directory: false })?;
        let permissions = create.mode & 0o7777;
        let new = NewNode::Node { kind: Kind::Regular, permissions, device: 0 };
        let (caller, umask) = (caller(header), self.umask(create.umask));
        let name = name(create.name)?;
        let made = self.file_system.create_masked(caller, parent, name, new, umask);
        let made = made.map_err(made_unseen)?;
        self.closes.note_change(made.ino);
        self.encoding().entry(out, &made);
        self.encode_opened(Opened::AsAsked, out);
        Ok(())
    }

    /// What may only grow is not cached: through the cache it could be mapped, and its pages
    /// written back as anybody's.
    fn encode_opened(&self, how: Opened, out: &mut Encoder<'_>) {
        let (handle, flags) = match how {
            Opened::AsAsked if self.declines(Offer::UnaskedOpens) => (PLAIN, 0),
            Opened::AsAsked => (PLAIN, opened::KEEP_CACHE),
            Opened::AppendOnly => (APPEND_ONLY, opened::DIRECT_IO),
        };
        out.u64(self.handle(handle)).u32(flags).zeros(4);
    }

    /// The handle of a file that has just been opened.
    pub(super) fn handle(&self, how: u64) -> u64 {
        match self.agreement.locks {
            true => (self.handles.fetch_add(1, Ordering::Relaxed) + 1) << 1 | how,
            false => how,
        }
    }

    pub(super) fn access(&self, header: &Header, mask: u32) -> Outcome {
        self.asked()?;
        let has = |bit: u32| mask & bit != 0;
        let action = Action::Probe {
            ino: Ino(header.node),
            read: has(access::READ),
            write: has(access::WRITE),
            execute: has(access::EXECUTE),
        };
        Ok(self.authorize(header, action)?)
    }

    /// Fails if a write at `offset` through this handle is more than appending.
    pub(super) fn check_write(&self, ino: Ino, handle: u64, offset: u64) -> Result<(), Refusal> {
        if handle & APPEND_ONLY != 0 && offset < self.file_system.attributes(ino)?.size {
            return Err(Errno::NOT_PERMITTED.into());
        }
        Ok(())
    }
}

/// Fails if what this handle leads to may only grow.
pub(super) fn check_may_cut(handle: u64) -> Result<(), Refusal> {
    if handle & APPEND_ONLY != 0 { Err(Errno::NOT_PERMITTED.into()) } else { Ok(()) }
}

/// Running a file reads it without the right to read.
fn opening(caller_flags: u32) -> Opening {
    let execute = caller_flags & open::EXECUTE != 0;
    let mode = caller_flags & open::ACCESS_MODE;
    Opening {
        read: mode != open::WRITE_ONLY && !execute,
        write: mode != open::READ_ONLY,
        append: caller_flags & open::APPEND != 0,
        execute,
    }
}

#[cfg(test)]
mod tests {
    use super::{Opening, opening};

    #[test]
    fn flags_of_open_say_how() {
        let (read, write) = (true, true);
        let none = Opening::default();
        assert_eq!(opening(0), Opening { read, ..none });
        assert_eq!(opening(0o1), Opening { write, ..none });
        assert_eq!(opening(0o2002), Opening { read, write, append: true, ..none });
        assert_eq!(opening(0o3), Opening { read, write, ..none }, "for control calls only");
        assert_eq!(opening(0x20), Opening { execute: true, ..none });
    }
}
