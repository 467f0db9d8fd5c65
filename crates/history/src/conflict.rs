//! What a merge is asked for, and what it answers.

use crate::Difference;
use crate::change_set::ChangeSet;
use crate::selection::Select;
use crate::touched::Overlaps;
use marram_vfs::Error;
use std::fmt;

/// Why the parent and the fork do not go together at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConflictKind {
    /// Both changed the content of a file, and not to the same.
    Content,
    /// Both changed an attribute (permissions, owner, flags, an extended attribute), and not to the
    /// same.
    Attribute,
    /// Both gave a name to different things, or moved one thing to different places.
    Name,
    /// One removed what the other changed.
    Removed,
    /// Directories that were moved would be in each other.
    Loop,
    /// The parent has changed what must be as it was: see [`MergeOptions::strict`].
    Overtaken,
}

/// One conflict.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// Where it is, from the root of the fork, as the fork names it (what it removed: as its base
    /// named it).
    pub path: Vec<u8>,
    /// What it is.
    pub kind: ConflictKind,
    /// What was changed: the name of the attribute, or what both sides did, for people.
    pub detail: String,
}

/// What is done about a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Choice {
    /// It is reported, and nothing is changed at all.
    #[default]
    Refuse,
    /// The parent stays as it is there.
    Ours,
    /// The fork's state is taken there. A conflict where that would take away a directory with
    /// something in it, or needs a directory that is gone, stays a conflict.
    Theirs,
    /// The lines of both are taken, with marks around those that both changed, as git leaves them
    /// in its style `diff3`. Only where [`MergeReport::texts`] has such a text; elsewhere it stays
    /// a conflict.
    Marked,
    /// The file holds what [`MergeOptions::content`] has for it. Only of content, and only if there
    /// is something; elsewhere it stays a conflict.
    Given,
}

/// The texts of a file that both sides have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConflictTexts {
    /// What both began as.
    pub base: Vec<u8>,
    /// What the parent has.
    pub ours: Vec<u8>,
    /// What the fork has.
    pub theirs: Vec<u8>,
    /// The lines of both, with marks around those that both changed.
    pub marked: Vec<u8>,
}

/// How a merge is to be done.
pub struct MergeOptions<'a> {
    /// Says what would happen, and changes nothing.
    pub preview: bool,
    /// Only what is chosen of the fork's changes is merged; what was moved goes whole. None is all.
    /// With a choice the base stays: what is left out comes with a later merge.
    pub select: Option<Select<'a>>,
    /// Changes to different ranges of one file are put together. Both sides' sizes must be the
    /// same, or only one have changed it.
    pub ranges: bool,
    /// Changes to different lines of one text file are put together.
    pub text: bool,
    /// Conflicts of texts are reported with the text of both, and can be decided by taking it.
    pub marks: bool,
    /// The merge is refused if the parent has changed anything since the base that the fork has
    /// changed too, even to the same, or that this says was read. None judges conflicts only.
    pub strict: Option<Overlaps<'a>>,
    /// What marks call the side that the changes go into, and the one that they are of.
    pub names: [&'a str; 2],
    /// The merge is only done if both sides' changes are those of an earlier report: its
    /// [`MergeReport::state`].
    pub state: Option<u64>,
    /// It is applied even if it changes nothing, so that the store enters it into its log.
    pub always: bool,
    /// It may be applied and not be durable yet: the caller calls `settle_merges` of the store then
    /// ([`MergeReport::waits`]). So others can go on before.
    pub may_wait: bool,
    /// Asked about each conflict, perhaps more than once: it should answer the same then.
    pub choose: &'a dyn Fn(&Conflict) -> Choice,
    /// Asked what a file is to hold, of conflicts that are decided by [`Choice::Given`].
    pub content: &'a dyn Fn(&Conflict) -> Option<Vec<u8>>,
}

impl Default for MergeOptions<'_> {
    /// Every conflict refuses the merge.
    fn default() -> Self {
        MergeOptions {
            preview: false,
            select: None,
            ranges: false,
            text: false,
            marks: false,
            strict: None,
            names: ["parent", "fork"],
            state: None,
            always: false,
            may_wait: false,
            choose: &|_| Choice::Refuse,
            content: &|_| None,
        }
    }
}

impl fmt::Debug for MergeOptions<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("MergeOptions")
            .field("preview", &self.preview)
            .field("selects", &self.select.is_some())
            .field("ranges", &self.ranges)
            .field("text", &self.text)
            .field("marks", &self.marks)
            .field("is_strict", &self.strict.is_some())
            .field("state", &self.state)
            .field("always", &self.always)
            .field("may_wait", &self.may_wait)
            .finish_non_exhaustive()
    }
}

/// What a merge did, or would do, or why it did not.
#[derive(Clone, Debug, Default)]
pub struct MergeReport {
    /// It was done: there was no conflict that stayed, and it was not only a preview.
    pub applied: bool,
    /// It is not durable yet: see [`MergeOptions::may_wait`].
    pub waits: bool,
    /// The fork's changes that went, or would go, into the parent, sorted by path.
    pub differences: Vec<Difference>,
    /// How many inodes the fork has changed in a way that was not chosen.
    pub not_selected: usize,
    /// Conflicts that stayed, sorted by path. If there is any, nothing was changed.
    pub conflicts: Vec<Conflict>,
    /// Conflicts that `choose` decided, and how.
    pub decided: Vec<(Conflict, Choice)>,
    /// If that was asked for: the texts of conflicts in texts.
    pub texts: Vec<(Conflict, ConflictTexts)>,
    /// Stands for all that both sides have changed since the base, and when.
    pub state: u64,
    /// Of a preview: why it would be refused though there is no conflict, for want of space or over
    /// a quota or limit.
    pub obstacle: Option<Error>,
    /// One side has changed since the report whose state was asked for: nothing was changed.
    pub is_outdated: bool,
    /// What of the parent is not as it was.
    pub change_set: ChangeSet,
}
