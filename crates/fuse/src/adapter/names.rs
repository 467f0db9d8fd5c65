//! Finding, making, moving and removing names.

use super::{Adapter, Outcome, caller, name};
use crate::errno::Errno;
use crate::protocol::flags::{opened, rename};
use crate::protocol::{Create, Encoder, Header, Node, Rename};
use marram_vfs::{Error, Ino, Kind, NewNode, RenameMode};

impl Adapter {
    /// `.` and `..` come from whoever resolves a file handle: "." asks for the inode itself, of
    /// any kind. That there is no such name is an answer that the kernel may remember.
    pub(super) fn lookup(&self, parent: Ino, bytes: &[u8], out: &mut Encoder<'_>) -> Outcome {
        let found = match bytes {
            b"." => self.file_system.pin(parent),
            b".." => self.file_system.parent(parent),
            _ => self.file_system.lookup(parent, name(bytes)?),
        };
        match found {
            Ok(attributes) => self.encoding.entry(out, &attributes),
            Err(Error::NotFound) if !matches!(bytes, b"." | b"..") => self.encoding.no_entry(out),
            Err(error) => return Err(error.into()),
        }
        Ok(())
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
        self.make(header, bytes, NewNode::Symlink { target }, out)
    }

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
        self.make(header, node.name, new, out)
    }

    pub(super) fn make_directory(
        &self,
        header: &Header,
        node: &Node<'_>,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let new = NewNode::Directory { permissions: node.mode & 0o7777 };
        self.make(header, node.name, new, out)
    }

    fn make(
        &self,
        header: &Header,
        bytes: &[u8],
        new: NewNode<'_>,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let parent = Ino(header.node);
        let made = self.file_system.create(caller(header), parent, name(bytes)?, new)?;
        self.encoding.entry(out, &made);
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
        let file = self.file_system.create_anonymous(caller(header), parent, permissions)?;
        self.encoding.entry(out, &file);
        out.u64(HANDLE).u32(opened::KEEP_CACHE).zeros(4);
        Ok(())
    }

    pub(super) fn link(
        &self,
        ino: Ino,
        parent: Ino,
        bytes: &[u8],
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let attributes = self.file_system.link(ino, parent, name(bytes)?)?;
        self.encoding.entry(out, &attributes);
        Ok(())
    }

    pub(super) fn unlink(&self, parent: Ino, bytes: &[u8]) -> Outcome {
        Ok(self.file_system.unlink(parent, name(bytes)?)?)
    }

    pub(super) fn remove_directory(&self, parent: Ino, bytes: &[u8]) -> Outcome {
        Ok(self.file_system.remove_directory(parent, name(bytes)?)?)
    }

    pub(super) fn rename(&self, header: &Header, rename: &Rename<'_>) -> Outcome {
        let mode = rename_mode(rename.flags).ok_or(Errno::INVALID)?;
        self.file_system.rename(
            caller(header),
            Ino(header.node),
            name(rename.name)?,
            Ino(rename.new_parent),
            name(rename.new_name)?,
            mode,
        )?;
        Ok(())
    }
}

/// The handle of everything that is open.
const HANDLE: u64 = 0;

fn rename_mode(flags: u32) -> Option<RenameMode> {
    match flags {
        0 => Some(RenameMode::Replace),
        rename::NO_REPLACE => Some(RenameMode::NoReplace),
        rename::EXCHANGE => Some(RenameMode::Exchange),
        rename::WHITEOUT => Some(RenameMode::Whiteout),
        _ => None,
    }
}
