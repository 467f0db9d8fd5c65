//! Mounts that are brought from the mount namespace in which they were made into that of a command.
//!
//! A command in a view has a namespace of its own, in which nothing is seen of what is mounted
//! outside later, unless mounts are shared there. A process with the rights to do so goes out,
//! takes copies of the mounts, and comes back.

use crate::arguments::ViewArguments;
use crate::error::{Error, Result};
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::process::{chroot, fchdir};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What to do where that cannot be.
const HINT: &str = "run both commands as root, or where mounts are shared: \
    `mount --make-rshared /` before the file system is mounted";

/// Where mounts are made, and where their namespace is.
#[derive(Clone, Debug)]
pub(crate) struct Brought {
    /// The places of the mounts, in both namespaces.
    pub(crate) places: Vec<PathBuf>,
    /// The namespace that they are in, as the kernel shows it.
    pub(crate) namespace: PathBuf,
}

/// Mounts that are at no place.
pub(super) struct Taken<'a> {
    trees: Vec<OwnedFd>,
    places: &'a [PathBuf],
}

impl Taken<'_> {
    /// Takes what is to be brought, if anything is.
    ///
    /// # Errors
    /// This process may not do that; nothing is mounted there.
    pub(super) fn of(arguments: &ViewArguments) -> Result<Option<Taken<'_>>> {
        let places = &arguments.brought_place;
        let (Some(namespace), Some(first)) = (&arguments.brought_from, places.first()) else {
            return Ok(None);
        };
        let failed = |error| Error::system("bring the view that is mounted at", first, error);
        let trees = outside(namespace, || {
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
            places.iter().map(|place| open_tree(CWD, place, flags)).collect()
        });
        let trees = trees.map_err(|error| failed(error).hint(HINT))?;
        Ok(Some(Taken { trees, places }))
    }

    /// Mounts them at their places, in the namespace that this process has come to.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn put(self) -> Result<()> {
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        for (tree, place) in self.trees.iter().zip(self.places) {
            move_mount(tree.as_fd(), "", CWD, place, flags)
                .map_err(|error| Error::system("show the view at", place, error).hint(HINT))?;
        }
        Ok(())
    }
}

/// Does something in another mount namespace, and comes back to the same root and directory.
fn outside<T>(
    namespace: &Path,
    work: impl FnOnce() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let (root, here) = (open("/", flags, Mode::empty())?, open(".", flags, Mode::empty())?);
    let at = |path: &Path| open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let (own, other) = (at("/proc/self/ns/mnt".as_ref())?, at(namespace)?);
    let go_to =
        |to: &OwnedFd| move_into_link_name_space(to.as_fd(), Some(LinkNameSpaceType::Mount));
    go_to(&other)?;
    let done = work();
    go_to(&own)?;
    fchdir(&root)?;
    chroot(".")?;
    fchdir(&here)?;
    done
}
