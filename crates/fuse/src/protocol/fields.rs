//! Taking fields off the front of untrusted bytes.

use super::Opcode;
use thiserror::Error;

/// Why some bytes are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Shorter than a header.
    #[error("a request of {received_bytes} bytes is shorter than its header")]
    Header {
        /// How many bytes came.
        received_bytes: usize,
    },
    /// The header names another length than the one that came.
    #[error("a request says that it has {said_bytes} bytes, but {received_bytes} came")]
    Length {
        /// What the header says.
        said_bytes: u32,
        /// How many bytes came.
        received_bytes: usize,
    },
    /// It came in parts over a ring, and their lengths contradict each other.
    #[error("the lengths of a request's parts contradict each other")]
    Parts,
    /// The extensions reach past the request.
    #[error("extensions of {said_bytes} bytes do not fit into {received_bytes} bytes")]
    Extensions {
        /// What the header says.
        said_bytes: usize,
        /// How many bytes are there after the header.
        received_bytes: usize,
    },
    /// The body is too short or its text does not end.
    #[error("{opcode:?} request without {field}")]
    Body {
        /// What was asked for.
        opcode: Opcode,
        /// What is missing.
        field: &'static str,
    },
}

/// The unread rest of a request's body.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    opcode: Opcode,
}

impl<'a> Fields<'a> {
    pub(super) fn new(opcode: Opcode, body: &'a [u8]) -> Self {
        Fields { rest: body, opcode }
    }

    fn missing(&self, field: &'static str) -> Malformed {
        Malformed::Body { opcode: self.opcode, field }
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(self.missing(field))?;
        self.rest = rest;
        Ok(*first)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    pub(super) fn i64(&mut self, field: &'static str) -> Result<i64, Malformed> {
        Ok(i64::from_le_bytes(self.array(field)?))
    }

    /// Passes over `count` bytes that have no meaning here.
    pub(super) fn skip(&mut self, count: usize) -> Result<(), Malformed> {
        self.bytes(count, "reserved bytes").map(|_| ())
    }

    /// The next `count` bytes.
    pub(super) fn bytes(
        &mut self,
        count: usize,
        field: &'static str,
    ) -> Result<&'a [u8], Malformed> {
        let (first, rest) = self.rest.split_at_checked(count).ok_or(self.missing(field))?;
        self.rest = rest;
        Ok(first)
    }

    /// Bytes up to a NUL, which is taken too.
    pub(super) fn text(&mut self, field: &'static str) -> Result<&'a [u8], Malformed> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(self.missing(field))?;
        let text = &self.rest[..end];
        self.rest = &self.rest[end + 1..];
        Ok(text)
    }

    /// Whether there is more.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}
