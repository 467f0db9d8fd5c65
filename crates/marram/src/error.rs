//! The one error of this crate: what went wrong, and what to do about it.
//!
//! A message says what failed, where and why; the hint is the next thing to do. The kind decides
//! the exit status, which scripts rely on: it never changes meaning. Errors travel over the
//! control socket unchanged, so a command reports what the daemon found as if it had found it.

use crate::names::quoted;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use thiserror::Error;

/// Result of anything in this crate.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// What kind of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// It could not be done.
    Failed,
    /// The request itself makes no sense.
    Usage,
    /// Some of it was done.
    Partial,
    /// What it names does not exist.
    NotFound,
    /// What it names is locked, mounted or busy.
    InUse,
    /// The user may not do it.
    Refused,
    /// Whether it was done is not known.
    Unknown,
}

impl Kind {
    /// The exit status of a command that ends so.
    pub(crate) const fn exit_status(self) -> u8 {
        match self {
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Partial => 3,
            Kind::NotFound => 10,
            Kind::InUse => 11,
            Kind::Refused => 12,
            Kind::Unknown => 122,
        }
    }
}

/// Why a command or the daemon could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{message}")]
pub(crate) struct Error {
    /// What kind of failure it was.
    pub(crate) kind: Kind,
    /// What failed, where, and why.
    pub(crate) message: String,
    /// More of it, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) details: Vec<String>,
    /// What to do next, where that is known.
    pub(crate) hint: Option<String>,
}

impl Error {
    fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), details: Vec::new(), hint: None }
    }

    /// It could not be done.
    pub(crate) fn failed(message: impl Into<String>) -> Error {
        Error::new(Kind::Failed, message)
    }

    /// The request itself makes no sense.
    pub(crate) fn usage(message: impl Into<String>) -> Error {
        Error::new(Kind::Usage, message)
    }

    /// Some of it was done.
    pub(crate) fn partial(message: impl Into<String>) -> Error {
        Error::new(Kind::Partial, message)
    }

    /// Whether it was done is not known.
    pub(crate) fn unknown(message: impl Into<String>) -> Error {
        Error::new(Kind::Unknown, message)
    }

    /// What it names does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Error {
        Error::new(Kind::NotFound, message)
    }

    /// What it names is locked, mounted or busy.
    pub(crate) fn in_use(message: impl Into<String>) -> Error {
        Error::new(Kind::InUse, message)
    }

    /// The user may not do it.
    pub(crate) fn refused(message: impl Into<String>) -> Error {
        Error::new(Kind::Refused, message)
    }

    /// The system refused to do `action` to `path`.
    pub(crate) fn system(action: &str, path: &Path, error: impl Into<std::io::Error>) -> Error {
        let error = error.into();
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => Kind::NotFound,
            std::io::ErrorKind::ResourceBusy => Kind::InUse,
            _ => Kind::Failed,
        };
        let place = quoted(path.as_os_str().as_bytes());
        Error::new(kind, format!("cannot {action} {place}: {error}"))
    }

    /// The same error with more of it, a line each.
    #[must_use]
    pub(crate) fn details(mut self, details: impl Iterator<Item = String>) -> Error {
        self.details = details.collect();
        self
    }

    /// The same error with what to do next.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = Some(hint.into());
        self
    }

    /// The same error with what was being done put before it.
    #[must_use]
    pub(crate) fn during(mut self, what: impl Display) -> Error {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

/// What to do where there is no space.
const NO_SPACE_HINT: &str =
    "destroy snapshots that are not needed, or enlarge it with `marram grow`";

impl From<marram_store::Error> for Error {
    fn from(error: marram_store::Error) -> Error {
        use marram_store::Error as Store;
        let message = error.to_string();
        match error {
            Store::NoDataset(_) => {
                Error::not_found(message).hint("`marram list TARGET` shows what there is")
            }
            Store::InUse { .. } | Store::Overtaken | Store::InDoubt(_) => Error::in_use(message),
            Store::Invalid(_) | Store::Unsupported(_) => Error::usage(message),
            Store::NoSpace => Error::failed(message).hint(NO_SPACE_HINT),
            Store::DatasetExists(_)
            | Store::LimitExceeded(_)
            | Store::ReadOnly(_)
            | Store::NotFresh
            | Store::Damaged(_)
            | Store::Io(_) => Error::failed(message),
        }
    }
}

impl From<marram_device::Error> for Error {
    fn from(error: marram_device::Error) -> Error {
        Error::failed(error.to_string())
    }
}

impl From<marram_vfs::Error> for Error {
    fn from(error: marram_vfs::Error) -> Error {
        let failed = Error::failed(error.to_string());
        match error {
            marram_vfs::Error::NoSpace => failed.hint(NO_SPACE_HINT),
            marram_vfs::Error::QuotaExceeded => failed.hint(
                "`marram quota TARGET` tells who has used up what; the dataset may have one too",
            ),
            _ => failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, Kind};

    #[test]
    fn exit_statuses_are_the_documented_ones() {
        let statuses = [
            (Kind::Failed, 1),
            (Kind::Usage, 2),
            (Kind::Partial, 3),
            (Kind::NotFound, 10),
            (Kind::InUse, 11),
            (Kind::Refused, 12),
            (Kind::Unknown, 122),
        ];
        for (kind, status) in statuses {
            assert_eq!(kind.exit_status(), status);
        }
    }

    #[test]
    fn an_error_survives_the_control_socket() {
        let error = Error::in_use("it is mounted").hint("unmount it");
        let text = serde_json::to_string(&error).unwrap();
        assert_eq!(serde_json::from_str::<Error>(&text).unwrap(), error);
    }
}
