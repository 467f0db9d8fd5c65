//! The daemon behind a mount.

use crate::conversation::Conversation;
use crate::error::{Error, Result};
use crate::folders::{own_uid, private_control_folders_of};
use crate::mount_table::MountEntry;
use crate::protocol::{Greeting, Mount, PROTOCOL, Pool};
use std::path::{Path, PathBuf};

/// Most sockets of a folder that are looked at.
const SOCKETS_MAX: usize = 256;

/// A daemon that has made a mount.
#[derive(Debug)]
pub(crate) struct Found {
    /// A conversation with it.
    pub(crate) conversation: Conversation,
    /// Where it knows the mount to be.
    pub(crate) directory: PathBuf,
    /// What it has mounted.
    pub(crate) pool: Pool,
    /// Whose it is.
    pub(crate) owner: u32,
}

/// Finds the daemon that has made a mount, wherever that is bound to and in whatever mount
/// namespace it is seen; also where the daemon knows the mount to be.
///
/// The kernel says of which user a mount is. Sockets are looked for in folders alone that no other
/// user but root can put anything into, so what answers there is that user's. That has to be root
/// or the user of this process: a daemon of any other could hand out the descriptor of a directory
/// that is not its own, for this process to write in.
///
/// # Errors
/// It is somebody else's; none answers; it does not know [`PROTOCOL`].
pub(crate) fn behind(entry: &MountEntry) -> Result<Found> {
    let owner = entry.owner_uid().unwrap_or_else(own_uid);
    let unsuitable =
        |reason: String| Error::Unsuitable { directory: entry.directory.clone(), reason };
    if owner != 0 && owner != own_uid() {
        return Err(unsuitable(format!("the file system that is mounted there is user {owner}'s")));
    }
    let sockets = private_control_folders_of(owner);
    let mut found = sockets.iter().flat_map(|folder| sockets_in(folder));
    let found = found.find_map(|socket| greeted(&socket, entry));
    let (conversation, greeting, directory) = found.ok_or_else(|| {
        unsuitable("no daemon answers for the file system that is mounted there".to_owned())
    })?;
    if greeting.transactions != PROTOCOL {
        return Err(Error::Daemon {
            message: format!(
                "the daemon is marram {}, with version {} of transactions in place of {PROTOCOL}",
                greeting.version, greeting.transactions
            ),
            hint: Some("unmount the file system, and mount it by a newer marram".to_owned()),
        });
    }
    Ok(Found { conversation, directory, pool: greeting.pool, owner })
}

/// A daemon that has the mount; one that does not greet as a daemon does is as good as none.
fn greeted(socket: &Path, entry: &MountEntry) -> Option<(Conversation, Greeting, PathBuf)> {
    let (conversation, line) = Conversation::begin(socket).ok()?;
    let greeting: Greeting = serde_json::from_slice(&line).ok()?;
    let is_it = |mount: &&Mount| !mount.has_ended && mount.device == Some(entry.device);
    // The number of one that has just ended is the next one's: the newest is it.
    let directory = greeting.mounts.iter().rev().find(is_it)?.directory.clone();
    Some((conversation, greeting, directory))
}

fn sockets_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_socket = |path: &PathBuf| path.extension().is_some_and(|end| end == "sock");
    paths.filter(is_socket).take(SOCKETS_MAX).collect()
}
