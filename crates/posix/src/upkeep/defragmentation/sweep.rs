//! A pass over a whole dataset in the background, in the order of its items.
//!
//! Where it is is in memory only; after a mount it begins anew. Files that a program is
//! still writing are passed by: they would fragment again at once.

use super::rewrite;
use super::rewrite::{DefragmentTotals, How, Step};
use super::unit::Region;
use crate::filesystem::Posix;
use crate::frame::damage;
use crate::volume::Volume;
use marram_records::failure::{from_record, from_store};
use marram_records::sections::Section;
use marram_store::{Item, Key, kind};
use marram_vfs::{Error, Result};
use std::sync::Arc;

/// Sections that are looked at at once.
const SECTIONS_MAX: usize = 1024;
/// Items that are passed at once on the way to sections: names, inodes.
const ITEMS_MAX: usize = 8192;
/// A file is left alone for so long after its last change, in seconds.
const UNCHANGED_SECONDS: i64 = 600;

/// Sections that were found, and where to go on.
pub(super) struct Gathered {
    pub(super) regions: Vec<Region>,
    pub(super) next: Option<Key>,
    /// Where a record is that makes no sense, and what is wrong with it: the look ended there, and
    /// goes on behind it.
    pub(super) wrong: Option<(Key, Error)>,
}

/// Sections of files from a key on, as far as one look reaches.
pub(crate) fn gather(volume: &Volume, from: Key, to: Key) -> Result<Gathered> {
    let mut found: Vec<(u64, Section)> = Vec::new();
    let (mut passed, mut next, mut wrong) = (0, None, None);
    let mut visit = |key: Key, item: &Item| {
        passed += 1;
        if found.len() >= SECTIONS_MAX || passed > ITEMS_MAX {
            next = Some(key);
            return false;
        }
        if key.kind == kind::SECTION {
            match Section::decode(key, item) {
                Ok(section) => found.push((key.object, section)),
                Err(error) => {
                    wrong = Some((key, from_record(key.object, &error)));
                    next = key.successor();
                }
            }
        }
        wrong.is_none()
    };
    volume.view.scan(from, to, &mut visit).map_err(from_store)?;
    let mut regions = in_regions(found);
    // A region that goes on behind what was read is looked at as a whole the next time, unless
    // it is all that there is.
    if let Some(key) = next.filter(|key| key.kind == kind::SECTION && wrong.is_none())
        && regions.len() > 1
        && let Some(last) = regions.pop_if(|last| last.is_of(key.object, key.offset))
    {
        next = last.sections.first().map(|section| Key { offset: section.at, ..key });
    }
    Ok(Gathered { regions, next, wrong })
}

fn in_regions(found: Vec<(u64, Section)>) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    for (ino, section) in found {
        match regions.last_mut().filter(|last| last.is_of(ino, section.at)) {
            Some(last) => last.sections.push(section),
            None => regions.push(Region { ino, sections: vec![section] }),
        }
    }
    regions
}

/// A pass over one file system.
#[derive(Debug, Default)]
pub struct Defragmenter {
    next: Option<Key>,
    totals: DefragmentTotals,
    is_short_of_space: bool,
}

impl Defragmenter {
    /// A pass that begins at the first file.
    pub fn new() -> Defragmenter {
        Defragmenter { next: Some(Key::MIN), ..Defragmenter::default() }
    }

    /// What has come of it so far.
    pub fn totals(&self) -> DefragmentTotals {
        self.totals
    }

    /// Whether it ended since too little space is free.
    pub fn is_short_of_space(&self) -> bool {
        self.is_short_of_space
    }

    /// Looks at some thousand items, rewrites a few megabytes at most, and commits them. Returns
    /// whether there is more to look at.
    ///
    /// # Errors
    /// A failed read, or a commit that failed. That a file is gone, or that there is no space, is
    /// none.
    pub fn step(&mut self, files: &Arc<Posix>) -> Result<bool> {
        let Some(from) = self.next else {
            return Ok(false);
        };
        files.volume.check_running()?;
        files.volume.check_writable()?;
        let now = files.volume.options.clock.now().seconds;
        let unchanged_since = Some(now.saturating_sub(UNCHANGED_SECONDS));
        let how = How { unchanged_since, ..How::default() };
        let gathered = gather(&files.volume, from, Key::MAX)?;
        self.next = gathered.next;
        if let Some((key, error)) = gathered.wrong {
            self.totals.unreadable += 1;
            damage::report_damage(&files.volume, key.object, key.offset, 0, error.to_string());
        }
        let mut step = Step::default();
        for region in &gathered.regions {
            let is_rewritten =
                rewrite::rewrite_region(&files.volume, region, how, &mut step, &mut self.totals);
            match is_rewritten {
                Ok(true) => (),
                Ok(false) | Err(Error::NoSpace | Error::QuotaExceeded) => {
                    self.is_short_of_space = true;
                    self.next = None;
                    break;
                }
                // What is wrong with one file must not keep the pass from those behind it.
                Err(Error::Damaged(_)) => self.totals.unreadable += 1,
                Err(error) => return Err(error),
            }
        }
        step.commit(&files.volume)?;
        Ok(self.next.is_some())
    }
}
