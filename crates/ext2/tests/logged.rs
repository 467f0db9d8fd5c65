//! Every state that a crash could leave while the journal is written: after a replay, by a mount or
//! by `e2fsck`, nothing is wrong, and what is there is one moment.

use crate::crashes::states;
use crate::images::{JOURNALED, empty, make, name, open_bytes};
use crate::judge::Judge;
use crate::numbered::Numbered;
use crate::oracle::is_served;
use crate::view;
use crate::workload::{Moment, Run, check, contents, outline, run_on};
use marram_device::{Device, MemoryDevice};
use marram_ext2::{AccessTimes, Consistency, Ext2, Ext2Options, JournalBug, Planted};
use marram_model::Model;
use marram_patch::Bug;
use marram_sim::crash::tree_digest;
use marram_sim::device::{CrashState, Fault, FaultyDevice, RecordingDevice, Trace};
use marram_sim::{Generator, HistoryClock, Pair, Random};
use marram_vfs::{
    Caller, Clock, FileSystem, Ino, Kind, NewNode, RenameMode, SetAttributes, SyncScope,
    WriteOptions,
};
use std::sync::Arc;

const USER: Caller = Caller { uid: 7, gid: 8 };
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
const MAGIC: u32 = 0xc03b_3998;
/// One of so many states is replayed by `e2fsck` too, and read by another reader.
const E2FSCK_EACH: usize = 4;

fn options(consistency: Consistency) -> Ext2Options {
    Ext2Options { consistency: Some(consistency), ..Ext2Options::default() }
}

/// Replays an image by a mount, and lets nothing be found in it.
pub(crate) fn mounted(judge: &Judge, image: Vec<u8>) -> Result<Ext2, String> {
    mounted_bytes(judge, image).map(|(files, _)| files)
}

/// The same with the bytes that the mount leaves.
pub(crate) fn mounted_bytes(judge: &Judge, image: Vec<u8>) -> Result<(Ext2, Vec<u8>), String> {
    let device = Arc::new(MemoryDevice::from_bytes(image));
    let never = Ext2Options { access_times: AccessTimes::Never, ..Ext2Options::default() };
    let files = Ext2::open(Arc::clone(&device) as Arc<dyn Device>, never)
        .map_err(|error| error.to_string())?;
    files.close().map_err(|error| error.to_string())?;
    let image = device.snapshot();
    judge.clean(&image)?;
    Ok((files, image))
}

/// Whether what is there is one moment between the last sync before a crash and the crash.
fn one_moment(run: &Run, cut: usize, files: &Ext2, is_full: bool) -> Result<(), String> {
    let synced = run.moments.iter().rposition(|it| it.is_synced && it.at <= cut).unwrap_or(0);
    let last = run.moments.iter().position(|it| it.at > cut).unwrap_or(run.moments.len() - 1);
    let (outline, digest) = (outline(files)?, tree_digest(files)?);
    let is_it = |it: &&Moment| it.outline == outline && (!is_full || it.digest == digest);
    match run.moments[synced..=last.max(synced)].iter().find(is_it) {
        Some(_) => Ok(()),
        None => Err(format!("this is no moment of {synced} to {last}: {outline}")),
    }
}

/// Judges one state of a run.
pub(crate) fn judged(
    judge: &Judge,
    (run, consistency): (&Run, Consistency),
    trace: &Trace,
    (state, with_e2fsck): (CrashState, bool),
) -> Result<(), String> {
    let (image, is_full) = (trace.image(state), consistency == Consistency::JournalFull);
    let (files, replayed) = mounted_bytes(judge, image.clone())?;
    one_moment(run, state.cut, &files, is_full)?;
    if consistency != Consistency::JournalWriteback {
        check(&run.promises, state.cut, &contents(&files)?)?;
    }
    if with_e2fsck {
        let theirs_bytes = judge.replayed(&image)?;
        judge.clean_after_e2fsck(&theirs_bytes)?;
        let theirs = open_bytes(theirs_bytes.clone()).map_err(|error| error.to_string())?;
        for (image, files) in [(&replayed, &files), (&theirs_bytes, &theirs)] {
            if view::is_taken(image) {
                view::compared(image, files).map_err(|said| format!("ext4-view: {said}"))?;
            }
        }
        if outline(&theirs)? != outline(&files)? || contents(&theirs)? != contents(&files)? {
            return Err("e2fsck replays something else".to_owned());
        }
    }
    Ok(())
}

fn crashes(consistency: Consistency, seeds: std::ops::Range<u64>) {
    let (judge, mut count) = (Judge::new(), 0);
    for seed in seeds {
        let run = run_on(JOURNALED, true, seed, 150, options(consistency));
        let trace = run.device.trace();
        judge.clean(&trace.state_at(trace.events().len())).unwrap();
        for (which, state) in states(&trace, seed).into_iter().enumerate() {
            let how = (state, which % E2FSCK_EACH == 0);
            let said = judged(&judge, (&run, consistency), &trace, how);
            said.map_err(|said| format!("run {seed}, state {state}: {said}")).unwrap();
            count += 1;
        }
    }
    println!("{count} states");
    assert!(count > 100, "{count}");
}

#[test]
fn a_crash_under_a_journal_leaves_one_moment_of_the_metadata() {
    crashes(Consistency::Journal, 0..2);
}

#[test]
fn a_crash_under_a_full_journal_leaves_one_moment() {
    crashes(Consistency::JournalFull, 10..12);
}

#[test]
fn a_crash_under_a_journal_without_order_leaves_a_sound_image() {
    crashes(Consistency::JournalWriteback, 20..21);
}

/// Records a random history, with what there was after each operation.
fn random_run(seed: u64, consistency: Consistency) -> Run {
    let device = Arc::new(RecordingDevice::in_memory(make(JOURNALED)));
    let steps = Arc::new(HistoryClock::default());
    let clock = Arc::clone(&steps) as Arc<dyn Clock>;
    let access_times = AccessTimes::Never;
    let options = Ext2Options { clock: Arc::clone(&clock), access_times, ..options(consistency) };
    let files = Arc::new(Ext2::open(Arc::clone(&device) as Arc<dyn Device>, options).unwrap());
    empty(&files);
    let mut moments = Vec::new();
    let mut note = |is_synced| {
        let (outline, digest) = (outline(&files).unwrap(), tree_digest(&*files).unwrap());
        moments.push(Moment { at: device.event_count(), is_synced, outline, digest });
    };
    note(true);
    let mut pair = Pair::new(Arc::new(Numbered(Arc::clone(&files))), Model::new(clock));
    let (mut generator, mut random) = (Generator::new(seed), Random::new(seed));
    for step in 1..=250 {
        steps.set(step);
        let operation = generator.draw();
        if is_served(&operation, JOURNALED) {
            pair.apply(&operation).unwrap();
            note(false);
        }
        if random.once_in(9) {
            files.step().unwrap();
        }
        if random.once_in(20) {
            files.sync_all().unwrap();
            note(true);
        }
    }
    Run { device, promises: Vec::new(), moments }
}

#[test]
fn a_crash_of_a_random_history_under_a_journal_leaves_one_moment() {
    let judge = Judge::new();
    for (seed, consistency) in [(60, Consistency::JournalFull), (61, Consistency::Journal)] {
        let run = random_run(seed, consistency);
        let trace = run.device.trace();
        for (which, state) in states(&trace, seed).into_iter().enumerate() {
            // Before the history an image has what `mke2fs` puts into it.
            if state.cut < run.moments[0].at {
                continue;
            }
            let how = (state, which % E2FSCK_EACH == 0);
            let said = judged(&judge, (&run, consistency), &trace, how);
            said.map_err(|said| format!("seed {seed}, state {state}: {said}")).unwrap();
        }
    }
}

#[test]
fn a_rule_of_the_journal_that_is_left_out_is_found() {
    let judge = Judge::new();
    let full = Consistency::JournalFull;
    for (bug, consistency) in [
        (Planted::Journal(JournalBug::NoRevoke), Consistency::Journal),
        (Planted::Journal(JournalBug::NoFlush), full),
        (Planted::Journal(JournalBug::EarlyOriginals), full),
        (Planted::Cache(Bug::GroupDropped), full),
    ] {
        let is_found = (0..4).any(|seed| {
            let planted = Some(bug);
            let run =
                run_on(JOURNALED, true, seed, 150, Ext2Options { planted, ..options(consistency) });
            let trace = run.device.trace();
            let mut states = states(&trace, seed).into_iter();
            states.any(|state| judged(&judge, (&run, consistency), &trace, (state, false)).is_err())
        });
        assert!(is_found, "{bug:?}");
    }
}

/// Blocks of a file that look like those of a journal: they take back what other transactions have
/// changed, and commit that, each as a part of one of the transactions that may overwrite it.
fn forged(len: u32, sequence: u32, blocks: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for which in 0..len {
        let mut block = vec![0; 1024];
        let mut words = vec![MAGIC, if which % 2 == 0 { 5 } else { 2 }, sequence + which / 2 % 8];
        if which % 2 == 0 {
            words.push(16 + 4 * blocks.len() as u32);
            words.extend(blocks);
        }
        for (place, word) in words.into_iter().enumerate() {
            block[place * 4..place * 4 + 4].copy_from_slice(&word.to_be_bytes());
        }
        bytes.extend(block);
    }
    bytes
}

/// Syncs counts to a file beside a file of forged blocks; how often a count was lost.
fn lost_counts(bug: Option<JournalBug>) -> usize {
    let device = Arc::new(RecordingDevice::in_memory(make(JOURNALED)));
    let planted = bug.map(Planted::Journal);
    let access_times = AccessTimes::Never;
    let options = Ext2Options { planted, access_times, ..options(Consistency::JournalFull) };
    let files = Ext2::open(Arc::clone(&device) as Arc<dyn Device>, options).unwrap();
    let bait = files.create(USER, Ino::ROOT, name("bait"), FILE).unwrap().ino;
    let count = files.create(USER, Ino::ROOT, name("count"), FILE).unwrap().ino;
    let all: Vec<u32> = (1..200).collect();
    let mut lost = 0;
    let mut random = Random::new(7);
    for round in 0..160_u64 {
        // A lap of the ring takes about 18 transactions.
        let (len, sequence) = (40 + random.below(20), round + 15);
        let content = forged(len as u32, sequence as u32, &all);
        files.write(bait, 0, &content, WriteOptions::default()).unwrap();
        let set = SetAttributes { size: Some(round + 1), ..SetAttributes::default() };
        files.set_attributes(USER, count, &set).unwrap();
        files.sync_all().unwrap();
        let trace = device.trace();
        let image = trace.state_at(trace.events().len());
        let size = open_bytes(image).and_then(|files| {
            let found = files.lookup(Ino::ROOT, name("count"))?;
            Ok(found.size)
        });
        lost += usize::from(size != Ok(round + 1));
    }
    lost
}

#[test]
fn blocks_that_look_like_a_journal_are_escaped() {
    assert_eq!(lost_counts(None), 0);
    assert!(lost_counts(Some(JournalBug::NoEscape)) > 0);
}

#[test]
fn names_change_places_under_a_journal() {
    let device = Arc::new(RecordingDevice::in_memory(make(JOURNALED)));
    let files =
        Ext2::open(Arc::clone(&device) as Arc<dyn Device>, options(Consistency::Journal)).unwrap();
    let directory = NewNode::Directory { permissions: 0o755 };
    let file = files.create(USER, Ino::ROOT, name("file"), FILE).unwrap().ino;
    let below = files.create(USER, Ino::ROOT, name("d"), directory).unwrap().ino;
    let inner = files.create(USER, below, name("inner"), directory).unwrap().ino;
    files.sync_all().unwrap();
    let from = device.event_count();
    let mode = RenameMode::Exchange;
    files.rename(USER, Ino::ROOT, name("file"), below, name("inner"), mode).unwrap();
    files.close().unwrap();
    let (judge, trace) = (Judge::new(), device.trace());
    for state in trace.prefixes().chain(trace.subsets(6)).chain(trace.torn()) {
        if state.cut < from {
            continue;
        }
        let found = mounted(&judge, trace.image(state)).unwrap();
        let below = found.lookup(Ino::ROOT, name("d")).unwrap().ino;
        let at_top = found.lookup(Ino::ROOT, name("file")).unwrap().ino;
        let at_below = found.lookup(below, name("inner")).unwrap().ino;
        assert!([(file, inner), (inner, file)].contains(&(at_top, at_below)), "{state}");
    }
}

#[test]
fn a_file_that_is_cut_over_many_transactions_is_cut_after_a_crash() {
    let device = Arc::new(RecordingDevice::in_memory(make(JOURNALED)));
    let journal = options(Consistency::JournalFull);
    let files = Ext2::open(Arc::clone(&device) as Arc<dyn Device>, journal).unwrap();
    let file = files.create(USER, Ino::ROOT, name("file"), FILE).unwrap().ino;
    files.write(file, 0, &vec![7; 2_000_000], WriteOptions::default()).unwrap();
    files.create(USER, Ino::ROOT, name("open"), FILE).unwrap();
    files.unlink(Ino::ROOT, name("open")).unwrap();
    files.sync_all().unwrap();
    let from = device.event_count();
    let set = SetAttributes { size: Some(5_000), ..SetAttributes::default() };
    files.set_attributes(USER, file, &set).unwrap();
    files.sync_all().unwrap();
    let (judge, trace) = (Judge::new(), device.trace());
    for state in trace.prefixes().filter(|state| state.cut >= from) {
        let found = mounted(&judge, trace.image(state)).unwrap();
        let size = found.lookup(Ino::ROOT, name("file")).unwrap().size;
        assert!([5_000, 2_000_000].contains(&size), "{state}: {size}");
        judge.clean(&judge.replayed(&trace.image(state)).unwrap()).unwrap();
    }
}

#[test]
fn after_a_commit_that_failed_every_sync_is_an_error() {
    for consistency in [Consistency::Journal, Consistency::JournalFull] {
        for nth in 0..2 {
            let memory = Arc::new(MemoryDevice::from_bytes(make(JOURNALED)));
            let device = Arc::new(FaultyDevice::scripted(memory, Vec::new()));
            let below = Arc::clone(&device) as Arc<dyn Device>;
            let files = Ext2::open(below, options(consistency)).unwrap();
            files.sync_all().unwrap();
            let made = files.create(USER, Ino::ROOT, name("f"), FILE).unwrap().ino;
            files.write(made, 0, &[7; 5000], WriteOptions::default()).unwrap();
            device.set_script(vec![Fault::FailFlush { nth }]);
            assert!(files.sync_all().is_err(), "flush {nth} has failed");
            assert!(files.sync_all().is_err(), "what was lost is not durable");
            assert!(files.sync(made, SyncScope::All).is_err());
        }
    }
}
