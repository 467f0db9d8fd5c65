//! Passwords: from a variable of the environment, or from a file that another one names, or from
//! one in the home directory.

use marram_cluster::{mongo, postgres};
use marram_store::{Error, Result};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where the passwords for a kind of server stand.
struct Sources {
    /// The variable that has one.
    variable: &'static str,
    /// The variable that names a file with some.
    file_variable: &'static str,
    /// The file, in the home directory, if none is named.
    file: &'static str,
}

/// As all programs of PostgreSQL have them.
const POSTGRES: Sources =
    Sources { variable: "PGPASSWORD", file_variable: "PGPASSFILE", file: ".pgpass" };
/// MongoDB has no custom of its own.
const MONGO: Sources = Sources {
    variable: "MONGODB_PASSWORD",
    file_variable: "MONGODB_PASSFILE",
    file: ".mongodbpass",
};

/// The password for a place in PostgreSQL.
pub(super) fn of_postgres(place: &postgres::Place) -> Result<Vec<u8>> {
    of(&POSTGRES, &place.password_words())
}

/// The password for a place in MongoDB.
pub(super) fn of_mongo(place: &mongo::Place) -> Result<Vec<u8>> {
    of(&MONGO, &place.password_words())
}

/// The password behind the words that a line of a file begins with: host, port, database and user.
fn of(sources: &Sources, words: &[String; 4]) -> Result<Vec<u8>> {
    let Sources { variable, file_variable, file } = sources;
    if let Some(password) = std::env::var_os(variable) {
        return Ok(password.into_vec());
    }
    let named = std::env::var_os(file_variable).map(PathBuf::from);
    let own = || std::env::home_dir().map(|home| home.join(file));
    let found = named.or_else(own).map(|file| in_file(&file, words)).transpose()?;
    found.flatten().ok_or_else(|| {
        let user = &words[3];
        Error::Invalid(format!(
            "the server asks for the password of {user}: set {variable}, or write a line \
             HOST:PORT:DATABASE:{user}:PASSWORD into ~/{file}"
        ))
    })
}

fn in_file(file: &Path, words: &[String; 4]) -> Result<Option<Vec<u8>>> {
    let text = secret(file)?;
    Ok(text
        .and_then(|text| text.split(|byte| *byte == b'\n').find_map(|line| matching(line, words))))
}

/// The bytes of a file with secrets, which is closed to other users; none if there is none.
pub(super) fn secret(file: &Path) -> Result<Option<Vec<u8>>> {
    let failed = |error| Error::Invalid(format!("{}: {error}", file.display()));
    let found = match fs::metadata(file) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if found.permissions().mode() & 0o077 != 0 {
        let file = file.display();
        return Err(Error::Invalid(format!(
            "{file} is open to other users, and passwords stand in it: chmod 600 {file}"
        )));
    }
    fs::read(file).map(Some).map_err(failed)
}

/// The password of a line, if the line begins with the words.
fn matching(line: &[u8], words: &[String; 4]) -> Option<Vec<u8>> {
    let mut fields = fields(line).into_iter();
    let is_it = words.iter().all(|wanted| {
        fields.next().is_some_and(|field| field == b"*" || field == wanted.as_bytes())
    });
    fields.next().filter(|_| is_it)
}

/// The fields of a line, between colons; a backslash takes what follows as it is.
fn fields(line: &[u8]) -> Vec<Vec<u8>> {
    let mut fields = vec![Vec::new()];
    let mut bytes = line.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b':' => fields.push(Vec::new()),
            b'\\' => fields.last_mut().into_iter().for_each(|field| field.extend(bytes.next())),
            _ => fields.last_mut().into_iter().for_each(|field| field.push(byte)),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::in_file;
    use marram_cluster::postgres;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_first_line_for_a_place_has_its_password() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("passwords");
        let words = |url: &str| url.parse::<postgres::Place>().unwrap().password_words();
        let place = words("postgres://fs@localhost:5433/trees");
        assert!(in_file(&file, &place).unwrap().is_none());
        let lines =
            "# a comment\nlocalhost:5432:trees:fs:no\n*:*:trees:fs:a\\:b\\\\c\n*:*:*:*:last";
        write(&file, lines).unwrap();
        set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let refused = in_file(&file, &place).unwrap_err().to_string();
        assert!(refused.contains("chmod 600") && !refused.contains("last"), "{refused}");
        set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(in_file(&file, &place).unwrap().unwrap(), b"a:b\\c");
        let socket = words("postgres://other@/trees?port=5433");
        assert_eq!(in_file(&file, &socket).unwrap().unwrap(), b"last");
    }
}
