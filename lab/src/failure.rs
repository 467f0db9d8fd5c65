//! Why a chore failed: one sentence per layer, the outermost first.
//!
//! Chores are for people at a terminal, so a failure is text. What went wrong below is kept at the
//! end of the sentence; nothing here is ever matched on.

use std::fmt::{self, Display};

/// A chore's failure.
pub struct Failure(String);

/// What every chore returns.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// A failure that says `message`.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

/// `Err` of a failure that says `message`.
pub fn fail<T>(message: impl Into<String>) -> Result<T> {
    Err(Failure::new(message))
}

impl Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

// `Debug` is what `fn main` and `expect` print: the sentence reads better than a structure.
impl fmt::Debug for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.to_string())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self(format!("not the expected JSON: {error}"))
    }
}

/// Adds to an error what was being done.
pub trait Context<T> {
    /// The same result, with `doing()` in front of the error.
    fn context<D: Display>(self, doing: impl FnOnce() -> D) -> Result<T>;
}

impl<T, E: Display> Context<T> for std::result::Result<T, E> {
    fn context<D: Display>(self, doing: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|error| Failure(format!("{}: {error}", doing())))
    }
}
