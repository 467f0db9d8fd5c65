//! Access control lists: what they say, how they are kept, and who checks them.
//!
//! A dataset obeys lists of one kind, or none; see `docs/decisions/0010-access-control-lists.md`.
//! POSIX lists are checked by the kernel, and what is done here is to keep them true: mode and list
//! say the same after every operation, in the same batch. NFSv4 lists are checked here as well, by
//! the guard: the kernel does not know them.
//!
//! `posix_list` and `nfs4` are pure: bytes and numbers in, bytes and numbers out. Lists come from
//! users and from media, so nothing in them may make their decoders panic.

mod guard;
mod inherit;
mod kept;
mod nfs4;
mod posix_list;

pub use nfs4::{
    Entry as Nfs4Entry, Inheritance as Nfs4Inheritance, List as Nfs4List,
    ListError as Nfs4ListError, Rights as Nfs4Rights, Verdict as Nfs4Verdict, Who as Nfs4Who,
};
pub use posix_list::{PosixList, PosixListError};

use marram_format::record::state;
use marram_store::Properties;

/// Which lists a dataset obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessLists {
    /// None: the mode is all there is.
    Off,
    /// POSIX lists.
    Posix,
    /// NFSv4 lists.
    Nfs4,
}

impl AccessLists {
    /// The kind that the property `acl` names; none where a store has no such property.
    pub(crate) fn of(properties: &Properties) -> AccessLists {
        match properties.0.get("acl").map(String::as_str) {
            Some("posix") => AccessLists::Posix,
            Some("nfsv4") => AccessLists::Nfs4,
            _ => AccessLists::Off,
        }
    }
}

/// A list that an inode can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListName {
    /// What a POSIX list says of the inode itself.
    PosixAccess,
    /// What a directory gives to what is made in it.
    PosixDefault,
    /// The NFSv4 list.
    Nfs4,
}

impl ListName {
    const ALL: [ListName; 3] = [ListName::PosixAccess, ListName::PosixDefault, ListName::Nfs4];

    /// The list that an extended attribute is, if it is one.
    pub(crate) fn of(name: &[u8]) -> Option<ListName> {
        ListName::ALL.into_iter().find(|list| list.bytes() == name)
    }

    pub(crate) fn bytes(self) -> &'static [u8] {
        match self {
            ListName::PosixAccess => b"system.posix_acl_access",
            ListName::PosixDefault => b"system.posix_acl_default",
            ListName::Nfs4 => b"system.nfs4_acl",
        }
    }

    /// The bit of an inode's state that says that it has this list.
    pub(crate) fn bit(self) -> u32 {
        match self {
            ListName::PosixAccess => state::POSIX_ACCESS,
            ListName::PosixDefault => state::POSIX_DEFAULT,
            ListName::Nfs4 => state::NFS4_LIST,
        }
    }

    pub(crate) fn kind(self) -> AccessLists {
        match self {
            ListName::PosixAccess | ListName::PosixDefault => AccessLists::Posix,
            ListName::Nfs4 => AccessLists::Nfs4,
        }
    }
}
