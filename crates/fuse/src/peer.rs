//! The identity of a process at the other end of a UNIX socket, as the kernel tells it.
//!
//! It stands beside the transport because no library wraps `SO_PEERGROUPS`, and system calls
//! without a wrapper are made in this crate alone.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Most supplementary groups that a process can have (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;
/// Groups for which there is room at first.
const GROUPS_USUAL: usize = 64;

/// The identity that a process had when it made its end of a socket, as this user namespace
/// knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The user for files.
    pub uid: u32,
    /// The group for files.
    pub gid: u32,
    /// The supplementary groups.
    pub groups: Vec<u32>,
}

/// The identity of the process that made the other end of a connected UNIX socket.
///
/// # Errors
/// It is no such socket, or the kernel does not tell.
pub fn peer_identity(socket: impl AsFd) -> Result<PeerIdentity> {
    let socket = socket.as_fd();
    let mut found = [0_u32; 3];
    let len = option(socket, libc::SO_PEERCRED, &mut found)?;
    let [_pid, uid, gid] = found;
    // A socket without a peer has an identity that is none.
    if len != size_of_val(&found) || uid == u32::MAX {
        return Err(Error::new(ErrorKind::NotConnected, "the socket has no peer"));
    }
    Ok(PeerIdentity { uid, gid, groups: groups(socket)? })
}

fn groups(socket: BorrowedFd<'_>) -> Result<Vec<u32>> {
    for room in [GROUPS_USUAL, GROUPS_MAX] {
        let mut groups = vec![0_u32; room];
        match option(socket, libc::SO_PEERGROUPS, &mut groups) {
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) => (),
            Err(error) => return Err(error),
            Ok(len) => {
                groups.truncate(len / size_of::<u32>());
                return Ok(groups);
            }
        }
    }
    Err(Error::from_raw_os_error(libc::ERANGE))
}

/// Reads an option of a socket that is made of 32-bit words; how many bytes of it there are.
fn option(socket: BorrowedFd<'_>, name: libc::c_int, words: &mut [u32]) -> Result<usize> {
    let mut len = libc::socklen_t::try_from(size_of_val(words)).map_err(Error::other)?;
    // SAFETY: `words` is writable for `len` bytes, any bits are a `u32`, and the kernel writes no
    // more than `len` bytes; the descriptor is borrowed for the call.
    #[allow(unsafe_code, reason = "no library wraps SO_PEERGROUPS")]
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            words.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if done != 0 {
        return Err(Error::last_os_error());
    }
    usize::try_from(len).map_err(Error::other)
}

#[cfg(test)]
mod tests {
    use super::peer_identity;
    use rustix::process::{getegid, geteuid, getgroups};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    #[test]
    fn the_other_end_is_known_with_its_groups() {
        let (one, _other) = UnixStream::pair().unwrap();
        let found = peer_identity(&one).unwrap();
        assert_eq!((found.uid, found.gid), (geteuid().as_raw(), getegid().as_raw()));
        let mut own: Vec<u32> = getgroups().unwrap().iter().map(|gid| gid.as_raw()).collect();
        let mut groups = found.groups;
        own.sort_unstable();
        groups.sort_unstable();
        assert_eq!(groups, own);
    }

    #[test]
    fn what_has_no_other_end_has_no_identity() {
        let alone = UnixDatagram::unbound().unwrap();
        assert!(peer_identity(&alone).is_err());
        assert!(peer_identity(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
