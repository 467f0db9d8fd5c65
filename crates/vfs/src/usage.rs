//! What users, groups and projects use of a file system.

/// A user, group or project whose usage is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum UsageOwner {
    /// A user.
    User(u32),
    /// A group.
    Group(u32),
    /// A project.
    Project(u32),
}

/// How much somebody uses, and may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerUsage {
    /// Bytes of content, as `du` counts them.
    pub bytes: u64,
    /// The most of them that there may be, if there is a limit.
    pub bytes_limit: Option<u64>,
    /// Inodes.
    pub inodes: u64,
    /// The most of them that there may be, if there is a limit.
    pub inodes_limit: Option<u64>,
}
