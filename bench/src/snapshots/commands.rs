//! What looking at many snapshots costs, and what it costs to destroy them.

use super::super::contender::Pool;
use super::keeping::{median, name};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::text;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Names that are looked up, and snapshots that are destroyed one by one.
const LOOKUPS: u64 = 200;
const DESTROYED: u64 = 100;
/// Commands are asked so often.
const ASKED: usize = 5;

/// How long each took, by what it is and how many snapshots there are.
pub(super) type Commands = BTreeMap<(&'static str, u64), Duration>;

/// On a pool for each number of snapshots; those of the last are destroyed.
pub(super) fn measure(pools: &[Pool], counts: &[u64]) -> Result<Commands> {
    let mut told = Commands::new();
    for (pool, count) in pools.iter().zip(counts.iter().copied()) {
        let root = pool.root();
        told.insert(("`marram list`", count), asked(pool, &["list", "--all", &root])?);
        told.insert(("`marram space`", count), asked(pool, &["space", &root])?);
        if count > 0 {
            look_up(Path::new(&root), count, &mut told)?;
        }
    }
    if let (Some(pool), Some(count)) = (pools.last(), counts.last()) {
        destroy(pool, *count, &mut told)?;
    }
    Ok(told)
}

fn asked(pool: &Pool, words: &[&str]) -> Result<Duration> {
    let times: Result<Vec<_>> = (0..ASKED).map(|_| Ok(pool.ask(words)?.1.command)).collect();
    Ok(median(times?).unwrap_or_default())
}

/// Names of snapshots, spread evenly over all.
fn names(of: u64, count: u64) -> impl Iterator<Item = String> {
    let count = count.min(of);
    (0..count).map(move |index| name(index * of / count))
}

/// Some names for the first time, and the whole directory.
fn look_up(root: &Path, count: u64, told: &mut Commands) -> Result<()> {
    let directory = root.join(".marram/snapshots");
    let mut times = Vec::new();
    for name in names(count, LOOKUPS) {
        let began = Instant::now();
        std::fs::symlink_metadata(directory.join(&name)).context(|| name)?;
        times.push(began.elapsed());
    }
    told.insert(("first lookup of a name", count), median(times).unwrap_or_default());
    let began = Instant::now();
    let listed = std::fs::read_dir(&directory)?.count() as u64;
    told.insert(("listing of `.marram/snapshots`", count), began.elapsed());
    if listed == count { Ok(()) } else { fail(format!("{listed} snapshots seen of {count}")) }
}

/// Some alone, the rest together.
fn destroy(pool: &Pool, count: u64, told: &mut Commands) -> Result<()> {
    let root = pool.root();
    let mut times = Vec::new();
    for name in names(count, DESTROYED) {
        let target = format!("{root}@{name}");
        times.push(pool.ask(&["destroy", "snapshot", "--yes", &target])?.1.command);
    }
    told.insert(("destroyed, one of them", count), median(times).unwrap_or_default());
    let together = pool.ask(&["snapshot", &root, "--keep", "1"])?.1.command;
    told.insert(("destroyed, the others at once", count), together);
    let left = text(&mut pool.mount().command(&["list", "-H", &root]))?.lines().count();
    match left {
        2 => Ok(()),
        left => fail(format!("{left} datasets and snapshots are left, and not 2")),
    }
}
