//! What is said to a daemon about transactions: one JSON document a line, each way.
//!
//! Fields that a daemon says and this module does not name are passed over, so a program may be
//! older or newer than the daemon as long as [`PROTOCOL`] is the same.

use crate::device::DeviceNumber;
use crate::error::{Conflict, Error};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The version of what this module says. A daemon that says another one in its greeting is not
/// asked.
pub const PROTOCOL: u32 = 1;

/// Most datasets that a transaction works in: each is a mount.
pub const DATASETS_MAX: usize = 8;

/// The first line, from the daemon.
#[derive(Debug, Deserialize)]
pub(crate) struct Greeting {
    /// The version of the program.
    pub(crate) version: String,
    /// The pool.
    #[serde(flatten)]
    pub(crate) pool: Pool,
    /// The version of this module that the daemon knows: none is older than all.
    #[serde(default)]
    pub(crate) transactions: u32,
    /// What it has mounted.
    #[serde(default)]
    pub(crate) mounts: Vec<Mount>,
}

/// A pool, as its daemon tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Pool {
    /// Its id, in hexadecimal.
    #[serde(default, rename = "pool_id")]
    pub(crate) id: String,
    /// Where it is.
    #[serde(default, rename = "pool")]
    pub(crate) path: PathBuf,
}

/// A mount of a daemon.
#[derive(Debug, Deserialize)]
pub(crate) struct Mount {
    /// Where the daemon has made it.
    pub(crate) directory: PathBuf,
    /// The device number of its files.
    #[serde(default)]
    pub(crate) device: Option<DeviceNumber>,
    /// Another may have its device number.
    #[serde(default)]
    pub(crate) has_ended: bool,
}

/// What is asked.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request<'a> {
    /// Begin a transaction, which lives as long as the conversation.
    Begin(BeginOrder<'a>),
    /// Commit the transaction of this id.
    Commit(&'a str),
    /// Abort it.
    Abort(&'a str),
    /// Commit one that works in two pools: this is the one that prepares, and the other one
    /// decides.
    Prepare(Joint<'a>),
}

/// A commit in two pools.
#[derive(Debug, Serialize)]
pub(crate) struct Joint<'a> {
    /// The id of the transaction, the same in both.
    pub(crate) id: &'a str,
    /// The pool that decides: of two that with the smaller id.
    pub(crate) other: OtherPool<'a>,
}

/// The other pool of a transaction.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct OtherPool<'a> {
    /// Its id.
    pub(crate) id: &'a str,
    /// Where it is.
    pub(crate) path: &'a Path,
}

impl Pool {
    /// As the other one hears of it.
    pub(crate) fn as_other(&self) -> OtherPool<'_> {
        OtherPool { id: &self.id, path: &self.path }
    }
}

/// A transaction to begin.
#[derive(Debug, Serialize)]
pub(crate) struct BeginOrder<'a> {
    /// A mount of the dataset, by [`Mount::directory`]; of no meaning inside of a transaction.
    pub(crate) directory: &'a Path,
    /// The same of other datasets.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(crate) also: &'a [PathBuf],
    /// The transaction that it is to be inside of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) inside: Option<&'a str>,
    /// The id that it has in another pool, in which it works too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<&'a str>,
    /// That pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) other: Option<OtherPool<'a>>,
    /// On whose behalf.
    pub(crate) author: Author,
    /// The roots of the views come as descriptors with the answer, and at no path.
    pub(crate) descriptor: bool,
}

/// On whose behalf something is done. Of other users than root and the daemon's own the daemon
/// believes the kernel alone.
#[derive(Debug, Serialize)]
pub(crate) struct Author {
    /// The user.
    pub(crate) user: u32,
    /// The command line.
    pub(crate) command: String,
}

/// What is answered.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// A transaction has begun.
    Begun(Begun),
    /// A transaction was committed, or refused.
    Concluded(Conclusion),
    /// One that works in two pools was committed, or refused, or is in doubt.
    Joint(JointConclusion),
    /// It is done.
    Done,
}

/// What a commit in two pools has come to.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum JointConclusion {
    /// It has been done in both.
    Committed,
    /// It was done in neither.
    Refused(Vec<ConflictRow>),
    /// It is prepared in one, and what the other one has decided is not known.
    InDoubt(Refusal),
}

/// A transaction that has begun.
#[derive(Debug, Deserialize)]
pub(crate) struct Begun {
    /// Its id: 32 digits of base 16.
    pub(crate) id: String,
    /// The device number of the files in its view.
    pub(crate) device: DeviceNumber,
    /// The views of other datasets.
    #[serde(default)]
    pub(crate) also: Vec<BegunView>,
}

/// The view of another dataset.
#[derive(Debug, Deserialize)]
pub(crate) struct BegunView {
    /// The device number of the files in it.
    pub(crate) device: DeviceNumber,
}

/// What a commit has come to.
#[derive(Debug, Deserialize)]
pub(crate) struct Conclusion {
    /// It has been done.
    pub(crate) committed: bool,
    /// Why not.
    #[serde(default)]
    pub(crate) conflicts: Vec<ConflictRow>,
    /// Why it is not known whether it has been done.
    #[serde(default)]
    pub(crate) unknown: Option<Refusal>,
}

/// A conflict.
#[derive(Debug, Deserialize)]
pub(crate) struct ConflictRow {
    /// Where.
    pub(crate) path: String,
    /// All bytes of that in hexadecimal, if it is no UTF-8.
    #[serde(default)]
    pub(crate) path_bytes: Option<String>,
    /// What both sides did.
    pub(crate) detail: String,
}

/// A refusal.
#[derive(Debug, Deserialize)]
pub(crate) struct Refusal {
    /// Why.
    pub(crate) message: String,
    /// What to do next.
    #[serde(default)]
    pub(crate) hint: Option<String>,
}

/// The line that answers a request.
pub(crate) type Response = Result<Answer, Refusal>;

impl From<Refusal> for Error {
    fn from(Refusal { message, hint }: Refusal) -> Error {
        Error::Daemon { message, hint }
    }
}

impl From<ConflictRow> for Conflict {
    fn from(row: ConflictRow) -> Conflict {
        let exact = row.path_bytes.as_deref().and_then(bytes_of);
        let path = exact.map_or(PathBuf::from(row.path), |it| OsString::from_vec(it).into());
        Conflict { path, detail: row.detail }
    }
}

fn bytes_of(hexadecimal: &str) -> Option<Vec<u8>> {
    let digits = hexadecimal.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::{Answer, ConflictRow, JointConclusion, Response};
    use crate::error::Conflict;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn an_answer_is_read_with_fields_of_other_versions() {
        let line = r#"{"Ok":{"begun":{"id":"ab","place":"/x","device":"0:7","new":1}}}"#;
        let read: Response = serde_json::from_str(line).unwrap();
        assert!(matches!(read, Ok(Answer::Begun(begun)) if begun.id == "ab"));
        let line = r#"{"Ok":{"joint":{"in_doubt":{"kind":"failed","message":"no"}}}}"#;
        let read: Response = serde_json::from_str(line).unwrap();
        let Ok(Answer::Joint(JointConclusion::InDoubt(why))) = read else { panic!("{read:?}") };
        assert_eq!(why.message, "no");
        let line = r#"{"Err":{"kind":"failed","message":"no","hint":null}}"#;
        assert!(serde_json::from_str::<Response>(line).unwrap().is_err());
        for line in ["", "{}", "{\"Ok\":7}", "[]", "{\"Ok\":{\"begun\":{}}}"] {
            assert!(serde_json::from_str::<Response>(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_path_that_is_no_text_comes_whole() {
        let row = |path_bytes: &str| ConflictRow {
            path: "/?".to_owned(),
            path_bytes: Some(path_bytes.to_owned()),
            detail: "x".to_owned(),
        };
        assert_eq!(Conflict::from(row("2fff")).path.as_os_str().as_bytes(), b"/\xff");
        for nonsense in ["2fzz", "\u{e9}\u{e9}"] {
            assert_eq!(Conflict::from(row(nonsense)).path.to_str(), Some("/?"));
        }
    }
}
