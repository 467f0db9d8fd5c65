//! What goes wrong with a server, and whether it passes.

use super::statements::GUARD_FAILS;
use fallible_iterator::FallibleIterator;
use marram_store::Error;
use postgres_protocol::message::backend::ErrorResponseBody;
use std::fmt;
use std::io;

/// What a call comes to.
pub(super) type Outcome<T> = Result<T, Failure>;

/// Classes of codes, and codes, with which a server ends a connection, has none free, or has given
/// up one of two transactions that wait for each other: to be tried again.
const PASSING: [&str; 7] = ["08", "53300", "57P01", "57P02", "57P03", "40001", "40P01"];
/// With these a server that was there all the time is known from one that starts.
const STARTING: &str = "57P03";

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server refused it, and has done nothing of it.
    Refused {
        /// What, as the SQL standard and PostgreSQL count them.
        code: String,
        /// Why, in the server's words.
        message: String,
    },
    /// The connection is gone: what was asked was done or not.
    Lost(io::Error),
    /// It is of no use to try: the text says why, and what to do.
    Unfit(String),
}

impl Failure {
    /// The server's refusal.
    pub(super) fn refused(body: &ErrorResponseBody) -> Failure {
        let (mut code, mut message) = (String::new(), String::new());
        let mut fields = body.fields();
        while let Ok(Some(field)) = fields.next() {
            let text = || String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'C' => code = text(),
                b'M' => message = text(),
                _ => {}
            }
        }
        Failure::Refused { code, message }
    }

    /// Whether the same may do later.
    pub(super) fn passes(&self) -> bool {
        match self {
            Failure::Refused { code, .. } => PASSING.iter().any(|it| code.starts_with(it)),
            Failure::Lost(_) => true,
            Failure::Unfit(_) => false,
        }
    }

    /// Whether a guard did not hold: the connection is as it was.
    pub(super) fn is_of_guard(&self) -> bool {
        matches!(self, Failure::Refused { code, .. } if code == GUARD_FAILS)
    }

    /// Whether the server is there, and only needs a moment.
    pub(super) fn is_starting(&self) -> bool {
        matches!(self, Failure::Refused { code, .. } if code == STARTING)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Lost(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused { code, message } => write!(out, "{message} ({code}){}", hint(code)),
            Failure::Lost(error) => write!(out, "no connection to the server: {error}"),
            Failure::Unfit(text) => out.write_str(text),
        }
    }
}

/// What to do about a refusal.
fn hint(code: &str) -> &'static str {
    match code {
        "42501" => ": have the owner of the database GRANT it to this user",
        "3D000" => ": make it with `createdb`",
        "28P01" | "28000" => {
            ": look at the user, PGPASSWORD, ~/.pgpass, and the server's pg_hba.conf"
        }
        "42P01" | "3F000" => ": its tables were removed while it was open",
        _ => "",
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        let text = format!("PostgreSQL: {failure}");
        match &failure {
            Failure::Refused { code, .. } if code == "53100" => Error::NoSpace,
            Failure::Refused { code, .. } if code == GUARD_FAILS => Error::Overtaken,
            Failure::Refused { code, .. } if code == "25006" => Error::ReadOnly(text),
            Failure::Unfit(_) => Error::Invalid(text),
            _ => Error::Io(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Failure;
    use marram_store::Error;

    fn refused(code: &str) -> Failure {
        Failure::Refused { code: code.to_owned(), message: "the reason".to_owned() }
    }

    #[test]
    fn refusals_are_what_a_store_says() {
        assert_eq!(Error::from(refused("53100")), Error::NoSpace);
        assert!(matches!(Error::from(refused("25006")), Error::ReadOnly(_)));
        assert!(
            matches!(Error::from(refused("XX001")), Error::Io(text) if text.contains("reason"))
        );
    }

    #[test]
    fn what_passes_is_tried_again_and_nothing_else() {
        for code in ["57P01", "57P02", "57P03", "08006", "53300", "40P01", "40001"] {
            assert!(refused(code).passes(), "{code}");
        }
        for code in ["53100", "25006", "42501", "28P01", "XX001", "57014", ""] {
            assert!(!refused(code).passes(), "{code}");
        }
        assert!(Failure::Lost(std::io::ErrorKind::ConnectionReset.into()).passes());
        assert!(!Failure::Unfit(String::new()).passes());
    }
}
