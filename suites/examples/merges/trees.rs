//! Generated trees that two sides change.
//!
//! Git guesses what was renamed by what files have in common, and only among those that are gone
//! from their old name; here it is known. So that both mean the same, each file has lines that no
//! other one has, a side changes at most a fourth of them, and no name that a side has given up
//! is used by it again. A file that is saved by a new one under its name is not one that is moved.

use crate::Result;
use crate::family::{Change, Family};
use crate::git::{Blob, Files, Git, Mode};
use crate::judge::{Aliases, Verdict, judge};
use marram_sim::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Files of a base.
const FILES: u64 = 16;
/// Lines of a file.
const LINES: u64 = 16;
/// Most lines of a file that a side changes.
const CHANGED_LINES_MAX: u64 = 4;
/// Most changes of a side.
const CHANGES_MAX: u64 = 14;

/// What was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    pub(crate) clean: u64,
    pub(crate) conflicted: u64,
    conflicts: u64,
}

/// One side, or the base.
#[derive(Clone, Default)]
struct Side {
    files: Files,
    changes: Vec<Change>,
    /// Names that may not be used again.
    given_up: BTreeSet<Vec<u8>>,
    /// Lines that were changed, by path.
    changed_lines: BTreeMap<Vec<u8>, u64>,
}

/// Merges one tree.
///
/// # Errors
/// Says which paths git merges to something else.
pub(crate) fn round(seed: u64) -> Result<Report> {
    let mut random = Random::new(seed ^ 0x7433);
    let mut base = Side::default();
    for number in 0..FILES {
        let path = format!("{}f{number}", directory(&mut random)).into_bytes();
        base.put(path, Mode::Plain, content(&mut random));
    }
    let mut aliases = Aliases::default();
    let mut side = || {
        let mut side = Side { files: base.files.clone(), ..Side::default() };
        for _ in 0..1 + random.below(CHANGES_MAX) {
            side.change(&mut random, &mut aliases);
        }
        side
    };
    let (ours, theirs) = (side(), side());
    let mut git = Git::new(None)?;
    git.commit(&base.files, [&ours.files, &theirs.files])?;
    let merged = git.merge("ours", "theirs")?;
    let paths = merged.listing.keys().cloned().collect();
    let git_files = git.files(&merged.listing, &paths)?;
    let family = Family::new()?;
    base.changes.iter().try_for_each(|change| family.parent.apply(change))?;
    let fork = family.fork()?;
    ours.changes.iter().try_for_each(|change| family.parent.apply(change))?;
    theirs.changes.iter().try_for_each(|change| fork.apply(change))?;
    let report = family.merge()?;
    let verdict = judge(&report, &family.parent.files(true)?, (&merged, &git_files), &aliases);
    let conflicts = merged.conflicts.len() as u64;
    match verdict {
        Verdict::Clean => Ok(Report { clean: 1, ..Report::default() }),
        Verdict::Conflicted => Ok(Report { conflicted: 1, conflicts, ..Report::default() }),
        Verdict::Differs(difference) => {
            let told = |changes: &[Change]| changes.iter().map(tell).collect::<Vec<_>>();
            Err(format!(
                "tree of seed {seed}: {difference:#?}\nours {:#?}\ntheirs {:#?}\n{:#?}",
                told(&ours.changes),
                told(&theirs.changes),
                report.decided,
            ))
        }
    }
}

fn tell(change: &Change) -> String {
    let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    match change {
        Change::Put(path, mode, _) => format!("put {} {mode:?}", text(path)),
        Change::Save(path, mode, _) => format!("save {} {mode:?}", text(path)),
        Change::Remove(path) => format!("remove {}", text(path)),
        Change::Rename(from, to) => format!("rename {} {}", text(from), text(to)),
    }
}

fn directory(random: &mut Random) -> &'static str {
    random.pick(&["", "a/", "b/", "c/", "a/d/", "b/e/"])
}

fn content(random: &mut Random) -> Blob {
    let lines = (0..LINES).map(|_| format!("{:x}\n", random.number()));
    lines.collect::<String>().into_bytes().into()
}

impl Side {
    fn put(&mut self, path: Vec<u8>, mode: Mode, content: Blob) {
        self.files.insert(path.clone(), (mode, content.clone()));
        self.changes.push(Change::Put(path, mode, content));
    }

    /// One change; it may turn out to be none.
    fn change(&mut self, random: &mut Random, aliases: &mut Aliases) {
        let paths: Vec<Vec<u8>> = self.files.keys().cloned().collect();
        let path = paths[random.below(paths.len() as u64) as usize].clone();
        let (mode, content) = self.files[&path].clone();
        let is_saved = path.last().is_some_and(|digit| digit % 2 == 1);
        match random.below(12) {
            0..5 => self.edit(random, path, mode, &content, is_saved),
            5..8 if !is_saved => self.rename(random, path, aliases),
            8 => {
                self.files.remove(&path);
                self.given_up.insert(path.clone());
                self.changes.push(Change::Remove(path));
            }
            9 if mode != Mode::Symlink => {
                let mode = random.pick(&[Mode::Plain, Mode::Executable]);
                self.put(path, mode, content);
            }
            10 => {
                let target: Blob = format!("to{}", random.below(3)).into_bytes().into();
                if random.once_in(4) && !self.changed_lines.contains_key(&path) {
                    self.put(path, Mode::Symlink, target);
                }
            }
            _ => {
                let path = format!("{}new{}", directory(random), random.below(9)).into_bytes();
                if !self.files.contains_key(&path) && !self.given_up.contains(&path) {
                    self.put(path, Mode::Plain, self::content(random));
                }
            }
        }
    }

    fn edit(
        &mut self,
        random: &mut Random,
        path: Vec<u8>,
        mode: Mode,
        content: &Blob,
        is_saved: bool,
    ) {
        let changed = self.changed_lines.entry(path.clone()).or_default();
        if mode == Mode::Symlink || *changed == CHANGED_LINES_MAX {
            return;
        }
        *changed += 1;
        let text = String::from_utf8_lossy(content);
        let mut lines: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
        let at = random.below(lines.len() as u64) as usize;
        lines[at] = format!("changed {}\n", random.below(3));
        let new: Blob = lines.concat().into_bytes().into();
        if is_saved {
            self.files.insert(path.clone(), (mode, new.clone()));
            self.changes.push(Change::Save(path, mode, new));
        } else {
            self.put(path, mode, new);
        }
    }

    fn rename(&mut self, random: &mut Random, from: Vec<u8>, aliases: &mut Aliases) {
        let to = format!("{}moved{}", directory(random), 2 * random.below(15)).into_bytes();
        let is_free = !self.files.contains_key(&to) && !self.given_up.contains(&to);
        let (mode, content) = self.files[&from].clone();
        if !is_free || mode == Mode::Symlink {
            return;
        }
        self.files.remove(&from);
        self.files.insert(to.clone(), (mode, content));
        if let Some(changed) = self.changed_lines.remove(&from) {
            self.changed_lines.insert(to.clone(), changed);
        }
        aliases.join(&from, &to);
        self.given_up.insert(from.clone());
        self.changes.push(Change::Rename(from, to));
    }
}

impl Report {
    pub(crate) fn add(&mut self, other: &Report) {
        self.clean += other.clean;
        self.conflicted += other.conflicted;
        self.conflicts += other.conflicts;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { clean, conflicted, conflicts } = self;
        write!(
            out,
            "{} trees: as git merge-tree merges them, {conflicted} of them with {conflicts} \
             paths in conflict",
            clean + conflicted
        )
    }
}
