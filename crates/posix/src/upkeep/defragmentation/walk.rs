//! Rewriting of what is below directories, because somebody asks for it.

use super::rewrite::{DefragmentTotals, How, Step};
use super::unit::{Extents, Region};
use super::{rewrite, sweep};
use crate::filesystem::Posix;
use crate::upkeep::descent::{Descent, Met};
use crate::upkeep::pass::{Pass, PassPlace, Skipped, Stop, Walked};
use marram_records::sections::section_key;
use marram_vfs::{Error, Ino};
use std::collections::BTreeSet;

/// Files with several names that are kept in mind, so that each is counted once.
const LINKED_MAX: usize = 1 << 16;

/// How to go about it.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefragmentOptions {
    /// Only report what could be done.
    pub dry_run: bool,
}

/// What was found and done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefragmentReport {
    /// Files that were looked at.
    pub files: u64,
    /// Extents that their content lay in before: how often a device has to move on to read them
    /// one after the other. Content beside its item has none.
    pub extents: u64,
    /// What was done; with `dry_run`, what would have been.
    pub totals: DefragmentTotals,
    /// Files that were left alone since they could not be read or changed.
    pub skipped: u64,
    /// The first of them.
    pub listed: Vec<Skipped>,
    /// It was ended before all was looked at.
    pub is_interrupted: bool,
    /// Too little space is free for more.
    pub is_short_of_space: bool,
    /// What it failed of in the end.
    pub failure: Option<Error>,
}

struct Walk<'w, T> {
    how: How,
    pass: Pass<'w, T>,
    step: Step,
    extents: Extents,
    linked: BTreeSet<(usize, u64)>,
    report: DefragmentReport,
}

/// Rewrites what is worth it below `places`. Before each piece of work, which takes some
/// milliseconds, `admit` is asked; what it returns is kept until that has been done, and nothing is
/// done any more when it returns nothing.
pub fn defragment<T>(
    places: &[PassPlace],
    options: DefragmentOptions,
    admit: &mut dyn FnMut() -> Option<T>,
) -> DefragmentReport {
    let how = How { dry_run: options.dry_run, by_place: true, unchanged_since: None };
    let mut walk = Walk {
        how,
        pass: Pass::new(admit),
        step: Step::default(),
        extents: Extents::default(),
        linked: BTreeSet::new(),
        report: DefragmentReport::default(),
    };
    let walked = places.iter().enumerate().try_for_each(|(index, place)| {
        walk.below(index, place)?;
        walk.step.commit(&place.files.volume).map_err(Stop::Failed)
    });
    match walked {
        Ok(()) => (),
        Err(Stop::Interrupted) => walk.report.is_interrupted = true,
        Err(Stop::ShortOfSpace) => walk.report.is_short_of_space = true,
        Err(Stop::Failed(error)) => walk.report.failure = Some(error),
    }
    walk.report.extents = walk.extents.count;
    DefragmentReport { skipped: walk.pass.skipped, listed: walk.pass.listed, ..walk.report }
}

impl<T> Walk<'_, T> {
    fn below(&mut self, index: usize, place: &PassPlace) -> Walked {
        let mut descent = Descent::below(place.directory);
        while let Some(met) = self.pass.next(&mut descent, &place.files)? {
            match met {
                Met::File(ino) => self.file(index, place, ino, descent.path())?,
                Met::Closed(error) => self.passed_over(index, descent.path(), error)?,
                Met::Nothing => (),
            }
        }
        Ok(())
    }

    fn file(&mut self, index: usize, place: &PassPlace, ino: Ino, path: &[u8]) -> Walked {
        let files = &place.files;
        match files.volume.load_inode(ino.0) {
            Ok(inode) if inode.links > 1 => {
                let is_new = self.linked.len() >= LINKED_MAX || self.linked.insert((index, ino.0));
                if !is_new {
                    return Ok(());
                }
            }
            Ok(_) => (),
            Err(error) => return self.passed_over(index, path, error),
        }
        self.report.files += 1;
        self.extents.next_file();
        let end = section_key(ino.0, u64::MAX);
        let mut next = Some(section_key(ino.0, 0));
        while let Some(from) = next {
            let _held = self.pass.step()?;
            let gathered = match sweep::gather(&files.volume, from, end) {
                Ok(gathered) => gathered,
                Err(error) => return self.passed_over(index, path, error),
            };
            next = gathered.next;
            for region in &gathered.regions {
                self.region(index, files, region, path)?;
            }
            if let Some((_, error)) = gathered.wrong {
                self.passed_over(index, path, error)?;
            }
        }
        Ok(())
    }

    fn region(&mut self, index: usize, files: &Posix, region: &Region, path: &[u8]) -> Walked {
        for section in &region.sections {
            if let Some(block) = &section.block {
                self.extents.add(files.volume.view.place_of(block));
            }
        }
        let unreadable = self.report.totals.unreadable;
        let (how, step, totals) = (self.how, &mut self.step, &mut self.report.totals);
        match rewrite::rewrite_region(&files.volume, region, how, step, totals) {
            Ok(true) => (),
            Ok(false) => return Err(Stop::ShortOfSpace),
            Err(error) => return self.passed_over(index, path, error),
        }
        match self.report.totals.unreadable - unreadable {
            0 => Ok(()),
            _ => self.passed_over(index, path, Error::Damaged("content cannot be read".to_owned())),
        }
    }

    /// Something could not be looked at or changed. What an owner's limit does not let be written
    /// anew is as good as without space.
    fn passed_over(&mut self, index: usize, path: &[u8], error: Error) -> Walked {
        match error {
            Error::QuotaExceeded => Err(Stop::ShortOfSpace),
            other => self.pass.passed_over(index, path, other),
        }
    }
}
