//! Full images: what gives space back goes on, and so do checkpoints.

use crate::images::{Cut, ROOT_USER, new_image};
use marram_pmem::memory::Memory;
use marram_pmem::memory::recorded::{Event, Recorded};
use marram_pmem::{Pmem, PmemOptions, Which};
use marram_vfs::{
    Clock, Error, FileSystem, Ino, Kind, Name, NewNode, Result, SetAttributes, SteppedClock,
    WriteOptions,
};
use std::sync::Arc;

const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };

/// Pages by which two full images may differ: what a checkpoint holds besides.
const SPREAD: usize = 8;

fn snapshot(name: &str) -> Which<'_> {
    Which { dataset: "root", snapshot: Some(name) }
}

fn make(files: &Pmem, text: &str) -> Result<Ino> {
    let made = files.create(ROOT_USER, Ino::ROOT, Name::new(text.as_bytes()).unwrap(), FILE)?;
    files.forget(made.ino, 1);
    Ok(made.ino)
}

fn remove(files: &Pmem, text: &str) -> Result<()> {
    files.unlink(Ino::ROOT, Name::new(text.as_bytes()).unwrap())
}

/// Opens an image of a megabyte, on an ordinary file or in memory.
fn opened(is_ordinary: bool) -> (Recorded, Pmem) {
    let clock: Arc<dyn Clock> = Arc::new(Cut(Arc::new(SteppedClock::default())));
    let image = new_image(1 << 20, &*clock).image();
    let medium = match is_ordinary {
        true => Recorded::unordered(image, 1),
        false => Recorded::new(image),
    };
    let options = PmemOptions { clock, ..PmemOptions::default() };
    let files = Pmem::open(Memory::new(Box::new(medium.clone())), options).unwrap();
    (medium, files)
}

/// Makes files of a page until there is no space for one.
fn fill(files: &Pmem) -> Vec<String> {
    let mut made = Vec::new();
    loop {
        let text = format!("f{}", made.len());
        let done = make(files, &text)
            .and_then(|ino| files.write(ino, 0, &[7; 4000], WriteOptions::default()));
        match done {
            Ok(()) => made.push(text),
            Err(error) => {
                assert_eq!(error, Error::NoSpace);
                let _was_not_made_perhaps = remove(files, &text);
                return made;
            }
        }
    }
}

#[test]
fn refused_writes_on_a_full_image_cost_two_checkpoints_together() {
    let (medium, files) = opened(true);
    let made = fill(&files);
    let large = files.lookup(Ino::ROOT, Name::new(made[0].as_bytes()).unwrap()).unwrap().ino;
    let write = || files.write(large, 8192, &[7; 1 << 16], WriteOptions::default());
    let write_backs = |run: &dyn Fn()| {
        medium.start();
        run();
        medium.stop().iter().filter(|event| **event == Event::WriteBack).count()
    };
    let refused = || (0..20).for_each(|_| assert_eq!(write(), Err(Error::NoSpace)));
    // A checkpoint writes back twice.
    let first = write_backs(&refused);
    assert!(first <= 4, "{first}");
    assert_eq!(write_backs(&refused), 0);
    // What is removed is found by the next one.
    made[1..].iter().for_each(|text| remove(&files, text).unwrap());
    write().unwrap();
    files.audit().unwrap();
}

#[test]
fn with_many_snapshots_a_full_image_can_be_emptied() {
    for is_ordinary in [true, false] {
        let (_medium, files) = opened(is_ordinary);
        for number in 0..90 {
            files.snapshot("root", &format!("s{number}")).unwrap();
        }
        let made = fill(&files);
        assert!(made.len() > 50, "{}", made.len());
        files.checkpoint().unwrap();
        for text in &made {
            let done = remove(&files, text);
            assert_eq!(done, Ok(()), "{is_ordinary} {text} of {}", made.len());
        }
        files.checkpoint().unwrap();
        assert!(fill(&files).len() + SPREAD >= made.len(), "{}", made.len());
        files.audit().unwrap();
    }
}

#[test]
fn removals_leave_room_for_the_copies_of_pages_of_slots_that_few_use() {
    let (medium, files) = opened(true);
    for number in 0..90 {
        files.snapshot("root", &format!("s{number}")).unwrap();
    }
    let names: Vec<String> = (0..90).map(|number| format!("s{number}")).collect();
    let going: Vec<Which<'_>> = names.iter().map(|name| snapshot(name)).collect();
    files.destroy(&going, false).unwrap();
    let made = fill(&files);
    files.snapshot("root", "kept").unwrap();
    // Each cut copies what the snapshot holds, until there is no space even for that.
    for text in &made {
        let ino = files.lookup(Ino::ROOT, Name::new(text.as_bytes()).unwrap()).unwrap().ino;
        let cut = SetAttributes { size: Some(1), ..SetAttributes::default() };
        let _refused_perhaps = files.set_attributes(ROOT_USER, ino, &cut);
    }
    files.checkpoint().unwrap();
    files.destroy(&[snapshot("kept")], false).unwrap();
    for text in &made {
        remove(&files, text).unwrap();
    }
    files.forget_all();
    files.checkpoint().unwrap();
    assert!(fill(&files).len() + SPREAD >= made.len(), "{}", made.len());
    files.audit().unwrap();
    files.close().unwrap();
    let again = Recorded::unordered(medium.image(), 2);
    Pmem::open(Memory::new(Box::new(again)), PmemOptions::default()).unwrap().audit().unwrap();
}

#[test]
fn what_a_crash_has_left_is_taken_away_without_the_room_for_a_checkpoint() {
    let (medium, files) = opened(true);
    for number in 0..90 {
        files.snapshot("root", &format!("s{number}")).unwrap();
    }
    let made = fill(&files);
    // Files that nothing names and a process has open, each in a page that a snapshot holds.
    files.snapshot("root", "kept").unwrap();
    for text in &made {
        files.lookup(Ino::ROOT, Name::new(text.as_bytes()).unwrap()).unwrap();
        let _until_all_room_is_taken = remove(&files, text);
    }
    files.checkpoint().unwrap();
    drop(files);
    let again = Recorded::unordered(medium.image(), 1);
    let files = Pmem::open(Memory::new(Box::new(again.clone())), PmemOptions::default()).unwrap();
    files.checkpoint().unwrap();
    files.destroy(&[snapshot("kept")], false).unwrap();
    for text in &made {
        assert!(matches!(remove(&files, text), Ok(()) | Err(Error::NotFound)), "{text}");
    }
    files.checkpoint().unwrap();
    let again = fill(&files).len();
    assert!(again + SPREAD >= made.len(), "{again} of {}", made.len());
    files.audit().unwrap();
}

#[test]
fn a_snapshot_on_a_full_image_takes_nothing_that_removals_need() {
    let (_medium, files) = opened(true);
    let made = fill(&files);
    let mut kept = 0;
    while files.snapshot("root", &format!("s{kept}")).is_ok() {
        kept += 1;
    }
    assert!(kept < 30, "{kept}");
    let names: Vec<String> = (0..kept).map(|number| format!("s{number}")).collect();
    let going: Vec<Which<'_>> = names.iter().map(|name| snapshot(name)).collect();
    files.destroy(&going, false).unwrap();
    made.iter().for_each(|text| remove(&files, text).unwrap());
    files.checkpoint().unwrap();
    files.audit().unwrap();
}
