//! What an interrupted operation has left: a redo record that is open has happened, and an intent
//! that is open says what a link count is.

use super::memory::{Checked, Image, Problem, number};
use super::slots::{SLOTS, Slot};
use super::{FIRST_PAGE, PAGE};
use crate::finding::FindingKind::ImageRecord;
use xxhash_rust::xxh3::xxh3_64;

/// Where the redo record lies.
const REDO: u64 = 4096;
/// Most words that follow its first.
const REDO_WORDS_MAX: u64 = 1023;
/// Where the intent word lies.
const INTENT: u64 = 576;
/// Where the address of its slot lies.
const INTENT_SLOT: u64 = 584;
/// Bytes of an inode.
const INODE: u64 = 128;

fn bad<T>(at: u64, detail: impl Into<String>) -> Checked<T> {
    Err(Problem::new(ImageRecord, at, detail))
}

/// Carries out what an open redo record says.
pub(super) fn finish_redo(image: &mut Image<'_>) -> Checked<()> {
    let first = image.word(REDO)?;
    let (state, count) = (first & 0xff, first >> 16 & 0xffff);
    if state == 0 {
        return Ok(());
    }
    if state != 1 || first >> 8 & 0xff != 0 || count > REDO_WORDS_MAX {
        return bad(REDO, format!("the redo record begins with {first:#018x}"));
    }
    let bytes = [&image.page(REDO)?[..], &image.page(REDO + PAGE)?[..]].concat();
    let words = &bytes[8..8 + count as usize * 8];
    if xxh3_64(words) & 0xffff_ffff != first >> 32 {
        return bad(REDO, "the redo record does not match its checksum");
    }
    let mut rest = words;
    while let Some((head, following)) = rest.split_at_checked(8) {
        let head = number(head, 0, 8);
        let (to, len) = (head & 0xffff_ffff_ffff, head >> 48);
        let run = following.split_at_checked(len as usize * 8);
        let (Some((run, left)), true) = (run, len > 0 && to.is_multiple_of(8)) else {
            return bad(REDO, format!("the redo record has a run of {len} words for {to:#x}"));
        };
        if !is_for_records(to, to + len * 8, image.bytes()) {
            return bad(REDO, format!("the redo record leads to {to:#x}, where no record leads"));
        }
        for (place, word) in run.chunks_exact(8).enumerate() {
            image.lay_over(to + place as u64 * 8, number(word, 0, 8));
        }
        rest = left;
    }
    Ok(())
}

/// Whether a record can change a range: the label or the header's checksum, slots, pages.
fn is_for_records(at: u64, end: u64, bytes: u64) -> bool {
    let is_label = (40..104).contains(&at) && end <= 104;
    is_label || (at, end) == (120, 128) || at >= SLOTS && end <= bytes
}

/// Makes a link count what an open intent says, if its entry decides so.
pub(super) fn finish_intent(image: &mut Image<'_>, slots: &[Slot]) -> Checked<()> {
    let word = image.word(INTENT)?;
    if word & 0xff == 0 {
        return Ok(());
    }
    let (entry_at, slot_at) = ((word >> 24) * 8, image.word(INTENT_SLOT)?);
    let slot = slots.iter().find(|slot| slot.at == slot_at && !slot.is_snapshot);
    let is_place = (FIRST_PAGE * PAGE..image.bytes()).contains(&entry_at);
    let (Some(slot), 1 | 2, true) = (slot, word & 0xff, is_place) else {
        return bad(INTENT, format!("the intent {word:#018x} for the slot {slot_at:#x}"));
    };
    let entry = image.word(entry_at)?;
    let is_there = entry & 0xff != 0 && entry >> 20 & 0xf == 1;
    if is_there != (word & 0xff == 1) {
        return Ok(());
    }
    let mut inode = place_of(image, slot.root, entry >> 24)?;
    if entry >> 16 & 0xf == 4 {
        inode = place_of(image, slot.root, image.word(inode + 16)?)?;
    }
    let kept = image.word(inode)? & 0xffff_ffff;
    image.lay_over(inode, kept | (word >> 8 & 0xffff) << 32);
    Ok(())
}

/// Where an inode lies.
fn place_of(image: &Image<'_>, root: u64, ino: u64) -> Checked<u64> {
    let (mut at, mut height, place) = (root & !(PAGE - 1), root & 7, ino / 32);
    let inside = |at: u64| {
        let is_page = at.is_multiple_of(PAGE) && (FIRST_PAGE * PAGE..image.bytes()).contains(&at);
        if is_page { Ok(at) } else { bad(INTENT, format!("the intent leads to {at:#x}")) }
    };
    while height > 0 && at != 0 {
        height -= 1;
        at = image.word(inside(at)? + (place >> (9 * height) & 511) * 8)?;
    }
    match at {
        0 => bad(INTENT, format!("the intent is about inode {ino}, which has no place")),
        at => Ok(inside(at)? + ino % 32 * INODE),
    }
}
