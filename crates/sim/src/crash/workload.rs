//! Workloads: what runs before the power goes. Each has a text that brings it back.

use super::action::{Action, Change};
use super::idiom::{self, IDIOMS};
use super::table;
use crate::generate::Generator;
use crate::random::Random;
use std::fmt;
use std::str::FromStr;

/// Most steps of a workload that is read from text.
const STEPS_MAX: usize = 100_000;

/// A part of a bounded workload: `rename`, or `busy3/rename`, a commit in which the renaming, and a
/// sync, come before its write or flush number 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// A row of the tables of operations and persistence points.
    pub row: &'static str,
    /// In which place of a commit, if in any.
    pub busy: Option<u64>,
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
    fn actions(&self) -> Vec<Action> {
        let row = table::row(self.row).unwrap_or_default();
        match self.busy {
            None => row.to_vec(),
            Some(at) => {
                let sync = Action::Root(Change::SyncAll);
                vec![Action::Busy { at, inner: row.iter().cloned().chain([sync]).collect() }]
            }
        }
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

/// Operations of the generator, with syncs, commits, snapshots and clones between them.
fn random_actions(seed: u64, steps: usize) -> Vec<Action> {
    let mut random = Random::new(seed ^ 0x0c2a_54ed);
    let mut generator = Generator::new(seed);
    let often = random.pick(&[4, 8, 20]);
    let draw = |_| {
        if !random.once_in(often) {
            return Action::Drawn(generator.draw());
        }
        match random.below(12) {
            0 => Action::Snapshot,
            1 => Action::Clone,
            2 => Action::DestroyClone,
            3 => Action::DestroySnapshot,
            4..6 => Action::Commit,
            _ => Action::Root(Change::SyncAll),
        }
    };
    let actions: Vec<Action> = (0..steps).map(draw).collect();
    interrupt(actions, &mut random)
}

/// Puts what follows some of the commits into the middle of them.
fn interrupt(actions: Vec<Action>, random: &mut Random) -> Vec<Action> {
    let mut interrupted: Vec<Action> = Vec::new();
    for action in actions {
        let waits = !matches!(action, Action::Root(_) | Action::InClone(_) | Action::Drawn(_));
        match interrupted.last_mut() {
            Some(Action::Busy { inner, .. }) if !waits && !random.once_in(4) => inner.push(action),
            _ if action == Action::Commit && random.once_in(2) => {
                interrupted.push(Action::Busy { at: random.below(9), inner: Vec::new() });
            }
            _ => interrupted.push(action),
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
        if let Some(at) = self.busy {
            write!(out, "busy{at}/")?;
        }
        out.write_str(self.row)
    }
}

fn part(text: &str) -> Result<Part, String> {
    match text.split_once('/') {
        None => Ok(Part { row: known_row(text)?, busy: None }),
        Some((busy, row)) => {
            let at = busy.strip_prefix("busy").and_then(|digits| digits.parse().ok());
            let at: u64 = at.ok_or_else(|| format!("{busy:?} is not like busy3"))?;
            Ok(Part { row: known_row(row)?, busy: Some(at) })
        }
    }
}

fn known_row(name: &str) -> Result<&'static str, String> {
    let mut rows = table::CHANGES.iter().chain(table::PERSISTENCE);
    let found = rows.find(|(known, _)| *known == name);
    found.map(|(known, _)| *known).ok_or_else(|| format!("nothing small is named {name:?}"))
}

#[cfg(test)]
mod tests {
    use super::Workload;

    #[test]
    fn a_workload_is_read_from_its_text() {
        for text in ["small:rename-over+busy3/create+append", "random:7:60", "idiom:replace:7:10"] {
            let workload: Workload = text.parse().unwrap();
            assert_eq!(workload.to_string(), text);
            assert!(!workload.actions().is_empty());
        }
        for text in
            ["", "small:nothing", "small:busy/create", "random:7", "idiom:none:1:1", "random:x:1"]
        {
            assert!(text.parse::<Workload>().is_err(), "{text}");
        }
    }
}
