//! Tests of tests: each rule of soft updates is left out, and some crash state is found in which
//! that shows.

use crate::crashes::{judged, states};
use crate::edges::{KEPT, SCRIPTS, Script, judged_on};
use crate::images::{SMALL, make, name, open_bytes};
use crate::judge::Judge;
use crate::oracle::is_served;
use crate::workload::{opened_with, run, stepped};
use marram_ext2::{Ext2, Ext2Options, Planted, Rule};
use marram_sim::device::RecordingDevice;
use marram_sim::{Generator, HistoryClock, Random, Slot, execute};
use marram_vfs::{
    Caller, FileSystem, Ino, Kind, NewNode, RenameMode, SetAttributes, SyncScope, WriteOptions,
    XattrMode,
};
use std::sync::Arc;

const USER: Caller = Caller { uid: 7, gid: 8 };
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
const DIRECTORY: NewNode<'_> = NewNode::Directory { permissions: 0o755 };

fn made(files: &Ext2, node: NewNode<'_>, (parent, text): (Ino, &str)) -> Ino {
    let made = files.create(USER, parent, name(text), node).unwrap();
    files.forget(made.ino, 1);
    made.ino
}

fn file_grows(planted: Option<Planted>) -> Result<(), String> {
    let prepare = |files: &Ext2| made(files, FILE, (Ino::ROOT, "f"));
    let act = |files: &Ext2, file: Ino| {
        files.write(file, 0, &[7; 3000], WriteOptions::default()).unwrap();
        files.write(file, 300_000, KEPT, WriteOptions::default()).unwrap();
    };
    judged_on(make(SMALL), stepped(planted), prepare, act, false)
}

/// Nothing but a new block of pointers: what is written beside it would be waited for anyway.
fn file_grows_far(planted: Option<Planted>) -> Result<(), String> {
    let prepare = |files: &Ext2| made(files, FILE, (Ino::ROOT, "f"));
    let act = |files: &Ext2, file: Ino| {
        files.write(file, 300_000, KEPT, WriteOptions::default()).unwrap();
    };
    judged_on(make(SMALL), stepped(planted), prepare, act, false)
}

fn file_gets_attributes(planted: Option<Planted>) -> Result<(), String> {
    let prepare = |files: &Ext2| made(files, FILE, (Ino::ROOT, "f"));
    let act = |files: &Ext2, file: Ino| {
        files.set_xattr(file, b"user.large", &[4; 700], XattrMode::Any).unwrap();
    };
    judged_on(make(SMALL), stepped(planted), prepare, act, false)
}

fn directories_come_and_go(planted: Option<Planted>) -> Result<(), String> {
    let prepare = |files: &Ext2| {
        let d = made(files, DIRECTORY, (Ino::ROOT, "d"));
        made(files, DIRECTORY, (d, "gone"));
        d
    };
    let act = |files: &Ext2, d: Ino| {
        files.remove_directory(d, name("gone")).unwrap();
        files.sync_all().unwrap();
        // The count of the parent waits for the one that is removed.
        let gone = made(files, DIRECTORY, (d, "also-gone"));
        files.sync(gone, SyncScope::All).unwrap();
        files.remove_directory(d, name("also-gone")).unwrap();
        made(files, DIRECTORY, (d, "new"));
        let newer = made(files, DIRECTORY, (d, "newer"));
        files.sync(newer, SyncScope::All).unwrap();
    };
    judged_on(make(SMALL), stepped(planted), prepare, act, false)
}

fn names_are_linked_and_replaced(planted: Option<Planted>) -> Result<(), String> {
    let prepare = |files: &Ext2| {
        let d = made(files, DIRECTORY, (Ino::ROOT, "d"));
        let file = made(files, FILE, (Ino::ROOT, "f"));
        let other = made(files, FILE, (d, "other"));
        files.write(other, 0, &[1; 20_000], WriteOptions::default()).unwrap();
        (d, file)
    };
    let act = |files: &Ext2, (d, file): (Ino, Ino)| {
        files.link(file, d, name("linked")).unwrap();
        files.sync_all().unwrap();
        files.rename(USER, d, name("linked"), d, name("other"), RenameMode::Replace).unwrap();
        files.sync_all().unwrap();
        files.rename(USER, Ino::ROOT, name("f"), d, name("moved"), RenameMode::Replace).unwrap();
    };
    judged_on(make(SMALL), stepped(planted), prepare, act, false)
}

/// A file is replaced by one that has just got the same end, while the clock stands still: so no
/// time of the new one lets its changes come one after the other. A block of pointers that is there
/// already makes the new size wait longer than a name does.
fn content_is_replaced(planted: Option<Planted>) -> Result<(), String> {
    const BLOCKS_BYTES: usize = 20 << 10;
    let prepare = |files: &Ext2| {
        let [file, new] = ["f", "n"].map(|text| made(files, FILE, (Ino::ROOT, text)));
        files.write(file, 0, KEPT, WriteOptions::default()).unwrap();
        files.write(new, 0, &[7; BLOCKS_BYTES], WriteOptions::default()).unwrap();
        new
    };
    let act = |files: &Ext2, new: Ino| {
        files.append(new, KEPT, WriteOptions::default()).unwrap();
        let mode = RenameMode::Replace;
        files.rename(USER, Ino::ROOT, name("n"), Ino::ROOT, name("f"), mode).unwrap();
    };
    let options = Ext2Options { clock: Arc::new(HistoryClock::default()), ..stepped(planted) };
    judged_on(make(SMALL), options, prepare, act, true)
}

/// A file of these bytes is cut, and grows again: what was cut off is not there any more.
fn grows_again(
    planted: Option<Planted>,
    old: &[u8],
    act: &dyn Fn(&Ext2, Ino),
    new: &[u8],
) -> Result<(), String> {
    let device = Arc::new(RecordingDevice::in_memory(make(SMALL)));
    let files = opened_with(&device, stepped(planted));
    let file = made(&files, FILE, (Ino::ROOT, "f"));
    files.write(file, 0, old, WriteOptions::default()).unwrap();
    files.sync_all().unwrap();
    let from = device.event_count();
    act(&files, file);
    files.sync(file, SyncScope::All).unwrap();
    let synced = device.event_count();
    let trace = device.trace();
    let states = trace.prefixes().chain(trace.subsets(6)).chain(trace.torn());
    for state in states.filter(|state| state.cut >= from) {
        let files = open_bytes(trace.image(state)).map_err(|error| error.to_string())?;
        let (ino, mut found) = (files.lookup(Ino::ROOT, name("f")).unwrap().ino, Vec::new());
        files.read(ino, 0, 1 << 20, &mut found).unwrap();
        let is_durable = state.cut >= synced;
        if found != new && (is_durable || found.len() == new.len() && found != old) {
            return Err(format!("state {state}: {} bytes, durable: {is_durable}", found.len()));
        }
    }
    Ok(())
}

fn resize(files: &Ext2, file: Ino, size: u64) {
    let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
    files.set_attributes(USER, file, &set).unwrap();
}

/// Pointers to blocks behind the old end lie in another block than the size.
fn file_is_cut_and_extended(planted: Option<Planted>) -> Result<(), String> {
    const HALF: usize = 15 << 10;
    let act = |files: &Ext2, file: Ino| {
        resize(files, file, HALF as u64);
        resize(files, file, 2 * HALF as u64);
    };
    let new = [[7; HALF], [0; HALF]].concat();
    grows_again(planted, &[7; 2 * HALF], &act, &new)
}

/// Zeros are written where memory has some already, which are still to be written.
fn file_is_cut_and_written(planted: Option<Planted>) -> Result<(), String> {
    let act = |files: &Ext2, file: Ino| {
        resize(files, file, 100);
        files.write(file, 100, &[0; 200], WriteOptions::default()).unwrap();
    };
    grows_again(planted, &[7; 4096], &act, &[&[7; 100][..], &[0; 200]].concat())
}

/// Whether some crash of a random history shows it.
fn is_found_in_histories(judge: &Judge, planted: Planted) -> bool {
    (40..46).any(|seed| {
        let device = Arc::new(RecordingDevice::in_memory(make(SMALL)));
        let files = opened_with(&device, stepped(Some(planted)));
        let (mut generator, mut random) = (Generator::new(seed), Random::new(seed));
        let root = |_: Slot| Ino::ROOT;
        for _ in 0..120 {
            let operation = generator.draw();
            if is_served(&operation, SMALL) {
                let _answer = execute(&*files, &operation, &root);
            }
            if random.once_in(10) && files.step().is_err() {
                break;
            }
        }
        let trace = device.trace();
        states(&trace, seed).into_iter().any(|state| judge.soft(&trace.image(state)).is_err())
    })
}

/// Whether some crash of programs' habits shows it.
fn is_found_in_runs(judge: &Judge, planted: Planted) -> bool {
    let options = Ext2Options { planted: Some(planted), ..Ext2Options::default() };
    (0..4).any(|seed| {
        let run = run(seed, 120, options.clone());
        let trace = run.device.trace();
        let mut states = states(&trace, seed).into_iter();
        states.any(|state| judged(judge, &run, &trace, state).is_err())
    })
}

#[test]
fn a_block_of_pointers_that_waits_for_nothing_is_found() {
    file_grows_far(None).unwrap();
    let planted = Planted::Rule(Rule::PointersAfterBelow);
    assert!(file_grows_far(Some(planted)).is_err());
}

#[test]
fn each_rule_of_soft_updates_that_is_left_out_is_found() {
    let judge = Judge::new();
    let own: [Script; 8] = [
        file_grows,
        file_grows_far,
        file_gets_attributes,
        directories_come_and_go,
        names_are_linked_and_replaced,
        content_is_replaced,
        file_is_cut_and_extended,
        file_is_cut_and_written,
    ];
    own.iter().try_for_each(|script| script(None)).unwrap();
    let is_missed = |rule: &Rule| {
        let planted = Planted::Rule(*rule);
        let by_script = |script: &Script| script(Some(planted)).is_err();
        !own.iter().any(by_script)
            && !SCRIPTS.iter().any(by_script)
            && !is_found_in_runs(&judge, planted)
            && !is_found_in_histories(&judge, planted)
    };
    let (some, others) = Rule::ALL.split_at(Rule::ALL.len() / 2);
    let missed: Vec<Rule> = std::thread::scope(|scope| {
        let missed = |rules: &'static [Rule]| {
            scope.spawn(|| rules.iter().copied().filter(is_missed).collect::<Vec<Rule>>())
        };
        [some, others].map(missed).into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    assert!(missed.is_empty(), "no crash shows that these were left out: {missed:?}");
}
