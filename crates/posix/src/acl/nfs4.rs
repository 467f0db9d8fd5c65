//! NFSv4.1 access control lists (RFC 8881, section 6): entries that allow or deny, in order.
//!
//! No I/O here: `xdr` is the form in which programs read and write lists, `evaluate` answers what a
//! list allows, `mode` keeps it in step with the nine permission bits, `inherit` says what of a
//! directory's list a new inode has.

mod evaluate;
mod inherit;
mod mode;
mod xdr;

pub use evaluate::Verdict;
pub use xdr::ListError;

use std::ops::{BitAnd, BitOr, Not};

/// Most entries of a list that is set.
pub(super) const ENTRIES_MAX: usize = 512;
/// Most entries of a list that is kept: a change of mode may add an entry for each that names
/// somebody, and a few for owner, group and everyone.
const KEPT_ENTRIES_MAX: usize = 2 * ENTRIES_MAX + 16;

/// A set of the sixteen permissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights(pub u32);

#[allow(missing_docs, reason = "the names are those of RFC 8881, section 6.2.1.3.1")]
impl Rights {
    /// Of a directory: list it.
    pub const READ_DATA: Rights = Rights(0x1);
    /// Of a directory: add what is no directory.
    pub const WRITE_DATA: Rights = Rights(0x2);
    /// Of a directory: add a directory.
    pub const APPEND_DATA: Rights = Rights(0x4);
    pub const READ_NAMED_ATTRS: Rights = Rights(0x8);
    pub const WRITE_NAMED_ATTRS: Rights = Rights(0x10);
    /// Of a directory: use names in it.
    pub const EXECUTE: Rights = Rights(0x20);
    pub const DELETE_CHILD: Rights = Rights(0x40);
    pub const READ_ATTRIBUTES: Rights = Rights(0x80);
    pub const WRITE_ATTRIBUTES: Rights = Rights(0x100);
    pub const WRITE_RETENTION: Rights = Rights(0x200);
    pub const WRITE_RETENTION_HOLD: Rights = Rights(0x400);
    pub const DELETE: Rights = Rights(0x1_0000);
    pub const READ_ACL: Rights = Rights(0x2_0000);
    pub const WRITE_ACL: Rights = Rights(0x4_0000);
    pub const WRITE_OWNER: Rights = Rights(0x8_0000);
    pub const SYNCHRONIZE: Rights = Rights(0x10_0000);
    /// All sixteen.
    pub const ALL: Rights = Rights(0x1f_07ff);
    /// None.
    pub const NONE: Rights = Rights(0);

    /// Whether there is none in it.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other` are in it.
    pub fn has(self, other: Rights) -> bool {
        (other & !self).is_empty()
    }
}

impl BitOr for Rights {
    type Output = Rights;

    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}

impl BitAnd for Rights {
    type Output = Rights;

    fn bitand(self, other: Rights) -> Rights {
        Rights(self.0 & other.0)
    }
}

impl Not for Rights {
    type Output = Rights;

    fn not(self) -> Rights {
        Rights(!self.0)
    }
}

/// The user, group or class that an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// The owner (`OWNER@`).
    Owner,
    /// The owning group (`GROUP@`).
    Group,
    /// Everyone, the owner and the group too (`EVERYONE@`).
    Everyone,
    /// A user.
    NamedUser(u32),
    /// A group.
    NamedGroup(u32),
}

impl Who {
    fn is_named(self) -> bool {
        matches!(self, Who::NamedUser(_) | Who::NamedGroup(_))
    }
}

/// What a directory's entry means for what is made in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inheritance {
    /// Files have it.
    pub files: bool,
    /// Directories have it.
    pub directories: bool,
    /// What is made below a new directory does not have it any more.
    pub no_propagate: bool,
    /// It does not count for the directory itself.
    pub inherit_only: bool,
}

impl Inheritance {
    /// An entry that nothing inherits.
    pub const NONE: Inheritance =
        Inheritance { files: false, directories: false, no_propagate: false, inherit_only: false };

    fn is_inheritable(self) -> bool {
        self.files || self.directories
    }
}

/// One entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whether it allows; else it denies.
    pub allows: bool,
    /// The user, group or class.
    pub who: Who,
    /// What.
    pub rights: Rights,
    /// What new inodes have of it.
    pub inheritance: Inheritance,
}

impl Entry {
    /// An entry that allows and that nothing inherits.
    pub fn allow(who: Who, rights: Rights) -> Entry {
        Entry { allows: true, who, rights, inheritance: Inheritance::NONE }
    }

    /// An entry that denies and that nothing inherits.
    pub fn deny(who: Who, rights: Rights) -> Entry {
        Entry { allows: false, who, rights, inheritance: Inheritance::NONE }
    }

    fn is_effective(&self) -> bool {
        !self.inheritance.inherit_only
    }
}

/// A list: the earlier entry counts more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// Its entries.
    pub entries: Vec<Entry>,
}

impl List {
    /// The list as an inode that is no directory can have it: nothing is inherited from it.
    #[must_use]
    pub fn without_inheritance(mut self) -> List {
        self.entries.retain(Entry::is_effective);
        for entry in &mut self.entries {
            entry.inheritance = Inheritance::NONE;
        }
        self
    }

    /// Whether there may be more entries in a list than users may set.
    pub(super) fn is_too_long(&self) -> bool {
        self.entries.len() > ENTRIES_MAX
    }

    fn effective(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.is_effective())
    }
}
