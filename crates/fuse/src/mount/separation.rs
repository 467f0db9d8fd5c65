//! A mount namespace of this process's own, so that what it mounts is seen by it and by what it
//! starts, and by nothing else.

use rustix::io::Errno;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// How a process came by a mount namespace of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separation {
    /// By its privileges: users and groups stay as they are.
    Privileged,
    /// By a user namespace, in which nothing is mapped until the process writes its maps.
    UserNamespace,
}

/// Gives this process a copy of the table of mounts: with its privileges, or else in a user
/// namespace of its own, for which it has to have one thread only.
///
/// # Errors
/// The kernel's, of the second way.
pub fn separate_mounts() -> Result<Separation, std::io::Error> {
    match unshare(UnshareFlags::NEWNS) {
        Ok(()) => Ok(Separation::Privileged),
        Err(Errno::PERM) => {
            unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
            Ok(Separation::UserNamespace)
        }
        Err(error) => Err(error.into()),
    }
}

/// Leaves the namespaces of these kinds for new ones.
#[allow(unsafe_code, reason = "the safe wrapper is deprecated for a flag that is not used")]
fn unshare(kinds: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: the call is unsafe for its flag FILES alone, which parts descriptors of threads. No
    // caller passes that flag: both pass namespaces only.
    unsafe { unshare_unsafe(kinds) }
}
