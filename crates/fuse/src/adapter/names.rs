//! Finding, making, moving and removing names.

use super::opening::PLAIN;
use super::{Adapter, Outcome, Refusal, caller, name};
use crate::errno::Errno;
use crate::protocol::flags::{opened, rename};
use crate::protocol::{Create, Encoder, Header, Node, Rename};
use marram_vfs::{Action, Attributes, Error, Ino, Kind, NewNode, RenameMode};

impl Adapter {
    /// `.` and `..` come from the resolution of a file handle: "." asks for the inode itself, of
    /// any kind. That there is no such name is an answer that the kernel may remember.
    pub(super) fn lookup(&self, header: &Header, bytes: &[u8], out: &mut Encoder<'_>) -> Outcome {
        let parent = Ino(header.node);
        let found = match bytes {
            b"." => self.file_system.pin(parent),
            b".." => self.file_system.parent(parent),
            _ => self.find(header, parent, bytes)?,
        };
        let remembers = !self.folds_names && !matches!(bytes, b"." | b"..");
        match found {
            Ok(attributes) => self.encoding().entry(out, &attributes),
            Err(Error::NotFound) if remembers => self.encoding().no_entry(out),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Finds a name for a caller that may use it and what it leads to.
    fn find(
        &self,
        header: &Header,
        parent: Ino,
        bytes: &[u8],
    ) -> Result<Result<Attributes, Error>, Refusal> {
        let name = name(bytes)?;
        self.authorize(header, Action::Search(parent))?;
        let found = self.file_system.lookup(parent, name);
        if let Ok(attributes) = &found {
            let ino = attributes.ino;
            self.authorize(header, Action::Reach(ino))
                .inspect_err(|_| self.file_system.forget(ino, 1))?;
        }
        Ok(found)
    }

    pub(super) fn read_link(&self, ino: Ino, out: &mut Encoder<'_>) -> Outcome {
        out.bytes(&self.file_system.read_link(ino)?);
        Ok(())
    }

    pub(super) fn symlink(
        &self,
        header: &Header,
        bytes: &[u8],
        target: &[u8],
        out: &mut Encoder<'_>,
    ) -> Outcome {
        self.make(header, bytes, NewNode::Symlink { target }, 0, out)
    }

    /// For `open` with `O_CREAT` too.
    pub(super) fn make_node(
        &self,
        header: &Header,
        node: &Node<'_>,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let kind = match Kind::from_mode(node.mode) {
            Some(Kind::Directory | Kind::Symlink) | None => return Err(Errno::INVALID.into()),
            Some(kind) => kind,
        };
        let device = match kind {
            Kind::CharDevice | Kind::BlockDevice => node.device,
            _ => 0,
        };
        let new = NewNode::Node { kind, permissions: node.mode & 0o7777, device };
        self.make(header, node.name, new, node.umask, out).map_err(|refusal| match refusal {
            Refusal::FileSystem(error) if kind == Kind::Regular => made_unseen(error).into(),
            refusal => refusal,
        })
    }

    pub(super) fn make_directory(
        &self,
        header: &Header,
        node: &Node<'_>,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let new = NewNode::Directory { permissions: node.mode & 0o7777 };
        self.make(header, node.name, new, node.umask, out)
    }

    fn make(
        &self,
        header: &Header,
        bytes: &[u8],
        new: NewNode<'_>,
        umask: u32,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let (caller, parent, umask) = (caller(header), Ino(header.node), self.umask(umask));
        let directory = matches!(new, NewNode::Directory { .. });
        self.authorize(header, Action::Create { parent, directory })?;
        let made = self.file_system.create_masked(caller, parent, name(bytes)?, new, umask)?;
        self.encoding().entry(out, &made);
        Ok(())
    }

    /// The one request that makes and opens at once; the handle in its reply means nothing.
    pub(super) fn create_anonymous(
        &self,
        header: &Header,
        create: &Create<'_>,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let parent = Ino(header.node);
        let permissions = create.mode & 0o7777;
        self.authorize(header, Action::Create { parent, directory: false })?;
        let (caller, umask) = (caller(header), self.umask(create.umask));
        let file = self.file_system.create_anonymous_masked(caller, parent, permissions, umask)?;
        self.encoding().entry(out, &file);
        out.u64(self.handle(PLAIN)).u32(opened::KEEP_CACHE).zeros(4);
        Ok(())
    }

    pub(super) fn link(
        &self,
        header: &Header,
        ino: Ino,
        bytes: &[u8],
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let (parent, name) = (Ino(header.node), name(bytes)?);
        self.authorize(header, Action::Link { ino, parent })?;
        let attributes = self.file_system.link(ino, parent, name)?;
        self.encoding().entry(out, &attributes);
        Ok(())
    }

    pub(super) fn unlink(&self, header: &Header, bytes: &[u8]) -> Outcome {
        let (parent, name) = (Ino(header.node), name(bytes)?);
        self.authorize(header, Action::Remove { parent, name })?;
        Ok(self.file_system.unlink(parent, name)?)
    }

    pub(super) fn remove_directory(&self, header: &Header, bytes: &[u8]) -> Outcome {
        let (parent, name) = (Ino(header.node), name(bytes)?);
        self.authorize(header, Action::Remove { parent, name })?;
        Ok(self.file_system.remove_directory(parent, name)?)
    }

    pub(super) fn rename(&self, header: &Header, rename: &Rename<'_>) -> Outcome {
        let mode = rename_mode(rename.flags).ok_or(Errno::INVALID)?;
        let (parent, new_parent) = (Ino(header.node), Ino(rename.new_parent));
        let (old, new) = (name(rename.name)?, name(rename.new_name)?);
        let action = Action::Rename {
            parent,
            name: old,
            new_parent,
            new_name: new,
            exchange: mode == RenameMode::Exchange,
        };
        self.authorize(header, action)?;
        Ok(self.file_system.rename(caller(header), parent, old, new_parent, new, mode)?)
    }
}

fn rename_mode(flags: u32) -> Option<RenameMode> {
    const WHITEOUT_NO_REPLACE: u32 = rename::WHITEOUT | rename::NO_REPLACE;
    match flags {
        0 => Some(RenameMode::Replace),
        rename::NO_REPLACE => Some(RenameMode::NoReplace),
        rename::EXCHANGE => Some(RenameMode::Exchange),
        rename::WHITEOUT => Some(RenameMode::Whiteout),
        WHITEOUT_NO_REPLACE => Some(RenameMode::WhiteoutNoReplace),
        _ => None,
    }
}

/// Why a regular file is not made. The kernel asks for one where it knows of none: what is there
/// was made behind its back. At `ESTALE` it looks again, and opens the file or says that it exists.
pub(super) fn made_unseen(error: Error) -> Error {
    if error == Error::Exists { Error::Stale } else { error }
}
