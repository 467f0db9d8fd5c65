//! Merges: the request, the conflicts with what is decided about each, and the report.

use super::comparison::{DifferenceRow, SelectionOrder};
use crate::names::{PathText, bytes, printable, quoted};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What is done about conflicts of a merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConflictChoice {
    /// The report names them, and nothing is changed.
    #[default]
    Refuse,
    /// The parent's state stays.
    Ours,
    /// The fork's state is taken.
    Theirs,
    /// The lines of both, with marks around those that both changed.
    Marked,
    /// The text that the decision has.
    Text,
}

impl ConflictChoice {
    /// What takes the same side where the changes go the other way.
    pub(crate) fn of_the_other_way(self) -> ConflictChoice {
        match self {
            ConflictChoice::Ours => ConflictChoice::Theirs,
            ConflictChoice::Theirs => ConflictChoice::Ours,
            other => other,
        }
    }
}

/// What is done about all conflicts at a path, and below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathChoice {
    /// The path, from the root of the fork.
    #[serde(flatten)]
    pub(crate) path: PathText,
    /// What is done.
    pub(crate) choice: ConflictChoice,
}

/// A directory that a merge goes into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MergePlace {
    /// The dataset that it is in.
    pub(crate) dataset: String,
    /// Its inode.
    pub(crate) directory: u64,
}

/// A merge that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MergeRequest {
    /// The fork.
    pub(crate) fork: String,
    /// Which of the changes are meant: what others there are stays where it is.
    #[serde(default)]
    pub(crate) selection: SelectionOrder,
    /// Where the changes go, if not into the directory that was forked.
    #[serde(default)]
    pub(crate) into: Option<MergePlace>,
    /// Only tell what would happen.
    pub(crate) preview: bool,
    /// The parent's changes go into the fork, not the fork's into the parent.
    #[serde(default)]
    pub(crate) update: bool,
    /// What is done about conflicts.
    pub(crate) choice: ConflictChoice,
    /// Changes to different ranges of one file go together.
    pub(crate) ranges: bool,
    /// Changes to different lines of one text go together.
    pub(crate) text: bool,
    /// The fork is destroyed when it has been merged.
    pub(crate) drop: bool,
    /// What is done about the conflicts at a path and below it: the longest that fits decides.
    #[serde(default)]
    pub(crate) paths: Vec<PathChoice>,
    /// What is done about single conflicts, before all others.
    #[serde(default)]
    pub(crate) decisions: Vec<Decision>,
    /// Tell conflicts of texts with the lines of both.
    #[serde(default)]
    pub(crate) marks: bool,
    /// Tell conflicts of texts with all three of them, for a program that puts them together.
    #[serde(default)]
    pub(crate) texts: bool,
    /// Merge only if nothing has changed since the report with this state.
    #[serde(default)]
    pub(crate) state: Option<String>,
}

impl MergeRequest {
    /// All that a fork has changed goes into its parent, or nothing if there is a conflict.
    pub(crate) fn of(fork: String) -> MergeRequest {
        MergeRequest {
            fork,
            selection: SelectionOrder::default(),
            into: None,
            preview: false,
            update: false,
            choice: ConflictChoice::Refuse,
            ranges: false,
            text: false,
            drop: false,
            paths: Vec::new(),
            decisions: Vec::new(),
            marks: false,
            texts: false,
            state: None,
        }
    }
}

/// What is done about one conflict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Decision {
    /// The conflict, as a report has it.
    pub(crate) conflict: ConflictRow,
    /// What is done about it.
    pub(crate) choice: ConflictChoice,
    /// What the file is to hold, of [`ConflictChoice::Text`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
}

/// The three texts of a file that both have changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ConflictTexts {
    /// What both began as.
    pub(crate) base: String,
    /// What the parent has.
    pub(crate) ours: String,
    /// What the fork has.
    pub(crate) theirs: String,
}

/// A conflict of a merge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ConflictRow {
    /// Where, from the root of the fork.
    pub(crate) path: String,
    /// All bytes of that in hexadecimal, if it is no UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path_bytes: Option<String>,
    /// `content`, `attribute`, `name`, `removed` or `loop`.
    pub(crate) kind: String,
    /// What both sides did.
    pub(crate) detail: String,
    /// If that was asked for, and both are texts that are not long: the lines of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) marked: Option<String>,
    /// If that was asked for, and all are texts: what base, parent and fork have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) texts: Option<ConflictTexts>,
    /// What was decided about it: nothing yet of a conflict that is open. A decision has it filled
    /// in.
    #[serde(default)]
    pub(crate) choice: Option<ConflictChoice>,
}

/// What tells conflicts apart: path, its bytes, kind and detail.
pub(crate) type ConflictKey<'c> = (&'c str, Option<&'c str>, &'c str, &'c str);

impl ConflictRow {
    /// The same with the directory in front in which the root is seen.
    pub(crate) fn below(self, directory: &Path) -> ConflictRow {
        let PathText { path, path_bytes } = PathText::below(directory, &self.path_in_bytes());
        ConflictRow { path, path_bytes, ..self }
    }

    /// What it is about, in whatever form its texts are.
    pub(crate) fn key(&self) -> ConflictKey<'_> {
        (&self.path, self.path_bytes.as_deref(), &self.kind, &self.detail)
    }

    /// The same, without what stands beside it.
    pub(crate) fn bare(&self) -> ConflictRow {
        ConflictRow { marked: None, texts: None, choice: None, ..self.clone() }
    }

    /// The path with all its bytes.
    pub(crate) fn path_in_bytes(&self) -> Vec<u8> {
        bytes(&self.path, self.path_bytes.as_ref())
    }

    /// What it is and where, in a line for people.
    pub(crate) fn line(&self) -> String {
        let path = quoted(&self.path_in_bytes());
        format!("{} {path}: {}", self.kind, printable(self.detail.clone()))
    }
}

/// What a merge did, would do, or why it did not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MergeSummary {
    /// The fork.
    pub(crate) fork: String,
    /// What it was forked from, or the dataset of the directory that it was merged into instead.
    pub(crate) parent: String,
    /// The parent's changes went into the fork, not the fork's into the parent.
    #[serde(default)]
    pub(crate) update: bool,
    /// The directory there that it is a fork of, or was merged into, from the root; none if it is
    /// gone.
    #[serde(default)]
    pub(crate) directory: Option<PathText>,
    /// It has been done.
    pub(crate) applied: bool,
    /// What went, or would go, into the other.
    pub(crate) differences: Vec<DifferenceRow>,
    /// How many more there are than in the report.
    #[serde(default)]
    pub(crate) differences_left_out: usize,
    /// How many files and directories have changed that were not meant.
    #[serde(default)]
    pub(crate) not_selected: usize,
    /// Patterns that match nothing that has changed.
    #[serde(default)]
    pub(crate) unmatched: Vec<String>,
    /// Conflicts that nobody has decided: with any of them nothing is changed.
    pub(crate) conflicts: Vec<ConflictRow>,
    /// Conflicts that were decided.
    pub(crate) decided: Vec<ConflictRow>,
    /// The fork has been destroyed.
    pub(crate) dropped: bool,
    /// How long the engine took, in nanoseconds.
    pub(crate) engine_nanoseconds: u64,
    /// Stands for all that both sides have changed since the base.
    #[serde(default)]
    pub(crate) state: String,
    /// One side has changed since the report whose state was asked for: nothing was changed.
    #[serde(default)]
    pub(crate) is_outdated: bool,
    /// Of a preview: why it would be refused all the same.
    #[serde(default)]
    pub(crate) obstacle: Option<String>,
}
