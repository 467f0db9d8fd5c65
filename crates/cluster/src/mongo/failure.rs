//! What goes wrong with a server, and whether it passes.

use crate::server::tls::Refusal;
use marram_store::Error;
use mongodb::error::ErrorKind;
use std::fmt;
use std::io;

/// What a call comes to.
pub(super) type Outcome<T> = Result<T, Failure>;

/// A key that an insertion names is taken.
const DUPLICATE_KEY: i32 = 11000;
/// Another transaction has changed the same row first.
const WRITE_CONFLICT: i32 = 112;
/// There is no room.
const OUT_OF_DISK_SPACE: i32 = 14031;
/// The user may not do it.
const UNAUTHORIZED: i32 = 13;
/// The user or its password is not known.
const AUTHENTICATION_FAILED: i32 = 18;
/// There is no such command.
const COMMAND_NOT_FOUND: i32 = 59;
/// Transactions are not for this kind of server.
const ILLEGAL_OPERATION: i32 = 20;
/// Codes with which a server ends, stops being the one that is written to, has none of the
/// answer yet, or knows a transaction no more.
const PASSING: [i32; 21] = [
    6, 7, 24, 43, 64, 89, 91, 134, 189, 237, 246, 251, 262, 9001, 10058, 10107, 11600, 11601,
    11602, 13435, 13436,
];
/// With this a server marks a transaction that may be tried again.
const TRANSIENT: &str = "TransientTransactionError";

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server refused it, and has done nothing of it.
    Refused {
        /// As MongoDB counts them.
        code: i32,
        /// Why, in the server's words.
        message: String,
    },
    /// The key of an insertion is taken.
    Taken,
    /// A guard did not hold.
    Guarded,
    /// Another transaction was faster, and nothing of this one is done.
    Conflict,
    /// The connection is gone, or the server does not say what it did: what was asked was done or
    /// not.
    Lost(String),
    /// It is of no use to try: the text says why, and what to do.
    Unfit(String),
}

impl Failure {
    /// What a server says with a code.
    pub(super) fn of_code(code: i32, message: &str, is_transient: bool) -> Failure {
        match code {
            DUPLICATE_KEY => Failure::Taken,
            WRITE_CONFLICT => Failure::Conflict,
            _ if is_transient || PASSING.contains(&code) => {
                Failure::Lost(format!("{message} ({code})"))
            }
            _ => Failure::Refused { code, message: message.to_owned() },
        }
    }

    /// Whether the same may do later.
    pub(super) fn passes(&self) -> bool {
        matches!(self, Failure::Lost(_) | Failure::Conflict)
    }

    /// Whether the user may not do it.
    pub(super) fn is_of_rights(&self) -> bool {
        matches!(self, Failure::Refused { code: UNAUTHORIZED, .. })
    }

    /// Whether the server has not what was asked for.
    pub(super) fn is_of_ability(&self) -> bool {
        matches!(self, Failure::Refused { code: COMMAND_NOT_FOUND | ILLEGAL_OPERATION, .. })
    }
}

impl From<mongodb::error::Error> for Failure {
    fn from(error: mongodb::error::Error) -> Failure {
        let is_transient = error.contains_label(TRANSIENT);
        match &*error.kind {
            ErrorKind::Command(refusal) => {
                Failure::of_code(refusal.code, &refusal.message, is_transient)
            }
            ErrorKind::Authentication { message, .. } => {
                Failure::Refused { code: AUTHENTICATION_FAILED, message: message.clone() }
            }
            ErrorKind::Io(_)
            | ErrorKind::Write(_)
            | ErrorKind::ConnectionPoolCleared { .. }
            | ErrorKind::ServerSelection { .. } => Failure::Lost(error.kind.to_string()),
            _ if is_transient => Failure::Lost(error.kind.to_string()),
            _ => Failure::Unfit(error.kind.to_string()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Lost(error.to_string())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        match refusal {
            Refusal::Lost(error) => error.into(),
            Refusal::Unfit(text) => Failure::Unfit(text),
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Unfit(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused { code, message } => write!(out, "{message} ({code}){}", hint(*code)),
            Failure::Taken => out.write_str("the key is taken"),
            Failure::Guarded => out.write_str("the row is another one by now"),
            Failure::Conflict => out.write_str("other transactions were faster each time"),
            Failure::Lost(why) => write!(out, "no connection to the server: {why}"),
            Failure::Unfit(text) => out.write_str(text),
        }
    }
}

/// What to do about a refusal.
fn hint(code: i32) -> &'static str {
    match code {
        UNAUTHORIZED => ": have an administrator grant `readWrite` on the database to this user",
        AUTHENTICATION_FAILED => ": look at the user, MONGODB_PASSWORD and ~/.mongodbpass",
        _ => "",
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        let text = format!("MongoDB: {failure}");
        match failure {
            Failure::Refused { code: OUT_OF_DISK_SPACE, .. } => Error::NoSpace,
            Failure::Guarded => Error::Overtaken,
            Failure::Unfit(_) => Error::Invalid(text),
            _ => Error::Io(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, PASSING};
    use marram_store::Error;

    #[test]
    fn refusals_are_what_a_store_says() {
        let refused = |code| Error::from(Failure::of_code(code, "the reason", false));
        assert_eq!(refused(14031), Error::NoSpace);
        assert!(matches!(refused(13), Error::Io(text) if text.contains("readWrite")));
        assert!(matches!(refused(8000), Error::Io(text) if text.contains("the reason")));
        assert_eq!(Error::from(Failure::Guarded), Error::Overtaken);
    }

    #[test]
    fn what_passes_is_tried_again_and_nothing_else() {
        for code in PASSING.into_iter().chain([112]) {
            assert!(Failure::of_code(code, "", false).passes(), "{code}");
        }
        assert!(Failure::of_code(8000, "", true).passes());
        for code in [0, 13, 18, 20, 59, 11000, 14031] {
            assert!(!Failure::of_code(code, "", false).passes(), "{code}");
        }
    }
}
