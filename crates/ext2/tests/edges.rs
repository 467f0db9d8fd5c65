//! Orders between two operations of which neither is durable yet: every crash state of short
//! scripts, in which one of them lies in another sector or takes more waves.

use crate::images::{SMALL, make, name, open_bytes};
use crate::judge::Judge;
use crate::workload::{contents, opened_with, stepped};
use marram_ext2::{Ext2, Ext2Options, Planted};
use marram_sim::device::{CrashState, Fate, RecordingDevice};
use marram_vfs::{Caller, FileSystem, Ino, Kind, NewNode, RenameMode, WriteOptions};
use std::sync::Arc;

const USER: Caller = Caller { uid: 7, gid: 8 };
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
const DIRECTORY: NewNode<'_> = NewNode::Directory { permissions: 0o755 };
pub(crate) const KEPT: &[u8] = b"it has a name at every moment";

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

/// A script whose every crash state is judged, with a bug or without; what is wrong with one.
pub(crate) type Script = fn(Option<Planted>) -> Result<(), String>;

/// All of them.
pub(crate) const SCRIPTS: &[Script] = &[
    a_directory_is_moved_and_removed,
    a_directory_is_moved_and_replaced,
    an_entry_is_removed_behind_one_that_is_not_seen_yet,
    a_name_comes_behind_one_that_is_not_seen_yet,
    a_name_is_replaced_by_two_numbers_that_differ_in_one_byte,
    a_name_comes_into_a_block_that_is_not_seen_yet,
    a_name_comes_into_a_directory_that_has_no_name_yet,
    a_directory_is_removed_or_replaced_when_it_is_empty_on_the_medium,
    a_name_is_removed_or_replaced_when_another_one_is_there,
    a_name_is_given_again_when_it_is_away,
    a_name_is_removed_when_another_one_can_be_reached,
    a_linked_name_is_removed_when_the_first_one_is_slower,
];

/// Judges every crash state of what `act` does after `prepare`, which is durable.
pub(crate) fn judged<R>(
    planted: Option<Planted>,
    prepare: impl FnOnce(&Ext2) -> R,
    act: impl FnOnce(&Ext2, R),
    keeps: bool,
) -> Result<(), String> {
    judged_on(make(SMALL), stepped(planted), prepare, act, keeps)
}

/// The same on an image, with other options.
pub(crate) fn judged_on<R>(
    image: Vec<u8>,
    options: Ext2Options,
    prepare: impl FnOnce(&Ext2) -> R,
    act: impl FnOnce(&Ext2, R),
    keeps: bool,
) -> Result<(), String> {
    let (judge, device) = (Judge::new(), Arc::new(RecordingDevice::in_memory(image)));
    let files = opened_with(&device, options);
    let prepared = prepare(&files);
    files.sync_all().unwrap();
    let from = device.event_count();
    act(&files, prepared);
    files.sync_all().unwrap();
    let trace = device.trace();
    let states = trace.prefixes().chain(trace.subsets(6)).chain(trace.torn());
    for state in states.filter(|state| state.cut >= from) {
        let image = trace.image(state);
        judge.soft(&image).map_err(|said| format!("state {state}: {said}"))?;
        let files = open_bytes(image).map_err(|error| format!("state {state}: {error}"))?;
        let found = contents(&files).map_err(|error| format!("state {state}: {error}"))?;
        let is_kept = found.values().any(|content| content.ends_with(KEPT));
        if keeps && !is_kept {
            return Err(format!("state {state}: a file has lost its name"));
        }
    }
    Ok(())
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

fn a_directory_is_moved_and_removed(planted: Option<Planted>) -> Result<(), String> {
    judged(
        planted,
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
    )
}

fn a_directory_is_moved_and_replaced(planted: Option<Planted>) -> Result<(), String> {
    judged(
        planted,
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
    )
}

fn an_entry_is_removed_behind_one_that_is_not_seen_yet(
    planted: Option<Planted>,
) -> Result<(), String> {
    judged(
        planted,
        prepare_two_sectors,
        |files, _| {
            made(files, DIRECTORY, (Ino::ROOT, "c"));
            files.unlink(Ino::ROOT, name("e")).unwrap();
        },
        true,
    )
}

fn a_name_comes_behind_one_that_is_not_seen_yet(planted: Option<Planted>) -> Result<(), String> {
    judged(
        planted,
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
    )
}

fn a_name_is_replaced_by_two_numbers_that_differ_in_one_byte(
    planted: Option<Planted>,
) -> Result<(), String> {
    judged(
        planted,
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
    )
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

fn a_name_comes_into_a_block_that_is_not_seen_yet(planted: Option<Planted>) -> Result<(), String> {
    judged(
        planted,
        full,
        |files, d| {
            made(files, FILE, (d, &"n".repeat(255)));
            moved(files, (Ino::ROOT, "f"), (d, &"f".repeat(255)));
        },
        true,
    )
}

fn a_name_comes_into_a_directory_that_has_no_name_yet(
    planted: Option<Planted>,
) -> Result<(), String> {
    judged(
        planted,
        full,
        |files, d| {
            let to = made(files, DIRECTORY, (d, &"d".repeat(255)));
            moved(files, (Ino::ROOT, "f"), (to, "f"));
        },
        true,
    )
}

fn a_directory_is_removed_or_replaced_when_it_is_empty_on_the_medium(
    planted: Option<Planted>,
) -> Result<(), String> {
    let prepare = |files: &Ext2| {
        let full = full(files);
        let left = made(files, DIRECTORY, (Ino::ROOT, "d2"));
        made(files, DIRECTORY, (Ino::ROOT, "d3"));
        moved(files, (Ino::ROOT, "f"), (left, "f"));
        (full, left)
    };
    judged(
        planted,
        prepare,
        |files, (full, left)| {
            moved(files, (left, "f"), (full, &"f".repeat(255)));
            files.remove_directory(Ino::ROOT, name("d2")).unwrap();
        },
        true,
    )?;
    judged(
        planted,
        prepare,
        |files, (full, left)| {
            moved(files, (left, "f"), (full, &"f".repeat(255)));
            moved(files, (Ino::ROOT, "d3"), (Ino::ROOT, "d2"));
        },
        true,
    )
}

fn a_name_is_removed_or_replaced_when_another_one_is_there(
    planted: Option<Planted>,
) -> Result<(), String> {
    let linked = |files: &Ext2, d: Ino| {
        let f = files.lookup(Ino::ROOT, name("f")).unwrap().ino;
        files.link(f, d, name(&"l".repeat(255))).unwrap();
        files.forget(f, 2);
    };
    judged(
        planted,
        full,
        |files, d| {
            linked(files, d);
            files.unlink(Ino::ROOT, name("f")).unwrap();
        },
        true,
    )?;
    judged(
        planted,
        full,
        |files, d| {
            linked(files, d);
            made(files, FILE, (Ino::ROOT, "n"));
            moved(files, (Ino::ROOT, "n"), (Ino::ROOT, "f"));
        },
        true,
    )
}

fn a_name_is_given_again_when_it_is_away(planted: Option<Planted>) -> Result<(), String> {
    judged(
        planted,
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
    )
}

fn a_name_is_removed_when_another_one_can_be_reached(
    planted: Option<Planted>,
) -> Result<(), String> {
    judged(
        planted,
        full,
        |files, d| {
            let to = made(files, DIRECTORY, (d, &"d".repeat(255)));
            let f = files.lookup(Ino::ROOT, name("f")).unwrap().ino;
            files.link(f, to, name("l")).unwrap();
            files.forget(f, 2);
            files.unlink(Ino::ROOT, name("f")).unwrap();
        },
        true,
    )
}

/// The first name lies in a new block of pointers, so the one that is linked is durable before it.
fn a_linked_name_is_removed_when_the_first_one_is_slower(
    planted: Option<Planted>,
) -> Result<(), String> {
    let (judge, device) = (Judge::new(), Arc::new(RecordingDevice::in_memory(make(SMALL))));
    let files = opened_with(&device, stepped(planted));
    let d = full(&files);
    files.unlink(Ino::ROOT, name("f")).unwrap();
    files.sync_all().unwrap();
    let f = made(&files, FILE, (d, &"n".repeat(255)));
    files.write(f, 0, KEPT, WriteOptions::default()).unwrap();
    files.link(f, Ino::ROOT, name("l")).unwrap();
    files.forget(f, 1);
    let is_there = |directory: Ino, text: &str| {
        let trace = device.trace();
        let state = CrashState { cut: trace.events().len(), fate: Fate::Durable };
        let left = open_bytes(trace.image(state)).unwrap();
        left.lookup(directory, name(text)).is_ok()
    };
    for _ in 0..8 {
        if is_there(Ino::ROOT, "l") {
            break;
        }
        files.step().unwrap();
    }
    assert!(is_there(Ino::ROOT, "l") && !is_there(d, &"n".repeat(255)));
    let from = device.event_count();
    files.unlink(Ino::ROOT, name("l")).unwrap();
    files.sync_all().unwrap();
    let trace = device.trace();
    let states = trace.prefixes().chain(trace.subsets(6)).chain(trace.torn());
    for state in states.filter(|state| state.cut >= from) {
        let image = trace.image(state);
        judge.soft(&image).map_err(|said| format!("state {state}: {said}"))?;
        let left = open_bytes(image).map_err(|error| format!("state {state}: {error}"))?;
        let found = contents(&left).map_err(|error| format!("state {state}: {error}"))?;
        if !found.values().any(|content| content.ends_with(KEPT)) {
            return Err(format!("state {state}: a file has lost its name"));
        }
    }
    Ok(())
}

#[test]
fn two_operations_that_are_not_durable_keep_their_order() {
    SCRIPTS.iter().try_for_each(|script| script(None)).unwrap();
}
