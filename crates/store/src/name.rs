//! Names of datasets and snapshots.

mod merge_base;

pub use merge_base::merge_bases;
pub(crate) use merge_base::{move_base, refuse_moved_base};

use crate::Error;
use merge_base::{BASE_PREFIX, FORMER_PREFIX};
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

    /// The names of datasets into which streams are received, until they are whole.
    pub fn receiving() -> impl Iterator<Item = DatasetName> {
        (1..RECEIVE_NUMBERS_MAX).map(|number| DatasetName(format!("{RECEIVE_PREFIX}{number}")))
    }

    /// The names of those that keep what has come of a stream that is cut, until it goes on.
    pub fn partial() -> impl Iterator<Item = DatasetName> {
        (1..RECEIVE_NUMBERS_MAX).map(|number| DatasetName(format!("{PARTIAL_PREFIX}{number}")))
    }

    /// Whether it is one of [`DatasetName::partial`].
    pub fn is_partial(&self) -> bool {
        self.0.starts_with(PARTIAL_PREFIX)
    }

    /// The name of the fork that a transaction works in, by the transaction's id.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an id that no name can have in it.
    pub fn of_transaction(id: &str) -> Result<DatasetName, Error> {
        format!("{TRANSACTION_PREFIX}{id}").parse()
    }

    /// The same where the transaction works in several datasets, by the place of the dataset among
    /// them: the first one has the name of [`DatasetName::of_transaction`].
    ///
    /// # Errors
    /// As there.
    pub fn of_transaction_at(id: &str, place: usize) -> Result<DatasetName, Error> {
        match place {
            0 => DatasetName::of_transaction(id),
            place => DatasetName::of_transaction(&format!("{id}:{place}")),
        }
    }

    /// The id of the transaction whose fork it is, if it is one.
    pub fn transaction(&self) -> Option<&str> {
        let named = self.0.strip_prefix(TRANSACTION_PREFIX)?;
        Some(named.split_once(':').map_or(named, |(id, _)| id))
    }

    /// Whether it is one of [`DatasetName::receiving`] or [`DatasetName::partial`], which users
    /// cannot take.
    pub fn is_receiving(&self) -> bool {
        self.0.starts_with(RECEIVE_PREFIX)
    }

    /// Refuses a dataset into which a stream comes: nothing may hold it before all of it is there.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn refuse_receiving(&self) -> Result<(), Error> {
        match self.is_receiving() {
            true => Err(Error::Invalid(format!("{self} is being received, and not whole yet"))),
            false => Ok(()),
        }
    }
}

/// Longest name of a dataset or snapshot, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Longest tag of a hold, in bytes.
const TAG_BYTES_MAX: usize = 64;

/// Refuses what cannot be a tag of [`crate::Holds::hold`]; for stores.
///
/// # Errors
/// [`Error::Invalid`].
pub fn check_tag(tag: &str) -> Result<(), Error> {
    if tag.len() <= TAG_BYTES_MAX && check(tag, false).is_ok() {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "{tag:?} is no tag: use 1 to {TAG_BYTES_MAX} letters, digits, '-', '_', '.' and ':'"
    )))
}

/// Refuses what [`crate::Store::rename`] cannot do, whatever there is; for stores.
///
/// # Errors
/// [`Error::Invalid`].
pub fn check_rename(from: &Source, to: &Source) -> Result<(), Error> {
    let refuse = |reason: &str| Err(Error::Invalid(format!("{from} to {to}: {reason}")));
    match (&from.snapshot, &to.snapshot) {
        (None, None) if from.dataset == DatasetName::root() => {
            refuse("the root dataset keeps its name")
        }
        (None, None) => Ok(()),
        (Some(_), Some(_)) if from.dataset == to.dataset => Ok(()),
        (Some(_), Some(_)) => refuse("a snapshot stays with its dataset"),
        _ => refuse("a dataset becomes no snapshot, and a snapshot no dataset"),
    }
}

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

/// Names of snapshots that begin so are the store's own: of what forks began as, of bases of
/// merges, and of what a merge or diff keeps while it works.
const OWN_PREFIXES: [&str; 5] = [FORK_PREFIX, BASE_PREFIX, FORMER_PREFIX, "merge:", "diff:"];
/// With this the name of a dataset begins into which a stream is being received.
const RECEIVE_PREFIX: &str = "receive:";
/// The same, of one that is kept when the stream is cut.
const PARTIAL_PREFIX: &str = "receive:part:";
/// With this the name of a transaction's fork begins. It ends with the transaction.
const TRANSACTION_PREFIX: &str = "tx:";
/// With this the name begins of what is kept for an undo.
const TRASH_PREFIX: &str = "undo:";
/// With this the name of an automatic snapshot begins.
pub const AUTOMATIC_PREFIX: &str = "auto:";
/// With this the name of a fork's base begins.
const FORK_PREFIX: &str = "fork:";

/// Whether a snapshot of this name is an automatic one: the prefix and a moment, as in
/// `auto:2026-11-24T15:02:07Z`. Anything else that begins so is of a user of the library.
pub fn is_automatic_name(name: &str) -> bool {
    let moment = name.strip_prefix(AUTOMATIC_PREFIX).and_then(|rest| rest.strip_suffix('Z'));
    let is_number = |part: &str| part.len() >= 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    let are_three = |text: &str, between: char| {
        text.split(between).count() == 3 && text.split(between).all(is_number)
    };
    let parts = moment.and_then(|moment| moment.split_once('T'));
    parts.is_some_and(|(date, time)| are_three(date, '-') && are_three(time, ':'))
}

impl Source {
    /// A dataset as it is now.
    pub fn live(dataset: DatasetName) -> Source {
        Source { dataset, snapshot: None }
    }

    /// Whether it is a snapshot or dataset that no user has made: users' commands refuse such
    /// names for others, and list them only on request.
    pub fn is_own(&self) -> bool {
        let is_own = |name: &String| OWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let is_own_dataset = || self.dataset.is_receiving() || self.dataset.transaction().is_some();
        self.is_in_trash() || self.snapshot.as_ref().map_or_else(is_own_dataset, is_own)
    }

    /// Whether a store keeps it for an undo: by its name it is out of sight, or its dataset is.
    pub fn is_in_trash(&self) -> bool {
        let of_snapshot = self.snapshot.as_ref();
        self.dataset.0.starts_with(TRASH_PREFIX)
            || of_snapshot.is_some_and(|name| name.starts_with(TRASH_PREFIX))
    }

    /// The number of the operation for whose undo it is kept, by its own name.
    pub fn kept_for_operation(&self) -> Option<u64> {
        let name = self.snapshot.as_deref().unwrap_or(&self.dataset.0);
        name.strip_prefix(TRASH_PREFIX)?.split(':').next()?.parse().ok()
    }

    /// Whether it is an automatic snapshot, which goes by a rule or when its space is needed.
    pub fn is_automatic(&self) -> bool {
        self.snapshot.as_deref().is_some_and(is_automatic_name)
    }

    /// Whether it is the base of a fork.
    pub fn is_fork_base(&self) -> bool {
        self.snapshot.as_ref().is_some_and(|name| name.starts_with(FORK_PREFIX))
    }

    /// The name of the base of a fork of `dataset` that is to be named `fork`: the last part of
    /// that, and a number if the name is taken.
    ///
    /// # Errors
    /// [`Error::DatasetExists`] if all numbers that are tried are taken.
    pub fn fork_base(
        dataset: &DatasetName,
        fork: &DatasetName,
        is_taken: &dyn Fn(&Source) -> bool,
    ) -> Result<Source, Error> {
        let part = fork.0.rsplit('/').next().unwrap_or_default();
        let part = &part[..part.len().min(FORK_PART_BYTES_MAX)];
        let named = |name: String| Source { dataset: dataset.clone(), snapshot: Some(name) };
        let first = named(format!("{FORK_PREFIX}{part}"));
        // A name that was cut must not end with a dot, nor meet the number of another one.
        let numbered = |number| named(format!("{FORK_PREFIX}{part}:{number}"));
        if !part.ends_with('.') && !is_taken(&first) {
            return Ok(first);
        }
        let free = (2..FORK_NUMBERS_MAX).map(numbered).find(|source| !is_taken(source));
        free.ok_or_else(|| Error::DatasetExists(first.to_string()))
    }
}

/// Numbers that are tried for the name of a dataset that receives.
const RECEIVE_NUMBERS_MAX: u32 = 1 << 16;
/// Longest part of a fork's name in the name of its base, in bytes.
const FORK_PART_BYTES_MAX: usize = 150;
/// Numbers that are tried for the name of a base.
const FORK_NUMBERS_MAX: u32 = 1 << 20;

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
    fn bases_of_forks_have_names_of_their_own() {
        let (root, fork) = (DatasetName::root(), "forks/a".parse::<DatasetName>().unwrap());
        let first = Source::fork_base(&root, &fork, &|_| false).unwrap();
        assert_eq!(first.to_string(), "root@fork:a");
        let second = Source::fork_base(&root, &fork, &|name| *name == first).unwrap();
        assert_eq!(second.to_string(), "root@fork:a:2");
        let long: DatasetName = format!("{}.{}", "x".repeat(149), "y".repeat(50)).parse().unwrap();
        let base = Source::fork_base(&root, &long, &|_| false).unwrap();
        assert_eq!(base.to_string().parse(), Ok(base.clone()));
        assert!(base.is_fork_base() && base.is_own() && !Source::live(root).is_own());
    }

    #[test]
    fn the_fork_of_a_transaction_is_the_stores_own() {
        let fork = DatasetName::of_transaction("0a").unwrap();
        assert_eq!((fork.as_str(), fork.transaction()), ("tx:0a", Some("0a")));
        assert!(Source::live(fork).is_own() && DatasetName::root().transaction().is_none());
        assert!(DatasetName::of_transaction("a b").is_err());
        let [first, third] =
            [0, 2].map(|place| DatasetName::of_transaction_at("0a", place).unwrap());
        assert_eq!((first.as_str(), third.as_str()), ("tx:0a", "tx:0a:2"));
        assert_eq!((first.transaction(), third.transaction()), (Some("0a"), Some("0a")));
    }

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
