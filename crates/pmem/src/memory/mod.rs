//! Memory that an image lies in: the one way to all its bytes.
//!
//! Every store goes through [`Memory`], so that tests see each one, and what waits for a flush is
//! known. Loads outside of the image are refused, whatever an image says. A store of one, two, four
//! or eight bytes inside a word is atomic; a fill is not, and goes to memory that nothing refers
//! to.
//!
//! A medium can fail: a file that is cut, a host that is full, memory that is broken. Then the
//! medium takes no store any more. What a store was needed for, so that what is there makes sense,
//! is laid over it in memory (`Memory::lay_over`), and can be read.
//!
//! [`mapped`] is the only module of this crate with unsafe code.

pub mod mapped;
pub mod recorded;

use crate::layout::LINE;
use marram_vfs::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an image lies in. Addresses have been checked.
pub trait Medium: Send {
    /// Bytes of the image.
    fn bytes(&self) -> u64;

    /// A second way to the same bytes, which stores nothing.
    fn reader(&self) -> Box<dyn Medium>;

    /// Reads from `at` on.
    ///
    /// # Errors
    /// [`Error::Io`]: the bytes cannot be had.
    fn read(&self, at: u64, out: &mut [u8]) -> Result<()>;

    /// Stores one, two, four or eight bytes inside a word by one instruction.
    ///
    /// # Errors
    /// [`Error::Io`]: something has failed, and the bytes were not stored.
    fn store(&mut self, at: u64, bytes: &[u8]) -> Result<()>;

    /// Stores bytes in any order and in any pieces.
    ///
    /// # Errors
    /// [`Error::Io`]: something has failed, and not all bytes were stored.
    fn fill(&mut self, at: u64, bytes: &[u8]) -> Result<()>;

    /// How it becomes durable, if its pages are written back in any order.
    fn unordered(&self) -> Option<Unordered> {
        None
    }

    /// Whether the last fence of an operation is left out: what has returned is durable with the
    /// next operation, or when it is asked for.
    fn is_epoch(&self) -> bool {
        false
    }

    /// What has failed first; once there is something, there always is.
    fn failure(&self) -> Option<String>;

    /// Pages are about to be stored to: a hint.
    fn prepare(&mut self, _at: u64, _bytes: u64) {}

    /// Writes lines back: what was stored in them is durable after the next fence.
    fn flush(&mut self, at: u64, bytes: u64);

    /// Waits until what was flushed is durable.
    fn fence(&mut self);
}

/// Makes what a medium holds durable, while it is in use.
pub trait WriteBack: Send + Sync {
    /// All that was stored before the call is durable when it returns.
    ///
    /// # Errors
    /// [`Error::Io`]: nothing is known of what was stored.
    fn write_back(&self) -> Result<()>;
}

/// A medium whose pages are written back in any order, at any time.
#[derive(Clone)]
pub struct Unordered {
    /// A number of this run of the machine and of the image's file: as long as both are the same,
    /// all that was stored is there. It is not 0.
    pub host: u64,
    /// Makes all durable.
    pub write_back: Arc<dyn WriteBack>,
}

/// What was done to a medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes of all stores.
    pub stored_bytes: u64,
    /// Lines that were flushed.
    pub flushed_lines: u64,
    /// Fences.
    pub fences: u64,
}

/// An image's memory.
pub struct Memory {
    medium: Box<dyn Medium>,
    /// Bytes of the image, which has them as long as it is open.
    bytes: u64,
    /// What was stored since the last fence: begin and end.
    waiting: Vec<(u64, u64)>,
    tally: Tally,
    /// Words that are read in the place of those of a medium that has failed.
    over: BTreeMap<u64, u64>,
    /// Stores go there.
    lays_over: bool,
    /// Lines were flushed, and the fence is still to come.
    is_owed: bool,
    is_epoch: bool,
    unordered: Option<Unordered>,
}

impl Memory {
    /// All access to `medium`.
    pub fn new(medium: Box<dyn Medium>) -> Memory {
        let (waiting, tally, over) = (Vec::new(), Tally::default(), BTreeMap::new());
        let (unordered, is_epoch) = (medium.unordered(), medium.is_epoch());
        let (lays_over, is_owed, bytes) = (false, false, medium.bytes());
        Memory { medium, bytes, waiting, tally, over, lays_over, is_owed, is_epoch, unordered }
    }

    /// A second way to the same bytes, which stores nothing.
    pub(crate) fn reader(&self) -> Memory {
        Memory::new(self.medium.reader())
    }

    /// The number of this run of the machine, if pages are written back in any order.
    pub(crate) fn host(&self) -> Option<u64> {
        self.unordered.as_ref().map(|unordered| unordered.host)
    }

    /// What makes pages durable that are written back in any order.
    pub(crate) fn unordered(&self) -> Option<Arc<dyn WriteBack>> {
        self.unordered.as_ref().map(|unordered| Arc::clone(&unordered.write_back))
    }

    /// Makes all durable that was stored.
    pub(crate) fn write_back(&self) -> Result<()> {
        if self.lays_over {
            return Ok(());
        }
        self.unordered.as_ref().map_or(Ok(()), |unordered| unordered.write_back.write_back())
    }

    /// What has failed, if anything has.
    pub(crate) fn failure(&self) -> Option<String> {
        self.medium.failure()
    }

    /// Says whether stores are laid over the medium, where only reads of this process see them.
    pub(crate) fn lay_over(&mut self, lays_over: bool) {
        self.lays_over = lays_over;
    }

    /// Puts what lies over the medium into bytes that were read from it.
    fn read_over(&self, at: u64, out: &mut [u8]) {
        let end = at + out.len() as u64;
        for (word_at, word) in self.over.range(at.saturating_sub(7)..end) {
            for (place, byte) in (*word_at..).zip(word.to_le_bytes()) {
                if (at..end).contains(&place) {
                    out[(place - at) as usize] = byte;
                }
            }
        }
    }

    fn store_over(&mut self, at: u64, width: u64, value: u64) -> Result<()> {
        let (place, shift) = (at & !7, (at & 7) * 8);
        let mask = u64::MAX >> (64 - width * 8) << shift;
        let word = self.word(place)? & !mask | value << shift & mask;
        self.over.insert(place, word);
        Ok(())
    }

    /// Says that pages are about to be stored to.
    pub(crate) fn prepare(&mut self, at: u64, bytes: u64) {
        self.medium.prepare(at, bytes);
    }

    /// Bytes of the image.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What was done so far.
    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    fn check(&self, at: u64, len: u64) -> Result<()> {
        match at.checked_add(len) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(Error::Damaged(format!("address {at:#x} is outside of the image"))),
        }
    }

    /// Reads from `at` on.
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        self.check(at, out.len() as u64)?;
        self.medium.read(at, out)?;
        if !self.over.is_empty() {
            self.read_over(at, out);
        }
        Ok(())
    }

    fn load<const N: usize>(&self, at: u64) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(at, &mut bytes)?;
        Ok(bytes)
    }

    /// The word at `at`.
    pub(crate) fn word(&self, at: u64) -> Result<u64> {
        self.load(at).map(u64::from_le_bytes)
    }

    /// Four bytes at `at`.
    pub(crate) fn half(&self, at: u64) -> Result<u32> {
        self.load(at).map(u32::from_le_bytes)
    }

    /// One byte at `at`.
    pub(crate) fn byte(&self, at: u64) -> Result<u8> {
        self.load::<1>(at).map(|bytes| bytes[0])
    }

    fn note(&mut self, at: u64, len: u64) {
        self.tally.stored_bytes += len;
        let (start, end) = (at / LINE * LINE, (at + len).next_multiple_of(LINE));
        match self.waiting.last_mut() {
            Some(last) if last.0 <= start && start <= last.1 => last.1 = last.1.max(end),
            _ => self.waiting.push((start, end)),
        }
    }

    /// Stores the low `width` bytes of `value` at `at`, which `width` divides: all at once.
    pub(crate) fn store(&mut self, at: u64, width: u64, value: u64) -> Result<()> {
        if !at.is_multiple_of(width) {
            return Err(Error::Damaged(format!("address {at:#x} is no place for a store")));
        }
        self.check(at, width)?;
        if self.lays_over {
            return self.store_over(at, width, value);
        }
        self.medium.store(at, &value.to_le_bytes()[..width as usize])?;
        self.note(at, width);
        Ok(())
    }

    /// Stores bytes into memory that nothing refers to.
    pub(crate) fn fill(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.check(at, bytes.len() as u64)?;
        self.medium.fill(at, bytes)?;
        self.note(at, bytes.len() as u64);
        Ok(())
    }

    /// Makes all that was stored durable.
    pub(crate) fn persist(&mut self) {
        self.flush();
        if self.is_owed {
            self.medium.fence();
            self.tally.fences += 1;
            self.is_owed = false;
        }
    }

    /// Whether operations leave their last fence out.
    pub(crate) fn is_epoch(&self) -> bool {
        self.is_epoch
    }

    /// Whether a fence is still to come, so that what was done last is not durable.
    pub(crate) fn is_owed(&self) -> bool {
        self.is_owed
    }

    /// Begins to write back all that was stored: it is durable with the next fence.
    pub(crate) fn flush(&mut self) {
        self.is_owed |= !self.waiting.is_empty();
        for (start, end) in std::mem::take(&mut self.waiting) {
            self.medium.flush(start, end - start);
            self.tally.flushed_lines += (end - start) / LINE;
        }
    }
}
