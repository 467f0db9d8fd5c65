//! Workloads: what runs before the power goes. Each has a text that brings it back.

use super::action::{Action, Administration, Change, File, Transaction, Turn};
use super::idiom::{self, IDIOMS};
use super::table;
use crate::generate::Generator;
use crate::random::Random;
use std::fmt;
use std::str::FromStr;

/// Most steps of a workload that is read from text.
const STEPS_MAX: usize = 100_000;
/// What is begun in a history waits before one of so many writes and flushes.
const BEGUN_AT_MAX: u64 = 12;
/// After one in so many actions something that is under way goes on.
const ENDS_ONE_IN: u64 = 4;

/// A part of a bounded workload: `rename`, or `commit3/rename`, a commit in which the renaming, and
/// a sync, come before its write or flush number 3; or with both a commit and a frame of the log
/// under way, `snapshot3/sync1/rename`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// A row of the tables.
    pub row: &'static str,
    /// What is under way meanwhile: rows whose last action waits before a write or flush.
    pub begun: Vec<(&'static str, u64)>,
}

/// A workload: `small:rename-over+fsync+append`, `random:SEED:STEPS` or
/// `idiom:NAME:SEED:ROUNDS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Operations and persistence points.
    Small(Vec<Part>),
    /// A random history.
    Random {
        /// Decides everything.
        seed: u64,
        /// Its length.
        steps: usize,
    },
    /// Rounds of what careful programs do.
    Idiom {
        /// Which idiom.
        name: &'static str,
        /// Decides sizes, content, and when the background commits.
        seed: u64,
        /// How often it is done.
        rounds: usize,
    },
}

impl Part {
    /// What is done one after the other, with nothing under way.
    pub fn of(row: &'static str) -> Part {
        Part { row, begun: Vec::new() }
    }

    fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut turns = Vec::new();
        for (row, at) in &self.begun {
            actions.extend_from_slice(table::row(row).unwrap_or_default());
            let Some(action) = actions.pop().filter(Action::can_begin) else { continue };
            turns.extend(action.turn());
            actions.push(Action::Begin { action: Box::new(action), at: *at });
        }
        actions.extend_from_slice(table::row(self.row).unwrap_or_default());
        let sync = || Action::Root(Change::SyncAll);
        match (&turns[..], self.begun.last()) {
            ([Turn::Commit], _) => actions.push(sync()),
            ([Turn::Frame], Some((_, at))) if at.is_multiple_of(2) => {
                actions.push(Action::Begin { action: Box::new(sync()), at: 0 });
            }
            ([Turn::Frame], _) => actions.push(Action::Commit),
            _ => {}
        }
        actions.extend(turns.into_iter().map(Action::End));
        actions
    }
}

impl Workload {
    /// What it does.
    pub fn actions(&self) -> Vec<Action> {
        match self {
            Workload::Small(parts) => parts.iter().flat_map(|part| part.actions()).collect(),
            Workload::Random { seed, steps } => random_actions(*seed, *steps),
            Workload::Idiom { name, seed, rounds } => {
                let idiom = IDIOMS.iter().find(|(known, _)| known == name);
                let actions = idiom
                    .map_or_else(Vec::new, |(_, idiom)| idiom::actions(*idiom, *seed, *rounds));
                interrupt(actions, &mut Random::new(*seed))
            }
        }
    }
}

/// Operations of the generator, with syncs, commits, snapshots, clones, forks, merges and rollbacks
/// between them.
fn random_actions(seed: u64, steps: usize) -> Vec<Action> {
    let mut random = Random::new(seed ^ 0x0c2a_54ed);
    let mut generator = Generator::new(seed);
    let often = random.pick(&[4, 8, 20]);
    let draw = |_| {
        if !random.once_in(often) {
            return Action::Drawn(generator.draw());
        }
        match random.below(40) {
            0 | 1 => Action::Administer(Administration::Snapshot("root@s")),
            2 => Action::Administer(Administration::Snapshot("root@t")),
            3 => Action::Administer(Administration::Snapshot("c@s")),
            4 | 5 => Action::Administer(Administration::Clone),
            6 => Action::Administer(Administration::Destroy("c")),
            7 => Action::Administer(Administration::Destroy("root@s")),
            8 => Action::Administer(Administration::Destroy("root@t")),
            9..12 => Action::Commit,
            12..14 => Action::InClone(other_change(&mut random)),
            14 | 15 => Action::Administer(Administration::Fork),
            16..21 => Action::InFork(other_change(&mut random)),
            21 | 22 => Action::Administer(Administration::Merge),
            23 => Action::Administer(Administration::Destroy("k")),
            24 => Action::Administer(Administration::Rollback),
            25 => Action::Administer(Administration::Destroy("root@before")),
            26 => {
                let path = random.pick(&["A", "B", "B/e", "j", "k"]);
                Action::Administer(Administration::DirectoryRollback(path))
            }
            27 => Action::Transact(Transaction::BeginOnBoth),
            28 => Action::InTransactionOnClone(other_change(&mut random)),
            30..33 => Action::Transact(Transaction::Begin),
            33..37 => Action::InTransaction(other_change(&mut random)),
            37 | 38 => Action::Transact(Transaction::Commit),
            39 => Action::Transact(Transaction::Abort),
            _ => Action::Root(Change::SyncAll),
        }
    };
    let actions: Vec<Action> = (0..steps).map(draw).collect();
    interrupt(actions, &mut random)
}

/// Something that happens to the clone or the fork, if there is one.
fn other_change(random: &mut Random) -> Change {
    let (file, seed) = (File::At("h"), random.number());
    match random.below(5) {
        0 => Change::Write { file, offset: random.below(20_000), len: 5_000, seed },
        1 => Change::Append { file, len: 200, seed },
        2 => Change::Unlink("A/f"),
        3 => Change::Rename("B/g", "A/g", marram_vfs::RenameMode::Replace),
        _ => Change::SyncAll,
    }
}

/// Lets others go on in the middle of some of what takes long.
fn interrupt(actions: Vec<Action>, random: &mut Random) -> Vec<Action> {
    let mut interrupted: Vec<Action> = Vec::new();
    for action in actions {
        if action.can_begin() && random.once_in(2) {
            let at = random.below(BEGUN_AT_MAX);
            interrupted.push(Action::Begin { action: Box::new(action), at });
        } else {
            interrupted.push(action);
        }
        if random.once_in(ENDS_ONE_IN) {
            let turn = random.pick(&[Turn::Commit, Turn::Frame]);
            interrupted.push(Action::End(turn));
        }
    }
    interrupted
}

impl fmt::Display for Workload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::Small(parts) => {
                let parts: Vec<String> = parts.iter().map(Part::to_string).collect();
                write!(out, "small:{}", parts.join("+"))
            }
            Workload::Random { seed, steps } => write!(out, "random:{seed}:{steps}"),
            Workload::Idiom { name, seed, rounds } => {
                write!(out, "idiom:{name}:{seed}:{rounds}")
            }
        }
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Workload, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let number = |digits: &str| {
            digits.parse::<u64>().map_err(|error| format!("{digits:?} in {text:?}: {error}"))
        };
        let count = |digits| number(digits).map(|count| (count as usize).min(STEPS_MAX));
        match parts[..] {
            ["small", rows] => {
                rows.split('+').map(part).collect::<Result<_, _>>().map(Workload::Small)
            }
            ["random", seed, steps] => {
                Ok(Workload::Random { seed: number(seed)?, steps: count(steps)? })
            }
            ["idiom", name, seed, rounds] => {
                let known = IDIOMS.iter().find(|(known, _)| *known == name);
                let (name, _) = known.ok_or_else(|| format!("no idiom is named {name:?}"))?;
                Ok(Workload::Idiom { name, seed: number(seed)?, rounds: count(rounds)? })
            }
            _ => Err(format!(
                "{text:?} is not a workload like small:rename+fsync, random:7:60 or \
                 idiom:replace:7:10"
            )),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (row, at) in &self.begun {
            write!(out, "{row}{at}/")?;
        }
        out.write_str(self.row)
    }
}

fn part(text: &str) -> Result<Part, String> {
    let mut words: Vec<&str> = text.split('/').collect();
    let row = known_row(words.pop().unwrap_or_default())?;
    let begun = words.into_iter().map(|word| {
        let (name, at) = word.split_at(word.trim_end_matches(|c: char| c.is_ascii_digit()).len());
        let at = at.parse().map_err(|_| format!("{word:?} is not like commit3"))?;
        Ok((known_row(name)?, at))
    });
    Ok(Part { row, begun: begun.collect::<Result<_, String>>()? })
}

fn known_row(name: &str) -> Result<&'static str, String> {
    table::known_row(name).ok_or_else(|| format!("nothing small is named {name:?}"))
}

#[cfg(test)]
mod tests {
    use super::Workload;

    #[test]
    fn a_workload_is_read_from_its_text() {
        for text in [
            "small:rename-over+commit3/create+append",
            "small:clone2/sync1/append",
            "random:7:60",
            "idiom:replace:7:10",
        ] {
            let workload: Workload = text.parse().unwrap();
            assert_eq!(workload.to_string(), text);
            assert!(!workload.actions().is_empty());
        }
        for text in
            ["", "small:nothing", "small:commit/create", "random:7", "idiom:none:1:1", "random:x:1"]
        {
            assert!(text.parse::<Workload>().is_err(), "{text}");
        }
    }
}
