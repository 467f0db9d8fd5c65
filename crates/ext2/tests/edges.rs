//! Orders between two operations of which neither is durable yet: every crash state of short
//! scripts, in which one of them lies in another sector or takes more waves.

use crate::images::{SMALL, make, name, open_bytes};
use crate::judge::Judge;
use crate::workload::{contents, opened};
use marram_ext2::Ext2;
use marram_sim::device::RecordingDevice;
use marram_vfs::{Caller, FileSystem, Ino, Kind, NewNode, RenameMode, WriteOptions};
use std::sync::Arc;

const USER: Caller = Caller { uid: 7, gid: 8 };
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
const DIRECTORY: NewNode<'_> = NewNode::Directory { permissions: 0o755 };
const KEPT: &[u8] = b"it has a name at every moment";

/// Makes something at a place.
fn made(files: &Ext2, node: NewNode<'_>, (parent, text): (Ino, &str)) -> Ino {
    let made = files.create(USER, parent, name(text), node).unwrap();
    files.forget(made.ino, 1);
    made.ino
}

/// Makes a file with content that is looked for after each crash.
fn kept(files: &Ext2, place: (Ino, &str)) {
    files.write(made(files, FILE, place), 0, KEPT, WriteOptions::default()).unwrap();
}

fn moved(files: &Ext2, (from, old): (Ino, &str), (to, new): (Ino, &str)) {
    files.rename(USER, from, name(old), to, name(new), RenameMode::Replace).unwrap();
}

/// Judges every crash state of what `act` does after `prepare`, which is durable.
fn judged<R>(prepare: impl FnOnce(&Ext2) -> R, act: impl FnOnce(&Ext2, R), keeps: bool) {
    let (judge, device) = (Judge::new(), Arc::new(RecordingDevice::in_memory(make(SMALL))));
    let files = opened(&device);
    let prepared = prepare(&files);
    files.sync_all().unwrap();
    let from = device.event_count();
    act(&files, prepared);
    files.sync_all().unwrap();
    let trace = device.trace();
    let states = trace.prefixes().chain(trace.subsets(6)).chain(trace.torn());
    for state in states.filter(|state| state.cut >= from) {
        let image = trace.image(state);
        judge.soft(&image).map_err(|said| format!("state {state}: {said}")).unwrap();
        let found = contents(&open_bytes(image).unwrap()).unwrap();
        let is_kept = found.values().any(|content| content == KEPT);
        assert!(is_kept || !keeps, "state {state}: a file has lost its name");
    }
}

/// Fills the root so that an entry of 12 bytes comes to lie in its second sector, behind one that
/// begins in the first; `e` follows it. Returns a directory with a file.
fn prepare_two_sectors(files: &Ext2) -> Ino {
    let d = made(files, DIRECTORY, (Ino::ROOT, "d1"));
    kept(files, (d, "f"));
    for text in ["a".repeat(255), "b".repeat(255), "c".to_owned(), "e".to_owned()] {
        made(files, FILE, (Ino::ROOT, &text));
    }
    files.unlink(Ino::ROOT, name("c")).unwrap();
    d
}

#[test]
fn a_directory_is_moved_and_removed() {
    judged(
        |files| {
            let [a, b] = ["a", "b"].map(|text| made(files, DIRECTORY, (Ino::ROOT, text)));
            made(files, DIRECTORY, (a, "x"));
            (a, b)
        },
        |files, (a, b)| {
            moved(files, (a, "x"), (b, "x"));
            files.remove_directory(b, name("x")).unwrap();
        },
        false,
    );
}

#[test]
fn a_directory_is_moved_and_replaced() {
    judged(
        |files| {
            let [a, b] = ["a", "b"].map(|text| made(files, DIRECTORY, (Ino::ROOT, text)));
            made(files, DIRECTORY, (a, "x"));
            made(files, DIRECTORY, (a, "y"));
            (a, b)
        },
        |files, (a, b)| {
            moved(files, (a, "x"), (b, "x"));
            moved(files, (a, "y"), (b, "x"));
        },
        false,
    );
}

#[test]
fn an_entry_is_removed_behind_one_that_is_not_seen_yet() {
    judged(
        prepare_two_sectors,
        |files, _| {
            made(files, DIRECTORY, (Ino::ROOT, "c"));
            files.unlink(Ino::ROOT, name("e")).unwrap();
        },
        true,
    );
}

#[test]
fn a_name_comes_behind_one_that_is_not_seen_yet() {
    judged(
        |files| {
            let d = prepare_two_sectors(files);
            files.unlink(Ino::ROOT, name("e")).unwrap();
            d
        },
        |files, d| {
            made(files, DIRECTORY, (Ino::ROOT, "c"));
            moved(files, (d, "f"), (Ino::ROOT, "f"));
        },
        true,
    );
}

#[test]
fn a_name_is_replaced_by_two_numbers_that_differ_in_one_byte() {
    judged(
        |files| {
            let t = made(files, FILE, (Ino::ROOT, "t"));
            let d = made(files, DIRECTORY, (Ino::ROOT, "d1"));
            let numbers = t.0 + 2..=t.0 + 3 + 256;
            let made: Vec<Ino> =
                numbers.map(|number| made(files, FILE, (d, &number.to_string()))).collect();
            (d, made[0], [made[0], made[256]].map(|ino| ino.0.to_string()))
        },
        |files, (d, deep, [first, second])| {
            files.write(deep, 64 << 20, KEPT, WriteOptions::default()).unwrap();
            moved(files, (d, &first), (Ino::ROOT, "t"));
            moved(files, (d, &second), (Ino::ROOT, "t"));
        },
        false,
    );
}

/// Makes a directory of twelve blocks and one that a block of pointers names, all of them full.
fn full(files: &Ext2) -> Ino {
    let d = made(files, DIRECTORY, (Ino::ROOT, "d1"));
    // Of each a sector has room for one.
    for len in [255, 200] {
        for number in 0..13 * 2 {
            made(files, FILE, (d, &format!("{number:0>len$}")));
        }
    }
    kept(files, (Ino::ROOT, "f"));
    d
}

#[test]
fn a_name_comes_into_a_block_that_is_not_seen_yet() {
    judged(
        full,
        |files, d| {
            made(files, FILE, (d, &"n".repeat(255)));
            moved(files, (Ino::ROOT, "f"), (d, &"f".repeat(255)));
        },
        true,
    );
}

#[test]
fn a_name_comes_into_a_directory_that_has_no_name_yet() {
    judged(
        full,
        |files, d| {
            let to = made(files, DIRECTORY, (d, &"d".repeat(255)));
            moved(files, (Ino::ROOT, "f"), (to, "f"));
        },
        true,
    );
}

#[test]
fn a_directory_is_removed_or_replaced_when_it_is_empty_on_the_medium() {
    let prepare = |files: &Ext2| {
        let full = full(files);
        let left = made(files, DIRECTORY, (Ino::ROOT, "d2"));
        made(files, DIRECTORY, (Ino::ROOT, "d3"));
        moved(files, (Ino::ROOT, "f"), (left, "f"));
        (full, left)
    };
    judged(
        prepare,
        |files, (full, left)| {
            moved(files, (left, "f"), (full, &"f".repeat(255)));
            files.remove_directory(Ino::ROOT, name("d2")).unwrap();
        },
        true,
    );
    judged(
        prepare,
        |files, (full, left)| {
            moved(files, (left, "f"), (full, &"f".repeat(255)));
            moved(files, (Ino::ROOT, "d3"), (Ino::ROOT, "d2"));
        },
        true,
    );
}

#[test]
fn a_name_is_removed_or_replaced_when_another_one_is_there() {
    let linked = |files: &Ext2, d: Ino| {
        let f = files.lookup(Ino::ROOT, name("f")).unwrap().ino;
        files.link(f, d, name(&"l".repeat(255))).unwrap();
        files.forget(f, 2);
    };
    judged(
        full,
        |files, d| {
            linked(files, d);
            files.unlink(Ino::ROOT, name("f")).unwrap();
        },
        true,
    );
    judged(
        full,
        |files, d| {
            linked(files, d);
            made(files, FILE, (Ino::ROOT, "n"));
            moved(files, (Ino::ROOT, "n"), (Ino::ROOT, "f"));
        },
        true,
    );
}

#[test]
fn a_name_is_given_again_when_it_is_away() {
    judged(
        |files| {
            let d = full(files);
            for text in ["a", "b", "n"] {
                made(files, FILE, (Ino::ROOT, text));
            }
            files.unlink(Ino::ROOT, name("a")).unwrap();
            d
        },
        |files, d| {
            moved(files, (Ino::ROOT, "n"), (d, &"n".repeat(255)));
            moved(files, (Ino::ROOT, "f"), (Ino::ROOT, "n"));
        },
        true,
    );
}

#[test]
fn a_name_is_removed_when_another_one_can_be_reached() {
    judged(
        full,
        |files, d| {
            let to = made(files, DIRECTORY, (d, &"d".repeat(255)));
            let f = files.lookup(Ino::ROOT, name("f")).unwrap().ino;
            files.link(f, to, name("l")).unwrap();
            files.forget(f, 2);
            files.unlink(Ino::ROOT, name("f")).unwrap();
        },
        true,
    );
}
