//! Locks of files, as programs ask for them.

/// Which locks of a file exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockFamily {
    /// Those of `flock`: of the whole file.
    Whole,
    /// Those of `fcntl`: of ranges.
    Ranges,
}

/// Whether a lock suffers others beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Beside shared ones of others.
    Shared,
    /// Beside none of others.
    Exclusive,
}

/// A lock to set, to let go of, or to ask about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// Which locks it meets.
    pub family: LockFamily,
    /// Whose it is: an open file, or all open files of a process. Locks of one owner never meet.
    pub owner: u64,
    /// The first byte.
    pub first: u64,
    /// The last byte, which it includes.
    pub last: u64,
    /// How to hold it; none to let go of it.
    pub mode: Option<LockMode>,
    /// The process that asks, for others to see.
    pub process: u32,
}

/// A lock that somebody else holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// The first byte.
    pub first: u64,
    /// The last byte, which it includes.
    pub last: u64,
    /// How it is held.
    pub mode: LockMode,
    /// The process that asked for it; 0 on another host.
    pub process: u32,
}
