//! Generated histories of a branch: both sides change texts, and are merged into each other in
//! either direction, again and again, in git also criss-cross.
//!
//! Git finds its bases itself, among all commits. What is in conflict is settled here by taking one
//! side of it, and git's merge is committed with that, as its users do. No name is moved, since
//! git guesses that, and no line comes twice in a file.

use crate::Result;
use crate::family::{Change, Family, Tree};
use crate::git::{Blob, Files, Git, Mode};
use crate::judge::{Aliases, Verdict, judge};
use marram_history::{Choice, Direction};
use marram_sim::Random;
use std::fmt;

/// Files of a base.
const FILES: u64 = 10;
/// Lines of a file.
const LINES: u64 = 14;
/// Changes and merges of one history.
const STEPS: u64 = 40;
/// Most changes of a side at a time.
const CHANGES_MAX: u64 = 5;
/// Branches of git, by whether they are the fork's.
const BRANCHES: [&str; 2] = ["ours", "theirs"];

/// What was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    histories: u64,
    merges: u64,
    updates: u64,
    pub(crate) conflicted: u64,
    conflicts: u64,
    /// Merges whose base is a merge before, not what the fork began as.
    pub(crate) repeated: u64,
    /// Merges of which git knows several bases.
    pub(crate) crossed: u64,
}

/// One side of the branch.
struct Side<'a> {
    tree: &'a Tree,
    branch: &'static str,
    files: Files,
}

/// Runs one history.
///
/// # Errors
/// Says which merge git makes to something else.
pub(crate) fn round(seed: u64) -> Result<Report> {
    let mut random = Random::new(seed ^ 0x6272);
    let mut base = Files::new();
    for number in 0..FILES {
        base.insert(format!("f{number}").into_bytes(), (Mode::Plain, text(&mut random)));
    }
    let git = Git::new(None)?;
    git.commit(&base, [&base, &base])?;
    let family = Family::new()?;
    for (path, (mode, content)) in &base {
        family.parent.apply(&Change::Put(path.clone(), *mode, content.clone()))?;
    }
    let fork = family.fork()?;
    let side = |tree, branch| Side { tree, branch, files: base.clone() };
    let sides = [side(&family.parent, BRANCHES[0]), side(&fork, BRANCHES[1])];
    let mut history = History { git, family: &family, sides, report: Report::default() };
    for step in 0..STEPS {
        let done = history.step(&mut random);
        done.map_err(|reason| format!("history of seed {seed}, step {step}: {reason}"))?;
    }
    Ok(Report { histories: 1, ..history.report })
}

/// A branch here and in git.
struct History<'a> {
    git: Git,
    family: &'a Family,
    sides: [Side<'a>; 2],
    report: Report,
}

impl History<'_> {
    fn step(&mut self, random: &mut Random) -> Result<()> {
        let which = random.below(2) as usize;
        match random.below(9) {
            0..3 => self.bring(random, which),
            3 => self.cross(),
            _ => self.change(random, which),
        }
    }

    fn change(&mut self, random: &mut Random, which: usize) -> Result<()> {
        let side = &mut self.sides[which];
        for _ in 0..=random.below(CHANGES_MAX) {
            if let Some(change) = side.change(random) {
                side.tree.apply(&change)?;
            }
        }
        let from = self.git.newest(side.branch)?;
        self.git.advance(side.branch, (&from, None), &side.files)
    }

    /// Merges into one of the sides what the other one has, here and by git.
    fn bring(&mut self, random: &mut Random, into: usize) -> Result<()> {
        let choice = random.pick(&[Choice::Ours, Choice::Theirs]);
        let [taker, giver] = [into, 1 - into].map(|which| self.sides[which].branch);
        let bases = self.git.ask(&["merge-base", "--all", taker, giver])?;
        let conflicts = self.compare(into, choice)?;
        let [from, merged] = [self.git.newest(taker)?, self.git.newest(giver)?];
        let files = &self.sides[into].files;
        self.git.advance(taker, (&from, Some(&merged)), files)?;
        self.report.merges += u64::from(into == 0);
        self.report.updates += u64::from(into == 1);
        self.report.conflicted += u64::from(conflicts > 0);
        self.report.conflicts += conflicts;
        let first = self.git.newest("base")?;
        self.report.repeated += u64::from(!bases.starts_with(first.as_bytes()));
        let bases = bases.split(|byte| *byte == b'\n').filter(|base| !base.is_empty()).count();
        self.report.crossed += u64::from(bases > 1);
        Ok(())
    }

    /// Merges in both directions: in git the same two commits, here one after the other. In
    /// conflict git's bases have marks, so then it is left out.
    fn cross(&mut self) -> Result<()> {
        let [ours, theirs] = BRANCHES;
        if !self.git.merge(ours, theirs)?.conflicts.is_empty() {
            return Ok(());
        }
        for into in [0, 1] {
            self.compare(into, Choice::Refuse)?;
        }
        let [ours, theirs] = [self.git.newest(ours)?, self.git.newest(theirs)?];
        self.git.advance(BRANCHES[0], (&ours, Some(&theirs)), &self.sides[0].files)?;
        self.git.advance(BRANCHES[1], (&theirs, Some(&ours)), &self.sides[1].files)
    }

    /// Merges here, and compares with what git makes of the branches as they are. Returns how many
    /// paths are in conflict.
    fn compare(&mut self, into: usize, choice: Choice) -> Result<u64> {
        let side = &mut self.sides[into];
        let giver = BRANCHES[1 - into];
        let merged = self.git.merge(side.branch, giver)?;
        let paths = merged.listing.keys().cloned().collect();
        let git_files = self.git.files(&merged.listing, &paths)?;
        let direction = if into == 0 { Direction::Merge } else { Direction::Update };
        let report = self.family.bring(side.tree, direction, choice)?;
        side.files = side.tree.files(true)?;
        let verdict = judge(&report, &side.files, (&merged, &git_files), &Aliases::default());
        if let Verdict::Differs(difference) = verdict {
            let decided = report.decided;
            return Err(format!("{giver} into {}: {difference:#?}\n{decided:#?}", side.branch));
        }
        Ok(merged.conflicts.len() as u64)
    }
}

fn text(random: &mut Random) -> Blob {
    (0..LINES).map(|_| line(random)).collect::<String>().into_bytes().into()
}

/// A line that no other one is like.
fn line(random: &mut Random) -> String {
    format!("{:016x} as it was\n", random.number())
}

impl Side<'_> {
    /// One change, if it is one.
    fn change(&mut self, random: &mut Random) -> Option<Change> {
        let paths: Vec<Vec<u8>> = self.files.keys().cloned().collect();
        if paths.is_empty() || random.once_in(8) {
            return self.make(random);
        }
        let path = paths[random.below(paths.len() as u64) as usize].clone();
        let (mode, content) = self.files[&path].clone();
        match random.below(10) {
            0 => {
                self.files.remove(&path);
                Some(Change::Remove(path))
            }
            1 => {
                let mode = random.pick(&[Mode::Plain, Mode::Executable]);
                Some(self.put(path, mode, content))
            }
            2 | 3 => {
                let content = edited(random, &content);
                self.files.insert(path.clone(), (mode, content.clone()));
                Some(Change::Save(path, mode, content))
            }
            _ => {
                let content = edited(random, &content);
                Some(self.put(path, mode, content))
            }
        }
    }

    fn put(&mut self, path: Vec<u8>, mode: Mode, content: Blob) -> Change {
        self.files.insert(path.clone(), (mode, content.clone()));
        Change::Put(path, mode, content)
    }

    /// A new file, perhaps under a name that there was.
    fn make(&mut self, random: &mut Random) -> Option<Change> {
        let path = format!("{}{}", random.pick(&["f", "d/f"]), random.below(FILES)).into_bytes();
        let is_free = !self.files.contains_key(&path);
        is_free.then(|| {
            let content = text(random);
            self.put(path, Mode::Plain, content)
        })
    }
}

/// A text with a line that is new, gone or changed: few other words there are for one.
fn edited(random: &mut Random, content: &Blob) -> Blob {
    let text = String::from_utf8_lossy(content);
    let mut lines: Vec<String> = text.lines().map(|line| format!("{line}\n")).collect();
    let at = random.below(lines.len() as u64 + 1) as usize;
    match (random.below(6), lines.get(at).and_then(|line| line.get(..16))) {
        (0, Some(_)) => drop(lines.remove(at)),
        (2.., Some(number)) => lines[at] = format!("{number} changed {}\n", random.below(3)),
        _ => lines.insert(at, line(random)),
    }
    lines.concat().into_bytes().into()
}

impl Report {
    pub(crate) fn add(&mut self, other: &Report) {
        self.histories += other.histories;
        self.merges += other.merges;
        self.updates += other.updates;
        self.conflicted += other.conflicted;
        self.conflicts += other.conflicts;
        self.repeated += other.repeated;
        self.crossed += other.crossed;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { histories, merges, updates, repeated, crossed, .. } = self;
        let Report { conflicted, conflicts, .. } = self;
        write!(
            out,
            "{histories} branches: {merges} merges and {updates} updates as git merges them, \
             {repeated} of them with another base than the first, {crossed} with several for git, \
             {conflicted} with {conflicts} paths in conflict"
        )
    }
}
