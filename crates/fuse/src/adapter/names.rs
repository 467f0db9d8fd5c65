//! Finding, making, moving and removing names.

use super::{Adapter, Outcome, caller, name};
use crate::errno::Errno;
use crate::protocol::flags::{open, opened, rename};
use crate::protocol::{Create, Encoder, Header, Node, Rename};
use marram_vfs::{Attributes, Error, Ino, Kind, NewNode, RenameMode, SetAttributes};

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

    /// The kernel asks for it where it knows of no such name; if there is one all the same, the
    /// request means to open that, unless it is exclusive.
    pub(super) fn create(
        &self,
        header: &Header,
        create: &Create<'_>,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let (parent, new_name) = (Ino(header.node), name(create.name)?);
        let new =
            NewNode::Node { kind: Kind::Regular, permissions: create.mode & 0o7777, device: 0 };
        let exclusive = create.caller_flags & open::CALLER_EXCLUSIVE != 0;
        let file = match self.file_system.create(caller(header), parent, new_name, new) {
            Err(Error::Exists) if !exclusive => {
                let found = self.file_system.lookup(parent, new_name)?;
                self.open_existing(header, create, found)?
            }
            made => made?,
        };
        self.opened(out, &file);
        Ok(())
    }

    /// `found` is pinned; the pin is taken back if it cannot be opened.
    fn open_existing(
        &self,
        header: &Header,
        create: &Create<'_>,
        found: Attributes,
    ) -> Result<Attributes, Error> {
        let ino = found.ino;
        let opened = match found.kind {
            Kind::Regular if create.caller_flags & open::CALLER_TRUNCATE != 0 => {
                let clear_privileges = create.open_flags & open::KILL_SUIDGID != 0;
                let set = SetAttributes { size: Some(0), clear_privileges, ..Default::default() };
                self.file_system.set_attributes(caller(header), ino, &set)
            }
            Kind::Regular => Ok(found),
            Kind::Directory => Err(Error::IsDirectory),
            _ => Err(Error::Exists),
        };
        if opened.is_err() {
            self.file_system.forget(ino, 1);
        }
        opened
    }

    pub(super) fn create_anonymous(
        &self,
        header: &Header,
        create: &Create<'_>,
        out: &mut Encoder<'_>,
    ) -> Outcome {
        let parent = Ino(header.node);
        let permissions = create.mode & 0o7777;
        let file = self.file_system.create_anonymous(caller(header), parent, permissions)?;
        self.opened(out, &file);
        Ok(())
    }

    /// The reply of whatever makes and opens at once: the inode, and a handle that means nothing.
    fn opened(&self, out: &mut Encoder<'_>, file: &Attributes) {
        self.encoding.entry(out, file);
        out.u64(0).u32(opened::KEEP_CACHE).zeros(4);
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

fn rename_mode(flags: u32) -> Option<RenameMode> {
    match flags {
        0 => Some(RenameMode::Replace),
        rename::NO_REPLACE => Some(RenameMode::NoReplace),
        rename::EXCHANGE => Some(RenameMode::Exchange),
        rename::WHITEOUT => Some(RenameMode::Whiteout),
        _ => None,
    }
}
