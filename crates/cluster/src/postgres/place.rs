//! Where a home in PostgreSQL is, as `postgres://USER@HOST:PORT/DATABASE?schema=SCHEMA` names it.
//!
//! Without a host it is the server's socket in `/var/run/postgresql`, or in the folder that
//! `host=` names. A password is never part of it: command lines are seen by all users.

use marram_store::{Error, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// With one of these a name of a home in PostgreSQL begins.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
/// Where Debian's servers have their sockets.
const SOCKET_FOLDER: &str = "/var/run/postgresql";
/// The port of a server, if none is named.
const PORT: u16 = 5432;
/// The schema, if none is named.
const SCHEMA: &str = "marram";
/// Longest name in a database, in bytes.
const NAME_BYTES_MAX: usize = 63;
/// Variables of the environment that name the user, the first one first.
const USER_VARIABLES: [&str; 2] = ["PGUSER", "USER"];

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Host {
    /// A host, by its name or address.
    Name(String),
    /// The folder of the server's socket, on this host.
    Folder(PathBuf),
}

/// A schema of a database of a server, and the user there.
///
/// Its text is the same whatever was left out of the one that it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub(super) user: String,
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) database: String,
    pub(super) schema: String,
}

impl Place {
    /// Whether a text is meant to be one.
    pub fn is_meant(text: &str) -> bool {
        SCHEMES.iter().any(|scheme| text.starts_with(scheme))
    }

    /// Where the path of the database begins in such a text: behind the user, host and port.
    pub fn path_at(text: &str) -> Option<usize> {
        let begin = SCHEMES.iter().find(|scheme| text.starts_with(**scheme))?.len();
        Some(text[begin..].find('/').map_or(text.len(), |at| begin + at))
    }

    /// The user.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// What a line of a file with passwords begins with: host, port, database and user.
    pub fn password_words(&self) -> [String; 4] {
        let host = match &self.host {
            Host::Name(name) => name.clone(),
            Host::Folder(_) => "localhost".to_owned(),
        };
        [host, self.port.to_string(), self.database.clone(), self.user.clone()]
    }

    /// The server's socket, if it is on this host and reached by one.
    pub(super) fn socket(&self) -> Option<PathBuf> {
        match &self.host {
            Host::Folder(folder) => Some(folder.join(format!(".s.PGSQL.{}", self.port))),
            Host::Name(_) => None,
        }
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Place> {
        let scheme = SCHEMES.iter().find(|scheme| text.starts_with(**scheme));
        let rest = scheme.map(|scheme| &text[scheme.len()..]);
        let rest = rest.ok_or_else(|| wrong("it does not begin with postgres://"))?;
        let (rest, words) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) =
            rest.split_once('/').ok_or_else(|| wrong("the name of the database is missing"))?;
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return Err(password_named());
        }
        if database.contains('/') {
            return Err(wrong("a slash of the database's name is written as %2F"));
        }
        let (host, port) = host_and_port(host)?;
        let mut place = Place {
            user: user.map_or_else(user_of_environment, decoded)?,
            host,
            port,
            database: decoded(database)?,
            schema: SCHEMA.to_owned(),
        };
        words.split('&').filter(|word| !word.is_empty()).try_for_each(|word| place.set(word))?;
        place.checked()
    }
}

impl Place {
    fn set(&mut self, word: &str) -> Result<()> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let value = decoded(value)?;
        match name {
            "schema" => self.schema = value,
            "host" if value.starts_with('/') => self.host = Host::Folder(PathBuf::from(value)),
            "port" => self.port = port(&value)?,
            "password" => return Err(password_named()),
            _ => return Err(wrong("behind the ? go schema=NAME, host=/FOLDER and port=NUMBER")),
        }
        Ok(())
    }

    fn checked(self) -> Result<Place> {
        if [&self.user, &self.database].iter().any(|name| name.is_empty() || name.contains('\0')) {
            return Err(wrong("the user or the database has no name"));
        }
        let first = self.schema.bytes().next().unwrap_or(b'0');
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
        let all = self.schema.bytes().all(|byte| is_plain(byte) || byte.is_ascii_digit());
        if !is_plain(first) || !all || self.schema.len() > NAME_BYTES_MAX {
            return Err(wrong("a schema is named by a-z, 0-9 and _, and begins with no digit"));
        }
        Ok(self)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        write!(out, "{}{}@", SCHEMES[0], encoded(&self.user))?;
        match &self.host {
            Host::Name(name) if name.contains(':') => write!(out, "[{name}]")?,
            Host::Name(name) => write!(out, "{}", encoded(name))?,
            Host::Folder(folder) if folder == Path::new(SOCKET_FOLDER) => {}
            Host::Folder(folder) => words.push(format!("host={}", folder.display())),
        }
        match (&self.host, self.port) {
            (_, PORT) => {}
            (Host::Name(_), port) => write!(out, ":{port}")?,
            (Host::Folder(_), port) => words.push(format!("port={port}")),
        }
        if self.schema != SCHEMA {
            words.push(format!("schema={}", self.schema));
        }
        let mark = if words.is_empty() { "" } else { "?" };
        write!(out, "/{}{mark}{}", encoded(&self.database), words.join("&"))
    }
}

fn host_and_port(text: &str) -> Result<(Host, u16)> {
    let (host, number) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => (address, rest.strip_prefix(':').unwrap_or(rest)),
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let number = if number.is_empty() { PORT } else { port(number)? };
    let host = match decoded(host)? {
        none if none.is_empty() => Host::Folder(PathBuf::from(SOCKET_FOLDER)),
        folder if folder.starts_with('/') => Host::Folder(PathBuf::from(folder)),
        name => Host::Name(name),
    };
    Ok((host, number))
}

fn port(text: &str) -> Result<u16> {
    text.parse().map_err(|_| wrong("the port is no number up to 65535"))
}

fn user_of_environment() -> Result<String> {
    let named = USER_VARIABLES.iter().find_map(|name| std::env::var(name).ok());
    named.ok_or_else(|| wrong("the user is missing: write postgres://USER@HOST/DATABASE"))
}

/// The text is never said again: a password may stand in it.
fn wrong(why: &str) -> Error {
    Error::Invalid(format!("the URL of the database: {why}"))
}

fn password_named() -> Error {
    wrong(
        "a password stands in it, which every user of this host can read: leave it out, change \
         it, and set PGPASSWORD or a line of ~/.pgpass",
    )
}

/// The text with `%XX` as the bytes that they stand for.
fn decoded(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = (*first == b'%').then(|| tail.get(..2)).flatten();
        let hexadecimal = digits.and_then(|it| std::str::from_utf8(it).ok());
        match hexadecimal.and_then(|it| u8::from_str_radix(it, 16).ok()) {
            Some(byte) => bytes.push(byte),
            None if *first == b'%' => return Err(wrong("a % is not followed by two digits")),
            None => bytes.push(*first),
        }
        rest = if *first == b'%' { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8"))
}

fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::Place;

    fn place(text: &str) -> Place {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_left_out_is_the_same_as_what_is_said() {
        let said = place("postgres://fs@localhost:5432/trees?schema=marram");
        assert_eq!(said.to_string(), "postgres://fs@localhost/trees");
        assert_eq!(place("postgresql://fs@localhost/trees"), said);
        let socket = place("postgres://fs@/trees");
        assert_eq!(socket.socket().unwrap().to_str(), Some("/var/run/postgresql/.s.PGSQL.5432"));
        for text in [
            "postgres://fs@/trees",
            "postgres://fs@[::1]:5433/trees",
            "postgres://a%40b@127.0.0.1/x%2Fy?schema=other_2",
            "postgres://fs@/trees?host=/tmp/run&port=5499&schema=a",
        ] {
            assert_eq!(place(text).to_string(), text);
        }
        assert_eq!(
            place("postgres://fs@%2Ftmp/trees").to_string(),
            "postgres://fs@/trees?host=/tmp"
        );
    }

    #[test]
    fn a_password_is_refused_and_not_said_again() {
        for text in ["postgres://fs:secret@localhost/t", "postgres://fs@h/t?password=secret"] {
            let error = text.parse::<Place>().unwrap_err().to_string();
            assert!(error.contains("PGPASSWORD") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn what_names_no_place_is_refused() {
        for text in [
            "sqlite:x",
            "postgres://fs@localhost",
            "postgres://fs@localhost/",
            "postgres://fs@localhost:x/t",
            "postgres://fs@localhost:70000/t",
            "postgres://fs@localhost/t?schema=A;drop",
            "postgres://fs@localhost/t?schema=1",
            "postgres://fs@localhost/t?schema=",
            "postgres://fs@localhost/t?sslmode=off",
            "postgres://fs@localhost/a/b",
            "postgres://fs@localhost/%z1",
            "postgres://fs@localhost/%",
            "postgres://fs@localhost/%ff",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
