//! The memory that requests are received in, and may stay in.
//!
//! The data of a long write is handed to the file system together with the memory that it was
//! received in, so that it can be kept as it is; the lane goes on with other memory. When the last
//! part is not needed any more the memory comes back here, to be used again: memory that is new to
//! the process costs a page fault for each page, which is more than the copy that was saved.
//!
//! **Nobody changes memory that is lent.** Only the thread that has taken it from here can write to
//! it, and it is here again only after its last reader is done.
//!
//! How much is lent is bounded by its keeper, how much lies here by [`IDLE_MAX`]; and what nothing
//! has needed for a while is given back to the system.

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;

/// Most buffers that lie here. A file system that has made much durable lets go of many at once.
const IDLE_MAX: usize = 128;

/// Buffers for the requests of a mount.
pub(super) struct RequestMemory {
    /// Bytes of each: any request fits.
    len: usize,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    buffers: Vec<Vec<u8>>,
    /// The fewest that there were since the last look.
    fewest: usize,
}

impl RequestMemory {
    /// None yet; each will be of `len` bytes.
    pub(super) fn new(len: usize) -> Arc<RequestMemory> {
        Arc::new(RequestMemory { len, idle: Mutex::default() })
    }

    /// A buffer: the one that came last, as it may be in the processor's cache, or a new one.
    pub(super) fn take(&self) -> Vec<u8> {
        let mut idle = self.idle.lock();
        let buffer = idle.buffers.pop();
        idle.fewest = idle.fewest.min(idle.buffers.len());
        drop(idle);
        buffer.unwrap_or_else(|| vec![0; self.len])
    }

    /// Lends `buffer`, in which a request of `request_bytes` lies; an empty one is left. Not if
    /// most of it were kept in vain.
    pub(super) fn lend(
        self: &Arc<Self>,
        buffer: &mut Vec<u8>,
        request_bytes: usize,
    ) -> Option<Bytes> {
        if 2 * request_bytes < self.len {
            return None;
        }
        let lent = Lent { buffer: std::mem::take(buffer), home: Arc::clone(self) };
        Some(Bytes::from_owner(lent))
    }

    /// Gives back to the system what has not been needed since the last time that this was called.
    pub(super) fn let_go(&self) {
        let mut idle = self.idle.lock();
        let unneeded = idle.fewest.min(idle.buffers.len());
        let gone: Vec<_> = idle.buffers.drain(..unneeded).collect();
        idle.fewest = idle.buffers.len();
        drop(idle);
        drop(gone);
    }

    fn give_back(&self, buffer: Vec<u8>) {
        let mut idle = self.idle.lock();
        if idle.buffers.len() < IDLE_MAX {
            idle.buffers.push(buffer);
        }
    }
}

/// A buffer that is lent, until nobody has a part of it.
struct Lent {
    buffer: Vec<u8>,
    home: Arc<RequestMemory>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::{IDLE_MAX, RequestMemory};

    #[test]
    fn what_is_lent_comes_back_after_its_last_part_is_gone() {
        let memory = RequestMemory::new(8);
        let mut buffer = memory.take();
        buffer.copy_from_slice(b"abcdefgh");
        let place = buffer.as_ptr();
        let lent = memory.lend(&mut buffer, 8).expect("it is full");
        assert!(buffer.is_empty());
        let part = lent.slice(2..4);
        drop(lent);
        let other = memory.take();
        assert_ne!(other.as_ptr(), place, "a part of it is in use");
        assert_eq!(&part[..], b"cd");
        drop(part);
        let again = memory.take();
        assert_eq!(again.as_ptr(), place);
    }

    #[test]
    fn short_requests_keep_no_memory() {
        let memory = RequestMemory::new(8);
        let mut buffer = memory.take();
        assert!(memory.lend(&mut buffer, 3).is_none());
        assert_eq!(buffer.len(), 8);
    }

    #[test]
    fn what_nobody_needs_goes_at_the_second_look() {
        let memory = RequestMemory::new(8);
        let idle = || memory.idle.lock().buffers.len();
        for _ in 0..=IDLE_MAX {
            memory.give_back(vec![0; 8]);
        }
        assert_eq!(idle(), IDLE_MAX);
        memory.let_go();
        assert_eq!(idle(), IDLE_MAX, "they have just come");
        let used = memory.take();
        memory.give_back(used);
        memory.let_go();
        assert_eq!(idle(), 1);
    }
}
