//! Fills a tree, and keeps its states.

use super::super::contender::{Contender, Measured};
use super::super::interruption;
use marram_lab::failure::{Context, Result, fail};
use marram_lab::seed::Seed;
use std::path::Path;
use std::time::{Duration, Instant};

/// Files in the tree; one is written anew before each snapshot.
const FILES: u64 = 1000;
/// Bytes of each.
const FILE_BYTES: usize = 4096;
/// A larger file, which all snapshots hold: what is written in it later is not freed.
pub(super) const HELD: &str = "held";
pub(super) const HELD_BYTES: u64 = 64 << 20;

/// The last ones: their mean is reported as the cost of one there.
const WINDOW: usize = 200;

/// A tree, the same wherever it is.
pub(super) fn fill(tree: &Path) -> Result<()> {
    for number in 0..FILES {
        write(tree, number, number)?;
    }
    let held = Seed::new(FILES).bytes(usize::try_from(HELD_BYTES).expect("a file fits"));
    Ok(std::fs::write(tree.join(HELD), held)?)
}

/// The name of one of its files.
pub(super) fn file(number: u64) -> String {
    format!("file-{}", number % FILES)
}

fn write(tree: &Path, number: u64, seed: u64) -> Result<()> {
    let path = tree.join(file(number));
    std::fs::write(&path, Seed::new(seed).bytes(FILE_BYTES)).context(|| path.display())
}

/// The name of the snapshot of that number, as automatic ones are named: an hour after another.
pub(super) fn name(number: u64) -> String {
    let (day, hour) = (number / 24, number % 24);
    let (year, month, day) = (2000 + day / 336, day / 28 % 12 + 1, day % 28 + 1);
    format!("auto-{year}-{month:02}-{day:02}T{hour:02}-00-00Z")
}

/// Snapshots that were taken one after the other.
#[derive(Default)]
pub(super) struct Kept {
    /// How many were asked for.
    pub(super) wanted: u64,
    all: Vec<Measured>,
    /// Bytes that they take, with the files that were changed before them.
    bytes: u64,
}

impl Kept {
    pub(super) fn count(&self) -> u64 {
        self.all.len() as u64
    }

    /// How many there are, and the bytes of each, if there are any.
    pub(super) fn bytes_of_each(&self) -> Option<(u64, u64)> {
        Some((self.count(), self.bytes.checked_div(self.count())?))
    }

    /// What one costs when there are so many: medians of the last ones, of the engine's where it
    /// reports them.
    pub(super) fn cost(&self, count: u64) -> Option<(Duration, Option<Duration>)> {
        let all = self.all.get(..usize::try_from(count).ok()?)?;
        let last = &all[all.len().saturating_sub(WINDOW)..];
        let command = median(last.iter().map(|one| one.command).collect())?;
        Some((command, median(last.iter().filter_map(|one| one.engine).collect())))
    }

    /// A hundred, a thousand and so on, and all that there are.
    pub(super) fn milestones(&self) -> Vec<u64> {
        let powers = (2..).map(|power| 10_u64.pow(power));
        let below = powers.take_while(|power| *power < self.count());
        below.chain([self.count()]).filter(|count| *count > 0).collect()
    }
}

/// The time in the middle.
pub(super) fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

/// Takes so many snapshots, each of another state, as far as patience goes.
pub(super) fn keep(contender: &mut dyn Contender, wanted: u64, patience: Duration) -> Result<Kept> {
    let before = contender.used_bytes()?;
    let began = Instant::now();
    let mut all = Vec::new();
    while (all.len() as u64) < wanted && began.elapsed() < patience {
        interruption::check()?;
        let number = all.len() as u64;
        write(contender.origin(), number, number + FILES)?;
        match contender.snapshot(&name(number))? {
            Some(measured) => all.push(measured),
            None => return fail("it has no snapshots"),
        }
    }
    let bytes = contender.used_bytes()?.saturating_sub(before);
    println!("  {} snapshots in {:.1} s", all.len(), began.elapsed().as_secs_f64());
    Ok(Kept { wanted, all, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_costs_is_told_of_those_just_before() {
        let took = |number: u64| Measured::command(Duration::from_millis(number));
        let kept = Kept { wanted: 3000, all: (1..=2400).map(took).collect(), bytes: 4800 };
        assert_eq!(kept.bytes_of_each(), Some((2400, 2)));
        assert_eq!(kept.milestones(), [100, 1000, 2400]);
        let cost = |count| kept.cost(count).map(|(command, _)| command.as_millis());
        assert_eq!((cost(100), cost(1000), cost(3000)), (Some(51), Some(901), None));
    }

    #[test]
    fn every_snapshot_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<String> = (0..20_000).map(name).collect();
        assert_eq!(names.len(), 20_000);
    }
}
