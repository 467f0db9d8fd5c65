//! What is said of the differences between two states.

use crate::control::credentials::Credentials;
use crate::names::{PathText, bytes, quoted};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Two states to compare. The differences come as lines of JSON, each a [`DifferenceRow`], sorted
/// by path: however many there are, none is kept by the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CompareOrder {
    /// `DATASET` or `DATASET@SNAPSHOT`.
    pub(crate) before: String,
    /// The same.
    pub(crate) after: String,
    /// The inode of the directory that is compared; a state that does not have it is asked for the
    /// one under its path.
    pub(crate) root: u64,
    /// Also tell which lines of text differ.
    pub(crate) patch: bool,
    /// Which paths are meant.
    #[serde(default)]
    pub(crate) selection: SelectionOrder,
    /// The user whose rights bound the answer; none if nothing does.
    #[serde(skip)]
    pub(crate) bound: Option<Credentials>,
}

/// Which paths a comparison or a merge is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SelectionOrder {
    /// These and all below them, from the root; none stands for all.
    pub(crate) paths: Vec<PathText>,
    /// Without what these patterns match, as lines of `.gitignore`.
    pub(crate) excludes: Vec<String>,
    /// Without what ignore files of git leave out.
    pub(crate) ignore_files: bool,
}

impl SelectionOrder {
    /// Whether all paths are meant.
    pub(crate) fn is_all(&self) -> bool {
        self.paths.is_empty() && self.excludes.is_empty() && !self.ignore_files
    }
}

/// A dataset, or one directory or file of it, that is to become what it is in another state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DirectoryOrder {
    /// The dataset.
    pub(crate) dataset: String,
    /// A snapshot of it, or a clone or fork of it, or a snapshot of one: `DATASET` or
    /// `DATASET@SNAPSHOT`.
    pub(crate) to: String,
    /// The directory's inode in the dataset; none is its root.
    pub(crate) directory: Option<u64>,
    /// The path below that directory, if not all of it is meant.
    #[serde(default)]
    pub(crate) names: Vec<PathText>,
    /// Do not keep the state before as a snapshot.
    pub(crate) discard: bool,
}

/// A file or directory whose versions are asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VersionsOrder {
    /// The dataset.
    pub(crate) dataset: String,
    /// The inode of a directory that is there; none is the root of the dataset.
    pub(crate) directory: Option<u64>,
    /// The path below that directory.
    pub(crate) names: Vec<PathText>,
}

/// A version of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VersionRow {
    /// It is there now.
    pub(crate) now: bool,
    /// The snapshots that have it, newest first, without their dataset.
    pub(crate) snapshots: Vec<String>,
    /// When the oldest of them was made: seconds since 1970.
    pub(crate) since_seconds: Option<i64>,
    /// `file`, `directory`, `symlink`, `fifo`, `socket` or `device`; none where it is gone.
    pub(crate) kind: Option<String>,
    /// Where, from the root of the dataset.
    pub(crate) path: Option<String>,
    /// All bytes of that in hexadecimal, if it is no UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path_bytes: Option<String>,
    /// Bytes of a file, entries of a directory.
    pub(crate) size: Option<u64>,
    /// The last change of content, in UTC by RFC 3339.
    pub(crate) modified: Option<String>,
    /// What happened since the version before: `oldest`, `created`, `removed` or `changed`.
    pub(crate) change: String,
    /// In what a file or directory differs: `content`, `mode`, `owner`, `flags`, `xattrs`, `kind`
    /// or `path`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) aspects: Vec<String>,
    /// How much came, went and changed below a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) below: Option<(u64, u64, u64)>,
}

impl VersionRow {
    /// The path with all its bytes.
    pub(crate) fn path_in_bytes(&self) -> Option<Vec<u8>> {
        let path = self.path.as_ref()?;
        Some(bytes(path, self.path_bytes.as_ref()))
    }
}

/// One thing that differs between two states.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DifferenceRow {
    /// What has happened: `created`, `removed`, `renamed`, `linked`, `unlinked`, `content`,
    /// `attributes` or `xattrs`. A file that another one took the place of, as editors save, has
    /// other `content`.
    pub(crate) change: String,
    /// Where, from the root of what is compared.
    pub(crate) path: String,
    /// All bytes of that in hexadecimal, if it is no UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path_bytes: Option<String>,
    /// Where it was, of what was renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) old_path: Option<String>,
    /// All bytes of that in hexadecimal, if it is no UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) old_path_bytes: Option<String>,
    /// `file`, `directory`, `symlink`, `fifo`, `socket` or `device`.
    pub(crate) kind: String,
    /// Of changed content: first byte and end of each range that differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) ranges: Vec<(u64, u64)>,
    /// Of changed content, and of files that are new or gone: the sizes in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sizes: Option<(u64, u64)>,
    /// Of changed attributes: name, old and new value, where there is one. Times are in UTC by RFC
    /// 3339.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) values: Vec<(String, Option<String>, Option<String>)>,
    /// The lines that differ, as `diff -u` tells them, where they were asked for and it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) patch: Option<String>,
}

impl DifferenceRow {
    /// The path with all its bytes.
    pub(crate) fn path_in_bytes(&self) -> Vec<u8> {
        bytes(&self.path, self.path_bytes.as_ref())
    }

    /// Where it was.
    pub(crate) fn old_path_in_bytes(&self) -> Option<Vec<u8>> {
        let old = self.old_path.as_ref()?;
        Some(bytes(old, self.old_path_bytes.as_ref()))
    }

    /// The same with the directory in front in which the root is seen.
    pub(crate) fn below(self, directory: &Path) -> DifferenceRow {
        let PathText { path, path_bytes } = PathText::below(directory, &self.path_in_bytes());
        let old = self.old_path_in_bytes().map(|old| PathText::below(directory, &old));
        let (old_path, old_path_bytes) =
            old.map_or((None, None), |old| (Some(old.path), old.path_bytes));
        DifferenceRow { path, path_bytes, old_path, old_path_bytes, ..self }
    }

    /// The path for people.
    pub(crate) fn place(&self) -> String {
        quoted(&self.path_in_bytes())
    }

    /// Where it was, for people.
    pub(crate) fn old_place(&self) -> Option<String> {
        self.old_path_in_bytes().map(|path| quoted(&path))
    }

    /// Whether it is about the same path.
    pub(crate) fn is_at(&self, other: &DifferenceRow) -> bool {
        (&self.path, &self.path_bytes) == (&other.path, &other.path_bytes)
    }
}
