//! The memory that one request travels in over io_uring, and where in it everything lies.
//!
//! The kernel copies a request into it, and the reply out of it: three headers of fixed places (the
//! protocol's own, the operation's, the ring's) and a payload. It is the kernel's while a command
//! with it is under way, and the lane's in between; both only copy, and no reference into it is
//! ever made. The lengths in it are trusted no more than those that come over `/dev/fuse`.

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::io::IoSlice;
use std::ptr::NonNull;

/// Bytes of the protocol's header of a request, and of a reply.
const REQUEST_HEADER_BYTES: usize = 40;
const REPLY_HEADER_BYTES: usize = 16;
/// Where the operation's own header begins, and how long it can be.
const OPERATION_AT: usize = 128;
const OPERATION_BYTES_MAX: usize = 128;
/// Where the ring's header has the request's name for the reply, and the payload's length.
const COMMIT_AT: usize = 256 + 8;
const PAYLOAD_BYTES_AT: usize = 256 + 16;
/// Bytes of the three headers.
pub(super) const HEADERS_BYTES: usize = 288;
/// Where the payload begins: on a page of its own.
const PAYLOAD_AT: usize = 4096;

/// What a request that came over a ring consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// Bytes of the request as it would have come over `/dev/fuse`.
    pub(super) len: usize,
    /// Bytes of the operation's own header.
    operation_bytes: usize,
    payload_bytes: usize,
    /// The kernel's number of the request.
    pub(super) unique: u64,
    /// By what name the reply is handed in.
    pub(super) commit: u64,
}

impl Parts {
    /// Reads the headers; with `None` for lengths that contradict each other, or that are more than
    /// `payload_bytes_max` of payload or `len_max` of all.
    fn of(
        headers: &[u8; HEADERS_BYTES],
        payload_bytes_max: usize,
        len_max: usize,
    ) -> (u64, u64, Option<Parts>) {
        let word = |at: usize| usize::try_from(u32_at(headers, at)).unwrap_or(usize::MAX);
        let (unique, commit) = (u64_at(headers, 8), u64_at(headers, COMMIT_AT));
        let (len, payload_bytes) = (word(0), word(PAYLOAD_BYTES_AT));
        let operation_bytes = len
            .checked_sub(REQUEST_HEADER_BYTES)
            .and_then(|rest| rest.checked_sub(payload_bytes))
            .filter(|bytes| *bytes <= OPERATION_BYTES_MAX)
            .filter(|_| payload_bytes <= payload_bytes_max && len <= len_max);
        let parts = operation_bytes.map(|operation_bytes| Parts {
            len,
            operation_bytes,
            payload_bytes,
            unique,
            commit,
        });
        (unique, commit, parts)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A request whose lengths make no sense: it can be refused, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Senseless {
    pub(super) unique: u64,
    pub(super) commit: u64,
}

/// The memory of one request. It stays mapped as long as the process unless [`Entry::release`] is
/// called: a kernel that still has a command with it would else write into whatever is mapped there
/// next.
pub(super) struct Entry {
    memory: NonNull<u8>,
    payload_bytes_max: usize,
}

// SAFETY: the memory is a private mapping that nothing else refers to; the holder of the entry has
// it alone, on whatever thread.
#[allow(unsafe_code, reason = "a raw pointer is not Send by itself")]
unsafe impl Send for Entry {}

impl Entry {
    /// Maps memory for payloads of up to `payload_bytes_max`; pages come as they are first used.
    ///
    /// # Errors
    /// The system has no more.
    #[allow(unsafe_code, reason = "mapping memory is unsafe in general")]
    pub(super) fn new(payload_bytes_max: usize) -> Result<Entry, Errno> {
        let len = PAYLOAD_AT + payload_bytes_max;
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a fresh mapping at a place that the kernel chooses touches no memory in use.
        let memory =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, rights, flags)? };
        let memory = NonNull::new(memory.cast()).ok_or(Errno::NOMEM)?;
        Ok(Entry { memory, payload_bytes_max })
    }

    /// Gives the memory back. No command with it may be under way or come again: the connection
    /// has ended.
    #[allow(unsafe_code, reason = "unmapping memory is unsafe in general")]
    pub(super) fn release(self) {
        let len = PAYLOAD_AT + self.payload_bytes_max;
        // SAFETY: it is the mapping of `new` in its whole length, nobody refers to it, and as
        // `self` is consumed nobody will.
        let _stays_mapped = unsafe { rustix::mm::munmap(self.memory.as_ptr().cast(), len) };
    }

    /// Where headers and payload are, as the kernel gets it.
    pub(super) fn places(&self) -> [(*mut u8, usize); 2] {
        [(self.at(0), HEADERS_BYTES), (self.at(PAYLOAD_AT), self.payload_bytes_max)]
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.memory.as_ptr().wrapping_add(offset)
    }

    #[allow(unsafe_code, reason = "memory that the kernel writes can only be copied")]
    fn copy_out(&self, at: usize, to: &mut [u8]) {
        assert!(at + to.len() <= PAYLOAD_AT + self.payload_bytes_max);
        // SAFETY: the range is within the mapping (checked above), which lives as long as `self`
        // and is initialised (zeros at first); `to` is other memory.
        unsafe { std::ptr::copy_nonoverlapping(self.at(at), to.as_mut_ptr(), to.len()) }
    }

    #[allow(unsafe_code, reason = "memory that the kernel reads can only be copied")]
    fn copy_in(&mut self, at: usize, from: &[u8]) {
        assert!(at + from.len() <= PAYLOAD_AT + self.payload_bytes_max);
        // SAFETY: as in `copy_out`; `&mut self` keeps everyone of this process away.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.at(at), from.len()) }
    }

    /// Puts the request together in `buffer`, as it would have come over `/dev/fuse`.
    pub(super) fn request(&self, buffer: &mut [u8]) -> Result<Parts, Senseless> {
        let mut headers = [0; HEADERS_BYTES];
        self.copy_out(0, &mut headers);
        let parts = Parts::of(&headers, self.payload_bytes_max, buffer.len());
        let (unique, commit, Some(parts)) = parts else {
            return Err(Senseless { unique: parts.0, commit: parts.1 });
        };
        let (header, rest) = buffer.split_at_mut(REQUEST_HEADER_BYTES);
        let (operation, rest) = rest.split_at_mut(parts.operation_bytes);
        header.copy_from_slice(&headers[..REQUEST_HEADER_BYTES]);
        operation.copy_from_slice(&headers[OPERATION_AT..OPERATION_AT + parts.operation_bytes]);
        self.copy_out(PAYLOAD_AT, &mut rest[..parts.payload_bytes]);
        assert_eq!((unique, commit), (parts.unique, parts.commit));
        Ok(parts)
    }

    /// Puts a reply into its places: a header and then parts of a payload.
    ///
    /// # Errors
    /// [`Errno::INVAL`]: it is longer than the kernel takes; nothing has been done.
    pub(super) fn reply(&mut self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        let (header, payload) = parts.split_first().ok_or(Errno::INVAL)?;
        let len: usize = payload.iter().map(|part| part.len()).sum();
        if header.len() != REPLY_HEADER_BYTES || len > self.payload_bytes_max {
            return Err(Errno::INVAL);
        }
        self.copy_in(0, header);
        let mut at = PAYLOAD_AT;
        for part in payload {
            self.copy_in(at, part);
            at += part.len();
        }
        let len = u32::try_from(len).map_err(|_| Errno::INVAL)?;
        self.copy_in(PAYLOAD_BYTES_AT, &len.to_le_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, HEADERS_BYTES, Parts};
    use proptest::prelude::*;
    use std::io::IoSlice;

    fn headers(len: u32, payload_bytes: u32) -> [u8; HEADERS_BYTES] {
        let mut headers = [7; HEADERS_BYTES];
        headers[..4].copy_from_slice(&len.to_le_bytes());
        headers[8..16].copy_from_slice(&11_u64.to_le_bytes());
        headers[264..272].copy_from_slice(&12_u64.to_le_bytes());
        headers[272..276].copy_from_slice(&payload_bytes.to_le_bytes());
        headers
    }

    #[test]
    fn a_request_is_put_together_as_it_would_have_been_read() {
        let mut entry = Entry::new(8192).unwrap();
        let mut bytes = headers(40 + 16 + 5, 5);
        bytes[128..144].copy_from_slice(b"the operation's.");
        entry.copy_in(0, &bytes);
        entry.copy_in(4096, b"name\0");
        let mut buffer = [0; 8192];
        let parts = entry.request(&mut buffer).unwrap();
        assert_eq!((parts.unique, parts.commit, parts.len), (11, 12, 61));
        assert_eq!(buffer[..40], bytes[..40]);
        assert_eq!(&buffer[40..61], b"the operation's.name\0");
        let reply = [7_u8; 16];
        entry.reply(&[IoSlice::new(&reply), IoSlice::new(b"ab"), IoSlice::new(b"c")]).unwrap();
        let mut payload = [0; 4];
        entry.copy_out(4096, &mut payload);
        assert_eq!(&payload, b"abce", "what was there before is not part of the reply");
        let too_long = [0; 8193];
        assert!(entry.reply(&[IoSlice::new(&reply), IoSlice::new(&too_long)]).is_err());
        entry.release();
    }

    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        for (len, payload) in [(39, 0), (40, 1), (40 + 129, 0), (u32::MAX, 0), (50, u32::MAX)] {
            let (unique, commit, parts) = Parts::of(&headers(len, payload), 4096, 1 << 17);
            assert_eq!((unique, commit, parts), (11, 12, None), "{len} {payload}");
        }
        let (_, _, most) = Parts::of(&headers(40 + 128 + 4096, 4096), 4096, 1 << 17);
        assert!(most.is_some());
        assert!(Parts::of(&headers(40 + 4097, 4097), 4096, 1 << 17).2.is_none());
        assert!(Parts::of(&headers(40 + 4096, 4096), 4096, 4000).2.is_none());
    }

    proptest! {
        #[test]
        fn any_headers_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 288)) {
            let entry_bytes = 8192;
            let mut entry = Entry::new(entry_bytes).unwrap();
            entry.copy_in(0, &bytes);
            let mut buffer = vec![0; 40 + 128 + entry_bytes];
            if let Ok(parts) = entry.request(&mut buffer) {
                prop_assert!(parts.len <= buffer.len());
            }
            entry.release();
        }
    }
}
