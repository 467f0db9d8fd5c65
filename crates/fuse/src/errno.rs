//! Error numbers of answers that no file system gives: what the server itself refuses.

use marram_vfs::Error;

/// A Linux error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    /// The caller may not.
    pub(crate) const NOT_PERMITTED: Errno = Errno(1);
    /// A signal came first.
    pub(crate) const INTERRUPTED: Errno = Errno(4);
    /// Something broke.
    pub(crate) const IO: Errno = Errno(5);
    /// A lock is in the way.
    pub(crate) const AGAIN: Errno = Errno(11);
    /// The caller's memory cannot be read.
    pub(crate) const FAULT: Errno = Errno(14);
    /// The arguments make no sense.
    pub(crate) const INVALID: Errno = Errno(22);
    /// No such control call.
    pub(crate) const NO_IOCTL: Errno = Errno(25);
    /// The caller's buffer is too small.
    pub(crate) const RANGE: Errno = Errno(34);
    /// No lock can be waited for.
    pub(crate) const NO_LOCKS: Errno = Errno(37);
    /// No such operation; the kernel then stops asking.
    pub(crate) const NO_OPERATION: Errno = Errno(38);
    /// The protocol does not fit.
    pub(crate) const PROTOCOL: Errno = Errno(71);
    /// A list is longer than the kernel can hand out.
    pub(crate) const TOO_BIG: Errno = Errno(7);
    /// Not supported by this file system.
    pub(crate) const NOT_SUPPORTED: Errno = Errno(95);
}

impl From<&Error> for Errno {
    fn from(error: &Error) -> Self {
        Errno(error.errno())
    }
}
