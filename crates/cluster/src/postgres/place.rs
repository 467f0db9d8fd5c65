//! Where a home in PostgreSQL is, as `postgres://USER@HOST:PORT/DATABASE?schema=SCHEMA` names it.
//!
//! Without a host it is the server's socket in `/var/run/postgresql`, or in the folder that
//! `host=` names. A password is never part of it: command lines are seen by all users.

use crate::server::tls::Words;
use crate::server::url::{self, decoded, encoded, wrong};
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
    pub(super) tls: Words,
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
            tls: Words::default(),
        };
        words.split('&').filter(|word| !word.is_empty()).try_for_each(|word| place.set(word))?;
        place.checked()
    }
}

impl Place {
    fn set(&mut self, word: &str) -> Result<()> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let value = decoded(value)?;
        if let Some(set) = self.tls.set(name, &value) {
            return set;
        }
        match name {
            "schema" => self.schema = value,
            "host" if value.starts_with('/') => self.host = Host::Folder(PathBuf::from(value)),
            "port" => self.port = url::port(&value)?,
            "password" => return Err(password_named()),
            _ => {
                let all = "behind the ? go schema=NAME, host=/FOLDER, port=NUMBER, tls=verify, \
                           tls=off, tls-ca=FILE and tls-cert=FILE";
                return Err(wrong(all));
            }
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
        if matches!(self.host, Host::Folder(_)) && self.tls.asks_for_it() {
            return Err(wrong("a socket of this host has no TLS: leave that out, or name a host"));
        }
        self.tls.checked().map(|()| self)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        write!(out, "{}{}@", SCHEMES[0], encoded(&self.user))?;
        match &self.host {
            Host::Name(name) => write!(out, "{}", url::host(name))?,
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
        words.extend(self.tls.written());
        let mark = if words.is_empty() { "" } else { "?" };
        write!(out, "/{}{mark}{}", encoded(&self.database), words.join("&"))
    }
}

fn host_and_port(text: &str) -> Result<(Host, u16)> {
    let (host, port) = url::host_and_port(text)?;
    let host = match host {
        none if none.is_empty() => Host::Folder(PathBuf::from(SOCKET_FOLDER)),
        folder if folder.starts_with('/') => Host::Folder(PathBuf::from(folder)),
        name => Host::Name(name),
    };
    Ok((host, port.unwrap_or(PORT)))
}

fn user_of_environment() -> Result<String> {
    url::user_of_environment(&USER_VARIABLES)
        .ok_or_else(|| wrong("the user is missing: write postgres://USER@HOST/DATABASE"))
}

fn password_named() -> Error {
    url::password_named("PGPASSWORD or a line of ~/.pgpass")
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
            "postgres://fs@db/trees?schema=a&tls=verify&tls-ca=/etc/roots.pem",
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
            "postgres://fs@localhost/t?tls=require",
            "postgres://fs@localhost/t?tls=off&tls-ca=/etc/roots.pem",
            "postgres://fs@/t?tls=verify",
            "postgres://fs@localhost/a/b",
            "postgres://fs@localhost/%z1",
            "postgres://fs@localhost/%",
            "postgres://fs@localhost/%ff",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
