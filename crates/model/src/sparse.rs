//! Bytes of a file with holes, exact to the byte.
//!
//! A byte is *data* once it has been written, until it is punched or cut off; all else below the
//! size is *hole* and reads as zeros. Runs never overlap and never are empty.

use marram_vfs::{Error, Result};
use std::collections::BTreeMap;

/// The written runs of a file, by offset. The file's size is kept in its attributes.
#[derive(Clone, Debug, Default)]
pub(crate) struct SparseBytes {
    runs: BTreeMap<u64, Vec<u8>>,
}

fn end_of(start: u64, run: &[u8]) -> u64 {
    start + run.len() as u64
}

impl SparseBytes {
    /// Makes the bytes from `start` to `end` (excluded) a hole.
    pub(crate) fn punch(&mut self, start: u64, end: u64) {
        let touched: Vec<u64> = self
            .runs
            .range(..end)
            .rev()
            .take_while(|(at, run)| end_of(**at, run) > start)
            .map(|(at, _)| *at)
            .collect();
        for at in touched {
            let run = self.runs.remove(&at).expect("the key was just seen");
            if end_of(at, &run) > end {
                self.runs.insert(end, run[(end - at) as usize..].to_vec());
            }
            if at < start {
                self.runs.insert(at, run[..(start - at) as usize].to_vec());
            }
        }
    }

    /// Writes `data` at `offset`.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        self.punch(offset, end_of(offset, data));
        if !data.is_empty() {
            self.runs.insert(offset, data.to_vec());
        }
    }

    /// The parts of the runs that lie between `start` and `end` (excluded).
    pub(crate) fn runs_between(&self, start: u64, end: u64) -> Vec<(u64, Vec<u8>)> {
        let mut found: Vec<(u64, Vec<u8>)> = self
            .runs
            .range(..end)
            .rev()
            .take_while(|(at, run)| end_of(**at, run) > start)
            .map(|(at, run)| {
                let from = start.max(*at);
                let to = end.min(end_of(*at, run));
                (from, run[(from - at) as usize..(to - at) as usize].to_vec())
            })
            .collect();
        found.reverse();
        found
    }

    /// Appends to `out` the `len` bytes from `offset`, zeros where there is a hole.
    pub(crate) fn read(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        let base = out.len();
        out.resize(base + len, 0);
        for (at, run) in self.runs_between(offset, offset + len as u64) {
            let from = base + (at - offset) as usize;
            out[from..from + run.len()].copy_from_slice(&run);
        }
    }

    /// The runs of bytes before `end` that are not zero, each as long as can be: alike for all
    /// files that read alike, wherever their holes are.
    pub(crate) fn nonzero_runs(&self, end: u64) -> Vec<(u64, Vec<u8>)> {
        let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
        for (at, run) in self.runs_between(0, end) {
            let mut offset = at;
            for piece in run.split(|byte| *byte == 0) {
                match found.last_mut() {
                    _ if piece.is_empty() => {}
                    Some((start, last)) if end_of(*start, last) == offset => last.extend(piece),
                    _ => found.push((offset, piece.to_vec())),
                }
                offset += piece.len() as u64 + 1;
            }
        }
        found
    }

    /// The first data byte at or after `offset`.
    pub(crate) fn next_data(&self, offset: u64) -> Result<u64> {
        let before = self.runs.range(..=offset).next_back();
        if before.is_some_and(|(at, run)| end_of(*at, run) > offset) {
            return Ok(offset);
        }
        match self.runs.range(offset..).next() {
            Some((at, _)) => Ok(*at),
            None => Err(Error::NoSuchOffset),
        }
    }

    /// The first byte at or after `offset` that is not data.
    pub(crate) fn next_hole(&self, offset: u64) -> u64 {
        let mut hole = offset;
        while let Some((at, run)) = self.runs.range(..=hole).next_back() {
            if end_of(*at, run) <= hole {
                break;
            }
            hole = end_of(*at, run);
        }
        hole
    }

    /// How many bytes are data.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.runs.values().map(|run| run.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::SparseBytes;

    fn text(bytes: &SparseBytes, offset: u64, len: usize) -> String {
        let mut out = Vec::new();
        bytes.read(offset, len, &mut out);
        out.iter().map(|byte| if *byte == 0 { '.' } else { char::from(*byte) }).collect()
    }

    #[test]
    fn writes_cut_what_they_overlap_and_punches_leave_holes() {
        let mut bytes = SparseBytes::default();
        bytes.write(2, b"aaaaaaaa");
        bytes.write(4, b"BB");
        assert_eq!(text(&bytes, 0, 12), "..aaBBaaaa..");
        bytes.punch(3, 5);
        assert_eq!(text(&bytes, 1, 10), ".a..Baaaa.");
        assert_eq!(bytes.next_data(0), Ok(2));
        assert_eq!(bytes.next_hole(2), 3);
        assert_eq!(bytes.next_data(3), Ok(5));
        assert_eq!(bytes.next_hole(5), 10);
        assert!(bytes.next_data(10).is_err());
        assert_eq!(bytes.data_bytes(), 6);
    }

    #[test]
    fn what_reads_alike_has_the_same_runs() {
        let (mut once, mut pieces) = (SparseBytes::default(), SparseBytes::default());
        once.write(0, b"\0\0abc\0\0d");
        pieces.write(4, b"c");
        pieces.write(2, b"ab");
        pieces.write(1 << 60, b"\0\0");
        pieces.write(7, b"d\0");
        let runs = vec![(2, b"abc".to_vec()), (7, b"d".to_vec())];
        assert_eq!(
            (once.nonzero_runs(1 << 62), pieces.nonzero_runs(1 << 62)),
            (runs.clone(), runs)
        );
        assert_eq!(once.nonzero_runs(4), [(2, b"ab".to_vec())]);
    }
}
