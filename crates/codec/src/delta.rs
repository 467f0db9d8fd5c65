//! What of some new content is in older content: the search of rsync.
//!
//! Old content is cut into **cells**. A sum of each cell can be moved along the new content byte by
//! byte at constant cost, so cells are found at any offset. The sum is weak, and decides nothing:
//! a cell is found when its bytes are equal. From there a match grows byte by byte to both sides,
//! and goes on in the neighbouring part. So parts of any length are found to their last byte,
//! as long as one of a run of neighbours has a cell.
//!
//! Source: A. Tridgell, P. Mackerras, "The rsync algorithm", 1996.

use std::collections::HashMap;

/// Cells of one sum that are compared at most: content that repeats costs no more than other.
const CELLS_OF_ONE_SUM_MAX: usize = 4;
/// Bits of the filter that most places of new content do not pass.
const FILTER_BITS: u32 = 20;

/// A run of bytes that new content has in common with a part of old content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    /// Where in the new content it begins.
    pub at: usize,
    /// Bytes of it.
    pub len: usize,
    /// The part of the old content.
    pub part: usize,
    /// Where in that part it begins.
    pub from: usize,
}

/// Old content in parts, which are neighbours in this order, ready to be searched for.
pub struct OldContent<'o> {
    parts: Vec<&'o [u8]>,
    cell_bytes: usize,
    cells: HashMap<u32, Vec<(usize, usize)>>,
    filter: Vec<u64>,
}

/// The rolling sum of as many bytes as a cell has.
#[derive(Clone, Copy)]
struct Sum {
    plain: u32,
    weighted: u32,
}

impl Sum {
    fn of(bytes: &[u8]) -> Sum {
        let mut sum = Sum { plain: 0, weighted: 0 };
        for byte in bytes {
            sum.plain = sum.plain.wrapping_add(u32::from(*byte));
            sum.weighted = sum.weighted.wrapping_add(sum.plain);
        }
        sum
    }

    /// Moves on by one byte.
    fn roll(&mut self, out: u8, into: u8, len: u32) {
        let out = u32::from(out);
        self.plain = self.plain.wrapping_sub(out).wrapping_add(u32::from(into));
        self.weighted = self.weighted.wrapping_sub(len.wrapping_mul(out)).wrapping_add(self.plain);
    }

    fn value(self) -> u32 {
        (self.plain & 0xffff) | (self.weighted << 16)
    }
}

/// The weak sum of a cell, as the search uses it: equal for different bytes now and then.
pub fn weak_sum(cell: &[u8]) -> u32 {
    Sum::of(cell).value()
}

fn filter_place(sum: u32) -> (usize, u64) {
    let bit = sum.wrapping_mul(0x9e37_79b1) >> (u32::BITS - FILTER_BITS);
    ((bit >> 6) as usize, 1 << (bit & 63))
}

fn common_start(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

fn common_end(one: &[u8], other: &[u8]) -> usize {
    one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count()
}

impl<'o> OldContent<'o> {
    /// Makes old content ready. No match is shorter than a cell.
    ///
    /// # Panics
    /// If a cell has no bytes.
    pub fn new(parts: Vec<&'o [u8]>, cell_bytes: usize) -> OldContent<'o> {
        assert!(cell_bytes > 0, "a cell has bytes");
        let mut old = OldContent {
            parts,
            cell_bytes,
            cells: HashMap::new(),
            filter: vec![0; 1 << (FILTER_BITS - 6)],
        };
        for part in 0..old.parts.len() {
            let content = old.parts[part];
            let last = content.len().checked_sub(cell_bytes);
            let starts = (0..content.len() / cell_bytes).map(|cell| cell * cell_bytes);
            for start in starts.chain(last.filter(|last| !last.is_multiple_of(cell_bytes))) {
                old.add_cell(part, start, weak_sum(&content[start..start + cell_bytes]));
            }
        }
        old
    }

    fn add_cell(&mut self, part: usize, start: usize, sum: u32) {
        let cells = self.cells.entry(sum).or_default();
        if cells.len() < CELLS_OF_ONE_SUM_MAX {
            cells.push((part, start));
        }
        let (word, bit) = filter_place(sum);
        self.filter[word] |= bit;
    }

    /// The matches of new content, in its order, none over another. Gives up where the first so
    /// many bytes have none.
    pub fn find(&self, new: &[u8], give_up_bytes: usize) -> Vec<Match> {
        let cell = self.cell_bytes;
        let (mut found, mut done, mut at) = (Vec::new(), 0, 0);
        let mut sum: Option<Sum> = None;
        while at + cell <= new.len() && (!found.is_empty() || at <= give_up_bytes) {
            let here = *sum.get_or_insert_with(|| Sum::of(&new[at..at + cell]));
            if let Some(longest) = self.longest_at(new, (done, at), here.value()) {
                self.add(new, longest, done, &mut found);
                done = found.last().map_or(done, |last| last.at + last.len);
                (at, sum) = (done, None);
                continue;
            }
            if let (Some(sum), Some(into)) = (&mut sum, new.get(at + cell)) {
                sum.roll(new[at], *into, u32::try_from(cell).unwrap_or(u32::MAX));
            }
            at += 1;
        }
        found
    }

    /// The longest match that has the cell at `at` in it, and begins at `done` or later.
    fn longest_at(&self, new: &[u8], (done, at): (usize, usize), sum: u32) -> Option<Match> {
        let (word, bit) = filter_place(sum);
        if self.filter[word] & bit == 0 {
            return None;
        }
        let grown = |(part, from): &(usize, usize)| {
            let old = self.parts[*part];
            let after = common_start(&old[*from..], &new[at..]);
            if after < self.cell_bytes {
                return None;
            }
            let before = common_end(&old[..*from], &new[done..at]);
            let (at, from) = (at - before, from - before);
            Some(Match { at, len: before + after, part: *part, from })
        };
        self.cells.get(&sum)?.iter().filter_map(grown).max_by_key(|found| found.len)
    }

    /// Adds a match, and those in the neighbouring parts that it goes on with.
    fn add(&self, new: &[u8], first: Match, done: usize, found: &mut Vec<Match>) {
        let mut before = Vec::new();
        let mut next = first;
        while next.from == 0 && next.at > done && next.part > 0 {
            let old = self.parts[next.part - 1];
            let len = common_end(old, &new[done..next.at]);
            if len < self.cell_bytes {
                break;
            }
            next = Match { at: next.at - len, len, part: next.part - 1, from: old.len() - len };
            before.push(next);
        }
        found.extend(before.into_iter().rev());
        found.push(first);
        let mut last = first;
        while last.from + last.len == self.parts[last.part].len()
            && let Some(old) = self.parts.get(last.part + 1)
        {
            let at = last.at + last.len;
            let len = common_start(old, &new[at..]);
            if len < self.cell_bytes {
                break;
            }
            last = Match { at, len, part: last.part + 1, from: 0 };
            found.push(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Match, OldContent, weak_sum};
    use proptest::collection::vec;
    use proptest::prelude::*;

    const CELL: usize = 16;

    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        (0..len).map(|_| byte()).collect()
    }

    /// All matches are of equal bytes, in order, and none lies over another.
    fn check(old: &[&[u8]], new: &[u8], found: &[Match]) {
        let mut done = 0;
        for Match { at, len, part, from } in found.iter().copied() {
            assert!(at >= done && len >= CELL, "{found:?}");
            assert_eq!(new[at..at + len], old[part][from..from + len]);
            done = at + len;
        }
    }

    #[test]
    fn what_moved_by_one_byte_is_found_to_its_last_byte() {
        let old = noise(1, 1000);
        let new = [&old[..500], b"!", &old[500..]].concat();
        let found = OldContent::new(vec![&old], CELL).find(&new, usize::MAX);
        let expected = [
            Match { at: 0, len: 500, part: 0, from: 0 },
            Match { at: 501, len: 500, part: 0, from: 500 },
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn cut_parts_lose_nothing_where_neighbours_go_on() {
        let old = noise(2, 400);
        let parts: Vec<&[u8]> = old.chunks(21).collect();
        let new = [b"abc", &old[..], b"xyz"].concat();
        let found = OldContent::new(parts.clone(), CELL).find(&new, usize::MAX);
        check(&parts, &new, &found);
        // The last part has one byte, which is shorter than any match.
        assert_eq!(found.iter().map(|it| it.len).sum::<usize>(), 399);
    }

    #[test]
    fn an_equal_weak_sum_alone_is_no_match() {
        let old = noise(3, CELL);
        let mut new = old.clone();
        // Moves weight between three neighbours: both parts of the sum stay.
        let place = (0..CELL - 2)
            .find(|at| new[*at] < 255 && new[at + 1] > 1 && new[at + 2] < 255)
            .expect("such neighbours");
        new[place] += 1;
        new[place + 1] -= 2;
        new[place + 2] += 1;
        assert_eq!(weak_sum(&old), weak_sum(&new), "the collision is planted");
        assert_ne!(old, new);
        assert!(OldContent::new(vec![&old], CELL).find(&new, usize::MAX).is_empty());
    }

    #[test]
    fn a_search_gives_up_where_nothing_is_found() {
        let old = noise(4, 100);
        let new = [noise(5, 300), old.clone()].concat();
        let old = OldContent::new(vec![&old], CELL);
        assert!(old.find(&new, 200).is_empty());
        assert_eq!(old.find(&new, 300).len(), 1);
    }

    #[test]
    fn content_that_repeats_is_searched_in_linear_time() {
        let (old, new) = (vec![0; 1 << 16], vec![0; 1 << 18]);
        let found = OldContent::new(vec![&old], CELL).find(&new, usize::MAX);
        check(&[&old], &new, &found);
        assert!(found.iter().map(|it| it.len).sum::<usize>() >= new.len() - CELL);
    }

    proptest! {
        #[test]
        fn pieces_of_old_content_are_found(
            pieces in vec((0_usize..2000, 0_usize..200, any::<bool>()), 1..12),
            cut in 1_usize..300,
            few in any::<bool>(),
        ) {
            let mut old = noise(6, 2200);
            if few {
                old.iter_mut().for_each(|byte| *byte &= 1);
            }
            let mut new = Vec::new();
            for (at, len, is_old) in pieces {
                match is_old {
                    true => new.extend_from_slice(&old[at..at + len]),
                    false => new.extend(noise(at as u64 + 7, len)),
                }
            }
            let parts: Vec<&[u8]> = old.chunks(cut).collect();
            let found = OldContent::new(parts.clone(), CELL).find(&new, usize::MAX);
            check(&parts, &new, &found);
        }
    }
}
