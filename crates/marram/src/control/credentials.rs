//! The identity of a process at the other end of a control socket, as its rights depend on it.

use crate::paths;
use marram_vfs::Identity;
use std::os::fd::AsFd;

/// A user with all groups, as the kernel tells of the process that made a connection. Users of
/// other user namespaces are those that they are here: root of one of its own is its maker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credentials {
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

impl Credentials {
    /// Those of the process that made the other end of a socket. Taken when that was made, so what
    /// becomes of the process later gives it nothing.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(crate) fn of_peer(socket: impl AsFd) -> std::io::Result<Credentials> {
        let marram_fuse::PeerIdentity { uid, gid, groups } = marram_fuse::peer_identity(socket)?;
        Ok(Credentials { user: uid, group: gid, groups })
    }

    /// Whether all may be done: by root, and by the user of this process, whose pool it is.
    pub(crate) fn is_unbound(&self) -> bool {
        self.user == 0 || self.user == paths::own_uid()
    }

    /// One for tests, with one group.
    #[cfg(test)]
    pub(crate) fn of_user(user: u32) -> Credentials {
        Credentials { user, group: user, groups: Vec::new() }
    }
}

impl Identity for Credentials {
    fn uid(&self) -> u32 {
        self.user
    }

    fn gid(&self) -> u32 {
        self.group
    }

    fn is_member(&self, gid: u32) -> bool {
        self.group == gid || self.groups.contains(&gid)
    }
}
