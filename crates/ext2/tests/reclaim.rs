//! What crashes under soft updates have left is given back while the image is in use.

use crate::crashes::states;
use crate::images::{JOURNALED, SMALL, make, name, open, open_bytes};
use crate::judge::Judge;
use crate::view;
use crate::workload::{check, contents, outline, run};
use marram_device::{Device, MemoryDevice};
use marram_ext2::{Consistency, Ext2, Ext2Options};
use marram_sim::Random;
use marram_sim::device::RecordingDevice;
use marram_vfs::{
    Caller, FileSystem, Ino, Kind, Name, NewNode, RenameMode, SteppedClock, WriteOptions,
};
use std::sync::Arc;

const USER: Caller = Caller { uid: 7, gid: 8 };
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
const DIRECTORY: NewNode<'_> = NewNode::Directory { permissions: 0o755 };
/// One state of so many of each run.
const STATES_EACH: usize = 3;
/// One of so many of these is mended by `e2fsck` too.
const E2FSCK_EACH: usize = 4;

/// Where an image says whether it was unmounted.
const STATE_AT: usize = 1024 + 58;

/// A name: the directory that it is in, and what it leads to.
type Named = (Ino, Vec<u8>, Ino);

/// All directories, and all names.
fn all(files: &Ext2) -> (Vec<Ino>, Vec<Named>) {
    let (mut directories, mut names, mut next) = (vec![Ino::ROOT], Vec::new(), 0);
    while let Some(directory) = directories.get(next).copied() {
        next += 1;
        for entry in marram_sim::read_directory(files, directory, false, usize::MAX).unwrap() {
            if entry.kind == Kind::Directory {
                directories.push(entry.ino);
            }
            names.push((directory, entry.name.clone(), entry.ino));
        }
    }
    (directories, names)
}

/// Does something that changes names or blocks; what it answers does not matter.
fn act(files: &Ext2, random: &mut Random, which: usize) {
    let (directories, names) = all(files);
    if names.is_empty() {
        // All that a state of the first moments has may be removed: its `lost+found`.
        return drop(files.create(USER, Ino::ROOT, name(&format!("w{which}")), FILE));
    }
    let to = directories[random.below(directories.len() as u64) as usize];
    let (from, old, ino) = names[random.below(names.len() as u64) as usize].clone();
    let (old, text) = (Name::new(&old).unwrap(), format!("w{which}"));
    let new = name(&text);
    match random.below(7) {
        0 => {
            if let Ok(made) = files.create(USER, to, new, FILE) {
                let _done = files.write(made.ino, 0, &[9; 5000], WriteOptions::default());
                files.forget(made.ino, 1);
            }
        }
        1 => drop(files.create(USER, to, new, DIRECTORY)),
        2 => drop(files.unlink(from, old)),
        3 => drop(files.remove_directory(from, old)),
        4 => drop(files.link(ino, to, new)),
        5 => drop(files.write(ino, 20_000, &[9; 3000], WriteOptions::default())),
        _ => drop(files.rename(USER, from, old, to, new, RenameMode::Replace)),
    }
    files.forget_all();
}

/// Has `e2fsck` mend an image. Then it is read, and read by another reader.
fn read_after_e2fsck(judge: &Judge, image: &[u8]) -> Result<(), String> {
    let mended = judge.mended(image)?;
    judge.clean(&mended)?;
    let files = open_bytes(mended.clone()).map_err(|error| error.to_string())?;
    view::compared(&mended, &files).map(drop)
}

#[test]
fn what_a_crash_has_left_is_given_back_while_the_image_is_in_use() {
    let (judge, mut count, mut leaky) = (Judge::new(), 0, 0);
    for seed in 70..72 {
        let run = run(seed, 120, Ext2Options::default());
        let trace = run.device.trace();
        let mut random = Random::new(seed);
        for state in states(&trace, seed).into_iter().step_by(STATES_EACH) {
            let image = trace.image(state);
            leaky += usize::from(judge.clean(&image).is_err());
            if count % E2FSCK_EACH == 0 {
                read_after_e2fsck(&judge, &image)
                    .map_err(|said| format!("{state}: {said}"))
                    .unwrap();
            }
            let device = Arc::new(MemoryDevice::from_bytes(image));
            let clock = Arc::new(SteppedClock::default());
            let files = open(Arc::clone(&device) as Arc<dyn Device>, clock);
            let (before, acts) = (contents(&files).unwrap(), random.once_in(2));
            let (most, mut step) = (1 + random.below(3), 0);
            while files.reclaim(most).map_err(|error| format!("{state}: {error}")).unwrap() {
                step += 1;
                if acts && random.once_in(4) {
                    act(&files, &mut random, step);
                }
                if random.once_in(40) {
                    files.step().unwrap();
                }
            }
            if !acts {
                assert_eq!(contents(&files).unwrap(), before, "{state}");
                check(&run.promises, state.cut, &before).unwrap();
            }
            let seen = outline(&files).unwrap();
            files.close().unwrap();
            let given_back = device.snapshot();
            judge.clean(&given_back).map_err(|said| format!("{state}: {said}")).unwrap();
            let again = open(device, Arc::new(SteppedClock::default()));
            view::compared(&given_back, &again).map_err(|said| format!("{state}: {said}")).unwrap();
            assert_eq!(outline(&again).unwrap(), seen, "{state}");
            count += 1;
        }
    }
    println!("{leaky} of {count} states had something to be given back");
    assert!(count > 80 && leaky > 30, "{leaky} of {count}");
}

#[test]
fn a_crash_in_the_middle_of_that_leaves_no_more_than_another() {
    let judge = Judge::new();
    let run = run(75, 120, Ext2Options::default());
    let trace = run.device.trace();
    for state in states(&trace, 75).into_iter().step_by(30) {
        let device = Arc::new(RecordingDevice::in_memory(trace.image(state)));
        let clock = Arc::new(SteppedClock::default());
        let files = open(Arc::clone(&device) as Arc<dyn Device>, clock);
        while files.reclaim(5).unwrap() {}
        files.close().unwrap();
        let second = device.trace();
        for again in states(&second, 1).into_iter().step_by(20) {
            judge
                .soft(&second.image(again))
                .map_err(|said| format!("{state} {again}: {said}"))
                .unwrap();
        }
    }
}

#[test]
fn an_image_that_was_written_without_order_is_left_to_e2fsck() {
    let consistency = Some(Consistency::Async);
    let run = run(76, 60, Ext2Options { consistency, ..Ext2Options::default() });
    let trace = run.device.trace();
    let image = trace.state_at(trace.events().len() / 2);
    assert_eq!(image[STATE_AT] & 1, 0, "it was in use");
    let device = Arc::new(MemoryDevice::from_bytes(image));
    let mounted =
        || open(Arc::clone(&device) as Arc<dyn Device>, Arc::new(SteppedClock::default()));
    // A mount under soft updates does not make the crash one of theirs.
    for which in 0..2 {
        let files = mounted();
        assert!(!files.reclaim(100).unwrap());
        let made = files.create(USER, Ino::ROOT, name(&format!("new{which}")), FILE).unwrap();
        files.forget(made.ino, 1);
        files.close().unwrap();
    }
}

#[test]
fn an_image_counts_as_unmounted_after_a_search_that_found_nothing() {
    for shape in [SMALL, JOURNALED] {
        let device = Arc::new(RecordingDevice::in_memory(make(shape)));
        let consistency = Some(Consistency::SoftUpdates);
        let options = Ext2Options { consistency, ..Ext2Options::default() };
        let files = Ext2::open(Arc::clone(&device) as Arc<dyn Device>, options).unwrap();
        files.create(USER, Ino::ROOT, name("f"), FILE).unwrap();
        files.sync_all().unwrap();
        let trace = device.trace();
        let image = trace.state_at(trace.events().len());
        assert_eq!(image[STATE_AT] & 1, 0, "{}: it was in use", shape.kind);
        // An ext3 image is now opened with its journal.
        let device = Arc::new(MemoryDevice::from_bytes(image));
        let files = open(Arc::clone(&device) as Arc<dyn Device>, Arc::new(SteppedClock::default()));
        assert!(files.reclaim(1 << 20).unwrap(), "{}: there is a search", shape.kind);
        while files.reclaim(1 << 20).unwrap() {}
        files.close().unwrap();
        let image = device.snapshot();
        assert_eq!(image[STATE_AT] & 1, 1, "{}: it was unmounted", shape.kind);
        Judge::new().clean(&image).unwrap();
        assert!(!open_bytes(image).unwrap().reclaim(1).unwrap(), "{}", shape.kind);
    }
}
