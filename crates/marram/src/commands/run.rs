//! `marram run`: a command in a fork of a directory, seen at the directory's own path.
//!
//! Whatever can be refused is refused before the fork is made, so that a mistake changes nothing.

use super::fork::{fork_name, make, shelf_of};
use super::session::{self, Session, Workspace};
use crate::arguments::RunArguments;
use crate::commands::answers::write_back;
use crate::error::{Error, Result};
use crate::mountinfo::{self, MountEntry};
use crate::names::quoted;
use crate::output::Output;
use crate::paths::resolved;
use crate::private_view::{Caught, Covered, Inherited, Refusal, View, check_program};
use crate::target::Target;
use marram_store::{DatasetName, Source};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Forks that are named without a name get this and a number.
const NAME_PREFIX: &str = "run-";
/// How often a name is tried that another one takes first.
const NAMES_TRIED_MAX: u64 = 64;

pub(super) fn run(arguments: &RunArguments, output: &Output) -> u8 {
    session::exit_status(in_new_fork(arguments, output), output)
}

fn in_new_fork(arguments: &RunArguments, output: &Output) -> std::result::Result<u8, Refusal> {
    let name = arguments.name.as_deref().map(fork_name).transpose()?;
    check_program(&arguments.command[0])?;
    let place = Place::find(&arguments.directory)?;
    output.refuse_untold(&place.path)?;
    let inherited = Inherited::of_this_process(&place.path)?;
    let caught = Caught::begin()?;
    let workspace = place.fork(name)?;
    Session {
        workspace: &workspace,
        inherited: &inherited,
        words: &arguments.command,
        wishes: arguments.session,
        is_new: true,
        is_named: arguments.name.is_some(),
    }
    .conduct(output, caught)
}

/// A directory that can be forked, and in whose place its fork can be seen.
struct Place {
    target: Target,
    path: PathBuf,
    dataset: DatasetName,
    ino: u64,
    covered: Covered,
}

impl Place {
    fn find(directory: &Path) -> Result<Place> {
        let target = Target::find(directory)?;
        let path = resolved(directory)?;
        let told = quoted(path.as_os_str().as_bytes());
        let (Some(source), Some(ino)) = (target.mounted.clone(), target.ino) else {
            return Err(Error::usage(format!("{told} is a pool, and no directory"))
                .hint("mount it, and name the mount or a directory in it"));
        };
        let Source { dataset, snapshot: None } = source else {
            return Err(Error::usage(format!("{told} is in the snapshot {source}"))
                .hint("`marram clone` makes a writable dataset of a snapshot"));
        };
        if ino == 0 {
            return Err(Error::usage(format!("{told} is no directory of a dataset"))
                .hint("a command runs in a fork of a directory: name that"));
        }
        refuse_mounts_in(&path)?;
        let covered = Covered::at(&path)?;
        Ok(Place { target, path, dataset, ino, covered })
    }

    /// Makes the fork.
    fn fork(self, name: Option<DatasetName>) -> Result<Workspace> {
        let unseen = || Error::failed("the mount of the directory is not in sight");
        let mount = self.target.directory.clone().ok_or_else(unseen)?;
        let shelf = shelf_of(&self.target).ok_or_else(unseen)?;
        self.refuse_covered(&mount)?;
        write_back(&self.target, &self.path)?;
        let name = match name {
            Some(name) => {
                make(&self.target, &self.dataset, self.ino, &name)?;
                name
            }
            None => self.fork_with_free_name(&shelf)?,
        };
        let view = View {
            shown: shelf.join(name.as_str()),
            place: self.path,
            mount,
            covered: self.covered,
            also: Vec::new(),
            further: Vec::new(),
            brought: None,
        };
        let (fork, parent) = (name.to_string(), self.dataset.to_string());
        Ok(Workspace { target: self.target, fork, parent, view })
    }

    /// Forks are reached by the mount of their dataset, which another one may lie over.
    fn refuse_covered(&self, mount: &Path) -> Result<()> {
        let of_place = mountinfo::mount_of(&self.path)?.map(|entry| entry.device);
        let is_it = |entry: MountEntry| {
            entry.is_marram() && entry.root == Path::new("/") && Some(entry.device) == of_place
        };
        if mountinfo::mount_on(mount)?.is_some_and(is_it) {
            return Ok(());
        }
        let mount = quoted(mount.as_os_str().as_bytes());
        Err(Error::in_use(format!("something else is seen at {mount}, where forks are"))
            .hint("inside of a view of a whole mount no other can be made: run it outside"))
    }

    /// Names the fork by the first number that is free.
    fn fork_with_free_name(&self, shelf: &Path) -> Result<DatasetName> {
        let first = last_number(shelf) + 1;
        let mut taken = Error::in_use("too many forks are made at once");
        for number in first..first + NAMES_TRIED_MAX {
            let name: DatasetName = format!("{NAME_PREFIX}{number}").parse()?;
            match make(&self.target, &self.dataset, self.ino, &name) {
                Ok(_) => return Ok(name),
                Err(error) if is_there(&shelf.join(name.to_string())) => taken = error,
                Err(error) => return Err(error),
            }
        }
        Err(taken)
    }
}

/// Whether a fork has this path, be it in use elsewhere.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().map_or_else(|error| error.kind() != ErrorKind::NotFound, |_| true)
}

/// The highest number that such a name has.
fn last_number(shelf: &Path) -> u64 {
    let entries = std::fs::read_dir(shelf).into_iter().flatten().filter_map(|entry| entry.ok());
    let number = |name: &str| name.strip_prefix(NAME_PREFIX)?.parse::<u32>().ok();
    let numbers = entries.filter_map(|entry| number(entry.file_name().to_str()?));
    numbers.max().map_or(0, u64::from)
}

/// Refuses a directory with mounts in it: a fork has nothing of them.
fn refuse_mounts_in(path: &Path) -> Result<()> {
    let mounts = mountinfo::mounts()?.into_iter().map(|entry| entry.directory);
    let inside: Vec<PathBuf> = mounts.filter(|at| at != path && at.starts_with(path)).collect();
    let Some(first) = inside.first() else { return Ok(()) };
    let (path, first) = (path.as_os_str().as_bytes(), first.as_os_str().as_bytes());
    Err(Error::usage(format!("{} is mounted in {}", quoted(first), quoted(path))).hint(
        "a fork has nothing of what is mounted in it: unmount that, or name a directory \
               without mounts",
    ))
}
