//! The conflicts of one merge, as they are found, and what is decided about each.

use crate::conflict::{Choice, Conflict, ConflictKind, ConflictTexts, MergeOptions};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
pub(crate) struct Conflicts<'a> {
    pub(crate) options: &'a MergeOptions<'a>,
    pub(crate) open: BTreeSet<Conflict>,
    pub(crate) decided: BTreeMap<Conflict, Choice>,
    /// The texts, where there are some.
    pub(crate) texts: BTreeMap<Conflict, ConflictTexts>,
}

/// What was decided about a conflict, for the steps after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The parent stays as it is; also while no decision is made.
    Ours,
    /// The fork's state is taken.
    Theirs,
    /// The text with marks is taken.
    Marked,
    /// What was given for it is taken, of content.
    Given,
}

impl<'a> Conflicts<'a> {
    pub(crate) fn new(options: &'a MergeOptions<'a>) -> Conflicts<'a> {
        Conflicts {
            options,
            open: BTreeSet::new(),
            decided: BTreeMap::new(),
            texts: BTreeMap::new(),
        }
    }

    fn has_content(&self, conflict: &Conflict) -> bool {
        conflict.kind == ConflictKind::Content && (self.options.content)(conflict).is_some()
    }

    /// Notes a conflict; `takes` says whether the fork's state could be taken.
    pub(crate) fn add(
        &mut self,
        kind: ConflictKind,
        path: Vec<u8>,
        detail: &str,
        takes: bool,
    ) -> Verdict {
        let conflict = Conflict { path, kind, detail: detail.to_owned() };
        let choice = match self.decided.get(&conflict) {
            Some(choice) => *choice,
            None => (self.options.choose)(&conflict),
        };
        match choice {
            Choice::Theirs if takes => {
                self.decided.insert(conflict, Choice::Theirs);
                Verdict::Theirs
            }
            Choice::Ours => {
                self.decided.insert(conflict, Choice::Ours);
                Verdict::Ours
            }
            Choice::Marked if self.texts.contains_key(&conflict) => {
                self.decided.insert(conflict, Choice::Marked);
                Verdict::Marked
            }
            Choice::Given if self.has_content(&conflict) => {
                self.decided.insert(conflict, Choice::Given);
                Verdict::Given
            }
            Choice::Theirs | Choice::Marked | Choice::Given | Choice::Refuse => {
                self.open.insert(conflict);
                Verdict::Ours
            }
        }
    }
}
