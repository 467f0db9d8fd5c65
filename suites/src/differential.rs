//! The same calls on Marram and on ext4: results, error numbers, attributes and trees compared.
//!
//! A run is made of rounds, each in fresh folders and from a seed of its own, so that a difference
//! is found again by its seed alone. A difference that no rule explains ends the run; the calls
//! that led to it are cut down to a few and printed. See `rules` for what is known to differ.

mod call;
mod compare;
mod draw;
mod observe;
mod perform;
mod play;
mod rules;
mod side;

use super::{GIB, Setting, step};
use marram_lab::failure::{Result, fail};
use marram_lab::subject::{Kind, Making, make};
use play::{Pair, Unexplained};

/// The ordinary users: any numbers but root's.
const FIRST: u32 = 1001;
const SECOND: u32 = 1002;

/// Calls of one round.
const ROUND: usize = 5000;

/// Rounds between remounts.
const REMOUNT_EVERY: u64 = 10;

/// A run ends after so many rounds with differences.
const DIFFERENCES_MAX: usize = 4;

/// How many differences of one call are printed.
const DIFFERENCES_SHOWN: usize = 6;

/// From so many calls on, every rule must have been needed.
const ALL_RULES_FROM: u64 = 1_000_000;

/// A million calls, or 20,000 when short.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return fail("the differential run needs root");
    }
    let calls = setting.sizes.calls.unwrap_or(setting.scaled(1_000_000, 20_000));
    let mut pair = pair(setting)?;
    let mut failures = Vec::new();
    for round in 0..calls.div_ceil(ROUND as u64) {
        let seed = setting.seed.wrapping_mul(1_000_000).wrapping_add(round);
        let left = usize::try_from(calls - round * ROUND as u64).unwrap_or(usize::MAX);
        let steps = draw::steps(seed, left.min(ROUND));
        let remount = round % REMOUNT_EVERY == REMOUNT_EVERY - 1;
        if let Some(found) = pair.play(&steps, remount)? {
            failures.push(tell(&mut pair, &steps, found, round)?);
        }
        if failures.len() == DIFFERENCES_MAX {
            break;
        }
    }
    if !failures.is_empty() {
        return fail(format!("differences: {}", failures.join("; ")));
    }
    judge_rules(&pair, calls)?;
    let [marram, ext4] = &mut pair.subjects;
    marram.unmount()?;
    ext4.unmount()?;
    marram.check()?;
    ext4.check()
}

/// Prints how often each rule was needed; in a long run every one must have been.
fn judge_rules(pair: &Pair, calls: u64) -> Result<()> {
    let counts: Vec<_> = pair.usage.counts().collect();
    let list: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    let succeeded = pair.succeeded;
    step(&format!(
        "{calls} calls, of which {succeeded} succeeded on both; no other difference than"
    ));
    step(&list.join(", "));
    match counts.iter().find(|(_, count)| *count == 0) {
        Some((unused, _)) if calls >= ALL_RULES_FROM => {
            fail(format!("the rule `{unused}` explains nothing: remove it"))
        }
        _ => Ok(()),
    }
}

/// What is under test, and ext4 beside it.
fn pair(setting: &Setting) -> Result<Pair> {
    let mut making = Making::sized(2 * GIB);
    if setting.kind.is_marram() {
        making.mount_words =
            ["-o", "suid,dev,allow_other,default_permissions"].map(String::from).into();
    }
    let tested = make(setting.kind, &setting.folder.join("subject"), &making)?;
    let ext4 = make(Kind::Ext4, &setting.folder.join("ext4"), &Making::sized(2 * GIB))?;
    Ok(Pair::new([tested, ext4]))
}

/// Prints a short list of calls that shows the difference; returns where it was found.
fn tell(pair: &mut Pair, steps: &[call::Step], found: Unexplained, round: u64) -> Result<String> {
    let place = format!("round {round}, call {}", found.calls);
    println!("  a difference at {place}; cutting it down");
    let (short, shown) = pair.shrink(&steps[..found.calls])?;
    let found = shown.unwrap_or(found);
    for step in &short {
        println!("  {:?}: {:?}", step.user, step.call);
    }
    for difference in found.differences.iter().take(DIFFERENCES_SHOWN) {
        let compare::Difference { aspect, subject, marram, ext4 } = difference;
        let subject = subject.as_ref().map(|(_, subject)| subject);
        println!("  {aspect} of {subject:?}:\n    marram {marram}\n    ext4   {ext4}");
    }
    Ok(format!("{place} ({} calls show it)", short.len()))
}
