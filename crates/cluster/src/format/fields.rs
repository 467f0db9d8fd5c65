//! Fields of fixed and of counted length, one after the other.

use super::malformed;
use marram_store::Result;

/// What is left of the bytes of a row.
pub(super) struct Fields<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of the row `what`.
    pub(super) fn new(what: &'static str, bytes: &'a [u8]) -> Fields<'a> {
        Fields { what, rest: bytes }
    }

    /// The next bytes, so many of them.
    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8]> {
        let Some((bytes, rest)) = self.rest.split_at_checked(len) else {
            return Err(malformed(self.what, "it ends too early"));
        };
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// A byte that is 0 or 1.
    pub(super) fn bit(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => self.refuse("a byte that says yes or no says neither"),
        }
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// Bytes behind their number.
    pub(super) fn counted(&mut self) -> Result<&'a [u8]> {
        let len = self.u32()?;
        self.bytes(len as usize)
    }

    /// Text behind the number of its bytes.
    pub(super) fn text(&mut self) -> Result<String> {
        let text = std::str::from_utf8(self.counted()?);
        text.map(str::to_owned).map_err(|_| malformed(self.what, "a text is not UTF-8"))
    }

    /// A number of things to follow, each of at least `least_bytes`.
    pub(super) fn count(&mut self, least_bytes: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        match count.checked_mul(least_bytes) {
            Some(bytes) if bytes <= self.rest.len() => Ok(count),
            _ => Err(malformed(self.what, "it counts more than it has")),
        }
    }

    /// All that is left.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Refuses bytes that are left over.
    pub(super) fn end(&self) -> Result<()> {
        match self.rest {
            [] => Ok(()),
            _ => Err(malformed(self.what, "bytes follow its end")),
        }
    }

    /// A value that makes no sense.
    pub(super) fn refuse<T>(&self, reason: &str) -> Result<T> {
        Err(malformed(self.what, reason))
    }
}

/// Appends bytes behind their number.
pub(super) fn put_counted(out: &mut Vec<u8>, bytes: &[u8]) {
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Appends a number of bytes or things, which is bounded elsewhere.
pub(super) fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("it is bounded");
    out.extend_from_slice(&count.to_le_bytes());
}
