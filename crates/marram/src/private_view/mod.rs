//! A private view: one directory seen in the place of another, by one command and by all that it
//! starts, and by no other process (docs/decisions/0042-private-view.md).
//!
//! [`begin`] starts this program again as the hidden command `view`. That process ([`stage`]) makes
//! a mount namespace of its own, binds the directory over the place, or several each over its
//! own, and becomes the command. This
//! process stays outside, hands signals on, and waits ([`running`]). Nothing here knows what the
//! directory is: a fork, or the state of a transaction.
//!
//! The invariant: what the command can write below the place goes to the directory. What it would
//! inherit from outside and what would lead past the view ([`inherited`]) is opened again through
//! the view, or nothing is started.

mod brought;
mod inherited;
mod program;
mod running;
mod sight;
mod signals;
mod stage;
mod survivors;

pub(crate) use brought::Brought;
pub(crate) use inherited::Inherited;
pub(crate) use program::check_program;
pub(crate) use running::{End, Leftovers, Running, is_in_foreground};
pub(crate) use signals::Caught;
pub(crate) use stage::become_command;
pub(crate) use survivors::Survivor;

use crate::error::{Error, Result};
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What is seen, and where.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// The directory that is seen.
    pub(crate) shown: PathBuf,
    /// Where it is seen: an absolute path without links.
    pub(crate) place: PathBuf,
    /// Where the mount is that the place lies in.
    pub(crate) mount: PathBuf,
    /// What lies there outside of the view.
    pub(crate) covered: Covered,
    /// What is seen in other places besides.
    pub(crate) also: Vec<Binding>,
    /// The first place of each further file system that is seen: those of `also` are all places.
    pub(crate) further: Vec<PathBuf>,
    /// The mounts that the directories lie in, if they have to be brought from another namespace.
    pub(crate) brought: Option<Brought>,
}

impl View {
    /// The first place of each file system that is seen.
    fn first_places(&self) -> Vec<&Path> {
        let further = self.further.iter().map(|place| &**place);
        std::iter::once(&*self.place).chain(further).collect()
    }
}

/// A directory that is seen in the place of another.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    /// The directory that is seen.
    pub(crate) shown: PathBuf,
    /// Where it is seen.
    pub(crate) place: PathBuf,
    /// What lies there outside of the view.
    pub(crate) covered: Covered,
}

/// What a path led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Covered {
    /// The number of the file system.
    device: u64,
    /// The inode.
    ino: u64,
}

impl Covered {
    /// What `path` leads to. No file system is asked for attributes: a transaction that has asked
    /// for those of a directory depends on every name in it.
    ///
    /// # Errors
    /// When it does not exist, or cannot be looked at.
    pub(crate) fn at(path: &Path) -> Result<Covered> {
        let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO);
        let found = found.map_err(|error| Error::system("look at", path, error))?;
        let device = makedev(found.stx_dev_major, found.stx_dev_minor);
        Ok(Covered { device, ino: found.stx_ino })
    }

    /// As a word of a command line.
    fn word(self) -> String {
        format!("{}:{}", self.device, self.ino)
    }

    fn parse(word: &str) -> Option<Covered> {
        let (device, ino) = word.split_once(':')?;
        Some(Covered { device: device.parse().ok()?, ino: ino.parse().ok()? })
    }
}

/// A command that was not begun, and the exit status that says so.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// Why.
    pub(crate) error: Error,
    /// 125 for what we could not do, 126 for what cannot be run, 127 for what is not there: as
    /// env(1) has it.
    pub(crate) status: u8,
}

impl Refusal {
    /// Exit status for what is our part, and could not be done.
    pub(crate) const OURS: u8 = 125;
    /// Exit status for a command that is there and cannot be run.
    pub(crate) const NOT_EXECUTABLE: u8 = 126;
    /// Exit status for a command that is not there.
    pub(crate) const NOT_FOUND: u8 = 127;
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal { error, status: Refusal::OURS }
    }
}

/// A command to begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun<'a> {
    /// What it sees, and where.
    pub(crate) view: &'a View,
    /// What it inherits.
    pub(crate) inherited: &'a Inherited,
    /// Its words.
    pub(crate) words: &'a [OsString],
    /// Variables of its environment beside those of this process.
    pub(crate) variables: &'a [(&'a str, &'a str)],
    /// What it writes to standard output goes to standard error.
    pub(crate) output_to_error: bool,
}

/// Begins a command in a view. It gets what comes of the signals that were `caught`.
///
/// # Errors
/// When no process can be started. What keeps the view from being made is an end of that process.
pub(crate) fn begin(begun: Begun<'_>, caught: Caught) -> Result<Running> {
    Running::start(begun, caught)
}
