//! Names of datasets and snapshots.

use crate::Error;
use std::fmt;
use std::str::FromStr;

/// The name of a dataset: 1 to 200 bytes of letters, digits and `-_.:/`, starting and ending with
/// neither `/` nor `.`, no two `/` together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatasetName(String);

/// What can be mounted or cloned: a dataset as it is now, or as a snapshot kept it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    /// The dataset.
    pub dataset: DatasetName,
    /// The snapshot's name, by the same rules but without `/`; `None` for the live dataset.
    pub snapshot: Option<String>,
}

impl DatasetName {
    /// The dataset that every pool has.
    pub fn root() -> DatasetName {
        DatasetName("root".to_owned())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Longest name of a dataset or snapshot, in bytes.
const NAME_BYTES_MAX: usize = 200;

fn check(text: &str, slash_allowed: bool) -> Result<(), Error> {
    let allowed = |byte: u8| {
        byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte) || (slash_allowed && byte == b'/')
    };
    let edge = |byte: &u8| matches!(byte, b'/' | b'.');
    let bytes = text.as_bytes();
    let good = !bytes.is_empty()
        && bytes.len() <= NAME_BYTES_MAX
        && bytes.iter().all(|byte| allowed(*byte))
        && !bytes.first().is_some_and(edge)
        && !bytes.last().is_some_and(edge)
        && !text.contains("//");
    if good {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{text:?} is no name: use 1 to {NAME_BYTES_MAX} letters, digits, '-', '_', '.' and ':'"
    )))
}

impl FromStr for DatasetName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        check(text, true)?;
        Ok(DatasetName(text.to_owned()))
    }
}

impl FromStr for Source {
    type Err = Error;

    /// Reads `DATASET` or `DATASET@SNAPSHOT`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let (dataset, snapshot) = match text.split_once('@') {
            Some((dataset, snapshot)) => (dataset, Some(snapshot)),
            None => (text, None),
        };
        snapshot.map_or(Ok(()), |name| check(name, false))?;
        Ok(Source { dataset: dataset.parse()?, snapshot: snapshot.map(str::to_owned) })
    }
}

impl fmt::Display for DatasetName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.snapshot {
            Some(snapshot) => write!(out, "{}@{snapshot}", self.dataset),
            None => write!(out, "{}", self.dataset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DatasetName, Source};

    #[test]
    fn sources_are_read_as_they_are_written() {
        for text in ["root", "root@before", "a/b-c@2026-11-21_10:00"] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
        for text in ["", "@x", "a@", "a@b@c", "a@b/c", "/a", "a//b", "a b", "..", "\u{e9}"] {
            assert!(text.parse::<Source>().is_err(), "{text}");
        }
        assert!("x".repeat(201).parse::<DatasetName>().is_err());
    }
}
