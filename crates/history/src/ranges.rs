//! Which bytes of a file differ between two states.
//!
//! Sections that are the same slice of the same block are not read. Others are read and compared,
//! so what was written over with the same bytes does not differ, and neither does a hole that was
//! filled with zeros.

use crate::changes::Pair;
use bytes::Bytes;
use marram_records::sections::Section;
use marram_records::state::{State, same_block};
use marram_store::Block;
use marram_vfs::Result;
use std::ops::Range;

/// Fewer equal bytes between two that differ are reported as if they differed too, in bytes.
const EQUAL_BYTES_MIN: u64 = 64;

/// One side of the comparison.
struct Side<'a> {
    state: &'a State,
    sections: Vec<&'a Section>,
    /// The first section that ends after the place that has been reached.
    next: usize,
    /// The block that was read last.
    read: Option<(Block, Bytes)>,
}

/// Ranges that differ, in order, joined where they meet.
#[derive(Default)]
struct Ranges(Vec<Range<u64>>);

impl Ranges {
    fn add(&mut self, range: Range<u64>) {
        match self.0.last_mut() {
            Some(last) if range.start < last.end.saturating_add(EQUAL_BYTES_MIN) => {
                last.end = range.end;
            }
            _ => self.0.push(range),
        }
    }
}

/// The ranges in which a file differs whose changed sections are `pairs`, and whose sizes are
/// `sizes`. What only one of them has differs whatever it is.
pub(crate) fn ranges(
    before: &State,
    after: &State,
    pairs: &[Pair<Section>],
    sizes: (u64, u64),
) -> Result<Vec<Range<u64>>> {
    let mut a = Side::new(before, pairs.iter().filter_map(|pair| pair.before.as_ref()));
    let mut b = Side::new(after, pairs.iter().filter_map(|pair| pair.after.as_ref()));
    let common = sizes.0.min(sizes.1);
    let mut found = Ranges::default();
    let mut at = 0;
    while let Some(start) = [a.covered(at), b.covered(at)].into_iter().flatten().min() {
        if start >= common {
            break;
        }
        let end = a.edge(start).min(b.edge(start)).min(common);
        compare(&mut a, &mut b, start..end, &mut found)?;
        at = end;
    }
    if sizes.0 != sizes.1 {
        found.add(common..sizes.0.max(sizes.1));
    }
    Ok(found.0)
}

impl<'a> Side<'a> {
    fn new(state: &'a State, sections: impl Iterator<Item = &'a Section>) -> Side<'a> {
        Side { state, sections: sections.collect(), next: 0, read: None }
    }

    /// The first place from `at` on that a section covers.
    fn covered(&mut self, at: u64) -> Option<u64> {
        while self.sections.get(self.next).is_some_and(|section| section.end() <= at) {
            self.next += 1;
        }
        self.sections.get(self.next).map(|section| section.at.max(at))
    }

    /// The section that covers `at`.
    fn section(&self, at: u64) -> Option<&'a Section> {
        self.sections.get(self.next).copied().filter(|section| section.at <= at)
    }

    /// Where what covers `at`, or covers it not, ends.
    fn edge(&self, at: u64) -> u64 {
        match self.sections.get(self.next) {
            Some(section) if section.at <= at => section.end(),
            Some(section) => section.at,
            None => u64::MAX,
        }
    }

    /// The content of a range that one section covers, or none: then `None`, which is zeros.
    fn content(&mut self, range: &Range<u64>) -> Result<Option<Bytes>> {
        let section = self.section(range.start).filter(|section| section.block.is_some());
        let Some(section) = section else {
            return Ok(None);
        };
        let part = section.part(range.start, range.end);
        let block = part.block.expect("the section has a block");
        let known = self.read.as_ref().filter(|(known, _)| known.same(&block));
        let bytes = match known {
            Some((_, bytes)) => bytes.clone(),
            None => {
                let bytes = self.state.read_block(&block)?;
                self.read = Some((block, bytes.clone()));
                bytes
            }
        };
        let start = part.block_start as usize;
        let len = usize::try_from(part.len).expect("a block has at most 1 MiB");
        Ok(Some(bytes.slice(start..start + len)))
    }
}

fn compare(a: &mut Side<'_>, b: &mut Side<'_>, range: Range<u64>, out: &mut Ranges) -> Result<()> {
    if is_same_slice(a, b, range.start) {
        return Ok(());
    }
    let contents = (a.content(&range)?, b.content(&range)?);
    let differs: &dyn Fn(usize) -> bool = match &contents {
        (None, None) => return Ok(()),
        (Some(a), Some(b)) if a == b => return Ok(()),
        (Some(a), Some(b)) => &|at| a[at] != b[at],
        (Some(one), None) | (None, Some(one)) => &|at| one[at] != 0,
    };
    let len = usize::try_from(range.end - range.start).expect("a block has at most 1 MiB");
    for at in (0..len).filter(|at| differs(*at)) {
        let byte = range.start + at as u64;
        out.add(byte..byte + 1);
    }
    Ok(())
}

fn is_same_slice(a: &Side<'_>, b: &Side<'_>, at: u64) -> bool {
    let block = |side: &Side<'_>| {
        let section = side.section(at)?;
        let block = section.block.clone()?;
        Some((block, u64::from(section.block_start) + (at - section.at)))
    };
    match (block(a), block(b)) {
        (Some((block_a, start_a)), Some((block_b, start_b))) => {
            start_a == start_b && same_block((a.state, &block_a), (b.state, &block_b))
        }
        _ => false,
    }
}
