//! Figure 3.11 of the thesis, for the modes of this home: what each promises, a test for each tick.
//!
//! | mode | aligned words atomic | operations atomic | in order | durable when they return |
//! | --- | --- | --- | --- | --- |
//! | each | yes | yes | yes | yes |
//! | epoch | yes | yes | yes, within a thread | with the next one, or when it is asked for |
//! | checkpoint | yes | yes | yes: one moment | with the next checkpoint |
//!
//! That operations are atomic and in order is judged in every state that a crash could leave:
//! `campaign`, by each mode. Here is what is durable.

use crate::checkpoints::{open, some_clock};
use crate::images::{ROOT_USER, new_image};
use crate::judge::{Draw, Recording};
use marram_pmem::Pmem;
use marram_pmem::memory::recorded::{Event, Recorded};
use marram_vfs::{FileSystem, Ino, Kind, Name, NewNode, WriteOptions};

const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };

/// A file system on a medium, with a file of a page.
fn begun(medium_of: fn(Vec<u8>) -> Recorded) -> (Recorded, Pmem, Ino) {
    let clock = some_clock();
    let medium = medium_of(new_image(1 << 20, &*clock).image());
    let files = open(&medium, clock).unwrap();
    let name = Name::new(b"f").unwrap();
    let file = files.create(ROOT_USER, Ino::ROOT, name, FILE).unwrap().ino;
    files.write(file, 0, &[1; 4096], WriteOptions::default()).unwrap();
    files.sync_all().unwrap();
    (medium, files, file)
}

fn record(medium: &Recorded, run: impl FnOnce()) -> Recording {
    let before = medium.image();
    medium.start();
    run();
    Recording { before, events: medium.stop() }
}

fn overwrite(files: &Pmem, file: Ino, byte: u8) {
    files.write(file, 8, &[byte; 8], WriteOptions::default()).unwrap();
}

#[test]
fn each_operation_is_durable_when_it_returns() {
    let (medium, files, file) = begun(Recorded::new);
    let recording = record(&medium, || overwrite(&files, file, 2));
    assert!(!recording.is_lost_by_a_crash());
    recording.every_crash(&mut Draw::new(1, 100, &mut |_| {})).unwrap();
}

#[test]
fn in_an_epoch_an_operation_is_durable_with_the_next_one_or_a_sync() {
    let (medium, files, file) = begun(Recorded::epoch);
    let first = record(&medium, || overwrite(&files, file, 2));
    assert!(first.is_lost_by_a_crash());
    let second = record(&medium, || overwrite(&files, file, 3));
    first.every_crash_of_epochs(&second, &mut Draw::new(1, 100, &mut |_| {})).unwrap();
    let synced = record(&medium, || {
        overwrite(&files, file, 4);
        files.sync_all().unwrap();
    });
    assert!(!synced.is_lost_by_a_crash());
    let mut events = second.events;
    events.push(Event::Fence);
    assert!(!Recording { before: second.before, events }.is_lost_by_a_crash());
}

#[test]
fn an_epoch_begins_with_the_fence_that_the_operation_before_has_left_out() {
    let ends = |medium_of: fn(Vec<u8>) -> Recorded| {
        let (medium, files, file) = begun(medium_of);
        overwrite(&files, file, 2);
        let events = record(&medium, || overwrite(&files, file, 3)).events;
        (events.first() == Some(&Event::Fence), events.last() == Some(&Event::Fence))
    };
    assert_eq!((ends(Recorded::new), ends(Recorded::epoch)), ((false, true), (true, false)));
}

#[test]
fn what_an_epoch_frees_is_used_again_after_the_next_fence() {
    let (_medium, files, file) = begun(Recorded::epoch);
    let free = || files.space().unwrap().free_bytes;
    let before = free();
    for byte in 0..100 {
        files.write(file, 0, &[byte; 4096], WriteOptions::default()).unwrap();
    }
    files.audit().unwrap();
    assert_eq!(free(), before);
    let mut at = 4096;
    while files.write(file, at, &[7; 4096], WriteOptions::default()).is_ok() {
        at += 4096;
    }
    let name = Name::new(b"f").unwrap();
    files.unlink(Ino::ROOT, name).unwrap();
    files.forget_all();
    files.audit().unwrap();
    let again = files.create(ROOT_USER, Ino::ROOT, name, FILE).unwrap().ino;
    for page in 1..at / 4096 - 2 {
        files.write(again, page * 4096, &[8; 4096], WriteOptions::default()).unwrap();
    }
}
