//! Names of directory entries.

use std::fmt;
use thiserror::Error;

/// A valid name of a directory entry: 1 to 255 bytes, neither `/` nor NUL in it, not `.` or `..`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a [u8]);

/// Why some bytes are no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// Longer than 255 bytes.
    #[error("the name is longer than {} bytes", Name::BYTES_MAX)]
    TooLong,
    /// Empty, `.`, `..`, or with `/` or NUL in it.
    #[error("the name is empty, \".\" or \"..\", or has a \"/\" or a NUL in it")]
    Invalid,
}

impl<'a> Name<'a> {
    /// Longest name, in bytes.
    pub const BYTES_MAX: usize = 255;

    /// Checks `bytes`.
    ///
    /// # Errors
    /// [`NameError`] says which rule they break.
    pub fn new(bytes: &'a [u8]) -> Result<Self, NameError> {
        if bytes.len() > Self::BYTES_MAX {
            return Err(NameError::TooLong);
        }
        let reserved = matches!(bytes, b"" | b"." | b"..");
        if reserved || bytes.iter().any(|byte| matches!(byte, b'/' | 0)) {
            return Err(NameError::Invalid);
        }
        Ok(Name(bytes))
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", String::from_utf8_lossy(self.0))
    }
}

impl From<NameError> for crate::Error {
    fn from(error: NameError) -> Self {
        match error {
            NameError::TooLong => crate::Error::NameTooLong,
            NameError::Invalid => crate::Error::InvalidArgument("name"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Name, NameError};

    #[test]
    fn names_follow_the_rules_of_directories() {
        assert!(Name::new(b"a name with \xff\n").is_ok());
        assert!(Name::new(&[b'x'; 255]).is_ok());
        assert_eq!(Name::new(&[b'x'; 256]), Err(NameError::TooLong));
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
            assert_eq!(Name::new(bad), Err(NameError::Invalid), "{bad:?}");
        }
    }

    #[test]
    fn a_caller_passes_the_reason_on_as_an_error() {
        fn checked(bytes: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
            Name::new(bytes)?;
            Ok(())
        }
        let told = |bytes: &[u8]| checked(bytes).unwrap_err().to_string();
        assert!(told(&[b'x'; 256]).contains("longer than 255 bytes"));
        assert!(told(b"a/b").contains("\"/\""));
    }
}
