//! Where a home in MongoDB is, as `mongodb://USER@HOST:PORT/DATABASE` names it.
//!
//! Several hosts are the members of a replica set that are asked for the others. A password is
//! never part of it: command lines are seen by all users.

use crate::server::tls::Words;
use crate::server::url::{self, decoded, encoded, wrong};
use marram_store::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// With this a name of a home in MongoDB begins.
const SCHEME: &str = "mongodb://";
/// The port of a server, if none is named.
const PORT: u16 = 27017;
/// The database that knows the users, if none is named.
const USERS: &str = "admin";
/// Longest name of a database, in bytes.
const NAME_BYTES_MAX: usize = 63;
/// Letters that no name of a database has.
const NOT_IN_NAMES: [char; 9] = ['/', '\\', '.', '"', '$', '*', '<', ' ', '\0'];

/// A database of a server, and the user there if it knows users.
///
/// Its text is the same whatever was left out of the one that it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub(super) user: Option<String>,
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) database: String,
    /// The database that knows the user.
    pub(super) users: String,
    pub(super) tls: Words,
}

impl Place {
    /// Whether a text is meant to be one.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Where the path of the database begins in such a text: behind the user, hosts and ports.
    pub fn path_at(text: &str) -> Option<usize> {
        let rest = text.strip_prefix(SCHEME)?;
        Some(rest.find('/').map_or(text.len(), |at| SCHEME.len() + at))
    }

    /// The user; none where the server knows none.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// What a line of a file with passwords begins with: host, port, database and user.
    pub fn password_words(&self) -> [String; 4] {
        let (host, port) = self.hosts.first().cloned().unwrap_or_default();
        let user = self.user.clone().unwrap_or_default();
        [host, port.to_string(), self.database.clone(), user]
    }

    fn set(&mut self, word: &str) -> Result<()> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let value = decoded(value)?;
        match (self.tls.set(name, &value), name) {
            (Some(set), _) => set,
            (None, "authSource") => {
                self.users = value;
                Ok(())
            }
            (None, "password") => Err(password_named()),
            (None, _) => Err(wrong(
                "behind the ? go authSource=DATABASE, tls=verify, tls=off, tls-ca=FILE and \
                 tls-cert=FILE",
            )),
        }
    }

    fn checked(self) -> Result<Place> {
        if [Some(&self.database), Some(&self.users), self.user.as_ref()]
            .into_iter()
            .flatten()
            .any(|name| name.is_empty())
        {
            return Err(wrong("the user or the database has no name"));
        }
        let is_long = self.database.len() > NAME_BYTES_MAX;
        if is_long || self.database.contains(NOT_IN_NAMES) || self.database.contains('>') {
            return Err(wrong(
                "the name of the database is longer or has other letters than may be",
            ));
        }
        self.tls.checked().map(|()| self)
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Place> {
        let rest = text.strip_prefix(SCHEME);
        let rest = rest.ok_or_else(|| wrong("it does not begin with mongodb://"))?;
        let (rest, words) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) =
            rest.split_once('/').ok_or_else(|| wrong("the name of the database is missing"))?;
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, authority),
        };
        if user.is_some_and(|user| user.contains(':')) {
            return Err(password_named());
        }
        let mut place = Place {
            user: user.map(decoded).transpose()?,
            hosts: hosts.split(',').map(host).collect::<Result<_>>()?,
            database: decoded(database)?,
            users: USERS.to_owned(),
            tls: Words::default(),
        };
        words.split('&').filter(|word| !word.is_empty()).try_for_each(|word| place.set(word))?;
        place.checked()
    }
}

fn host(text: &str) -> Result<(String, u16)> {
    let (name, port) = url::host_and_port(text)?;
    match name.is_empty() || name.starts_with('/') {
        true => Err(wrong("the host is missing: write mongodb://USER@HOST/DATABASE")),
        false => Ok((name, port.unwrap_or(PORT))),
    }
}

fn password_named() -> Error {
    url::password_named("MONGODB_PASSWORD or a line of ~/.mongodbpass")
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|user| format!("{}@", encoded(user)));
        write!(out, "{SCHEME}{}", user.unwrap_or_default())?;
        let host = |(name, port): &(String, u16)| match *port {
            PORT => url::host(name),
            port => format!("{}:{port}", url::host(name)),
        };
        let hosts: Vec<String> = self.hosts.iter().map(host).collect();
        let users = (self.users != USERS).then(|| format!("authSource={}", encoded(&self.users)));
        let words: Vec<String> = users.into_iter().chain(self.tls.written()).collect();
        let mark = if words.is_empty() { "" } else { "?" };
        write!(out, "{}/{}{mark}{}", hosts.join(","), encoded(&self.database), words.join("&"))
    }
}

#[cfg(test)]
mod tests {
    use super::Place;

    fn place(text: &str) -> Place {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_left_out_is_the_same_as_what_is_said() {
        let said = place("mongodb://fs@localhost:27017/trees?authSource=admin");
        assert_eq!(said.to_string(), "mongodb://fs@localhost/trees");
        assert_eq!(place("mongodb://fs@localhost/trees"), said);
        assert_eq!(Place::path_at("mongodb://fs@localhost/trees@a"), Some(22));
        for text in [
            "mongodb://localhost/trees",
            "mongodb://a%40b@[::1]:5433/trees?authSource=x",
            "mongodb://fs@a,b:27018,c/trees?tls=verify&tls-ca=/etc/roots.pem",
        ] {
            assert_eq!(place(text).to_string(), text);
        }
    }

    #[test]
    fn a_password_is_refused_and_not_said_again() {
        for text in ["mongodb://fs:secret@localhost/t", "mongodb://fs@h/t?password=secret"] {
            let error = text.parse::<Place>().unwrap_err().to_string();
            assert!(error.contains("MONGODB_PASSWORD") && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn what_names_no_place_is_refused() {
        for text in [
            "sqlite:x",
            "mongodb://localhost",
            "mongodb://localhost/",
            "mongodb:///trees",
            "mongodb://a,,b/trees",
            "mongodb://@localhost/t",
            "mongodb://localhost:x/t",
            "mongodb://localhost/a.b",
            "mongodb://localhost/a%2Fb",
            "mongodb://localhost/t?replicaSet=a",
            "mongodb://localhost/t?tls=off&tls-ca=/a",
        ] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
