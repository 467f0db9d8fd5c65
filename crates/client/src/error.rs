//! What can go wrong with a transaction.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The result of this crate's calls.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no transaction, or no commit. With every variant but [`Error::Unknown`] nothing of
/// the transaction is in the file system.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// No transaction can begin on this directory.
    Unsuitable {
        /// The directory, as the kernel names it.
        directory: PathBuf,
        /// Why.
        reason: String,
    },
    /// The commit was refused: others have changed what the transaction has read or written.
    Refused(Vec<Conflict>),
    /// The commit was refused: this process still has files of the transaction mapped, and could
    /// write through the maps what no commit takes in.
    Mapped(Vec<PathBuf>),
    /// The daemon went away during the commit, the database of a cluster home failed in it, or of
    /// two pools one has not answered: it may or may not have been done. If it was, then
    /// `marram tx show` finds the id.
    Unknown {
        /// The transaction's id.
        id: String,
        /// What the conversation ended with.
        reason: io::Error,
    },
    /// The daemon refuses what was asked, or failed at it.
    Daemon {
        /// What it says.
        message: String,
        /// What to do next.
        hint: Option<String>,
    },
    /// A system call failed.
    System(io::Error),
}

/// Something that others have changed and the transaction has read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Where: a path from the root of the dataset.
    pub path: PathBuf,
    /// What both did.
    pub detail: String,
}

impl Error {
    /// Whether it is the refusal of a commit that others were in the way of, so that the same work
    /// can succeed when it is done again.
    pub fn is_refused(&self) -> bool {
        matches!(self, Error::Refused(_))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unsuitable { directory, reason } => {
                write!(out, "no transaction can begin on {}: {reason}", directory.display())
            }
            Error::Refused(conflicts) => {
                out.write_str("the commit was refused, others have changed what it depends on:")?;
                conflicts.iter().try_for_each(|conflict| write!(out, " {conflict};"))
            }
            Error::Mapped(files) => {
                out.write_str("the commit was refused, this process has mapped:")?;
                files.iter().try_for_each(|file| write!(out, " {};", file.display()))
            }
            Error::Unknown { id, reason } => {
                write!(out, "it is not known whether transaction {id} was committed: {reason}")
            }
            Error::Daemon { message, hint: Some(hint) } => write!(out, "{message} ({hint})"),
            Error::Daemon { message, hint: None } => out.write_str(message),
            Error::System(error) => error.fmt(out),
        }
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.path.display(), self.detail)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Unknown { reason, .. } | Error::System(reason) => Some(reason),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::System(error)
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Error {
        Error::System(error.into())
    }
}
