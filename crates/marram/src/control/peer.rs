//! The user at the other end of a control socket.
//!
//! A command does with what a daemon answers what its own user may do, and a daemon does for other
//! users only what they may. So each end looks up the other's user before it takes anything.
//! Names prove nothing: root looks for daemons in folders of others, into which their users can put
//! a socket that answers for any pool of which they know the id.
//!
//! Where the kernel does not name that user the folder decides: a folder that is the user's own and
//! closed to others has no foreign socket.

pub(crate) use marram_client::control::connect;

use crate::output::say;
use crate::{names, paths};
use parking_lot::Mutex;
use rustix::net::sockopt::socket_peercred;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The user at the other end; none if the kernel does not tell.
pub(crate) fn user_of(stream: &UnixStream) -> Option<u32> {
    marram_fuse::peer_identity(stream).ok().map(|found| found.uid)
}

/// The process at the other end as it is known here; none if it is in another PID namespace.
pub(crate) fn process_of(stream: &UnixStream) -> Option<i32> {
    let process = socket_peercred(stream).ok().map(|found| found.pid.as_raw_nonzero().get());
    // The kernel calls a process that is not seen here 0.
    process.filter(|process| *process > 0)
}

/// Whether the user is root or the one of this process.
pub(crate) fn is_own_or_root(user: u32) -> bool {
    user == 0 || user == paths::own_uid()
}

/// Whether the daemon of `user` behind `socket` is to be asked: root's, this user's, or that of the
/// `owner` of what is asked about. A warning says so if it is not.
pub(crate) fn may_answer(socket: &Path, user: Option<u32>, owner: Option<u32>) -> bool {
    let is_trusted = match user {
        Some(user) => is_own_or_root(user) || Some(user) == owner,
        None => socket.parent().is_some_and(|it| paths::is_private(it, paths::own_uid())),
    };
    if !is_trusted {
        warn_of(socket, user);
    }
    is_trusted
}

/// Says that a socket is passed over because of its user: once, however often a command looks.
pub(crate) fn warn_of(socket: &Path, user: Option<u32>) {
    static WARNED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if !WARNED.lock().insert(socket.to_owned()) {
        return;
    }
    let place = names::quoted(socket.as_os_str().as_bytes());
    let who = user.map_or_else(|| "somebody unknown".to_owned(), |user| format!("user {user}"));
    say(&format!(
        "marram: warning: {place} is passed over: {who} answers there, who is neither root nor \
         you, and does not own what this is about"
    ));
}

#[cfg(test)]
mod tests {
    use super::{is_own_or_root, may_answer, user_of};
    use crate::paths::own_uid;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    #[test]
    fn root_oneself_and_the_owner_may_answer_and_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("x.sock");
        let (own, other) = (own_uid(), own_uid() + 1000);
        assert!(may_answer(&socket, Some(own), None) && may_answer(&socket, Some(0), None));
        assert!(may_answer(&socket, Some(other), Some(other)));
        assert!(!may_answer(&socket, Some(other), None));
        assert!(!may_answer(&socket, Some(other), Some(other + 1)));
        assert!(may_answer(&socket, None, Some(other)), "in a folder of one's own");
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        assert!(!may_answer(&socket, None, Some(other)), "anybody can have put it there");
        assert!(is_own_or_root(own) && !is_own_or_root(other));
    }

    #[test]
    fn the_kernel_tells_who_is_at_the_other_end() {
        let (one, _other) = UnixStream::pair().unwrap();
        assert_eq!(user_of(&one), Some(own_uid()));
    }
}
