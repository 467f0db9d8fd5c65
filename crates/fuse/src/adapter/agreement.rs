//! What the greeting of the kernel decides for the adapter.

/// What was agreed on, as far as serving depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// The kernel holds written data back and owns the times of files while it does.
    pub(crate) writeback: bool,
    /// The kernel checks POSIX access control lists, which it reads as extended attributes.
    pub(crate) posix_lists: bool,
    /// The kernel does not take the umask off what is made, but tells it.
    pub(crate) umask: bool,
    /// Largest read or write, in bytes.
    pub(crate) transfer_bytes_max: usize,
    /// Locks are kept by the file system.
    pub(crate) locks: bool,
    /// Requests come over io_uring.
    pub(crate) io_uring: bool,
}
