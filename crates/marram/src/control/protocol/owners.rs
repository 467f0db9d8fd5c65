//! Owners, which have files and limits: users, groups and projects.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What kind of owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OwnerClass {
    /// A user.
    User,
    /// A group.
    Group,
    /// A project.
    Project,
}

impl fmt::Display for OwnerClass {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            OwnerClass::User => "user",
            OwnerClass::Group => "group",
            OwnerClass::Project => "project",
        })
    }
}

/// A user, group or project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    /// What kind of owner.
    pub(crate) class: OwnerClass,
    /// Its number.
    pub(crate) id: u32,
}

/// What an owner uses and may use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OwnerRow {
    /// Whose.
    #[serde(flatten)]
    pub(crate) owner: Owner,
    /// Its name, where it has one; the daemon does not look for it.
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// Bytes of content in use, as `du` counts them.
    pub(crate) bytes: u64,
    /// Most of them.
    pub(crate) bytes_limit: Option<u64>,
    /// Inodes.
    pub(crate) inodes: u64,
    /// Most of them.
    pub(crate) inodes_limit: Option<u64>,
}

impl OwnerRow {
    /// An owner that uses nothing and has no limits.
    pub(crate) fn empty(owner: Owner) -> OwnerRow {
        OwnerRow { owner, name: None, bytes: 0, bytes_limit: None, inodes: 0, inodes_limit: None }
    }
}
