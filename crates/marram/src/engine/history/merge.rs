//! A fork's changes, brought into what it was forked from.

use super::selection::{Selection, is_there};
use super::{row, state};
use crate::control::credentials::Credentials;
use crate::control::protocol::{
    self, Answer, ConflictChoice, ConflictKey, ConflictRow, Decision, MergeRequest, MergeSummary,
};
use crate::engine::places;
use crate::engine::rights::{is_reached, within};
use crate::error::{Error, Result};
use crate::names;
use marram_history::{
    Branch, ChangeSet, Choice, Conflict, ConflictKind, ConflictTexts, Direction, IntoDirectory,
    MergeOptions, MergeReport, Parent,
};
use marram_posix::Posix;
use marram_store::{Source, Store};
use marram_vfs::Ino;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Instant;

/// Most differences in the report of a merge.
const ROWS_MAX: usize = 200_000;
/// Longest text of a conflict in the report, and most of all texts together, in bytes.
const MARKED_BYTES: [usize; 2] = [64 << 10, 1 << 20];
/// The same for a program that puts texts together: of all four texts of a conflict.
const TEXTS_BYTES: [usize; 2] = [16 << 20, 64 << 20];

/// What was decided, looked up while others wait for the parent.
struct Decided<'d> {
    /// About single conflicts.
    single: BTreeMap<ConflictKey<'d>, &'d Decision>,
    /// About all conflicts at a path and below it.
    paths: BTreeMap<Vec<u8>, ConflictChoice>,
}

impl Decided<'_> {
    /// About the path or the nearest directory above it.
    fn by_path(&self, path: &[u8]) -> Option<ConflictChoice> {
        let ends = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
        let above = ends.map(|(end, _)| &path[..end.max(1)]);
        // What is below no directory that is there has no path from the root.
        let nearest = std::iter::once(path).chain(above).chain(std::iter::once(b"/".as_slice()));
        nearest.into_iter().find_map(|at| self.paths.get(at)).copied()
    }
}

/// What is to be merged into what, and how.
pub(crate) struct Merge<'a> {
    request: &'a MergeRequest,
    branch: Branch,
    /// The dataset that the changes go into, and the directory there that is the root of the fork.
    taker: (Source, u64),
}

impl<'a> Merge<'a> {
    /// Finds what the fork of a request was forked from.
    ///
    /// # Errors
    /// It is no fork, or what it was forked from is gone.
    pub(crate) fn of(store: &dyn Store, request: &'a MergeRequest) -> Result<Merge<'a>> {
        let fork = Source::live(request.fork.parse()?);
        store.report(&fork)?;
        let branch = Branch::of(store, &fork.dataset)?.ok_or_else(|| {
            Error::usage(format!("{fork} is no fork")).hint("`marram forks TARGET` shows them")
        })?;
        let taker = match &request.into {
            Some(place) => (Source::live(place.dataset.parse()?), place.directory),
            None if request.update => (branch.fork.clone(), branch.root.0),
            None => (branch.parent.clone(), branch.root.0),
        };
        if request.into.is_some() && taker.0 == fork {
            return Err(Error::usage("that directory is in the fork itself")
                .hint("name one beside it, as in `--into DIRECTORY`"));
        }
        Ok(Merge { request, branch, taker })
    }

    /// The fork.
    pub(crate) fn fork(&self) -> &Source {
        &self.branch.fork
    }

    /// The dataset that the changes go into.
    pub(crate) fn taker(&self) -> &Source {
        &self.taker.0
    }

    /// What the changes are of, and the directory of that which is the root of the fork.
    fn giver(&self) -> (&Source, u64) {
        let Branch { fork, parent, root, .. } = &self.branch;
        (if self.request.update { parent } else { fork }, root.0)
    }

    /// Merges, in the file system of the dataset that the changes go into, within the rights of a
    /// user; also tells what has changed there.
    ///
    /// # Errors
    /// Whatever refuses it or fails, other than conflicts: nothing has changed.
    pub(crate) fn run(
        &self,
        store: &dyn Store,
        (files, user): (&Posix, Option<&Credentials>),
    ) -> Result<(MergeSummary, ChangeSet)> {
        let state = self.request.state.as_ref().map(|state| u64::from_str_radix(state, 16));
        let state = state.transpose().map_err(|_| Error::usage("that is no state of a merge"))?;
        let decided = self.decided();
        let selection = self.selection(store, user)?;
        let failure = Cell::new(None);
        let select = |path: &[u8], is_directory: bool| {
            let Some(selection) = &selection else { return Ok(true) };
            selection.borrow_mut().has(path, is_directory).map_err(|error| {
                failure.set(Some(error));
                marram_vfs::Error::InvalidArgument("the paths of the merge")
            })
        };
        let options = MergeOptions {
            select: selection.as_ref().map(|_| &select as marram_history::Select<'_>),
            preview: self.request.preview,
            ranges: self.request.ranges,
            text: self.request.text,
            marks: self.asks_for_marks(),
            strict: None,
            names: if self.request.update { ["fork", "parent"] } else { ["parent", "fork"] },
            state,
            always: false,
            may_wait: false,
            choose: &|conflict| self.choice(&decided, conflict),
            content: &|conflict| {
                let row = conflict_row(conflict);
                let text = decided.single.get(&row.key())?.text.clone();
                text.map(String::into_bytes)
            },
        };
        let began = Instant::now();
        let report = within(files, user, |files| {
            let merged = self.bring(files, store, &options);
            merged.map_err(|error| failure.take().unwrap_or_else(|| self.refusal(error)))
        })?;
        let engine_nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let (mut summary, change_set) = self.summary(report, engine_nanoseconds);
        let (directory, root) = self.directory();
        summary.directory = places::directory(store, directory, root);
        summary.unmatched = selection.map_or_else(Vec::new, |it| it.into_inner().unmatched());
        Ok((summary, change_set))
    }

    fn bring(
        &self,
        files: &dyn Parent,
        store: &dyn Store,
        options: &MergeOptions<'_>,
    ) -> marram_vfs::Result<MergeReport> {
        let (fork, (taker, root)) = (&self.branch.fork.dataset, &self.taker);
        if self.request.into.is_some() {
            let into = IntoDirectory { dataset: &taker.dataset, directory: Ino(*root) };
            return marram_history::merge_elsewhere(files, store, (fork, into), options);
        }
        let direction = if self.request.update { Direction::Update } else { Direction::Merge };
        marram_history::bring_across(files, store, (fork, direction), options)
    }

    /// The directory on the other side of the fork, and its dataset.
    fn directory(&self) -> (&Source, u64) {
        let Branch { parent, root, .. } = &self.branch;
        if self.request.into.is_some() { (&self.taker.0, self.taker.1) } else { (parent, root.0) }
    }

    /// Why nothing was brought; of a directory that is gone, with a way that there is.
    fn refusal(&self, error: marram_vfs::Error) -> Error {
        let Branch { fork, parent, .. } = &self.branch;
        match error {
            marram_vfs::Error::Stale if self.request.into.is_none() => Error::failed(format!(
                "the directory that {fork} is a fork of is gone from {parent}"
            ))
            .hint(format!(
                "`marram merge TARGET --fork {fork} --into DIRECTORY` brings its changes \
                         into another one, into an empty one all that it has"
            )),
            marram_vfs::Error::Stale => Error::failed("the directory is gone"),
            marram_vfs::Error::InvalidArgument(_) if self.request.into.is_some() => {
                let taker = &self.taker.0;
                Error::usage(format!("{fork} and {taker} have no common past")).hint(format!(
                    "name a directory of {parent}, or of a fork or clone that began as it"
                ))
            }
            marram_vfs::Error::NotDirectory => Error::usage("that is no directory"),
            other => other.into(),
        }
    }

    /// Whether texts with marks may be in the report, or be taken.
    fn asks_for_marks(&self) -> bool {
        let MergeRequest { marks, texts, decisions, choice, .. } = self.request;
        *marks || *texts || !decisions.is_empty() || *choice == ConflictChoice::Marked
    }

    /// Which of the changes are meant, if not all are.
    ///
    /// # Errors
    /// A pattern that makes no sense; a path at which neither side has anything.
    fn selection(
        &self,
        store: &dyn Store,
        user: Option<&Credentials>,
    ) -> Result<Option<RefCell<Selection>>> {
        let order = &self.request.selection;
        if order.is_all() {
            return Ok(None);
        }
        let sides = [self.giver(), (&self.taker.0, self.taker.1)];
        for path in &order.paths {
            let mut found = false;
            for (side, root) in sides {
                found |= match user {
                    Some(user) => is_reached(store, (side, root), &path.bytes(), user)?,
                    None => is_there(&state(store, side, root)?, &path.bytes()),
                };
            }
            if !found {
                let (path, [(from, _), (into, _)]) = (names::quoted(&path.bytes()), sides);
                return Err(Error::not_found(format!("neither {from} nor {into} has {path}"))
                    .hint("paths begin at the root of the fork, as in `marram diff`"));
            }
        }
        let (from, root) = sides[0];
        let states = || Ok(vec![state(store, from, root)?]);
        Ok(Some(RefCell::new(Selection::new(order, states)?)))
    }

    /// What was decided, by what it is about.
    fn decided(&self) -> Decided<'_> {
        let decisions = self.request.decisions.iter();
        let paths = self.request.paths.iter();
        Decided {
            single: decisions.map(|decision| (decision.conflict.key(), decision)).collect(),
            paths: paths.map(|decision| (decision.path.bytes(), decision.choice)).collect(),
        }
    }

    /// What is done about a conflict: what was decided about it, about its path, or about all.
    fn choice(&self, decided: &Decided<'_>, conflict: &Conflict) -> Choice {
        let row = conflict_row(conflict);
        let single = decided.single.get(&row.key()).map(|decision| decision.choice);
        let choice = single.or_else(|| decided.by_path(&conflict.path));
        match choice.unwrap_or(self.request.choice) {
            ConflictChoice::Refuse => Choice::Refuse,
            ConflictChoice::Ours => Choice::Ours,
            ConflictChoice::Theirs => Choice::Theirs,
            ConflictChoice::Marked => Choice::Marked,
            ConflictChoice::Text => Choice::Given,
        }
    }

    fn summary(
        &self,
        mut report: MergeReport,
        engine_nanoseconds: u64,
    ) -> (MergeSummary, ChangeSet) {
        let change_set = std::mem::take(&mut report.change_set);
        let decided = report.decided.iter();
        let decided = decided.map(|(conflict, choice)| ConflictRow {
            choice: Some(choice_row(*choice)),
            ..conflict_row(conflict)
        });
        let conflicts = self.with_texts(&report);
        let summary = MergeSummary {
            fork: self.branch.fork.to_string(),
            parent: self.directory().0.to_string(),
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
            not_selected: report.not_selected,
            unmatched: Vec::new(),
            dropped: false,
            engine_nanoseconds,
        };
        (summary, change_set)
    }

    /// The conflicts that are not decided, with the texts that were asked for.
    fn with_texts(&self, report: &MergeReport) -> Vec<ConflictRow> {
        let MergeRequest { marks, texts: with_all, .. } = *self.request;
        let [longest, mut left] = if with_all { TEXTS_BYTES } else { MARKED_BYTES };
        let texts: BTreeMap<&Conflict, &ConflictTexts> =
            report.texts.iter().map(|(conflict, texts)| (conflict, texts)).collect();
        let row = |conflict: &Conflict| -> ConflictRow {
            let mut row = conflict_row(conflict);
            let texts = texts.get(conflict).filter(|_| marks || with_all);
            let Some(texts) = texts else { return row };
            let ConflictTexts { base, ours, theirs, marked } = texts;
            let others = if with_all { base.len() + ours.len() + theirs.len() } else { 0 };
            let len = marked.len() + others;
            if len <= longest.min(left) {
                left -= len;
                row.marked = Some(String::from_utf8_lossy(marked).into_owned());
                row.texts = texts_row(texts).filter(|_| with_all);
            }
            row
        };
        report.conflicts.iter().map(row).collect()
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

fn choice_row(choice: Choice) -> ConflictChoice {
    match choice {
        Choice::Refuse => ConflictChoice::Refuse,
        Choice::Ours => ConflictChoice::Ours,
        Choice::Theirs => ConflictChoice::Theirs,
        Choice::Marked => ConflictChoice::Marked,
        Choice::Given => ConflictChoice::Text,
    }
}

/// The three texts; none if one of them is no UTF-8, as JSON must be.
fn texts_row(texts: &ConflictTexts) -> Option<protocol::ConflictTexts> {
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).ok();
    Some(protocol::ConflictTexts {
        base: text(&texts.base)?,
        ours: text(&texts.ours)?,
        theirs: text(&texts.theirs)?,
    })
}

/// A conflict as it is reported.
pub(crate) fn conflict_row(conflict: &Conflict) -> ConflictRow {
    let kind = match conflict.kind {
        ConflictKind::Content => "content",
        ConflictKind::Attribute => "attribute",
        ConflictKind::Name => "name",
        ConflictKind::Removed => "removed",
        ConflictKind::Loop => "loop",
        ConflictKind::Overtaken => "overtaken",
    };
    ConflictRow {
        path: names::text(&conflict.path),
        path_bytes: names::lost_bytes(&conflict.path),
        kind: kind.to_owned(),
        detail: conflict.detail.clone(),
        marked: None,
        texts: None,
        choice: None,
    }
}
