//! What forks, snapshots, rollbacks and promotions cost on a home behind a link, and a diff.

use super::super::interruption;
use super::super::scale::tree;
use super::super::sheet::{Line, Sheet, Subject};
use super::Setting;
use super::contender::{Contender, Mounted, Store};
use marram_lab::failure::{Result, fail};
use std::time::Duration;

/// The goals: round trips, milliseconds at 1 ms, those of a diff.
const ROUND_TRIPS: f64 = 1.0;
const MILLISECONDS: f64 = 5.0;
const DIFF_MILLISECONDS: f64 = 100.0;
/// Files that are changed before a diff.
const CHANGED: u64 = 100;

/// Each with the words of its command; `ROOT` is the mount, and `N` the number of the round. A
/// promotion takes the snapshots along, so it comes last.
const VERBS: [(&str, &[&str]); 4] = [
    ("snapshot", &["snapshot", "ROOT@state-N"]),
    ("rollback", &["rollback", "ROOT@state-N"]),
    ("fork", &["fork", "ROOT", "fork-N"]),
    ("promote", &["promote", "ROOT", "fork-N"]),
];

fn subject(files: u64) -> Subject {
    let name = match files {
        100 => "100 files",
        1_000 => "1,000 files",
        10_000 => "10,000 files",
        _ => "a tree",
    };
    Subject { name, is_ours: true, durable: "it, and all before it" }
}

/// All four in a small and in a large tree.
pub(super) fn constant(setting: &Setting<'_>, sheet: &mut Sheet) -> Result<()> {
    for files in setting.sizes.trees {
        interruption::check()?;
        let (store, mounted) = grown(setting, files, &format!("verbs{files}"))?;
        let root = mounted.place().to_string_lossy().into_owned();
        for round in 0..setting.sizes.rounds {
            for (verb, words) in VERBS {
                let word =
                    |word: &&str| word.replace('N', &round.to_string()).replace("ROOT", &root);
                let words: Vec<String> = words.iter().map(word).collect();
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let (trips, time) = counted(&store, &mounted, &words)?;
                let line = Line::cost(format!("{verb}, ms"), format!("{verb} at 1 ms"), "ms");
                sheet.add(&line, subject(files), milliseconds(time));
                let title = format!("{verb}: questions to the server");
                let line = Line::cost(format!("{verb}, round trips"), title, "round trips");
                sheet.add(&line, subject(files), trips as f64);
            }
        }
        mounted.unmount()?;
    }
    for (verb, _) in VERBS {
        for files in setting.sizes.trees {
            let of = subject(files).name;
            let trips = sheet.median(&format!("{verb}, round trips"), of);
            sheet.at_most(format!("{verb} in {of}"), trips, ROUND_TRIPS, "round trips");
            let time = sheet.median(&format!("{verb}, ms"), of);
            sheet.at_most(format!("{verb} in {of}"), time, MILLISECONDS, "ms");
        }
    }
    Ok(())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A home with a tree of that many files, mounted by its only host, with nothing that waits.
fn grown<'run>(
    setting: &Setting<'run>,
    files: u64,
    name: &str,
) -> Result<(Store<'run>, Mounted<'run>)> {
    let [host] = setting.hosts(1) else { return fail("there is no host") };
    let store = setting.store(Contender::Marram, name)?;
    let mounted = store.mount_with(host, "close=auto")?;
    tree::make(&mounted.seen().join("tree"), files)?;
    settle(&store, &mounted)?;
    Ok((store, mounted))
}

fn settle(store: &Store<'_>, mounted: &Mounted<'_>) -> Result<()> {
    store.ask(mounted, &["sync", &mounted.place().to_string_lossy()]).map(|_| ())
}

/// The round trips of a command beyond those of being asked for them, and its time.
fn counted(store: &Store<'_>, mounted: &Mounted<'_>, words: &[&str]) -> Result<(u64, Duration)> {
    settle(store, mounted)?;
    let first = store.round_trips(mounted)?;
    let before = store.round_trips(mounted)?;
    let (_, time) = store.ask(mounted, words)?;
    let after = store.round_trips(mounted)?;
    Ok(((after - before).saturating_sub(before - first), time))
}

/// A fork in which some files of many are changed.
pub(super) fn diff(setting: &Setting<'_>, sheet: &mut Sheet) -> Result<()> {
    let files = setting.sizes.compared;
    let (store, mounted) = grown(setting, files, "compared")?;
    let root = mounted.place().to_string_lossy().into_owned();
    store.ask(&mounted, &["fork", &root, "changed"])?;
    tree::change(&mounted.seen().join(".marram/forks/changed/tree"), files, CHANGED)?;
    settle(&store, &mounted)?;
    let fork = format!("{root}/.marram/forks/changed");
    let title = format!("diff of {CHANGED} changed files in a tree of {files}, at 1 ms");
    let (line, subject) = (Line::cost("diff", title, "ms"), subject(0));
    for _ in 0..setting.sizes.rounds {
        let (said, time) = store.ask(&mounted, &["diff", &fork])?;
        let found = said["differences"].as_array().map_or(0, Vec::len) as u64;
        if found != CHANGED {
            return fail(format!("{CHANGED} files were changed, and {found} are reported"));
        }
        sheet.add(&line, subject, milliseconds(time));
    }
    let time = sheet.median("diff", subject.name);
    sheet.at_most(format!("diff of 100 changes in {files} files"), time, DIFF_MILLISECONDS, "ms");
    mounted.unmount()
}
