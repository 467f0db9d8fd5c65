//! The image of a pmem home, after `docs/format-pmem.md` alone: no code of the engine is here.
//!
//! An image has no state of allocation and no checksums of what lives, so what is compared is the
//! image with itself: what each pointer leads to, what each name leads to, how many names there
//! are. What an interrupted operation has left is finished first, in memory. Then each dataset and
//! snapshot is looked at by itself. A change inside of a file's content, a time or a name that
//! still makes sense cannot be seen.
//!
//! **Any image gets an answer.** In one state a page is met once, or there is a finding, so every
//! walk ends. Memory: two bytes and a bit for each page, some tens of bytes for each inode of one
//! state at a time.

mod checkpoint;
mod entries;
mod header;
mod inodes;
mod interrupted;
mod memory;
mod names;
mod pages;
mod slots;
mod spare;
mod tree;
mod xattrs;

use crate::error::Error;
use crate::finding::{Finding, Place};
use crate::reporter::Reporter;
use crate::{CheckOptions, Summary, finished};
use checkpoint::Checkpoint;
use marram_device::Device;
use memory::{Image, Problem};
use pages::Pages;
use slots::Slot;
use std::collections::{BTreeSet, HashMap};

pub(crate) use header::is_image;

/// Bytes of a page.
const PAGE: u64 = 4096;
/// The same, as a length.
const PAGE_BYTES: usize = 4096;
/// The first page that can be allocated.
const FIRST_PAGE: u64 = 4;
/// The greatest number that can be given away.
const NUMBER_MAX: u64 = (1 << 40) - 1;
/// Where a slot has the root pointer of its inode table.
const ROOT_FIELD: u64 = 8;
/// The inode of the root directory.
const ROOT: u64 = 1;

/// A check of an image under way.
struct Check<'d, 'r> {
    options: CheckOptions,
    image: Image<'d>,
    pages: Pages,
    report: Reporter<'r>,
    summary: Summary,
    /// All numbers that were given away are below this one.
    number_limit: u64,
    /// The state that is looked at.
    state: Option<String>,
}

impl Check<'_, '_> {
    /// Tells what is wrong in the state that is looked at.
    fn tell(&mut self, problem: Problem) {
        let place = Place::of(self.state.as_deref()).at(problem.at);
        self.report.report(problem.kind, place, problem.detail);
    }

    /// Tells what is wrong with an inode of that state.
    fn tell_of(&mut self, ino: u64, problem: Problem) {
        let place = Place::of(self.state.as_deref()).object(ino).at(problem.at);
        self.report.report(problem.kind, place, problem.detail);
    }
}

/// Checks the image on a device.
///
/// # Errors
/// It is of another version, or its beginning cannot be read.
pub(crate) fn check(
    device: &dyn Device,
    options: &CheckOptions,
    host: Option<u64>,
    report: &mut dyn FnMut(Finding),
) -> Result<Summary, Error> {
    let mut report = Reporter::new(report);
    let Some(header) = header::read(device, &mut report)? else {
        return Ok(finished(Summary::default(), &report));
    };
    let mut check = Check {
        options: *options,
        image: Image::new(device, header.pages * PAGE),
        pages: Pages::new(header.pages),
        report,
        summary: Summary { pool_id: header.id, label: header.label, ..Summary::default() },
        number_limit: 0,
        state: None,
    };
    check.read_number_limit();
    match checkpoint::begin(&check.image, host) {
        Ok(found) => {
            let mut roots = BTreeSet::new();
            if found.is_live {
                check.check_live(&mut roots);
            }
            match found.checkpoint {
                Ok(Some(checkpoint)) => {
                    check.check_checkpoint(&checkpoint, found.is_live, &mut roots);
                }
                Ok(None) => {}
                Err(problem) => check.tell(problem),
            }
        }
        Err(problem) => check.tell(problem),
    }
    if let Err(problem) = check.check_spare() {
        check.tell(problem);
    }
    let (nodes, blocks) = check.pages.used();
    check.summary.used_bytes = (nodes + blocks + FIRST_PAGE) * PAGE;
    (check.summary.nodes, check.summary.blocks) = (nodes, blocks);
    let Check { summary, report, .. } = check;
    Ok(finished(summary, &report))
}

impl Check<'_, '_> {
    /// Looks at the live state, with what an interrupted operation has left.
    fn check_live(&mut self, roots: &mut BTreeSet<u64>) {
        if let Err(problem) = interrupted::finish_redo(&mut self.image) {
            self.tell(problem);
        }
        let slots = self.read_slots(slots::SLOTS);
        if let Err(problem) = interrupted::finish_intent(&mut self.image, &slots) {
            self.tell(problem);
        }
        self.count_states(&slots);
        self.check_states(&slots, "", roots);
    }

    /// Looks at what a power cut would leave. Beside a live state it counts for nothing else.
    fn check_checkpoint(
        &mut self,
        checkpoint: &Checkpoint,
        is_beside: bool,
        roots: &mut BTreeSet<u64>,
    ) {
        self.number_limit = self.number_limit.max(checkpoint.number_limit);
        self.pages.begin_state();
        let slots = self.read_checkpoint(checkpoint.slots);
        if !is_beside {
            self.count_states(&slots);
            self.check_states(&slots, "", roots);
            return;
        }
        let counted = self.summary.clone();
        self.check_states(&slots, " at the last checkpoint", roots);
        self.summary = counted;
    }

    fn count_states(&mut self, slots: &[Slot]) {
        let snapshots = slots.iter().filter(|slot| slot.is_snapshot).count() as u64;
        self.summary.snapshots = snapshots;
        self.summary.datasets = slots.len() as u64 - snapshots;
    }

    /// Looks at every state. Of states that have the same inode table one stands for all.
    fn check_states(&mut self, slots: &[Slot], when: &str, roots: &mut BTreeSet<u64>) {
        let names: HashMap<u64, &str> = slots.iter().map(|it| (it.number, &*it.name)).collect();
        for slot in slots {
            let is_passed_over = slot.is_snapshot && !self.options.snapshots;
            if is_passed_over || !roots.insert(slot.root) {
                continue;
            }
            let name = match slot.is_snapshot {
                true => format!("{}@{}", names.get(&slot.of).unwrap_or(&"?"), slot.name),
                false => slot.name.clone(),
            };
            self.state = Some(format!("{name}{when}"));
            self.pages.begin_state();
            self.check_state(slot);
            self.state = None;
        }
    }

    fn check_state(&mut self, slot: &Slot) {
        let inodes = self.read_inodes(slot.at + ROOT_FIELD, slot.root);
        for inode in inodes.values() {
            match inode.kind {
                inodes::REGULAR => self.summary.files += 1,
                inodes::DIRECTORY => self.summary.directories += 1,
                _ => self.summary.other_inodes += 1,
            }
        }
        self.check_names(inodes, slot.is_snapshot);
    }
}
