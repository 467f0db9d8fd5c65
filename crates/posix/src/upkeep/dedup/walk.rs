//! Finding and sharing all equal content below directories, of one or more file systems.
//!
//! What is in memory is a bounded table, and the way down to the directory that is being looked at.
//! Files may be written, renamed and removed meanwhile: what is gone is passed over, and what is
//! new may or may not be found.

use super::share::Sharing;
use super::table::{PassTable, Place};
use super::window::{WINDOW_BYTES_MIN, Window};
use super::{share, window};
use crate::upkeep::descent::{Descent, Met};
use crate::upkeep::pass::{Pass, PassPlace, Skipped, Stop, Walked};
use marram_vfs::{Error, Ino};
use std::sync::Arc;

/// Longest window, in bytes.
const WINDOW_BYTES_MAX: u64 = 131_072;
/// Windows that go on where the one before them ends are shared together; a run ends at a multiple
/// of this, in bytes.
const RUN_BYTES: u64 = 16 << 20;

/// How to look for equal content.
#[derive(Clone, Copy, Debug)]
pub struct DedupOptions {
    /// Only report what could be shared.
    pub dry_run: bool,
    /// Most places that are remembered at a time. One takes about 40 bytes and stands for a window
    /// of up to 128 KiB. Content that needs more is looked through more often.
    pub places_max: usize,
}

impl Default for DedupOptions {
    /// About 35 MiB of memory, and 110 GiB of large files in one pass.
    fn default() -> DedupOptions {
        DedupOptions { dry_run: false, places_max: 900_000 }
    }
}

/// What was found and done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DedupReport {
    /// How often everything was looked through.
    pub passes: u64,
    /// Names of files that were looked at.
    pub files: u64,
    /// Bytes of content that were looked at.
    pub content_bytes: u64,
    /// Bytes of them that were left alone, as short files and short ends of files are.
    pub short_bytes: u64,
    /// Bytes that were stored more than once.
    pub equal_bytes: u64,
    /// Bytes of them that are shared now.
    pub shared_bytes: u64,
    /// Bytes that those took. They come back as soon as nothing else refers to their blocks.
    pub released_bytes: u64,
    /// Ranges and files that were left alone since they could not be read or changed.
    pub skipped: u64,
    /// The first of them.
    pub listed: Vec<Skipped>,
    /// It was ended before all was looked at.
    pub is_interrupted: bool,
    /// What it failed of in the end.
    pub failure: Option<Error>,
}

/// Windows, one after the other, that are probably equal to others, one after the other.
struct Run {
    source: Place,
    to: u64,
    len: u64,
    checksums: Vec<u64>,
}

impl Run {
    /// Whether a window at `to` that is probably equal to `source` goes on from here.
    fn goes_on(&self, source: Place, to: u64) -> bool {
        let follows = Place { offset: self.source.offset + self.len, ..self.source } == source;
        follows && self.to + self.len == to && !to.is_multiple_of(RUN_BYTES)
    }
}

struct Walk<'w, T> {
    places: &'w [PassPlace],
    options: DedupOptions,
    pass: Pass<'w, T>,
    table: PassTable,
    window_bytes: u64,
    report: DedupReport,
}

/// A file that is being looked at.
struct File<'f> {
    place: usize,
    ino: Ino,
    path: &'f [u8],
}

/// Finds equal content below `places` and lets it share blocks. Before each step, which takes some
/// milliseconds, `admit` is asked; what it returns is kept until the step has been done, and
/// nothing is done any more when it returns nothing.
pub fn deduplicate<T>(
    places: &[PassPlace],
    options: DedupOptions,
    admit: &mut dyn FnMut() -> Option<T>,
) -> DedupReport {
    let record_bytes = places.iter().map(|place| place.files.volume.record_bytes()).min();
    let window_bytes = record_bytes.unwrap_or(WINDOW_BYTES_MAX).min(WINDOW_BYTES_MAX);
    let table = PassTable::new(options.places_max);
    let (pass, report) = (Pass::new(admit), DedupReport::default());
    let mut walk = Walk { places, options, pass, table, window_bytes, report };
    match walk.all_passes() {
        Ok(()) => (),
        Err(Stop::Interrupted) => walk.report.is_interrupted = true,
        Err(Stop::ShortOfSpace) => walk.report.failure = Some(Error::NoSpace),
        Err(Stop::Failed(error)) => walk.report.failure = Some(error),
    }
    DedupReport { skipped: walk.pass.skipped, listed: walk.pass.listed, ..walk.report }
}

impl<T> Walk<'_, T> {
    fn all_passes(&mut self) -> Walked {
        loop {
            self.report.passes += 1;
            for place in 0..self.places.len() {
                let directory = self.places[place].directory;
                self.below(place, directory)?;
            }
            if !self.table.next_pass() {
                return Ok(());
            }
        }
    }

    fn is_first_pass(&self) -> bool {
        self.report.passes == 1
    }

    /// Looks at all that is below a directory.
    fn below(&mut self, place: usize, directory: Ino) -> Walked {
        let files = Arc::clone(&self.places[place].files);
        let mut descent = Descent::below(directory);
        while let Some(met) = self.pass.next(&mut descent, &files)? {
            match met {
                Met::File(ino) => self.file(&File { place, ino, path: descent.path() })?,
                Met::Closed(error) => self.pass.passed_over(place, descent.path(), error)?,
                Met::Nothing => (),
            }
        }
        Ok(())
    }

    fn file(&mut self, file: &File<'_>) -> Walked {
        if self.is_first_pass() {
            self.report.files += 1;
        }
        let files = Arc::clone(&self.places[file.place].files);
        let mut run: Option<Run> = None;
        let mut offset = 0;
        loop {
            let _held = self.pass.step()?;
            let window = match window::next_window(
                &files.volume,
                file.ino,
                offset,
                self.window_bytes,
                false,
            ) {
                Ok(Some(window)) => window,
                Ok(None) => break,
                Err(error) => {
                    self.pass.passed_over(file.place, file.path, error)?;
                    break;
                }
            };
            offset = window.offset + self.window_bytes;
            run = self.window(file, window, run)?;
        }
        let _held = self.pass.step()?;
        self.share(file, run)
    }

    /// Looks for a window in the table. Returns the run that it belongs to, or that goes on; one
    /// that has come to its end is shared.
    fn window(
        &mut self,
        file: &File<'_>,
        window: Window,
        run: Option<Run>,
    ) -> Result<Option<Run>, Stop> {
        if self.is_first_pass() {
            self.report.content_bytes += window.len;
            if window.len < WINDOW_BYTES_MIN {
                self.report.short_bytes += window.len;
            }
        }
        let checksum = match window.checksum {
            Ok(checksum) => checksum.filter(|checksum| self.table.is_about(*checksum)),
            Err(error) => {
                self.pass.passed_over(file.place, file.path, error)?;
                None
            }
        };
        let here = Place { files: file.place, ino: file.ino.0, offset: window.offset };
        let known = checksum.and_then(|checksum| Some((checksum, self.place_known(checksum)?)));
        let Some((checksum, source)) = known.filter(|(_, source)| !self.is_same(*source, here))
        else {
            if let (Some(checksum), None) = (checksum, known) {
                self.table.put(checksum, here);
            }
            return self.share(file, run).map(|()| None);
        };
        match run {
            Some(mut run) if run.goes_on(source, window.offset) => {
                run.len += window.len;
                run.checksums.push(checksum);
                Ok(Some(run))
            }
            other => {
                self.share(file, other)?;
                let checksums = vec![checksum];
                Ok(Some(Run { source, to: window.offset, len: window.len, checksums }))
            }
        }
    }

    fn place_known(&self, checksum: u64) -> Option<Place> {
        self.table.get(checksum)
    }

    /// Whether both are one: a file can have several names, and a directory be named twice.
    fn is_same(&self, one: Place, other: Place) -> bool {
        let files = |place: Place| &self.places[place.files].files;
        (one.ino, one.offset) == (other.ino, other.offset) && Arc::ptr_eq(files(one), files(other))
    }

    fn share(&mut self, file: &File<'_>, run: Option<Run>) -> Walked {
        let Some(run) = run else {
            return Ok(());
        };
        let source = &self.places[run.source.files].files;
        let outcome = share::share_if_equal(
            &self.places[file.place].files,
            source,
            (Ino(run.source.ino), run.source.offset),
            (file.ino, run.to),
            run.len,
            self.options.dry_run,
        );
        let sharing = match outcome {
            Ok(sharing) => sharing,
            Err(error) => {
                run.checksums.iter().for_each(|checksum| self.table.forget(*checksum));
                return self.pass.passed_over(file.place, file.path, error);
            }
        };
        let Sharing { equal_bytes, shared_bytes, released_bytes, already_bytes, .. } = sharing;
        if equal_bytes + already_bytes == 0 {
            // What was there has changed, most likely: let the next such content stand for it.
            run.checksums.iter().for_each(|checksum| self.table.forget(*checksum));
        }
        self.report.equal_bytes += equal_bytes;
        self.report.shared_bytes += shared_bytes;
        self.report.released_bytes += released_bytes;
        match sharing.reason {
            Some(reason) => self.pass.passed_over(file.place, file.path, reason),
            None => Ok(()),
        }
    }
}
