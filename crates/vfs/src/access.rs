//! Access rules, for file systems that decide them themselves.
//!
//! Mostly the kernel checks permissions: it knows modes, and POSIX access control lists where the
//! file system keeps them. Rules that it does not know (NFSv4 lists) are the file system's own;
//! then its server must ask [`AccessControl`] before each operation, with the caller's identity,
//! and must keep the kernel from answering out of its caches.

use crate::{Ino, Name, Result, SetAttributes};

/// Which side checks whether a caller may do what it wants to.
#[derive(Clone, Copy)]
pub enum AccessRules<'a> {
    /// The kernel, by mode bits.
    ModeBits,
    /// The kernel, by mode bits and POSIX access control lists, which are extended attributes.
    PosixLists,
    /// The file system: its server asks before each operation.
    Own(&'a dyn AccessControl),
}

/// A caller, as far as access depends on its identity.
pub trait Identity {
    /// The user.
    fn uid(&self) -> u32;

    /// The group.
    fn gid(&self) -> u32;

    /// Whether `gid` is the caller's group or one of its supplementary groups. May take a while:
    /// to be asked only when the answer matters.
    fn is_member(&self, gid: u32) -> bool;

    /// Whether permissions do not bind the caller.
    fn is_privileged(&self) -> bool {
        self.uid() == 0
    }
}

/// What a caller wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// Use names in a directory.
    Search(Ino),
    /// Come to an inode by a name: asked after a lookup, for what can be used without an `open`
    /// that the server would see.
    Reach(Ino),
    /// What `access` asks: all of those that are true.
    Probe {
        /// Of which inode.
        ino: Ino,
        /// To read it.
        read: bool,
        /// To write it.
        write: bool,
        /// To run or to search it.
        execute: bool,
    },
    /// List a directory.
    List(Ino),
    /// Read its attributes.
    ReadAttributes(Ino),
    /// Make something in a directory, with or without a name.
    Create {
        /// The directory.
        parent: Ino,
        /// Whether it is to be a directory.
        directory: bool,
    },
    /// Give an inode another name.
    Link {
        /// The inode.
        ino: Ino,
        /// The directory of the new name.
        parent: Ino,
    },
    /// Take a name away.
    Remove {
        /// The directory.
        parent: Ino,
        /// The name.
        name: Name<'a>,
    },
    /// Move a name.
    Rename {
        /// The directory of the old name.
        parent: Ino,
        /// The old name.
        name: Name<'a>,
        /// The directory of the new name.
        new_parent: Ino,
        /// The new name.
        new_name: Name<'a>,
        /// Whether what has the new name takes the old one.
        exchange: bool,
    },
    /// Read an extended attribute.
    ReadXattr {
        /// Of which inode.
        ino: Ino,
        /// The attribute's name.
        name: &'a [u8],
    },
    /// Set or remove an extended attribute.
    WriteXattr {
        /// Of which inode.
        ino: Ino,
        /// The attribute's name.
        name: &'a [u8],
    },
}

/// How a regular file is to be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opening {
    /// To read.
    pub read: bool,
    /// To write.
    pub write: bool,
    /// To write at its end only.
    pub append: bool,
    /// To run it.
    pub execute: bool,
}

/// What an open file may be used for, beyond what the kernel keeps of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// As it was asked for.
    AsAsked,
    /// Writes must begin at or after the end, and nothing else may change its content: the server
    /// is to see to it for as long as the file is open.
    AppendOnly,
}

/// Decides what a caller may do. A question changes nothing.
///
/// # Errors
/// Each method fails with what the caller is to get: [`crate::Error::AccessDenied`] or
/// [`crate::Error::NotPermitted`], or why the question cannot be answered.
pub trait AccessControl: Send + Sync {
    /// Whether `who` may do `action`.
    fn authorize(&self, who: &dyn Identity, action: Action<'_>) -> Result<()>;

    /// Whether `who` may open the regular file `ino` so.
    fn authorize_open(&self, who: &dyn Identity, ino: Ino, how: Opening) -> Result<Opened>;

    /// Whether `who` may change these attributes. Takes off what follows from its identity: setgid
    /// that it may not set, privileges that a new owner must not get.
    fn authorize_change(&self, who: &dyn Identity, ino: Ino, set: &mut SetAttributes)
    -> Result<()>;
}
