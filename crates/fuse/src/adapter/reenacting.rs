//! Changes that are made once more, for watchers to see.
//!
//! The kernel reports to watchers (inotify, fanotify) what system calls do, and nothing else. So
//! what was changed behind its back is done again by a thread of this process, by the system calls
//! that a program would have done it by. The requests of that thread are recognised: they are
//! answered as if the call did the change, and the file system stays as it is. What the thread asks
//! for beside its step, on the way to a directory, is answered like for any other caller; what
//! would change anything is refused.

use super::reenacted::{Step, is_directory, is_stand_in};
use super::{Adapter, Outcome};
use crate::errno::Errno;
use crate::protocol::{Encoder, Operation, Request};
use marram_vfs::{Attributes, Error, Ino, Kind, Timestamp};

impl Adapter {
    /// The answer to a request of the thread that shows changes; none for what is to be answered as
    /// usual.
    pub(super) fn reenact(&self, request: &Request<'_>, out: &mut Encoder<'_>) -> Option<Outcome> {
        let header = &request.header;
        let step = self.reenacted.step_of(header)?;
        let at = Ino(header.node);
        if is_stand_in(at) && matches!(request.operation, Operation::GetAttributes { .. }) {
            self.encoding().timed_attributes(out, &stand_in(at));
            return Some(Ok(()));
        }
        match (&request.operation, step) {
            (Operation::Lookup { name }, Some(Step::Make { parent, name: made }))
                if (parent, &*made) == (at, *name) =>
            {
                Some(Err(Error::NotFound.into()))
            }
            (
                Operation::Lookup { name },
                Some(Step::Remove { parent, name: gone, was, is_directory }),
            ) if (parent, &*gone) == (at, *name) => {
                self.encoding().entry(out, &self.removed(was, is_directory));
                Some(Ok(()))
            }
            (
                Operation::Unlink { name } | Operation::RemoveDirectory { name },
                Some(Step::Remove { parent, name: gone, .. }),
            ) if (parent, &*gone) == (at, *name) => Some(Ok(())),
            (Operation::SetAttributes(_), Some(Step::Touch(ino))) if ino == at => {
                Some(self.attributes(header, true, out))
            }
            (operation, Some(Step::Make { parent, name })) if is_made(operation, &name) => {
                Some(if parent == at { self.found(request, out) } else { REFUSED })
            }
            (operation, _) => (!only_looks(operation)).then_some(REFUSED),
        }
    }

    /// What a name is shown to have led to before it goes: the inode itself if it is gone with it,
    /// which the kernel then reports too. One that lives on under another name would be dead to the
    /// kernel after that, so another inode stands for it, as for one that is not known.
    fn removed(&self, was: Ino, is_directory: bool) -> Attributes {
        match self.file_system.pin(was) {
            Ok(gone) if gone.links == 0 => return gone,
            Ok(_) => self.file_system.forget(was, 1),
            Err(_) => (),
        }
        stand_in(self.reenacted.stand_in(is_directory))
    }

    /// Answers the making of a name by what is there, if it is of the kind that is made: the kernel
    /// takes no other.
    fn found(&self, request: &Request<'_>, out: &mut Encoder<'_>) -> Outcome {
        let (name, kind) = made(&request.operation).ok_or(Errno::NOT_PERMITTED)?;
        let there = self.file_system.lookup(Ino(request.header.node), super::name(name)?)?;
        if there.kind != kind {
            self.file_system.forget(there.ino, 1);
            return Err(Error::NotFound.into());
        }
        self.encoding().entry(out, &there);
        Ok(())
    }
}

const REFUSED: Outcome = Err(super::Refusal::Server(Errno::NOT_PERMITTED));

/// What a request makes, if it makes a name.
fn made<'a>(operation: &Operation<'a>) -> Option<(&'a [u8], Kind)> {
    match operation {
        Operation::MakeNode(node) => Some((node.name, Kind::from_mode(node.mode)?)),
        Operation::MakeDirectory(node) => Some((node.name, Kind::Directory)),
        Operation::Symlink { name, .. } => Some((name, Kind::Symlink)),
        _ => None,
    }
}

fn is_made(operation: &Operation<'_>, name: &[u8]) -> bool {
    made(operation).is_some_and(|(made, _)| made == name)
}

/// Requests that change nothing.
fn only_looks(operation: &Operation<'_>) -> bool {
    matches!(
        operation,
        Operation::Lookup { .. }
            | Operation::GetAttributes { .. }
            | Operation::ExtendedAttributes { .. }
            | Operation::Access { .. }
            | Operation::GetXattr { .. }
            | Operation::ReadLink
    )
}

fn stand_in(ino: Ino) -> Attributes {
    let (kind, links) = if is_directory(ino) { (Kind::Directory, 2) } else { (Kind::Regular, 1) };
    let never = Timestamp::default();
    Attributes {
        ino,
        generation: 0,
        kind,
        permissions: 0,
        links,
        uid: 0,
        gid: 0,
        device: 0,
        size: 0,
        blocks_512: 0,
        accessed: never,
        modified: never,
        changed: never,
        created: never,
    }
}
