//! One directory of a pool goes back, and comes again: whatever a power cut leaves is one of the
//! states before and after, with the entries that belong to it, and the verifier finds nothing.

use crate::paths::{ROOT, find, make, open, place};
use crate::small_pool;
use crate::soundness::assert_sound;
use marram_device::{Device, MemoryDevice};
use marram_history::{ChangeSet, DirectoryRollback, MergeOptions, MergeSides};
use marram_pool::{Author, OpenOptions, Pool, Reversal};
use marram_posix::Posix;
use marram_sim::device::{CrashState, RecordingDevice};
use marram_sim::{Random, pattern};
use marram_store::{DatasetName, Source, Store};
use marram_vfs::{FileSystem, Ino, Kind, NewNode, RenameMode, WriteOptions};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Histories of which only the end is looked at, and such of which every crash is.
const HISTORIES: u64 = 60;
const CRASHED: u64 = 3;
/// Torn states that are looked at, besides every prefix of the writes.
const TORN: usize = 40;
/// The directory that goes back.
const DIRECTORY: &str = "/d";

/// Paths, with what is there.
type Tree = BTreeMap<String, String>;

fn open_pool(device: Arc<dyn Device>) -> Arc<Pool> {
    let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap();
    Arc::new(pool.acting_for(Author { user: Some(1), command: "test".to_owned() }))
}

/// One change, if it can be done.
fn step(files: &Posix, random: &mut Random) {
    let path = |random: &mut Random| {
        let above = random.pick(&["", "/d", "/d", "/d/e", "/d/f", "/g", "/d/g"]);
        format!("{above}/{}", random.pick(&["a", "b", "c", "e", "f", "g"]))
    };
    let (one, other) = (path(random), path(random));
    let _may_be_refused = match random.below(12) {
        0 => make(files, &one, NewNode::Directory { permissions: 0o755 }).map(|_| ()),
        1..4 => {
            let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
            make(files, &one, node).map(|_| ())
        }
        4..7 => find(files, &one).and_then(|ino| {
            let len = random.pick(&[10, 5000, 140_000]);
            let bytes = pattern(random.below(256), len);
            files.write(ino, random.pick(&[0, 4096, 100_000]), &bytes, WriteOptions::default())
        }),
        7 | 8 => place(files, &one).and_then(|(a, from)| {
            let (b, to) = place(files, &other)?;
            files.rename(ROOT, a, from, b, to, RenameMode::Replace)
        }),
        9 => find(files, &one).and_then(|ino| {
            let (directory, name) = place(files, &other)?;
            files.link(ino, directory, name)?;
            files.forget(ino, 1);
            Ok(())
        }),
        10 => place(files, &one).and_then(|(directory, name)| files.unlink(directory, name)),
        _ => place(files, &one).and_then(|(at, name)| files.remove_directory(at, name)),
    };
}

fn tree(files: &Posix) -> Tree {
    let (mut all, mut waiting) = (Tree::new(), vec![(Ino::ROOT, String::new())]);
    while let Some((directory, path)) = waiting.pop() {
        let mut entries = Vec::new();
        files
            .read_directory(directory, 0, false, &mut |entry| {
                entries.push((entry.ino, String::from_utf8_lossy(entry.name).into_owned()));
                true
            })
            .unwrap();
        for (ino, name) in entries {
            let path = format!("{path}/{name}");
            let found = files.attributes(ino).unwrap();
            let mut content = Vec::new();
            if found.kind == Kind::Directory {
                waiting.push((ino, path.clone()));
            } else {
                let len = usize::try_from(found.size).unwrap();
                files.read(ino, 0, len, &mut content).unwrap();
            }
            let sum: u64 = content
                .iter()
                .fold(0, |sum, byte| u64::from(*byte).wrapping_add(sum.wrapping_mul(1_000_003)));
            let text = format!("{:?} {} {sum:x} {:?}", found.kind, content.len(), found.modified);
            all.insert(path, text);
        }
    }
    all
}

fn is_below(path: &str) -> bool {
    path == DIRECTORY || path.starts_with("/d/")
}

/// What is expected of a rollback: below the directory the past, outside what there is.
fn expected(now: &Tree, past: &Tree) -> Tree {
    let outside = now.iter().filter(|(path, _)| !is_below(path));
    let below = past.iter().filter(|(path, _)| is_below(path));
    outside.chain(below).map(|(path, text)| (path.clone(), text.clone())).collect()
}

fn roll_back(pool: &Pool, files: &Posix) -> Option<ChangeSet> {
    let (dataset, to) = (DatasetName::root(), "root@s".parse().unwrap());
    let directory = find(files, DIRECTORY).unwrap();
    let rollback = DirectoryRollback { dataset: &dataset, to: &to, directory, keep: None };
    marram_history::roll_back_directory(files, pool, rollback).unwrap()
}

/// Takes the last operation, a rollback, back.
fn undo(pool: &Pool, files: &Posix) {
    let (number, reversal) = pool.reversal(None).unwrap();
    let Reversal::Merge { dataset, base, back_to, root_object, .. } = reversal else {
        panic!("{reversal:?}");
    };
    let root = Ino(root_object);
    let sides = MergeSides { dataset: &dataset, base: &base, fork: &back_to, root };
    let report =
        marram_history::merge(files, &pool.taking_back(number), sides, &MergeOptions::default())
            .unwrap();
    assert!(report.applied, "{:?}", report.conflicts);
}

/// A pool with a snapshot and changes since; returns what the snapshot has.
fn prepare(pool: &Pool, files: &Posix, random: &mut Random) -> Tree {
    for path in ["/d", "/d/e", "/d/f", "/g"] {
        make(files, path, NewNode::Directory { permissions: 0o755 }).unwrap();
    }
    (0..60).for_each(|_| step(files, random));
    let root = DatasetName::root();
    if find(files, DIRECTORY).is_err() {
        make(files, DIRECTORY, NewNode::Directory { permissions: 0o700 }).unwrap();
    }
    pool.snapshot(&root, "s").unwrap();
    let past = tree(files);
    let directory = find(files, DIRECTORY).unwrap();
    let count = 1 + random.below(40);
    for _ in 0..count {
        step(files, random);
        if random.once_in(8) {
            pool.commit().unwrap();
        }
    }
    if find(files, DIRECTORY) != Ok(directory) {
        // It was moved or exchanged: the past is what it was where it is now.
        return Tree::new();
    }
    past
}

#[test]
fn a_pool_is_in_order_after_a_directory_has_gone_back_and_come_again() {
    let mut count = 0;
    for seed in 0..HISTORIES {
        let mut random = Random::new(seed);
        let memory = Arc::new(MemoryDevice::from_bytes(small_pool::empty("back")));
        let pool = open_pool(memory.clone());
        let files = open(&pool, "root");
        let past = prepare(&pool, &files, &mut random);
        if past.is_empty() {
            continue;
        }
        let before = tree(&files);
        let wanted = expected(&before, &past);
        let changes = roll_back(&pool, &files).is_some();
        assert_eq!(tree(&files), wanted, "seed {seed}");
        if changes {
            count += 1;
            (0..random.below(3)).for_each(|_| step(&files, &mut random));
        }
        while files.reclaim_step(1000).unwrap() {}
        drop(files);
        pool.close().unwrap();
        drop(pool);
        assert_sound(&*memory, &format!("seed {seed}"));
    }
    assert!(count > HISTORIES / 2, "{count} of {HISTORIES} changed something");
}

#[test]
fn a_power_cut_leaves_a_directory_before_or_after_its_way_back() {
    let mut crashed = 0;
    for seed in 0.. {
        let device = Arc::new(RecordingDevice::in_memory(small_pool::empty("back")));
        let pool = open_pool(device.clone());
        let files = open(&pool, "root");
        let past = prepare(&pool, &files, &mut Random::new(seed));
        let before = tree(&files);
        let after = expected(&before, &past);
        if past.is_empty() || before == after {
            continue;
        }
        pool.commit().unwrap();
        let entries = pool.operations().unwrap().len();
        device.mark(0);
        let mut states = vec![before.clone()];
        for number in 1..4 {
            match number {
                1 => drop(roll_back(&pool, &files)),
                _ => undo(&pool, &files),
            }
            device.mark(number);
            states.push(tree(&files));
        }
        assert_eq!(states[1], after, "seed {seed}");
        assert_eq!(paths(&states[2]), paths(&before), "seed {seed}");
        assert_eq!(paths(&states[3]), paths(&after), "seed {seed}");
        drop((files, pool));
        look_at_crashes(&device, seed, &states, entries);
        crashed += 1;
        if crashed == CRASHED {
            break;
        }
    }
}

/// Paths with what is there, but no times: an undo is a merge, which keeps the later ones.
fn paths(tree: &Tree) -> Vec<(String, String)> {
    let words = |text: &String| text.split(' ').take(3).collect::<Vec<_>>().join(" ");
    tree.iter().map(|(path, text)| (path.clone(), words(text))).collect()
}

fn look_at_crashes(device: &RecordingDevice, seed: u64, states: &[Tree], entries: usize) {
    let trace = device.trace();
    let all = trace.prefixes().chain(trace.seeded(seed, TORN));
    let all: Vec<CrashState> = all.filter(|state| trace.last_mark(state.cut).is_some()).collect();
    assert!(all.len() > 20, "{} states", all.len());
    for state in all {
        let memory = Arc::new(MemoryDevice::from_bytes(trace.image(state)));
        let pool = open_pool(memory.clone());
        let count = pool.operations().unwrap().len() - entries;
        let acknowledged = usize::try_from(trace.last_mark(state.cut).unwrap()).unwrap();
        assert!(count >= acknowledged, "seed {seed}, {state}: {count} of {acknowledged}");
        let files = open(&pool, "root");
        assert_eq!(tree(&files), states[count], "seed {seed}, {state}");
        drop((files, pool));
        assert_sound(&*memory, &format!("seed {seed}, {state}"));
    }
}

/// A source that is a snapshot of the dataset can be gone back to as well as any other.
#[test]
fn the_state_before_can_be_gone_back_to() {
    let memory = Arc::new(MemoryDevice::from_bytes(small_pool::empty("back")));
    let pool = open_pool(memory.clone());
    let files = open(&pool, "root");
    make(&files, "/d", NewNode::Directory { permissions: 0o755 }).unwrap();
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let ino = make(&files, "/d/a", node).unwrap();
    let dataset = DatasetName::root();
    let mut states = Vec::new();
    for number in 0..4 {
        let bytes = pattern(number, 300_000);
        files.write(ino, 0, &bytes, WriteOptions::default()).unwrap();
        pool.snapshot(&dataset, &format!("s{number}")).unwrap();
        states.push(tree(&files));
    }
    let directory = find(&files, "/d").unwrap();
    for which in [0, 3, 1, 1, 2, 0] {
        let to: Source = format!("root@s{which}").parse().unwrap();
        let rollback = DirectoryRollback { dataset: &dataset, to: &to, directory, keep: None };
        marram_history::roll_back_directory(&files, &*pool, rollback).unwrap();
        assert_eq!(tree(&files), states[which], "back to {to}");
    }
    for number in 0..4 {
        pool.destroy(&format!("root@s{number}").parse().unwrap(), false).unwrap();
    }
    assert_eq!(tree(&files), states[0]);
    drop(files);
    pool.close().unwrap();
    drop(pool);
    assert_sound(&*memory, "at the end");
}
