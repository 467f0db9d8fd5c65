//! Changes within the rights of one user, and what a user's rights are in a dataset.

use crate::control::credentials::Credentials;
use crate::control::protocol::DifferenceRow;
use crate::error::{Error, Result};
use crate::names::quoted;
use marram_history::{Bound, Modes, Parent, Refusals, SEARCH, Seen, Sight, grants, path_of};
use marram_posix::Posix;
use marram_store::{DatasetName, Source, Store};
use marram_vfs::{Identity, Ino};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// The POSIX access control list of a directory.
const ACCESS_LIST: &str = "system.posix_acl_access";
/// Bytes of the longest that Linux has.
const LIST_BYTES_MAX: usize = 64 << 10;
/// Most forks of one user, where no property says another number.
const FORKS_OF_USER_MAX: usize = 256;

/// Has `work` change a file system; for a user only as far as the user could do so by system calls.
///
/// # Errors
/// Those of `work`; what the user lacks, by path: then nothing has changed.
pub(crate) fn within<T>(
    files: &Posix,
    user: Option<&Credentials>,
    work: impl FnOnce(&dyn Parent) -> Result<T>,
) -> Result<T> {
    let Some(user) = user else { return work(files) };
    // Said in words of its own, before anything is planned.
    let (files_view, root) = (Parent::view(files), Parent::root(files));
    marram_history::may_change_names(files_view, root, root, user).map_err(without_rights)?;
    let bound = Bound::new(files, user);
    work(&bound).map_err(|error| {
        let refusals = bound.refusals();
        if refusals.count == 0 { error } else { refusal_of(&refusals, user) }
    })
}

/// Whether a user may go through a directory, wherever that is.
///
/// # Errors
/// It cannot be looked at.
pub(crate) fn may_search(by: &Credentials, directory: &Path) -> std::io::Result<bool> {
    let found = std::fs::symlink_metadata(directory)?;
    let mut list = Vec::with_capacity(LIST_BYTES_MAX);
    let list = match rustix::fs::lgetxattr(directory, ACCESS_LIST, spare_capacity(&mut list)) {
        Ok(_) => Some(list),
        Err(Errno::NODATA | Errno::NOTSUP) => None,
        Err(error) => return Err(error.into()),
    };
    let permissions = u16::try_from(found.mode() & 0o7777).unwrap_or_default();
    let modes = Modes { permissions, uid: found.uid(), gid: found.gid() };
    Ok(grants(by, modes, list.as_deref(), SEARCH))
}

/// What a user lacks, by path.
pub(crate) fn refusal_of(refusals: &Refusals, user: &Credentials) -> Error {
    let Refusals { first, count } = refusals;
    let what = if *count == 1 { "this change".to_owned() } else { format!("{count} changes") };
    let line = |path: &[u8], lacks: &str| match path {
        [] => lacks.to_owned(),
        path => format!("{}: {lacks}", quoted(path)),
    };
    let left = count - first.len();
    let more = (left > 0).then(|| format!("and {left} more"));
    let lines = first.iter().map(|refusal| line(&refusal.path, &refusal.lacks));
    Error::refused(format!("user {} may not make {what}; nothing was changed", user.uid()))
        .details(lines.chain(more))
        .hint("take these out (--exclude, or undo them in the fork), or ask root")
}

/// The error of a dataset whose lists say nothing of rights here.
pub(crate) fn without_rights(error: marram_vfs::Error) -> Error {
    match error {
        marram_vfs::Error::NotSupported => {
            Error::refused("users fork, compare and merge nothing where NFSv4 lists decide")
                .hint("root may; a dataset with acl=posix or acl=off is open to users")
        }
        other => other.into(),
    }
}

/// Whether a user comes to something at a path below a directory of a state.
///
/// # Errors
/// A failed read.
pub(crate) fn is_reached(
    store: &dyn Store,
    (source, below): (&Source, u64),
    path: &[u8],
    user: &Credentials,
) -> Result<bool> {
    let root = Ino(store.report(source)?.root_object);
    let sight = Sight::new(store.open(source)?, (root, Ino(below)), user);
    let seen = sight.and_then(|mut sight| sight.at(path)).map_err(without_rights)?;
    Ok(seen.exists && seen.is_reached)
}

/// Refuses what a user does not come to in a state, as if it were not there. It is found by the
/// number of a directory and names below it, and by the path that this has in a live state.
///
/// # Errors
/// That; a failed read.
pub(crate) fn check_reached(
    store: &dyn Store,
    (live, to): (&Source, &Source),
    (directory, names): (Ino, &[Vec<u8>]),
    user: Option<&Credentials>,
) -> Result<()> {
    let Some(user) = user else { return Ok(()) };
    let root = |source: &Source| Ok::<_, Error>(Ino(store.report(source)?.root_object));
    let (live_root, to_root) = (root(live)?, root(to)?);
    let (view, below) = (store.open(to)?, names.join(&b'/'));
    let is_closed = |from: Ino, path: &[u8]| -> marram_vfs::Result<bool> {
        let seen = Sight::new(Arc::clone(&view), (to_root, from), user)?.at(path)?;
        Ok(seen.exists && !seen.is_reached)
    };
    let live_path = path_of(store.open(live)?, live_root.0, directory.0)?.unwrap_or_default();
    let is_there = path_of(Arc::clone(&view), to_root.0, directory.0)?.is_some();
    let by_number = is_there && is_closed(directory, &below).map_err(without_rights)?;
    let by_path = to.dataset == live.dataset
        && is_closed(to_root, &[&live_path[..], b"/", &below].concat()).map_err(without_rights)?;
    match by_number || by_path {
        true => Err(Error::not_found(format!("it was not there in {to}, or is closed to you"))
            .hint("`marram versions PATH` lists the snapshots that have it")),
        false => Ok(()),
    }
}

/// See [`crate::engine::home::Snapshots::owner_of_fork`].
pub(crate) fn owner_of_fork(store: &dyn Store, source: &Source) -> Result<Option<u32>> {
    store.report(source)?;
    let live = store.report(&Source::live(source.dataset.clone()))?;
    Ok(live.is_fork.then_some(live.owner))
}

/// See [`crate::engine::home::Snapshots::forks_of_user_max`].
pub(crate) fn forks_of_user_max(store: &dyn Store, dataset: &DatasetName) -> Result<usize> {
    let properties = store.properties(dataset)?;
    let set = properties.get("userforks").and_then(|(value, _)| value.parse().ok());
    Ok(set.unwrap_or(FORKS_OF_USER_MAX))
}

/// See [`crate::engine::home::Snapshots::may_change_names`].
pub(crate) fn may_change_names(
    store: &dyn Store,
    dataset: &DatasetName,
    directory: u64,
    user: &dyn Identity,
) -> Result<bool> {
    let live = Source::live(dataset.clone());
    let root = Ino(store.report(&live)?.root_object);
    let view = store.open(&live)?;
    let may = marram_history::may_change_names(&*view, root, Ino(directory), user);
    may.map_err(without_rights)
}

/// What one user may know of two states that are compared.
pub(crate) struct BothSights<'a> {
    before: Sight<'a>,
    after: Sight<'a>,
}

impl<'a> BothSights<'a> {
    /// Below the directory `below` of both.
    ///
    /// # Errors
    /// A state cannot be read.
    pub(crate) fn new(
        store: &dyn Store,
        (before, after): (&Source, &Source),
        below: u64,
        user: &'a Credentials,
    ) -> Result<BothSights<'a>> {
        let sight = |source: &Source| -> Result<Sight<'a>> {
            let root = Ino(store.report(source)?.root_object);
            let sight = Sight::new(store.open(source)?, (root, Ino(below)), user);
            sight.map_err(without_rights)
        };
        Ok(BothSights { before: sight(before)?, after: sight(after)? })
    }

    /// A row as the user may know it: none if its names are in directories that are closed, and
    /// without content that the user cannot read.
    ///
    /// # Errors
    /// A failed read.
    pub(crate) fn of(&mut self, mut row: DifferenceRow) -> Result<Option<DifferenceRow>> {
        let path = row.path_in_bytes();
        let old = row.old_path_in_bytes();
        let before = self.before.at(old.as_deref().unwrap_or(&path))?;
        let after = self.after.at(&path)?;
        let is_hidden = |seen: Seen| seen.exists && !seen.is_listed;
        if is_hidden(before) || is_hidden(after) || !(before.exists || after.exists) {
            return Ok(None);
        }
        let is_closed = |seen: Seen| seen.exists && !seen.is_readable;
        if is_closed(before) || is_closed(after) {
            row.patch = None;
            row.ranges.clear();
            if row.change == "xattrs" {
                row.values.clear();
            }
        }
        Ok(Some(row))
    }
}
