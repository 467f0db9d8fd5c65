//! Every state that a crash of a run could leave: judged by `e2fsck`, mounted, and compared with
//! what was promised.

use crate::images::{SMALL, make, name, open_bytes};
use crate::judge::Judge;
use crate::oracle::is_served;
use crate::workload::{Run, check, contents, opened, run};
use marram_device::Device;
use marram_ext2::{Consistency, Ext2Options, Planted};
use marram_patch::Bug;
use marram_sim::device::{CrashState, RecordingDevice, Trace};
use marram_sim::{Generator, Random, Slot, execute};
use marram_vfs::{Caller, FileSystem, GroupSync, Ino, Kind, NewNode, SyncScope};
use std::sync::Arc;

const USER: Caller = Caller { uid: 7, gid: 8 };

/// States of each run.
const STATES: usize = 150;

/// Some of the states of a trace.
pub(crate) fn states(trace: &Trace, seed: u64) -> Vec<CrashState> {
    states_of(trace, seed, STATES)
}

/// So many of the states of a trace: after events, by subsets, torn, and by seeds.
pub(crate) fn states_of(trace: &Trace, seed: u64, wanted: usize) -> Vec<CrashState> {
    let mut all: Vec<CrashState> =
        trace.prefixes().chain(trace.subsets(6)).chain(trace.torn()).collect();
    all.extend(trace.seeded_groups(seed, 6, 6));
    all.extend(trace.seeded(seed, wanted / 4));
    let mut random = Random::new(seed);
    while all.len() > wanted {
        all.swap_remove(random.below(all.len() as u64) as usize);
    }
    all
}

/// Judges one state of a run; whether `e2fsck` finds something that it may find.
pub(crate) fn judged(
    judge: &Judge,
    run: &Run,
    trace: &Trace,
    state: CrashState,
) -> Result<bool, String> {
    let image = trace.image(state);
    let leaks = judge.soft(&image)?;
    let files = open_bytes(image).map_err(|error| error.to_string())?;
    check(&run.promises, state.cut, &contents(&files)?)?;
    Ok(leaks)
}

#[test]
fn a_crash_under_soft_updates_leaves_what_was_promised() {
    let (judge, mut count) = (Judge::new(), 0);
    for seed in 0..3 {
        let run = run(seed, 150, Ext2Options::default());
        let trace = run.device.trace();
        judge.clean(&trace.state_at(trace.events().len())).unwrap();
        for state in states(&trace, seed) {
            let said = judged(&judge, &run, &trace, state);
            said.map_err(|said| format!("run {seed}, state {state}: {said}")).unwrap();
            count += 1;
        }
    }
    println!("{count} states");
    assert!(count > 400, "{count}");
}

#[test]
fn a_crash_of_a_random_history_leaves_a_sound_image() {
    let judge = Judge::new();
    for seed in 40..42 {
        let device = Arc::new(RecordingDevice::in_memory(make(SMALL)));
        let files = opened(&device);
        let (mut generator, mut random) = (Generator::new(seed), Random::new(seed));
        let root = |_: Slot| Ino::ROOT;
        for _ in 0..150 {
            let operation = generator.draw();
            if is_served(&operation, SMALL) {
                // What it answers is the oracle's business.
                let _answer = execute(&*files, &operation, &root);
            }
            if random.once_in(10) {
                files.step().unwrap();
            }
        }
        files.sync_all().unwrap();
        let trace = device.trace();
        for state in states(&trace, seed) {
            let said = judge.soft(&trace.image(state));
            said.map_err(|said| format!("seed {seed}, state {state}: {said}")).unwrap();
        }
    }
}

#[test]
fn an_image_goes_on_after_a_crash() {
    let judge = Judge::new();
    let run = run(9, 60, Ext2Options::default());
    let trace = run.device.trace();
    let mut random = Random::new(5);
    for _ in 0..12 {
        let cut = random.below(trace.events().len() as u64) as usize;
        let state = CrashState { cut, fate: marram_sim::device::Fate::Seeded(random.number()) };
        let device = Arc::new(RecordingDevice::in_memory(trace.image(state)));
        let files = opened(&device);
        let before = contents(&files).unwrap();
        let root = |_: Slot| Ino::ROOT;
        let mut generator = Generator::new(random.number());
        for _ in 0..40 {
            let operation = generator.draw();
            if is_served(&operation, SMALL) {
                let _answer = execute(&*files, &operation, &root);
            }
        }
        files.close().unwrap();
        let mut image = vec![0; 4 << 20];
        device.read(0, &mut image).unwrap();
        judge.soft(&image).map_err(|said| format!("{state}: {said}")).unwrap();
        let after = contents(&open_bytes(image).unwrap()).unwrap();
        let kept = |path: &&String| path.contains("/f") && before.get(*path) == after.get(*path);
        let expected = before.keys().filter(|path| path.contains("/f")).count();
        assert_eq!(before.keys().filter(kept).count(), expected, "{state}");
    }
}

#[test]
fn an_entry_that_looks_as_the_one_that_was_there_keeps_its_order() {
    let device = Arc::new(RecordingDevice::in_memory(make(SMALL)));
    let files = opened(&device);
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let create = |text| assert!(files.create(USER, Ino::ROOT, name(text), node).is_ok());
    let unlink = |text| files.unlink(Ino::ROOT, name(text)).unwrap();
    ["a1", "b1", "c1"].into_iter().for_each(create);
    files.forget_all();
    files.sync_all().unwrap();
    unlink("b1");
    files.sync_all().unwrap();
    // Where b1 was, and as long: the entry behind it is then removed by a number of this one.
    create("d1");
    unlink("c1");
    files.sync_all().unwrap();
    let (judge, trace) = (Judge::new(), device.trace());
    for state in trace.prefixes().chain(trace.subsets(6)) {
        judge.soft(&trace.image(state)).map_err(|said| format!("{state}: {said}")).unwrap();
    }
}

#[test]
fn syncs_of_many_files_share_their_flushes() {
    let device = Arc::new(RecordingDevice::in_memory(make(SMALL)));
    let files = opened(&device);
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let made: Vec<(Ino, SyncScope)> = (0..20)
        .map(|which| files.create(USER, Ino::ROOT, name(&format!("f{which}")), node).unwrap())
        .map(|made| (made.ino, SyncScope::All))
        .collect();
    let before = files.counters().flushes;
    assert!(files.sync_many(&made).iter().all(Result::is_ok));
    let flushes = files.counters().flushes - before;
    assert!(flushes <= 3, "{flushes} flushes for 20 new files");
}

/// Whether a run with a planted bug leaves some state that is not as promised.
fn is_found(judge: &Judge, options: &Ext2Options) -> bool {
    (0..3).any(|seed| {
        let run = run(seed, 120, options.clone());
        let trace = run.device.trace();
        let mut states = states(&trace, seed).into_iter();
        states.any(|state| judged(judge, &run, &trace, state).is_err())
    })
}

#[test]
fn an_order_that_is_left_out_is_found() {
    let judge = Judge::new();
    let unordered = Ext2Options { consistency: Some(Consistency::Async), ..Ext2Options::default() };
    assert!(is_found(&judge, &unordered), "no order at all");
    // Which changes these are depends on the operation: inodes, entries, pointers, counts.
    let bugs = (1..4).map(Bug::Unordered).chain([Bug::NothingKept]);
    for bug in bugs {
        let planted = Some(Planted::Cache(bug));
        assert!(is_found(&judge, &Ext2Options { planted, ..Ext2Options::default() }), "{bug:?}");
    }
}
