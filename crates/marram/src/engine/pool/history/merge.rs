//! A fork's changes, brought into what it was forked from.

use super::row;
use crate::control::protocol::{
    Answer, ConflictChoice, ConflictKey, ConflictRow, MergeRequest, MergeSummary,
};
use crate::engine::pool::places;
use crate::error::{Error, Result};
use crate::names;
use marram_history::{
    Branch, ChangeSet, Choice, Conflict, ConflictKind, Direction, MergeOptions, MergeReport,
};
use marram_pool::Pool;
use marram_posix::Posix;
use marram_store::{Source, Store};
use std::collections::BTreeMap;
use std::time::Instant;

/// Most differences in the report of a merge.
const ROWS_MAX: usize = 200_000;
/// Longest text of a conflict in the report, and most of all texts together, in bytes.
const MARKED_BYTES_MAX: usize = 64 << 10;
const MARKED_BYTES_SUM_MAX: usize = 1 << 20;

/// Decisions by what they are about.
type Decided<'d> = BTreeMap<ConflictKey<'d>, ConflictChoice>;

/// What is to be merged into what, and how.
pub(crate) struct Merge<'a> {
    request: &'a MergeRequest,
    branch: Branch,
}

impl<'a> Merge<'a> {
    /// Finds what the fork of a request was forked from.
    ///
    /// # Errors
    /// It is no fork, or what it was forked from is gone.
    pub(crate) fn of(pool: &Pool, request: &'a MergeRequest) -> Result<Merge<'a>> {
        let fork = Source::live(request.fork.parse()?);
        pool.report(&fork)?;
        let branch = Branch::of(pool, &fork.dataset)?.ok_or_else(|| {
            Error::usage(format!("{fork} is no fork")).hint("`marram forks TARGET` shows them")
        })?;
        Ok(Merge { request, branch })
    }

    /// The fork.
    pub(crate) fn fork(&self) -> &Source {
        &self.branch.fork
    }

    /// The dataset that the changes go into.
    pub(crate) fn taker(&self) -> &Source {
        if self.request.update { &self.branch.fork } else { &self.branch.parent }
    }

    /// Merges, in the file system of the dataset that the changes go into; also tells what has
    /// changed there.
    ///
    /// # Errors
    /// Whatever refuses it or fails, other than conflicts: nothing has changed.
    pub(crate) fn run(&self, pool: &Pool, files: &Posix) -> Result<(MergeSummary, ChangeSet)> {
        let state = self.request.state.as_ref().map(|state| u64::from_str_radix(state, 16));
        let state = state.transpose().map_err(|_| Error::usage("that is no state of a merge"))?;
        let decided = self.decided();
        let options = MergeOptions {
            preview: self.request.preview,
            ranges: self.request.ranges,
            text: self.request.text,
            marks: self.request.marks || !self.request.decisions.is_empty(),
            state,
            choose: &|conflict| self.choice(&decided, conflict),
        };
        let direction = if self.request.update { Direction::Update } else { Direction::Merge };
        let branch = (&self.branch.fork.dataset, direction);
        let began = Instant::now();
        let report = marram_history::bring_across(files, pool, branch, &options)?;
        let engine_nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let (mut summary, change_set) = self.summary(report, engine_nanoseconds);
        summary.directory = places::directory(pool, &self.branch.parent, self.branch.root.0);
        Ok((summary, change_set))
    }

    /// What was decided about single conflicts: looked up while others wait for the parent.
    fn decided(&self) -> Decided<'_> {
        let decisions = self.request.decisions.iter();
        decisions.map(|decision| (decision.conflict.key(), decision.choice)).collect()
    }

    /// What is done about a conflict: what was decided about it, or about all.
    fn choice(&self, decided: &Decided<'_>, conflict: &Conflict) -> Choice {
        let row = conflict_row(conflict, None);
        match decided.get(&row.key()).copied().unwrap_or(self.request.choice) {
            ConflictChoice::Refuse => Choice::Refuse,
            ConflictChoice::Ours => Choice::Ours,
            ConflictChoice::Theirs => Choice::Theirs,
            ConflictChoice::Marked => Choice::Marked,
        }
    }

    fn summary(
        &self,
        mut report: MergeReport,
        engine_nanoseconds: u64,
    ) -> (MergeSummary, ChangeSet) {
        let change_set = std::mem::take(&mut report.change_set);
        let decided = report.decided.iter().map(|(conflict, _)| conflict_row(conflict, None));
        let mut left = if self.request.marks { MARKED_BYTES_SUM_MAX } else { 0 };
        let marked: BTreeMap<&Conflict, &Vec<u8>> =
            report.marked.iter().map(|(conflict, text)| (conflict, text)).collect();
        let mut text_of = |conflict: &Conflict| {
            let text = marked.get(conflict).filter(|text| text.len() <= MARKED_BYTES_MAX.min(left));
            text.map(|text| {
                left -= text.len();
                String::from_utf8_lossy(text).into_owned()
            })
        };
        let open = report.conflicts.iter();
        let conflicts = open.map(|conflict| conflict_row(conflict, text_of(conflict))).collect();
        let summary = MergeSummary {
            fork: self.branch.fork.to_string(),
            parent: self.branch.parent.to_string(),
            directory: None,
            update: self.request.update,
            applied: report.applied,
            decided: decided.collect(),
            conflicts,
            state: format!("{:016x}", report.state),
            is_outdated: report.is_outdated,
            obstacle: report
                .obstacle
                .map(|error| format!("{error}; enlarge the quota or the pool first")),
            differences_left_out: report.differences.len().saturating_sub(ROWS_MAX),
            differences: report.differences.into_iter().take(ROWS_MAX).map(row).collect(),
            dropped: false,
            engine_nanoseconds,
        };
        (summary, change_set)
    }

    /// Destroys the fork with `destroy`, if it has been merged and that was asked for.
    ///
    /// # Errors
    /// It has been merged, but cannot be destroyed.
    pub(crate) fn conclude(
        &self,
        mut summary: MergeSummary,
        destroy: impl FnOnce() -> Result<()>,
    ) -> Result<Answer> {
        if summary.applied && self.request.drop {
            destroy().map_err(|error| {
                let fork = self.fork();
                Error::partial(format!("{fork} was merged, but it stays: {error}")).hint(format!(
                    "`marram destroy fork TARGET {fork}` destroys it when it is free"
                ))
            })?;
            summary.dropped = true;
        }
        Ok(Answer::Merged(Box::new(summary)))
    }
}

fn conflict_row(conflict: &Conflict, marked: Option<String>) -> ConflictRow {
    let kind = match conflict.kind {
        ConflictKind::Content => "content",
        ConflictKind::Attribute => "attribute",
        ConflictKind::Name => "name",
        ConflictKind::Removed => "removed",
        ConflictKind::Loop => "loop",
    };
    ConflictRow {
        path: names::text(&conflict.path),
        path_bytes: names::lost_bytes(&conflict.path),
        kind: kind.to_owned(),
        detail: conflict.detail.clone(),
        marked,
    }
}
