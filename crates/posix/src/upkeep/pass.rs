//! A pass: a look at all files below some directories, step by step, while programs use them.
//!
//! Before each step, `admit` decides whether the pass may go on, and what it returns is kept until
//! the step has been done. What cannot be looked at or changed is left alone, and listed in the
//! end.

use crate::filesystem::Posix;
use crate::upkeep::descent::{Descent, Met};
use marram_vfs::{Error, Ino};
use std::sync::Arc;

/// Most things left alone that are listed one by one.
const SKIPPED_MAX: usize = 100;

/// A directory to look below.
#[derive(Clone, Debug)]
pub struct PassPlace {
    /// Its file system, which is of the same store as the others.
    pub files: Arc<Posix>,
    /// The directory.
    pub directory: Ino,
}

/// What was left alone because it could not be read or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Below which of the directories.
    pub place: usize,
    /// The path from there.
    pub path: Vec<u8>,
    /// Why.
    pub reason: Error,
}

/// Why a pass does not go on.
pub(crate) enum Stop {
    /// Nobody wants it any more.
    Interrupted,
    /// It would need more space than is free.
    ShortOfSpace,
    /// It could only fail again.
    Failed(Error),
}

pub(crate) type Walked = Result<(), Stop>;

/// See the module.
pub(crate) struct Pass<'w, T> {
    admit: &'w mut dyn FnMut() -> Option<T>,
    /// How much was left alone.
    pub(crate) skipped: u64,
    /// The first of it.
    pub(crate) listed: Vec<Skipped>,
}

impl<'w, T> Pass<'w, T> {
    pub(crate) fn new(admit: &'w mut dyn FnMut() -> Option<T>) -> Pass<'w, T> {
        Pass { admit, skipped: 0, listed: Vec::new() }
    }

    /// Begins a step, which goes on until what this returns is dropped.
    pub(crate) fn step(&mut self) -> Result<T, Stop> {
        (self.admit)().ok_or(Stop::Interrupted)
    }

    /// Goes down by one thing, in a step of its own.
    pub(crate) fn next(
        &mut self,
        descent: &mut Descent,
        files: &Posix,
    ) -> Result<Option<Met>, Stop> {
        let _held = self.step()?;
        Ok(descent.next(files))
    }

    /// Something could not be looked at or changed. What is gone, or another kind of thing now, is
    /// nobody's concern; and nothing works any more when there is no space.
    pub(crate) fn passed_over(&mut self, place: usize, path: &[u8], error: Error) -> Walked {
        match error {
            Error::Stale | Error::NotFound | Error::NotDirectory => return Ok(()),
            Error::NoSpace => return Err(Stop::ShortOfSpace),
            Error::ReadOnly => return Err(Stop::Failed(error)),
            _ => (),
        }
        let skipped = Skipped { place, path: path.to_vec(), reason: error };
        if self.listed.contains(&skipped) {
            return Ok(());
        }
        self.skipped += 1;
        if self.listed.len() < SKIPPED_MAX {
            self.listed.push(skipped);
        }
        Ok(())
    }
}
