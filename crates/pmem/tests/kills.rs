//! A process that is killed in the midst of a checkpoint, or of the end of a mount: the next mount
//! in the same run of the machine goes on with all there was, and a power cut after that leaves a
//! checkpoint still.

use crate::checkpoints::{Disk, Part, history, judge, open, some_clock};
use crate::images::ROOT_USER;
use crate::reader::{States, read};
use marram_pmem::memory::recorded::{Event, Recorded};
use marram_sim::Random;
use marram_vfs::{FileSystem, Ino, Kind, Name, NewNode, WriteOptions};

const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };

/// Mounts what a killed process has left, in the same run of the machine, and changes something.
/// What that has stored; and what a checkpoint at the end has, and stores.
fn go_on(disk: &Disk, expected: &States, random: &mut Random) -> (Vec<Event>, Vec<Event>, States) {
    let medium = Recorded::unordered(disk.cache.clone(), 1);
    medium.start();
    let files = open(&medium, some_clock()).unwrap();
    assert!(read(&medium.image()).unwrap() == *expected, "an operation was lost");
    files.audit().unwrap();
    let mut names = Vec::new();
    files
        .read_directory(Ino::ROOT, 0, false, &mut |entry| {
            names.push((entry.name.to_vec(), entry.ino, entry.kind));
            true
        })
        .unwrap();
    for (name, ino, kind) in names {
        if kind == Kind::Regular {
            let _full_perhaps = match random.below(3) {
                0 => files.unlink(Ino::ROOT, Name::new(&name).unwrap()),
                _ => files.write(ino, random.below(9000), &[9; 5000], WriteOptions::default()),
            };
        }
    }
    if let Ok(made) = files.create(ROOT_USER, Ino::ROOT, Name::new(b"later").unwrap(), FILE) {
        let _full_perhaps = files.write(made.ino, 0, &[8; 9000], WriteOptions::default());
    }
    files.audit().unwrap();
    let events = medium.stop();
    let state = read(&medium.image()).unwrap();
    medium.start();
    files.checkpoint().unwrap();
    (events, medium.stop(), state)
}

/// Kills the process before each event of a checkpoint, and cuts the power later.
fn kill_in(disk: &Disk, part: &Part, last: &States, random: &mut Random, what: &str) -> u64 {
    let mut states = 0;
    for moment in 0..=part.checkpoint.len() {
        let mut disk = disk.clone();
        part.checkpoint[..moment].iter().for_each(|event| disk.happen(event, random));
        let (events, checkpoint, state) = go_on(&disk, &part.state, random);
        // A checkpoint of its own, for want of space, can have any of what it did.
        if events.iter().filter(|event| **event == Event::WriteBack).count() > 4 {
            continue;
        }
        let what = format!("{what}, killed at event {moment}");
        states += judge(&mut disk, &events, &[last, &part.state], random, &what);
        let allowed = [last, &part.state, &state];
        states += judge(&mut disk, &checkpoint, &allowed, random, &what);
        states += judge(&mut disk, &[], &[&state], random, &what);
    }
    states
}

#[test]
fn a_kill_in_a_checkpoint_and_a_power_cut_later_leave_one_moment() {
    let (mut states, mut random) = (0, Random::new(11));
    for seed in 40..43 {
        let (before, parts) = history(seed, 4);
        let mut disk = Disk::new(before);
        let mut last = &parts[0].state;
        for (which, part) in parts.iter().enumerate() {
            let what = format!("seed {seed}, part {which}");
            part.operations.iter().for_each(|event| disk.happen(event, &mut random));
            states += kill_in(&disk, part, last, &mut random, &what);
            part.checkpoint.iter().for_each(|event| disk.happen(event, &mut random));
            last = &part.state;
        }
    }
    println!("{states} states");
    assert!(states > 1_000, "{states}");
}
