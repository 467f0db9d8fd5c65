//! Where control sockets lie.
//!
//! A control socket gives its holder the daemon's powers over the pool, so the folder that it lies
//! in belongs to the user of the daemon and is closed to writes of others. What is found in such a
//! folder was put there by that user or by root.

use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The user of this process.
pub fn own_uid() -> u32 {
    geteuid().as_raw()
}

/// Whether root runs this process.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// The folder where this user's daemons put their control sockets.
pub fn control_folder() -> PathBuf {
    let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = |folder: &PathBuf| {
        std::fs::metadata(folder).is_ok_and(|found| found.is_dir() && found.uid() == own_uid())
    };
    if let Some(runtime) = named.filter(|folder| !is_root() && own(folder)) {
        return runtime.join("marram");
    }
    let folders = control_folders_of(own_uid());
    let usable = |folder: &&PathBuf| folder.parent().map(Path::to_owned).is_some_and(|up| own(&up));
    let chosen = folders.iter().find(usable).or(folders.last());
    chosen.cloned().unwrap_or_else(std::env::temp_dir)
}

/// The folders in which daemons of the user `uid` may have their control sockets.
pub fn control_folders_of(uid: u32) -> Vec<PathBuf> {
    if uid == 0 {
        return vec![PathBuf::from("/run/marram")];
    }
    let mut folders = vec![
        PathBuf::from(format!("/run/user/{uid}/marram")),
        PathBuf::from(format!("/tmp/marram-{uid}")),
    ];
    let named = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| uid == own_uid());
    if let Some(runtime) = named.map(PathBuf::from) {
        folders.insert(0, runtime.join("marram"));
        folders.dedup();
    }
    folders
}

/// The folders in which to look for daemons: this user's, and for root everybody's. Folders that
/// others could have filled are left out.
pub fn control_folders() -> Vec<PathBuf> {
    let mut users = BTreeSet::from([own_uid()]);
    if is_root() {
        users.extend(users_named_in("/run/user", ""));
        users.extend(users_named_in("/tmp", "marram-"));
    }
    users.into_iter().flat_map(private_control_folders_of).collect()
}

/// The folders in which to look for daemons of the user `uid`: none that another could have filled.
pub fn private_control_folders_of(uid: u32) -> Vec<PathBuf> {
    let mut folders = control_folders_of(uid);
    // For root of a user namespace the folders of the user outside have root as their owner.
    folders.retain(|folder| is_private(folder, uid) || is_private(folder, own_uid()));
    folders
}

/// The users by whose numbers something in `folder` is named, behind `prefix`.
fn users_named_in(folder: &str, prefix: &str) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect()
}

/// Whether `folder` is a real folder of the user `uid` that nobody else can put anything into.
pub fn is_private(folder: &Path, uid: u32) -> bool {
    let found = std::fs::symlink_metadata(folder);
    found.is_ok_and(|found| found.is_dir() && found.uid() == uid && found.mode() & 0o022 == 0)
}
