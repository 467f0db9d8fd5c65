//! Access control lists by their names: extended attributes that mean permissions.

use marram_format::record::state;
use marram_store::Properties;

/// Which lists a dataset obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLists {
    /// None: the mode is all there is.
    Off,
    /// POSIX lists.
    Posix,
    /// NFSv4 lists.
    Nfs4,
}

impl AccessLists {
    /// The kind that the property `acl` names; none where a store has no such property.
    pub fn of(properties: &Properties) -> AccessLists {
        match properties.0.get("acl").map(String::as_str) {
            Some("posix") => AccessLists::Posix,
            Some("nfsv4") => AccessLists::Nfs4,
            _ => AccessLists::Off,
        }
    }
}

/// A list that an inode can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListName {
    /// What a POSIX list says of the inode itself.
    PosixAccess,
    /// What a directory gives to what is made in it.
    PosixDefault,
    /// The NFSv4 list.
    Nfs4,
}

impl ListName {
    /// All of them.
    pub const ALL: [ListName; 3] = [ListName::PosixAccess, ListName::PosixDefault, ListName::Nfs4];

    /// The list that an extended attribute is, if it is one.
    pub fn of(name: &[u8]) -> Option<ListName> {
        ListName::ALL.into_iter().find(|list| list.bytes() == name)
    }

    /// Its name as an extended attribute.
    pub fn bytes(self) -> &'static [u8] {
        match self {
            ListName::PosixAccess => b"system.posix_acl_access",
            ListName::PosixDefault => b"system.posix_acl_default",
            ListName::Nfs4 => b"system.nfs4_acl",
        }
    }

    /// The bit of an inode's state that says that it has this list.
    pub fn bit(self) -> u32 {
        match self {
            ListName::PosixAccess => state::POSIX_ACCESS,
            ListName::PosixDefault => state::POSIX_DEFAULT,
            ListName::Nfs4 => state::NFS4_LIST,
        }
    }

    /// The kind of list that it is.
    pub fn kind(self) -> AccessLists {
        match self {
            ListName::PosixAccess | ListName::PosixDefault => AccessLists::Posix,
            ListName::Nfs4 => AccessLists::Nfs4,
        }
    }
}
