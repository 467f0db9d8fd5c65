//! Reads fields one after another from untrusted bytes; what is wrong is named by structure,
//! field and offset.
//!
//! Every operation on a file decodes a few records of many fields: reading one is a few
//! instructions where it is called, and what has to be said of a wrong one stands apart.

use crate::FormatError;

/// A position in the bytes of one structure.
pub(crate) struct Reader<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of the structure `what`.
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Reader<'a> {
        Reader { what, bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Bytes not read yet.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `len` bytes.
    #[inline]
    pub(crate) fn take(
        &mut self,
        field: &'static str,
        len: usize,
    ) -> Result<&'a [u8], FormatError> {
        let Some(taken) = self.bytes[self.at..].get(..len) else {
            return Err(self.short(field, len));
        };
        self.at += len;
        Ok(taken)
    }

    #[cold]
    fn short(&self, field: &'static str, needed: usize) -> FormatError {
        FormatError::Short { what: self.what, field, offset: self.at, needed, left: self.left() }
    }

    /// The next `N` bytes.
    #[inline]
    pub(crate) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], FormatError> {
        let taken = self.take(field, N)?;
        Ok(taken.try_into().expect("exactly N bytes were taken"))
    }

    /// An 8-bit number.
    #[inline]
    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, FormatError> {
        Ok(self.array::<1>(field)?[0])
    }

    /// A 16-bit number.
    #[inline]
    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    /// A 32-bit number.
    #[inline]
    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    /// A 64-bit number.
    #[inline]
    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    /// A 64-bit number below `limit`.
    pub(crate) fn u64_below(
        &mut self,
        field: &'static str,
        limit: u64,
        expected: &'static str,
    ) -> Result<u64, FormatError> {
        let offset = self.at;
        let found = self.u64(field)?;
        if found < limit {
            return Ok(found);
        }
        Err(self.unexpected(field, offset, found, expected))
    }

    /// A signed 64-bit number.
    #[inline]
    pub(crate) fn i64(&mut self, field: &'static str) -> Result<i64, FormatError> {
        Ok(i64::from_le_bytes(self.array(field)?))
    }

    /// A byte that holds this very value.
    #[inline]
    pub(crate) fn expect_u8(
        &mut self,
        field: &'static str,
        value: u8,
        expected: &'static str,
    ) -> Result<(), FormatError> {
        let offset = self.at;
        let found = self.u8(field)?;
        if found == value {
            return Ok(());
        }
        Err(self.unexpected(field, offset, u64::from(found), expected))
    }

    /// Reserved bytes, all zero in this version.
    pub(crate) fn reserved(&mut self, len: usize) -> Result<(), FormatError> {
        let offset = self.at;
        let taken = self.take("reserved bytes", len)?;
        match taken.iter().position(|byte| *byte != 0) {
            None => Ok(()),
            Some(index) => {
                Err(self.unexpected("reserved bytes", offset + index, u64::from(taken[index]), "0"))
            }
        }
    }

    /// UTF-8 text of `len` bytes.
    pub(crate) fn text(&mut self, field: &'static str, len: usize) -> Result<String, FormatError> {
        let offset = self.at;
        let taken = self.take(field, len)?;
        match std::str::from_utf8(taken) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(FormatError::Text {
                what: self.what,
                field,
                offset: offset + error.valid_up_to(),
            }),
        }
    }

    /// Checks that nothing follows.
    pub(crate) fn finish(self) -> Result<(), FormatError> {
        if self.left() == 0 {
            return Ok(());
        }
        Err(FormatError::Trailing { what: self.what, offset: self.at, extra: self.left() })
    }

    /// The error for a field that starts at `offset` and holds what it cannot.
    pub(crate) fn unexpected(
        &self,
        field: &'static str,
        offset: usize,
        found: u64,
        expected: &'static str,
    ) -> FormatError {
        FormatError::Unexpected { what: self.what, field, offset, found, expected }
    }
}
