//! What a sync of one file makes durable, and what it leaves to others.

use crate::images::{SMALL, Shape, make, name, open_bytes};
use crate::judge::Judge;
use crate::workload::opened;
use marram_ext2::Ext2;
use marram_patch::Counters;
use marram_sim::device::{CrashState, Fate, RecordingDevice};
use marram_vfs::{
    Caller, FileSystem, GroupSync, Ino, Kind, NewNode, RenameMode, Result, SetAttributes,
    SyncScope, WriteOptions, XattrMode,
};
use std::sync::Arc;

const USER: Caller = Caller { uid: 7, gid: 8 };
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
const DIRECTORY: NewNode<'_> = NewNode::Directory { permissions: 0o755 };
/// Large blocks, as images have them that are not small.
const LARGE: Shape = Shape { block_bytes: 4096, kib: 32_768, ..SMALL };

/// An image in use: what an operation costs after the first change is not that of the mark.
fn in_use(shape: Shape) -> (Arc<RecordingDevice>, Arc<Ext2>) {
    let device = Arc::new(RecordingDevice::in_memory(make(shape)));
    let files = opened(&device);
    made(&files, FILE, (Ino::ROOT, "first"));
    files.sync_all().unwrap();
    (device, files)
}

fn made(files: &Ext2, node: NewNode<'_>, (parent, text): (Ino, &str)) -> Ino {
    let made = files.create(USER, parent, name(text), node).unwrap();
    files.forget(made.ino, 1);
    made.ino
}

fn written(files: &Ext2, ino: Ino, bytes: &[u8]) {
    files.write(ino, 0, bytes, WriteOptions::default()).unwrap();
}

fn sync(files: &Ext2, ino: Ino) {
    files.sync(ino, SyncScope::All).unwrap();
}

/// What `act` writes and flushes.
fn cost(files: &Ext2, act: impl FnOnce()) -> Counters {
    let before = files.counters();
    act();
    let after = files.counters();
    Counters {
        flushes: after.flushes - before.flushes,
        written_bytes: after.written_bytes - before.written_bytes,
        ..after
    }
}

/// What is found after a crash that leaves nothing but what is durable.
fn crashed(device: &RecordingDevice) -> Ext2 {
    let trace = device.trace();
    let image = trace.image(CrashState { cut: trace.events().len(), fate: Fate::Durable });
    Judge::new().soft(&image).unwrap();
    open_bytes(image).unwrap()
}

/// The inode at a path.
fn at(files: &Ext2, path: &str) -> Result<Ino> {
    path.split('/').try_fold(Ino::ROOT, |at, text| Ok(files.lookup(at, name(text))?.ino))
}

fn content(files: &Ext2, path: &str) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    files.read(at(files, path)?, 0, 1 << 24, &mut content)?;
    Ok(content)
}

#[test]
fn of_two_large_files_only_the_one_that_is_synced_is_written() {
    const BYTES: usize = 800_000;
    let (device, files) = in_use(SMALL);
    let [one, two] = ["one", "two"].map(|text| made(&files, FILE, (Ino::ROOT, text)));
    [one, two].into_iter().for_each(|ino| written(&files, ino, &[5; BYTES]));
    let of_one = cost(&files, || sync(&files, one));
    assert!(of_one.flushes <= 4, "{of_one:?}");
    assert!(of_one.written_bytes < BYTES as u64 + 20_000, "{of_one:?}");
    assert_eq!(content(&crashed(&device), "one").unwrap(), [5; BYTES]);
    assert_eq!(cost(&files, || sync(&files, one)).flushes, 0, "nothing of it waits any more");
    let of_two = cost(&files, || sync(&files, two));
    assert!((BYTES as u64..BYTES as u64 + 20_000).contains(&of_two.written_bytes), "{of_two:?}");
    assert_eq!(content(&crashed(&device), "two").unwrap(), [5; BYTES]);
}

#[test]
fn a_sync_takes_as_many_flushes_as_its_order_is_deep() {
    for shape in [SMALL, LARGE] {
        let (_device, files) = in_use(shape);
        let mut file = Ino::ROOT;
        let of_new = cost(&files, || {
            file = made(&files, FILE, (Ino::ROOT, "new"));
            written(&files, file, &[1; 6000]);
            sync(&files, file);
        });
        assert!(of_new.flushes <= 3, "a new file: {of_new:?}");
        let of_append = cost(&files, || {
            files.append(file, &[2; 6000], WriteOptions::default()).unwrap();
            sync(&files, file);
        });
        assert!(of_append.flushes <= 2, "an append: {of_append:?}");
        let of_overwrite = cost(&files, || {
            written(&files, file, &[3; 6000]);
            sync(&files, file);
        });
        assert_eq!(of_overwrite.flushes, 1, "an overwrite: {of_overwrite:?}");
    }
}

#[test]
fn a_thousand_new_files_that_are_synced_at_once_share_ten_flushes() {
    let small = Shape { kib: 32_768, ..SMALL };
    for (shape, is_old) in [(LARGE, false), (LARGE, true), (small, false), (small, true)] {
        let (_device, files) = in_use(shape);
        let d = made(&files, DIRECTORY, (Ino::ROOT, "d"));
        if is_old {
            files.sync_all().unwrap();
        }
        let mut all = Vec::new();
        for which in 0..1000 {
            let file = made(&files, FILE, (d, &format!("message{which}")));
            written(&files, file, &[7; 2048]);
            all.push((file, SyncScope::All));
        }
        let of_all = cost(&files, || assert!(files.sync_many(&all).iter().all(Result::is_ok)));
        println!("{shape:?}, the directory is old: {is_old}: {} flushes", of_all.flushes);
        assert!(of_all.flushes <= 10, "{shape:?}, {is_old}: {of_all:?}");
    }
}

#[test]
fn a_sync_of_a_large_directory_writes_what_is_new_in_it() {
    let (device, files) = in_use(Shape { kib: 32_768, ..SMALL });
    let d = made(&files, DIRECTORY, (Ino::ROOT, "d"));
    for which in 0..3000 {
        made(&files, FILE, (d, &format!("an old name that is long enough to fill blocks {which}")));
    }
    sync(&files, d);
    made(&files, FILE, (d, "new"));
    let of_one = cost(&files, || sync(&files, d));
    assert!(of_one.flushes <= 3 && of_one.written_bytes < 8192, "{of_one:?}");
    assert!(at(&crashed(&device), "d/new").is_ok());
}

#[test]
fn a_synced_file_can_be_reached_after_a_crash() {
    let (device, files) = in_use(SMALL);
    let mut below = Ino::ROOT;
    for text in ["a", "b", "c"] {
        below = made(&files, DIRECTORY, (below, text));
    }
    let file = made(&files, FILE, (below, "f"));
    written(&files, file, b"reached");
    sync(&files, file);
    assert_eq!(content(&crashed(&device), "a/b/c/f").unwrap(), b"reached");
    // A new name, a moved name, and a moved name in a new directory.
    files.link(file, Ino::ROOT, name("linked")).unwrap();
    files.forget(file, 1);
    sync(&files, file);
    assert_eq!(content(&crashed(&device), "linked").unwrap(), b"reached");
    let mode = RenameMode::Replace;
    files.rename(USER, Ino::ROOT, name("linked"), Ino::ROOT, name("moved"), mode).unwrap();
    sync(&files, file);
    let found = crashed(&device);
    assert_eq!(content(&found, "moved").unwrap(), b"reached");
    assert!(content(&found, "linked").is_err(), "it was moved");
    let new = made(&files, DIRECTORY, (Ino::ROOT, "new"));
    files.rename(USER, Ino::ROOT, name("moved"), new, name("again"), mode).unwrap();
    sync(&files, file);
    let found = crashed(&device);
    assert_eq!(content(&found, "new/again").unwrap(), b"reached");
    assert!(content(&found, "moved").is_err(), "it was moved");
}

#[test]
fn attributes_of_a_synced_file_are_there_after_a_crash() {
    let (device, files) = in_use(SMALL);
    let file = made(&files, FILE, (Ino::ROOT, "f"));
    written(&files, file, &[9; 300_000]);
    sync(&files, file);
    let set =
        SetAttributes { size: Some(100_001), permissions: Some(0o600), ..SetAttributes::default() };
    files.set_attributes(USER, file, &set).unwrap();
    for (tag, len) in [(&b"user.small"[..], 20), (b"user.large", 700)] {
        files.set_xattr(file, tag, &vec![4; len], XattrMode::Any).unwrap();
    }
    sync(&files, file);
    let found = crashed(&device);
    let ino = at(&found, "f").unwrap();
    let attributes = found.attributes(ino).unwrap();
    assert_eq!((attributes.size, attributes.permissions), (100_001, 0o600));
    assert_eq!(found.xattr(ino, b"user.large").unwrap(), [4; 700]);
    assert_eq!(found.xattr(ino, b"user.small").unwrap(), [4; 20]);
    // Past the end there are zeros, wherever it is moved to.
    files.set_attributes(USER, file, &SetAttributes { size: Some(100_300), ..set }).unwrap();
    sync(&files, file);
    let grown = content(&crashed(&device), "f").unwrap();
    assert!(grown[..100_001] == [9; 100_001] && grown[100_001..] == [0; 299]);
}

#[test]
fn a_synced_directory_has_its_names_after_a_crash() {
    let (device, files) = in_use(SMALL);
    let [d, e] = ["d", "e"].map(|text| made(&files, DIRECTORY, (Ino::ROOT, text)));
    for which in 0..40 {
        made(&files, FILE, (d, &format!("{which:0>60}")));
    }
    sync(&files, d);
    let names = |files: &Ext2, path: &str| {
        let ino = at(files, path).unwrap();
        marram_sim::read_directory(files, ino, false, usize::MAX).unwrap().len()
    };
    assert_eq!(names(&crashed(&device), "d"), 40);
    for which in 0..10 {
        files.unlink(d, name(&format!("{which:0>60}"))).unwrap();
    }
    for which in 10..15 {
        let text = format!("{which:0>60}");
        files.rename(USER, d, name(&text), e, name(&text), RenameMode::Replace).unwrap();
    }
    sync(&files, e);
    let found = crashed(&device);
    assert_eq!(names(&found, "e"), 5);
    assert!(names(&found, "d") <= 35, "moved names are away");
    sync(&files, d);
    let found = crashed(&device);
    assert_eq!((names(&found, "d"), names(&found, "e")), (25, 5));
}

#[test]
fn a_file_below_a_moved_directory_is_synced_under_its_new_path() {
    for deep in [false, true] {
        let (device, files) = in_use(SMALL);
        let [a, b] = ["a", "b"].map(|text| made(&files, DIRECTORY, (Ino::ROOT, text)));
        let mut below = made(&files, DIRECTORY, (a, "d"));
        if deep {
            below = made(&files, DIRECTORY, (below, "e"));
        }
        files.sync_all().unwrap();
        files.rename(USER, a, name("d"), b, name("d"), RenameMode::Replace).unwrap();
        let file = made(&files, FILE, (below, "f"));
        written(&files, file, b"acknowledged");
        sync(&files, file);
        let left = crashed(&device);
        let path = if deep { "b/d/e/f" } else { "b/d/f" };
        assert_eq!(content(&left, path).unwrap(), b"acknowledged", "{path}");
    }
}

#[test]
fn what_a_crash_has_left_behind_an_end_is_no_content_when_the_file_grows() {
    const OLD: usize = 20 << 10;
    let (device, files) = in_use(SMALL);
    let file = made(&files, FILE, (Ino::ROOT, "f"));
    written(&files, file, &[5; OLD]);
    files.sync_all().unwrap();
    let from = device.event_count();
    files.append(file, &[9; 8 << 10], WriteOptions::default()).unwrap();
    files.sync_all().unwrap();
    let (trace, judge, mut left) = (device.trace(), Judge::new(), 0);
    for state in trace.prefixes().filter(|state| state.cut >= from) {
        let image = trace.image(state);
        let (found, _) = judge.problems(&image);
        // A size is lower than the last block.
        let has_left = found.iter().any(|problem| problem.code == 0x01_000c);
        left += usize::from(has_left);
        let device = Arc::new(RecordingDevice::in_memory(image));
        let files = opened(&device);
        let ino = at(&files, "f").unwrap();
        let size = files.attributes(ino).unwrap().size;
        let set = SetAttributes { size: Some(size + 6000), ..SetAttributes::default() };
        files.set_attributes(USER, ino, &set).unwrap();
        let content = content(&files, "f").unwrap();
        assert!(content[size as usize..].iter().all(|byte| *byte == 0), "state {state}");
        files.sync_all().unwrap();
        let trace = device.trace();
        judge.soft(&trace.state_at(trace.events().len())).unwrap();
    }
    assert!(left > 0, "no state had anything left");
}
