//! Slots: the datasets and snapshots of an image.

use super::memory::{Checked, Problem, number};
use super::pages::Use;
use super::{Check, PAGE, ROOT};
use crate::finding::FindingKind as Kind;
use std::collections::{HashMap, HashSet};

/// The first page of slots.
pub(super) const SLOTS: u64 = 12288;
/// Bytes of a slot.
const SLOT: u64 = 256;
/// Slots in a page; the first has the address of the next page.
const SLOTS_IN_PAGE: u64 = PAGE / SLOT;
/// The dataset that every image has.
const ROOT_NAME: &str = "root";

/// A dataset or snapshot.
pub(super) struct Slot {
    /// Where it lies.
    pub(super) at: u64,
    pub(super) is_snapshot: bool,
    pub(super) number: u64,
    /// The number of the dataset of a snapshot, or of the snapshot that a dataset began as.
    pub(super) of: u64,
    /// Root pointer of the inode table.
    pub(super) root: u64,
    pub(super) name: String,
}

impl Check<'_, '_> {
    /// All slots of a checkpoint that make sense.
    pub(super) fn read_checkpoint(&mut self, first: u64) -> Vec<Slot> {
        match self.pages.meet(0, first, Use::Slots) {
            Ok(()) => self.read_slots(first),
            Err(problem) => {
                self.tell(problem);
                Vec::new()
            }
        }
    }

    /// All slots that make sense, from a page on.
    pub(super) fn read_slots(&mut self, first: u64) -> Vec<Slot> {
        let (mut slots, mut page) = (Vec::new(), first);
        loop {
            let bytes = match self.image.page(page) {
                Ok(bytes) => bytes,
                Err(problem) => {
                    self.tell(problem);
                    break;
                }
            };
            for which in 1..SLOTS_IN_PAGE {
                let (at, start) = (page + which * SLOT, (which * SLOT) as usize);
                match self.slot(at, &bytes[start..start + SLOT as usize]) {
                    Ok(Found::End) => break,
                    Ok(Found::Free) => {}
                    Ok(Found::Slot(slot)) => slots.push(slot),
                    Err(problem) => self.tell(problem),
                }
            }
            let next = number(&bytes[..], 0, 8);
            if next == 0 {
                break;
            }
            if let Err(problem) = self.pages.meet(page, next, Use::Slots) {
                self.tell(problem);
                break;
            }
            page = next;
        }
        self.compare_slots(&slots);
        slots
    }

    fn slot(&mut self, at: u64, bytes: &[u8]) -> Checked<Found> {
        let bad = |what: String| Err(Problem::new(Kind::SlotMalformed, at, what));
        match bytes[0] {
            0 => return Ok(Found::End),
            1 => {}
            2 => return Ok(Found::Free),
            state => return bad(format!("a slot has state {state}")),
        }
        let (kind, len) = (bytes[1], usize::from(bytes[2]));
        if kind > 1 || !(1..=200).contains(&len) || bytes[3..8].iter().any(|byte| *byte != 0) {
            return bad(format!("a slot begins with {:#018x}", number(bytes, 0, 8)));
        }
        let (given, of) = (number(bytes, 16, 8), number(bytes, 24, 8));
        if given <= ROOT || given >= self.number_limit {
            return bad(format!("a slot has the number {given}"));
        }
        if number(bytes, 40, 8) != ROOT {
            return bad(format!("the root directory is inode {}", number(bytes, 40, 8)));
        }
        let name = match std::str::from_utf8(&bytes[48..48 + len]) {
            Ok(name) if !name.contains(['@', '\0']) => name.to_owned(),
            _ => {
                let name = String::from_utf8_lossy(&bytes[48..48 + len]).into_owned();
                self.tell(Problem::new(Kind::DatasetName, at, format!("the name {name:?}")));
                name
            }
        };
        let root = number(bytes, 8, 8);
        Ok(Found::Slot(Slot { at, is_snapshot: kind == 1, number: given, of, root, name }))
    }

    /// Names and numbers are there once, and what a slot names is there.
    fn compare_slots(&mut self, slots: &[Slot]) {
        let kinds: HashMap<u64, bool> =
            slots.iter().map(|it| (it.number, it.is_snapshot)).collect();
        let (mut numbers, mut names) = (HashSet::new(), HashSet::new());
        for slot in slots {
            let dataset = if slot.is_snapshot { slot.of } else { 0 };
            if !numbers.insert(slot.number) || !names.insert((dataset, &slot.name)) {
                let detail = format!("number {}, name {:?}", slot.number, slot.name);
                self.tell(Problem::new(Kind::SlotDouble, slot.at, detail));
            }
            let owner = kinds.get(&slot.of);
            let is_owned = match (slot.is_snapshot, owner) {
                (true, owner) => owner == Some(&false),
                // The snapshot that a dataset began as can be gone.
                (false, None) => slot.of < self.number_limit,
                (false, Some(is_snapshot)) => *is_snapshot,
            };
            if !is_owned {
                let detail = format!("{:?} belongs to number {}", slot.name, slot.of);
                self.tell(Problem::new(Kind::SlotOwner, slot.at, detail));
            }
        }
        if !names.contains(&(0, &ROOT_NAME.to_owned())) {
            let detail = "there is no dataset `root`";
            self.tell(Problem::new(Kind::RootMissing, SLOTS, detail));
        }
    }
}

/// What was found in the place of a slot.
enum Found {
    /// Nothing, and nothing behind it.
    End,
    Free,
    Slot(Slot),
}
