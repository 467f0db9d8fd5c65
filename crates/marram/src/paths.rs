//! Paths: where things lie on the machine (control sockets, logs, the quickstart pool), and paths
//! that users name, resolved.
//!
//! A control socket gives its holder the daemon's powers over the pool, so the folder that it
//! lies in must belong to the user and be closed to everyone else; a folder that somebody else
//! made first is refused.

pub(crate) use marram_client::control::{
    control_folder, control_folders, is_private, is_root, own_uid, private_control_folders_of,
};

use crate::error::{Error, Result};
use crate::names::shell_word;
use marram_vfs::Caller;
use rustix::process::getegid;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The user and group of this process, as owners of what it makes.
pub(crate) fn own_identity() -> Caller {
    Caller { uid: own_uid(), gid: getegid().as_raw() }
}

/// Makes the folder for control sockets if needed. Root's is open to others, since they may ask
/// root's daemons; nobody but its user can put anything into it.
///
/// # Errors
/// As for [`make_private_folder`].
pub(crate) fn make_control_folder(folder: &Path) -> Result<()> {
    make_private_folder(folder)?;
    if !is_root() {
        return Ok(());
    }
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder, open)
        .map_err(|error| Error::system("open the folder", folder, error))
}

/// Makes `folder` if needed, and makes sure that it is ours alone.
///
/// # Errors
/// When it cannot be made, or belongs to somebody else, or is open to others.
pub(crate) fn make_private_folder(folder: &Path) -> Result<()> {
    let made = std::fs::DirBuilder::new().mode(0o700).create(folder);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::system("make the folder", folder, error));
        }
        _ => {}
    }
    check_private_folder(folder)
}

/// Makes sure that `folder` is a real folder that is ours alone.
///
/// # Errors
/// When it is not, or does not exist.
pub(crate) fn check_private_folder(folder: &Path) -> Result<()> {
    std::fs::symlink_metadata(folder)
        .map_err(|error| Error::system("look at the folder", folder, error))?;
    if is_private(folder, own_uid()) {
        return Ok(());
    }
    Err(Error::failed(format!(
        "{} is not a folder of your own that is closed to others",
        folder.display()
    ))
    .hint("somebody else may have made it: remove it, and try again"))
}

/// The folder for logs of daemons in the background.
///
/// # Errors
/// When there is neither a home nor a folder named for it.
pub(crate) fn log_folder() -> Result<PathBuf> {
    if is_root() && std::env::var_os("XDG_STATE_HOME").is_none() {
        return Ok(PathBuf::from("/var/log/marram"));
    }
    user_folder("XDG_STATE_HOME", ".local/state")
}

/// The folder for what programs of this user remember of pools.
///
/// # Errors
/// When there is neither a home nor a folder named for it.
pub(crate) fn state_folder() -> Result<PathBuf> {
    if is_root() && std::env::var_os("XDG_STATE_HOME").is_none() {
        return Ok(PathBuf::from("/var/lib/marram"));
    }
    user_folder("XDG_STATE_HOME", ".local/state")
}

/// The folder for pools that the user did not name.
///
/// # Errors
/// When there is neither a home nor a folder named for it.
pub(crate) fn data_folder() -> Result<PathBuf> {
    user_folder("XDG_DATA_HOME", ".local/share")
}

fn user_folder(variable: &str, below_home: &str) -> Result<PathBuf> {
    let absolute = |value: &PathBuf| value.is_absolute();
    if let Some(named) = std::env::var_os(variable).map(PathBuf::from).filter(absolute) {
        return Ok(named.join("marram"));
    }
    Ok(home()?.join(below_home).join("marram"))
}

/// Where a program is: in `PATH`, or in the system's own folders, which `mount(8)` leaves out of
/// the `PATH` of its helpers.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    let folders = std::env::split_paths(&path).chain(system);
    folders.map(|folder| folder.join(name)).find(|candidate| candidate.is_file())
}

/// The user's home: what `HOME` says, or else the system's list of users.
///
/// # Errors
/// When neither does.
pub(crate) fn home() -> Result<PathBuf> {
    let found = std::env::home_dir().filter(|home| home.is_absolute());
    found.ok_or_else(|| {
        Error::failed("neither HOME nor the system's list of users names a home folder")
            .hint("set HOME")
    })
}

/// The path with links and dots resolved.
///
/// # Errors
/// When it does not exist, lies behind a dead mount, or is not UTF-8.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    utf8(path)?;
    let found = resolved(path)?;
    utf8(&found)?;
    Ok(found)
}

/// The same of a path that may be inside a mount, where names are any bytes.
///
/// # Errors
/// When it does not exist, or lies behind a dead mount.
pub(crate) fn resolved(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| match error.kind() {
        ErrorKind::NotConnected => dead_mount(path),
        _ => Error::system("find", path, error),
    })
}

/// The error for what lies behind a mount whose daemon has died.
pub(crate) fn dead_mount(path: &Path) -> Error {
    let place = path.display();
    Error::failed(format!("{place}: the daemon of this mount has died"))
        .hint(format!("clear it with `marram unmount {}`", shell_word(path)))
}

/// A path as text.
///
/// # Errors
/// It is not UTF-8.
pub(crate) fn utf8(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        Error::usage(format!("{} is not UTF-8", path.display()))
            .hint("pools and mount points need paths in UTF-8; names inside a mount do not")
    })
}

#[cfg(test)]
mod tests {
    use super::{check_private_folder, is_private, make_private_folder, own_uid};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let control = folder.path().join("marram");
        make_private_folder(&control).unwrap();
        make_private_folder(&control).unwrap();
        std::fs::set_permissions(&control, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make_private_folder(&control).is_err());
        assert!(!is_private(&control, own_uid()) && is_private(folder.path(), own_uid()));
        assert!(!is_private(folder.path(), own_uid() + 1), "of somebody else");
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/etc", &link).unwrap();
        assert!(check_private_folder(&link).is_err());
    }
}
