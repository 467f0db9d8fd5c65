//! Lines of one text that two sides have changed, put together.
//!
//! The changes of each side against the base come from the library `imara-diff`, by the algorithm
//! (histogram) that `git merge` uses too, so that both mean the same lines. Changes that overlap or
//! touch are one place. A place that one side changed is that side's; one that both changed to the
//! same is no conflict. So two changes side by side, with no line between that neither touched, are
//! a conflict, as in git: neither side has seen them together.

use imara_diff::{Algorithm, Diff, Hunk, InternedInput};
use std::ops::Range;

/// A piece of the merged text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextPiece {
    /// Lines without a conflict.
    Merged(Vec<u8>),
    /// Lines that both sides changed, and not to the same.
    Conflict {
        /// What both began as.
        base: Vec<u8>,
        /// What the parent has there.
        ours: Vec<u8>,
        /// What the fork has there.
        theirs: Vec<u8>,
    },
}

/// One side: its lines, and what it changed of the base, in order.
struct Side<'a> {
    lines: Vec<&'a [u8]>,
    hunks: Vec<Hunk>,
    /// The first change that no place has taken.
    next: usize,
    /// How many lines the changes so far have added, or removed.
    drift: i64,
}

/// Puts both sides' changes of a text together. Two pieces that are merged never follow each other.
pub fn merge_lines(base: &[u8], ours: &[u8], theirs: &[u8]) -> Vec<TextPiece> {
    let base_lines = lines_of(base);
    let (mut ours, mut theirs) = (Side::new(base, ours), Side::new(base, theirs));
    let mut pieces = Pieces::default();
    let mut at = 0;
    while let Some(start) = [ours.start(), theirs.start()].into_iter().flatten().min() {
        pieces.merged(&base_lines[at..start]);
        let mut place = start..start;
        let (first_ours, first_theirs) = (ours.next, theirs.next);
        while ours.takes(&mut place) || theirs.takes(&mut place) {}
        let changed = (ours.next > first_ours, theirs.next > first_theirs);
        let (our_lines, their_lines) =
            (ours.lines_at(first_ours, &place), theirs.lines_at(first_theirs, &place));
        match changed {
            (true, false) => pieces.merged(our_lines),
            (false, _) => pieces.merged(their_lines),
            (true, true) if our_lines == their_lines => pieces.merged(our_lines),
            (true, true) => {
                pieces.conflict(&base_lines[place.clone()], our_lines, their_lines);
            }
        }
        at = place.end;
    }
    pieces.merged(&base_lines[at..]);
    pieces.done
}

/// Lines with what ends them.
fn lines_of(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

fn places(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

impl<'a> Side<'a> {
    fn new(base: &'a [u8], text: &'a [u8]) -> Side<'a> {
        let lines = lines_of(text);
        let mut input = InternedInput::default();
        input.update_before(lines_of(base).into_iter());
        input.update_after(lines.iter().copied());
        let mut diff = Diff::compute(Algorithm::Histogram, &input);
        diff.postprocess_no_heuristic(&input);
        Side { lines, hunks: diff.hunks().collect(), next: 0, drift: 0 }
    }

    /// The line of the base where the next change begins.
    fn start(&self) -> Option<usize> {
        self.hunks.get(self.next).map(|hunk| places(&hunk.before).start)
    }

    /// Whether the next change meets a place, which then grows by it.
    fn takes(&mut self, place: &mut Range<usize>) -> bool {
        let Some(hunk) = self.hunks.get(self.next).map(|hunk| places(&hunk.before)) else {
            return false;
        };
        let meets = hunk.start <= place.end;
        if meets {
            place.end = place.end.max(hunk.end);
            self.next += 1;
        }
        meets
    }

    /// What this side has at a place of the base, of which `first` is the first change that it has
    /// there, if it has any.
    fn lines_at(&mut self, first: usize, place: &Range<usize>) -> &[&'a [u8]] {
        let moved = |line: usize, by: i64| {
            line.checked_add_signed(isize::try_from(by).expect("a count of lines"))
                .expect("a line of this side")
        };
        let start = moved(place.start, self.drift);
        for hunk in &self.hunks[first..self.next] {
            self.drift += i64::from(hunk.after.end - hunk.after.start)
                - i64::from(hunk.before.end - hunk.before.start);
        }
        &self.lines[start..moved(place.end, self.drift)]
    }
}

/// The merged text in the making.
#[derive(Default)]
struct Pieces {
    done: Vec<TextPiece>,
}

impl Pieces {
    fn merged(&mut self, lines: &[&[u8]]) {
        if lines.is_empty() {
            return;
        }
        if !matches!(self.done.last(), Some(TextPiece::Merged(_))) {
            self.done.push(TextPiece::Merged(Vec::new()));
        }
        if let Some(TextPiece::Merged(text)) = self.done.last_mut() {
            lines.iter().for_each(|line| text.extend_from_slice(line));
        }
    }

    fn conflict(&mut self, base: &[&[u8]], ours: &[&[u8]], theirs: &[&[u8]]) {
        let (base, ours, theirs) = (base.concat(), ours.concat(), theirs.concat());
        self.done.push(TextPiece::Conflict { base, ours, theirs });
    }
}

#[cfg(test)]
mod tests {
    use super::{TextPiece, merge_lines};

    fn merged(base: &str, ours: &str, theirs: &str) -> String {
        let reported = |piece: TextPiece| match piece {
            TextPiece::Merged(text) => String::from_utf8(text).unwrap(),
            TextPiece::Conflict { base, ours, theirs } => {
                let text = |bytes| String::from_utf8(bytes).unwrap();
                format!("<{}|{}|{}>", text(ours), text(base), text(theirs))
            }
        };
        let pieces = merge_lines(base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
        pieces.into_iter().map(reported).collect()
    }

    #[test]
    fn changes_with_a_line_between_go_together() {
        assert_eq!(merged("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n"), "A\nb\nC\n");
        assert_eq!(merged("a\nb\nc\n", "b\nc\n", "a\nb\nc\nd\n"), "b\nc\nd\n");
        assert_eq!(merged("a\nb", "a\nb", "a\nc"), "a\nc");
        assert_eq!(merged("", "", "a\n"), "a\n");
    }

    #[test]
    fn changes_that_touch_are_a_conflict() {
        assert_eq!(merged("a\nb\n", "A\nb\n", "a\nB\n"), "<A\nb\n|a\nb\n|a\nB\n>");
        assert_eq!(merged("a\n", "a\nx\n", "a\ny\n"), "a\n<x\n||y\n>");
        assert_eq!(merged("a\nb\nc\n", "a\nc\n", "a\nB\nc\n"), "a\n<|b\n|B\n>c\n");
    }

    #[test]
    fn what_both_changed_to_the_same_is_no_conflict() {
        assert_eq!(merged("a\nb\nc\n", "a\nx\nc\n", "a\nx\nc\nd\n"), "a\nx\nc\nd\n");
        assert_eq!(merged("a\nb", "a\nb\n", "a\nb\n"), "a\nb\n");
    }
}
