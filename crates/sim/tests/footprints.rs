//! What deleting a file or directory would give back is what comes back: over random histories
//! with copies, links, snapshots, forks and merges, each promise is kept to the byte.

use crate::paths::{ROOT, find, make, open, place};
use crate::small_pool;
use marram_device::{Device, MemoryDevice};
use marram_history::{MergeOptions, MergeSides};
use marram_pool::{OpenOptions, Pool};
use marram_posix::{Footprint, FootprintOptions, Posix, footprints};
use marram_sim::{Random, pattern};
use marram_store::{DatasetName, FrozenViews, Key, Source, Store, kind};
use marram_vfs::{
    FileSystem, Ino, Kind, Name, NewNode, RenameMode, Sharing, WriteOptions, XattrMode,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const HISTORIES: u64 = 40;
const ALL: FootprintOptions = FootprintOptions { depth: 99, top: None, blocks_max: 1 << 20 };

/// One change, if it can be done.
fn step(files: &Posix, random: &mut Random) {
    let path = |random: &mut Random| {
        let above = random.pick(&["", "d", "d/e", "d/e/g", "f", "d/f"]);
        format!("{above}/{}", random.pick(&["a", "b", "c", "e", "f", "g"]))
    };
    let (one, other) = (path(random), path(random));
    let offset = random.pick(&[0, 0, 4096, 131_072]);
    let _may_be_refused = match random.below(16) {
        0 | 1 => make(files, &one, NewNode::Directory { permissions: 0o755 }).map(|_| ()),
        2..5 => {
            let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
            make(files, &one, node).map(|_| ())
        }
        5..8 => find(files, &one).and_then(|ino| {
            let bytes = pattern(random.below(256), random.pick(&[10, 5000, 140_000, 300_000]));
            files.write(ino, offset, &bytes, WriteOptions::default())
        }),
        8..11 => find(files, &one).and_then(|from| {
            let to = find(files, &other)?;
            let to_offset = random.pick(&[0, 131_072, 262_144]);
            files.share_range(from, 0, to, to_offset, random.pick(&[4096, 131_072])).map(|_| ())
        }),
        11 => place(files, &one).and_then(|(a, from)| {
            let (b, to) = place(files, &other)?;
            files.rename(ROOT, a, from, b, to, RenameMode::Replace)
        }),
        12 | 13 => find(files, &one).and_then(|ino| {
            let (directory, name) = place(files, &other)?;
            files.link(ino, directory, name)?;
            files.forget(ino, 1);
            Ok(())
        }),
        14 => find(files, &one).and_then(|ino| {
            let value = pattern(random.below(9), random.pick(&[20, 6000]));
            files.set_xattr(ino, b"user.a", &value, XattrMode::Any)
        }),
        _ => place(files, &one).and_then(|(directory, name)| files.unlink(directory, name)),
    };
}

/// Removes what is at a path, with all that is below it.
fn remove(files: &Posix, directory: Ino, name: &[u8]) {
    let name = Name::new(name).unwrap();
    let found = files.lookup(directory, name).unwrap();
    files.forget(found.ino, 1);
    if found.kind != Kind::Directory {
        return files.unlink(directory, name).unwrap();
    }
    let mut below = Vec::new();
    let mut note = |entry: marram_vfs::DirectoryEntry<'_>| {
        below.push(entry.name.to_vec());
        true
    };
    files.read_directory(found.ino, 0, false, &mut note).unwrap();
    below.iter().for_each(|name| remove(files, found.ino, name));
    files.remove_directory(directory, name).unwrap();
}

/// Bytes of all blocks that items of any dataset or snapshot refer to, each block once.
fn content_bytes(pool: &Pool) -> u64 {
    let mut blocks = BTreeMap::new();
    for report in pool.list().unwrap() {
        let view = pool.open(&report.source).unwrap();
        view.scan(Key::MIN, Key::MAX, &mut |key, item| {
            if let Some(block) = item.block.as_ref().filter(|_| key.kind != kind::REFERENCES) {
                let place = view.place_of(block);
                blocks.extend(place.address.map(|address| (address, place.stored_bytes)));
            }
            true
        })
        .unwrap();
    }
    blocks.into_values().sum()
}

fn settle(pool: &Pool, files: &Posix) {
    while files.reclaim_step(1000).unwrap() {}
    pool.commit().unwrap();
    while pool.reclaim_step().unwrap() {}
}

fn told(pool: &Pool, options: FootprintOptions) -> Vec<Footprint> {
    let frozen = pool.frozen(&Source::live(DatasetName::root())).unwrap();
    footprints(frozen, Ino::ROOT, options).unwrap().rows
}

/// A fork changes something, and what it has changed comes back: blocks with two owners.
fn merge_a_fork(pool: &Pool, files: &Posix, name: &str, random: &mut Random) {
    let fork: DatasetName = name.parse().unwrap();
    pool.fork(&DatasetName::root(), &fork, 1).unwrap();
    let forked = open(pool, name);
    (0..8).for_each(|_| step(&forked, random));
    settle(pool, &forked);
    let base = pool.report(&Source::live(fork.clone())).unwrap().origin.unwrap();
    let (dataset, fork) = (DatasetName::root(), Source::live(fork));
    let sides = MergeSides { dataset: &dataset, base: &base, fork: &fork, root: Ino::ROOT };
    marram_history::merge(files, pool, sides, &MergeOptions::default()).unwrap();
    drop(forked);
    if random.once_in(2) {
        pool.destroy(&fork, false).unwrap();
    }
}

/// A pool with a history.
fn grown(seed: u64) -> (Arc<Pool>, Posix, Random) {
    let mut random = Random::new(seed);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(small_pool::empty("space")));
    let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap();
    let files = open(&pool, "root");
    for number in 0..160 {
        step(&files, &mut random);
        match random.below(60) {
            0..3 => pool.commit().unwrap(),
            3 => pool.snapshot(&DatasetName::root(), &format!("s{number}")).unwrap(),
            4 => merge_a_fork(&pool, &files, &format!("k{number}"), &mut random),
            _ => (),
        }
    }
    settle(&pool, &files);
    (pool, files, random)
}

#[test]
fn what_deleting_promises_comes_back() {
    let (mut promised, mut shared) = (0, 0);
    for seed in 0..HISTORIES {
        let (pool, files, mut random) = grown(seed);
        loop {
            let rows = told(&pool, ALL);
            let few = FootprintOptions { blocks_max: 8, ..ALL };
            assert_eq!(told(&pool, few), rows, "seed {seed}: with little memory");
            let rows: Vec<&Footprint> = rows.iter().filter(|row| !row.path.is_empty()).collect();
            let Some(row) = rows.get(random.below(rows.len().max(1) as u64) as usize) else {
                break;
            };
            let before = content_bytes(&pool);
            let path = String::from_utf8(row.path.clone()).unwrap();
            let (directory, name) = place(&files, &path).unwrap();
            remove(&files, directory, name.as_bytes());
            settle(&pool, &files);
            assert_eq!(before - content_bytes(&pool), row.released_bytes, "seed {seed}: {row:?}");
            promised += row.released_bytes;
            shared += row.referenced_bytes - row.released_bytes;
        }
    }
    assert!(promised > 400_000 && shared > 400_000, "{promised} and {shared}");
}

#[test]
fn the_first_are_those_of_which_most_would_come_back() {
    let (pool, _files, _) = grown(3);
    let mut all = told(&pool, ALL);
    all.sort_by_key(|row| std::cmp::Reverse((row.released_bytes, row.referenced_bytes)));
    let top = told(&pool, FootprintOptions { top: Some(5), ..ALL });
    let bytes = |rows: &[Footprint]| -> Vec<(u64, u64)> {
        rows.iter().map(|row| (row.released_bytes, row.referenced_bytes)).collect()
    };
    assert_eq!(bytes(&top), bytes(&all[..5]));
    let children = told(&pool, FootprintOptions::default());
    assert!(children.iter().all(|row| !row.path.contains(&b'/')));
    assert_eq!(children[0], *all.iter().find(|row| row.path.is_empty()).unwrap());
}
