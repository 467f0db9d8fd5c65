//! Generated texts that two sides change.

use crate::family::{Change, Family};
use crate::git::{Blob, Files, Git, Mode};
use crate::judge::{Aliases, Verdict, judge};
use crate::{Result, words};
use marram_sim::Random;
use std::collections::BTreeSet;
use std::fmt;
use std::process::Command;

/// Texts of one round.
const TEXTS: u64 = 150;
/// Most lines of a base.
const LINES_MAX: u64 = 60;
/// Most changes of one side.
const CHANGES_MAX: u64 = 6;

/// What was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    pub(crate) texts: u64,
    /// In conflict here and for `git merge-tree`.
    pub(crate) conflicts: u64,
    /// Where git says otherwise, and lines are repeated.
    pub(crate) repeated_lines: u64,
    /// Where `git merge-file`, which compares lines by another algorithm, says otherwise than both.
    pub(crate) other_algorithm: u64,
}

/// Merges one tree of texts.
///
/// # Errors
/// Says which text git merges to something else.
pub(crate) fn round(seed: u64) -> Result<Report> {
    let mut random = Random::new(seed ^ 0x7e87);
    let mut trees = [Files::new(), Files::new(), Files::new()];
    for number in 0..TEXTS {
        let texts = three(&mut random);
        for (tree, text) in trees.iter_mut().zip(texts) {
            tree.insert(format!("text{number:03}").into_bytes(), (Mode::Plain, text));
        }
    }
    let [base, ours, theirs] = &trees;
    let mut git = Git::new(None)?;
    git.commit(base, [ours, theirs])?;
    let merged = git.merge("ours", "theirs")?;
    let paths = merged.listing.keys().cloned().collect();
    let git_files = git.files(&merged.listing, &paths)?;
    let family = Family::new()?;
    let put = |(path, (mode, text)): (&Vec<u8>, &(Mode, Blob))| {
        Change::Put(path.clone(), *mode, text.clone())
    };
    base.iter().map(put).try_for_each(|change| family.parent.apply(&change))?;
    let fork = family.fork()?;
    ours.iter().map(put).try_for_each(|change| family.parent.apply(&change))?;
    theirs.iter().map(put).try_for_each(|change| fork.apply(&change))?;
    let report = family.merge()?;
    let files = family.parent.files(true)?;
    let verdict = judge(&report, &files, (&merged, &git_files), &Aliases::default());
    let repeated_lines =
        explain(&verdict, &trees).map_err(|reason| format!("texts of seed {seed}: {reason}"))?;
    let [base, ours, theirs] = &trees;
    let mut other_algorithm = 0;
    for path in base.keys() {
        let in_conflict = merged.conflicts.contains(path);
        let text = |files: &Files| files[path].1.clone();
        let by_file = merge_file([&text(ours), &text(base), &text(theirs)])?;
        let same = match by_file {
            Some(text) => !in_conflict && *text == *files[path].1,
            None => in_conflict,
        };
        other_algorithm += u64::from(!same);
    }
    let conflicts = merged.conflicts.len() as u64;
    Ok(Report { texts: TEXTS, conflicts, repeated_lines, other_algorithm })
}

/// How many texts differ because lines are repeated in them: which of several equal lines are the
/// same in both versions is a guess, and the library's is not always git's.
fn explain(verdict: &Verdict, trees: &[Files; 3]) -> Result<u64> {
    let Verdict::Differs(difference) = verdict else {
        return Ok(0);
    };
    let mut paths: BTreeSet<&String> = difference.only_here.iter().collect();
    paths.extend(difference.only_git.iter().chain(&difference.content));
    for path in &paths {
        let texts = trees.each_ref().map(|tree| String::from_utf8_lossy(&tree[path.as_bytes()].1));
        let mut seen = BTreeSet::new();
        if texts.iter().all(|text| {
            seen.clear();
            text.lines().all(|line| seen.insert(line.to_owned()))
        }) {
            return Err(format!("{difference:#?}\nno line is repeated in {path}: {texts:#?}"));
        }
    }
    Ok(paths.len() as u64)
}

/// What `git merge-file` makes of three texts; none is a conflict.
fn merge_file(texts: [&Blob; 3]) -> Result<Option<Vec<u8>>> {
    let folder = tempfile::tempdir().map_err(words)?;
    let paths = ["ours", "base", "theirs"].map(|name| folder.path().join(name));
    for (path, text) in paths.iter().zip(texts) {
        std::fs::write(path, text).map_err(words)?;
    }
    let done = Command::new("git").args(["merge-file", "-p", "-q"]).args(&paths).output();
    let done = done.map_err(words)?;
    Ok(done.status.success().then_some(done.stdout))
}

/// A base and what two sides make of it.
fn three(random: &mut Random) -> [Blob; 3] {
    let vocabulary = random.pick(&[3, 20, 1_000_000]);
    let count = random.below(LINES_MAX);
    let base: Vec<String> = (0..count).map(|_| line(random, vocabulary)).collect();
    let mut sides = [base.clone(), base.clone()];
    for side in &mut sides {
        for _ in 0..random.below(CHANGES_MAX) {
            change(random, side, vocabulary);
        }
    }
    let common = line(random, 1_000_000);
    if random.once_in(4) {
        let at = random.below(count + 1) as usize;
        sides.iter_mut().for_each(|side| side.insert(at.min(side.len()), common.clone()));
    }
    let [ours, theirs] = sides;
    [base, ours, theirs].map(|lines| {
        let mut text = lines.concat();
        if random.once_in(6) {
            text.pop();
        }
        text.into_bytes().into()
    })
}

fn line(random: &mut Random, vocabulary: u64) -> String {
    let number = random.below(vocabulary);
    let end = if number % 7 == 6 { "\r\n" } else { "\n" };
    format!("{}line {number}{end}", " ".repeat((number % 5) as usize))
}

fn change(random: &mut Random, lines: &mut Vec<String>, vocabulary: u64) {
    let at = random.below(lines.len() as u64 + 1) as usize;
    let end = (at + 1 + random.below(4) as usize).min(lines.len());
    match random.below(6) {
        0 => lines.insert(at, line(random, vocabulary)),
        1 => {
            let new: Vec<String> = (0..random.below(5)).map(|_| line(random, vocabulary)).collect();
            lines.splice(at..end, new);
        }
        2 | 3 => {
            if let Some(old) = lines.get_mut(at) {
                *old = line(random, vocabulary);
            }
        }
        4 => drop(lines.drain(at..end)),
        _ => {
            let moved: Vec<String> = lines.drain(at..end).collect();
            let to = random.below(lines.len() as u64 + 1) as usize;
            lines.splice(to..to, moved);
        }
    }
}

impl Report {
    pub(crate) fn add(&mut self, other: Report) {
        self.texts += other.texts;
        self.conflicts += other.conflicts;
        self.repeated_lines += other.repeated_lines;
        self.other_algorithm += other.other_algorithm;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { texts, conflicts, repeated_lines, other_algorithm } = self;
        write!(
            out,
            "{texts} texts, {conflicts} in conflict: as git merge-tree merges them but for \
             {repeated_lines} with repeated lines; git merge-file says otherwise of \
             {other_algorithm}"
        )
    }
}
