//! What the engine leaves on a device is in order, after every commit, and after every crash.

use crate::fixture::{Files, Home, Random, name, new_home, noise, open_home};
use marram_device::MemoryDevice;
use marram_format::pointer::{PIECES_MAX, Pointer};
use marram_vfs::{
    Allocate, Copying, FileSystem, Ino, Kind, NewNode, Ranges, RenameMode, SetAttributes, XattrMode,
};
use std::sync::Arc;

/// A bit of everything that a file system can hold.
fn fill(files: &Files) {
    let directory = files.directory(1, "directory");
    let nested = files.directory(directory, "nested");
    files.file(nested, "small", b"a few bytes");
    files.file(nested, "large", &noise(1, 3 << 20));
    let zeros = files.file(1, "zeros", &vec![0; 1 << 20]);
    files.posix.link(Ino(zeros), Ino(nested), name("also zeros")).unwrap();
    files.posix.forget(Ino(zeros), 1);
    files.make(1, "link", NewNode::Symlink { target: b"directory/nested" });
    let fifo = NewNode::Node { kind: Kind::Fifo, permissions: 0o600, device: 0 };
    files.make(1, "fifo", fifo);
    let set = |name: &[u8], value: &[u8]| {
        files.posix.set_xattr(Ino(zeros), name, value, XattrMode::Any).unwrap();
    };
    set(b"user.short", b"value");
    set(b"user.long", &noise(2, 60_000));
    set(b"security.capability", b"capable");
    let sparse = files.file(1, "sparse", b"");
    files.write(sparse, 10 << 20, &noise(3, 200_000));
    files.posix.allocate(Ino(sparse), Allocate::ReserveKeepSize, 20 << 20, 1 << 20).unwrap();
    files.posix.allocate(Ino(sparse), Allocate::PunchHole, (10 << 20) + 50_000, 70_000).unwrap();
}

/// Blocks that several sections share: overwritten in the middle, and copied by reference.
fn share(files: &Files) {
    let large = files.find(files.find(files.find(1, "directory"), "nested"), "large");
    files.commit();
    files.write(large, 300_000, &noise(4, 10_000));
    files.commit();
    let copy = files.file(1, "copy", b"");
    files.posix.copy_range(Ino(large), 0, Ino(copy), 0, 2 << 20).unwrap();
    files.commit();
    files.write(large, 100_000, &noise(5, 30_000));
    files.write(copy, 1_000_000, &noise(6, 30_000));
    files.posix.copy_range(Ino(copy), 500_000, Ino(copy), 3_000_000, 400_000).unwrap();
    files.commit();
    let size = SetAttributes { size: Some(777_777), ..SetAttributes::default() };
    files.posix.set_attributes(crate::fixture::CALLER, Ino(copy), &size).unwrap();
}

#[test]
fn a_new_pool_is_in_order() {
    let summary = new_home(64, &[]).assert_clean();
    assert_eq!((summary.datasets, summary.snapshots, summary.files), (1, 0, 0));
    assert_eq!((summary.label.as_str(), summary.group), ("test", 2));
}

#[test]
fn names_that_fold_are_in_order() {
    let home = new_home(64, &[("casefold", "on")]);
    let files = home.mount("root");
    for name in ["Mixed Case", "\u{c9}t\u{c9}", "Stra\u{df}e"] {
        files.file(1, name, b"content");
    }
    files.commit();
    assert_eq!(home.assert_clean().files, 3);
}

#[test]
fn a_file_system_with_a_bit_of_everything_is_in_order() {
    for properties in [
        &[][..],
        &[("compression", "zstd:3"), ("checksum", "blake3")],
        &[("compression", "off"), ("recordsize", "4K")],
        &[("compression", "gzip:1"), ("recordsize", "1M")],
    ] {
        let home = new_home(64, properties);
        let files = home.mount("root");
        fill(&files);
        files.commit();
        let summary = home.assert_clean();
        assert_eq!((summary.files, summary.directories, summary.other_inodes), (4, 3, 2));
        assert!(summary.verified_bytes > 3 << 20);
        share(&files);
        files.commit();
        home.assert_clean();
    }
}

#[test]
fn snapshots_clones_and_what_is_destroyed_are_in_order() {
    let home = new_home(128, &[]);
    let files = home.mount("root");
    fill(&files);
    home.snapshot("root", "one");
    home.assert_clean();
    share(&files);
    home.snapshot("root", "two");
    home.snapshot("root", "same");
    home.clone_of("root@one", "clone");
    home.clone_of("root@two", "other/clone");
    home.assert_clean();
    let clone = home.mount("clone");
    share(&clone);
    clone.remove(1, "link");
    clone.commit();
    home.snapshot("clone", "of clone".replace(' ', "-").as_str());
    files.remove(1, "zeros");
    files.reclaim();
    clone.remove(1, "sparse");
    clone.reclaim();
    files.commit();
    let summary = home.assert_clean();
    assert_eq!((summary.datasets, summary.snapshots), (3, 4));
    drop(clone);
    home.destroy("root@same");
    home.assert_clean();
    home.destroy("clone");
    home.assert_clean();
    while home.pool.reclaim_step().unwrap() {
        home.assert_clean();
    }
    home.destroy("root@one");
    home.assert_clean();
    home.destroy("other/clone");
    home.destroy("root@two");
    home.assert_clean();
    while home.pool.reclaim_step().unwrap() {}
    assert_eq!(home.assert_clean().snapshots, 0);
}

#[test]
fn what_waits_in_the_intent_log_is_in_order_and_counted() {
    let home = new_home(64, &[]);
    let files = home.mount("root");
    fill(&files);
    files.commit();
    share(&files);
    files.commit();
    assert_eq!(home.assert_clean().log_frames, 0);
    for number in 1..=5 {
        files.file(1, &format!("synced {number}"), &noise(number, 20_000));
        let large = files.find(files.find(files.find(1, "directory"), "nested"), "large");
        files.write(large, number * 1000, &noise(number, 5000));
        files.sync();
        let summary = home.assert_clean();
        assert_eq!((summary.log_frames, summary.files), (number, 5));
        assert!(summary.log_changes > number);
    }
    let crashed = open_home(Arc::new(MemoryDevice::from_bytes(home.bytes())));
    crashed.pool.commit().unwrap();
    let summary = crashed.assert_clean();
    assert_eq!((summary.log_frames, summary.files), (0, 10));
}

/// Everything that is destroyed is given back in steps: each is in order.
#[test]
fn a_large_dataset_is_in_order_while_it_is_being_destroyed() {
    let home = new_home(96, &[]);
    let base = home.mount("root");
    fill(&base);
    home.snapshot("root", "base");
    home.clone_of("root@base", "large");
    let files = home.mount("large");
    share(&files);
    let ino = files.file(1, "file", b"");
    for number in 0..24_000 {
        let text = format!("user.{number}");
        let (name, value) = (text.as_bytes(), [7; 3072]);
        files.posix.set_xattr(Ino(ino), name, &value, XattrMode::Any).unwrap();
    }
    files.file(1, "last", &noise(9, 1 << 20));
    files.commit();
    drop(files);
    home.destroy("large");
    home.assert_clean();
    let mut steps = 0;
    while home.pool.reclaim_step().unwrap() {
        assert_eq!(home.assert_clean().destroying, 1);
        steps += 1;
    }
    assert!(steps > 0, "one step was enough: the tree is too small for this test");
    drop(base);
    home.destroy("root@base");
    assert_eq!(home.assert_clean().destroying, 0);
}

#[test]
fn trees_that_grow_and_shrink_are_in_order() {
    let home = new_home(64, &[]);
    let files = home.mount("root");
    let mut random = Random::new(5);
    let mut there = std::collections::BTreeSet::new();
    for round in 0..12 {
        for _ in 0..1500 {
            let number = random.below(6000);
            let text = format!("a file with a name of some length {number}");
            let grows = round < 4 || round == 8;
            if grows && there.insert(number) {
                files.file(1, &text, if number < 120 { &[1; 2000] } else { b"" });
            } else if !grows && there.remove(&number) {
                files.remove(1, &text);
            }
        }
        files.commit();
        home.assert_clean();
        if round % 3 == 0 {
            home.snapshot("root", &format!("s{round}"));
        }
        if round == 7 {
            home.destroy("root@s3");
        }
    }
    home.destroy("root@s0");
    let summary = home.assert_clean();
    assert_eq!(summary.snapshots, 2);
}

#[test]
fn a_pool_that_has_grown_is_in_order() {
    let memory = Arc::new(MemoryDevice::new(40_000_000));
    crate::fixture::create_pool(&[memory.clone() as Arc<dyn marram_device::Device>], &[]);
    let home = open_home(memory);
    let files = home.mount("root");
    fill(&files);
    files.commit();
    for size in [60_000_000, 100 << 20, 300 << 20] {
        home.memory.grow(size);
        home.assert_clean();
        home.pool.grow().unwrap();
        home.assert_clean();
        files.file(1, &size.to_string(), &noise(1, 20 << 20));
        files.commit();
        home.assert_clean();
        home.snapshot("root", &size.to_string());
        files.remove(1, &size.to_string());
        files.commit();
        let crashed = Arc::new(MemoryDevice::from_bytes(home.bytes()));
        let again = open_home(crashed);
        again.mount("root").file(1, "after", &noise(2, 1 << 20));
        again.pool.commit().unwrap();
        again.assert_clean();
    }
}

#[test]
fn blocks_in_many_pieces_are_in_order() {
    let home = new_home(32, &[("recordsize", "4K"), ("compression", "off")]);
    let files = home.mount("root");
    let mut count = 0;
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    loop {
        let text = count.to_string();
        let caller = crate::fixture::CALLER;
        let Ok(made) = files.posix.create(caller, Ino(1), name(&text), node) else { break };
        files.posix.forget(made.ino, 1);
        let content = noise(count, 4096);
        let written = files.posix.write(made.ino, 0, &content, Default::default());
        count += 1;
        if written.is_err() {
            break;
        }
    }
    files.commit();
    home.assert_clean();
    (0..count).step_by(2).for_each(|number| files.remove(1, &number.to_string()));
    files.commit();
    home.assert_clean();
    let property = Some("64K");
    let root = "root".parse().unwrap();
    marram_store::Store::set_property(&*home.pool, &root, "recordsize", property).unwrap();
    files.posix.reload_properties();
    let ino = files.file(1, "in pieces", b"");
    let is_written = |part: &u64| {
        let (offset, content) = (*part << 20, noise(*part, 1 << 20));
        files.posix.write(Ino(ino), offset, &content, Default::default()).is_ok()
    };
    let parts = (0..).take_while(is_written).count();
    assert!(parts > 4, "{parts}");
    files.commit();
    home.assert_clean();
    let image = crate::tamper::Image::new(home.bytes());
    let (items, _) = image.items(image.record("root").root.as_ref());
    let pointers = items.values().filter_map(|(_, pointer)| pointer.as_ref());
    let pieces = pointers.map(|it| Pointer::decode(it).unwrap().extents().count()).max();
    assert_eq!(pieces, Some(PIECES_MAX));
    files.remove(1, "in pieces");
    files.commit();
    home.assert_clean();
}

#[test]
fn orphans_and_cut_files_are_in_order_at_every_step() {
    let home = new_home(64, &[("recordsize", "4K")]);
    let files = home.mount("root");
    let names = ["unlinked", "cut", "open"];
    for (seed, text) in (0..).zip(names) {
        files.file(1, text, &noise(seed, 6 << 20));
    }
    files.commit();
    files.remove(1, "unlinked");
    let cut = files.find(1, "cut");
    let size = SetAttributes { size: Some(5000), ..SetAttributes::default() };
    files.posix.set_attributes(crate::fixture::CALLER, Ino(cut), &size).unwrap();
    files.posix.lookup(Ino(1), name("open")).unwrap();
    files.remove(1, "open");
    files.posix.create_anonymous(crate::fixture::CALLER, Ino(1), 0o600).unwrap();
    loop {
        files.commit();
        home.assert_clean();
        if !files.posix.reclaim_step(300).unwrap() {
            break;
        }
    }
    let again = open_home(Arc::new(MemoryDevice::from_bytes(home.bytes())));
    let files = again.mount("root");
    files.reclaim();
    files.commit();
    assert_eq!(again.assert_clean().files, 1);
}

/// Does something to the files in the root directory.
pub(crate) fn change(files: &Files, random: &mut Random) {
    change_in(files, 1, random);
}

/// Does something to the files in a directory.
pub(crate) fn change_in(files: &Files, directory: u64, random: &mut Random) {
    let text = |number: u64| format!("file {number}");
    let any = text(random.below(40));
    let found = files.posix.lookup(Ino(directory), name(&any)).ok().map(|found| found.ino.0);
    let Some(ino) = found else {
        let len = usize::try_from(random.below(300_000)).unwrap();
        files.file(directory, &any, &noise(random.next(), len));
        return;
    };
    files.posix.forget(Ino(ino), 1);
    let other = text(random.below(40));
    match random.below(8) {
        0 => files.remove(directory, &any),
        1 => {
            let (from, to) = (name(&any), name(&other));
            files
                .posix
                .rename(
                    crate::fixture::CALLER,
                    Ino(directory),
                    from,
                    Ino(directory),
                    to,
                    RenameMode::Replace,
                )
                .unwrap();
        }
        2 => drop(files.posix.link(Ino(ino), Ino(directory), name(&other))),
        3 | 4 => {
            if let Ok(target) = files.posix.lookup(Ino(directory), name(&other)) {
                let at = random.below(100_000);
                let to = random.below(300_000);
                drop(files.posix.copy_range(Ino(ino), at, target.ino, to, random.below(200_000)));
                files.posix.forget(target.ino, 1);
            }
        }
        5 => {
            let size = Some(random.below(400_000));
            let size = SetAttributes { size, ..SetAttributes::default() };
            files.posix.set_attributes(crate::fixture::CALLER, Ino(ino), &size).unwrap();
        }
        _ => {
            let len = usize::try_from(1 + random.below(60_000)).unwrap();
            files.write(ino, random.below(300_000), &noise(random.next(), len));
        }
    }
}

fn administer(home: &Home, random: &mut Random, snapshots: &mut Vec<String>, clones: &mut u32) {
    match random.below(4) {
        0 | 1 => {
            let text = format!("s{}", random.next());
            home.snapshot("root", &text);
            snapshots.push(format!("root@{text}"));
        }
        2 if !snapshots.is_empty() => {
            let which = usize::try_from(random.below(snapshots.len() as u64)).unwrap();
            if home.pool_destroys(&snapshots[which]) {
                snapshots.remove(which);
            }
        }
        _ if !snapshots.is_empty() => {
            let which = usize::try_from(random.below(snapshots.len() as u64)).unwrap();
            *clones += 1;
            let clone = format!("clone{clones}");
            home.clone_of(&snapshots[which], &clone);
            let files = home.mount(&clone);
            (0..10).for_each(|_| change(&files, random));
            files.commit();
            drop(files);
            if *clones > 2 {
                home.destroy(&format!("clone{}", *clones - 2));
            }
        }
        _ => {}
    }
}

impl Home {
    fn pool_destroys(&self, source: &str) -> bool {
        marram_store::Store::destroy(&*self.pool, &source.parse().unwrap(), false).is_ok()
    }
}

#[test]
fn random_histories_with_crashes_are_in_order_after_every_commit() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let mut home = new_home(64, &[("recordsize", "32K")]);
        let mut files = home.mount("root");
        let (mut snapshots, mut clones) = (Vec::new(), 0);
        for round in 0..25 {
            (0..random.below(30)).for_each(|_| change(&files, &mut random));
            match random.below(3) {
                0 => files.commit(),
                1 => files.sync(),
                _ => {}
            }
            administer(&home, &mut random, &mut snapshots, &mut clones);
            if random.below(3) == 0 {
                home.pool.reclaim_step().unwrap();
            }
            if round % 5 == 4 {
                home.assert_clean();
                let crashed = Arc::new(MemoryDevice::from_bytes(home.bytes()));
                home = open_home(crashed);
                files = home.mount("root");
            }
        }
        files.reclaim();
        while home.pool.reclaim_step().unwrap() {}
        files.commit();
        home.assert_clean();
    }
}
