//! Media whose pages are written back in any order: whatever a power cut leaves, it is the state at
//! the last checkpoint, or at the one that was being made.

use crate::images::{Cut, GRAIN, ROOT_USER, new_image};
use crate::reader::{States, read};
use marram_model::Model;
use marram_pmem::memory::Memory;
use marram_pmem::memory::recorded::{Event, Recorded};
use marram_pmem::{ImageError, Pmem, PmemOptions, Which};
use marram_sim::{Generator, HistoryClock, Pair, Random};
use marram_vfs::{Clock, Error, FileSystem, Ino, Kind, Name, NewNode, SteppedClock, WriteOptions};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

const BYTES: usize = 1 << 20;
const PAGE: usize = 4096;
/// Most versions of a page that are kept between two times that all is written back.
const VERSIONS_MAX: usize = 6;
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };

/// A disk below a cache of pages.
#[derive(Clone)]
pub(crate) struct Disk {
    /// What was written back for certain.
    durable: Vec<u8>,
    pub(crate) cache: Vec<u8>,
    /// Of each page that differs, what may have been written back.
    versions: BTreeMap<usize, Vec<Vec<u8>>>,
}

impl Disk {
    pub(crate) fn new(image: Vec<u8>) -> Disk {
        Disk { cache: image.clone(), durable: image, versions: BTreeMap::new() }
    }

    pub(crate) fn happen(&mut self, event: &Event, random: &mut Random) {
        match event {
            Event::Store { at, bytes } | Event::Fill { at, bytes } => {
                let (at, end) = (*at as usize, *at as usize + bytes.len());
                self.cache[at..end].copy_from_slice(bytes);
                for page in at / PAGE..end.div_ceil(PAGE) {
                    let version = self.cache[page * PAGE..][..PAGE].to_vec();
                    let versions = self.versions.entry(page).or_default();
                    if versions.len() == VERSIONS_MAX {
                        versions.swap_remove(random.below(VERSIONS_MAX as u64) as usize);
                    }
                    versions.push(version);
                }
            }
            Event::WriteBack => {
                self.durable.clone_from(&self.cache);
                self.versions.clear();
            }
            Event::Flush { .. } | Event::Fence => {}
        }
    }

    /// What a power cut leaves: each page as it was, or any version of it.
    fn cut(&self, random: &mut Random) -> Vec<u8> {
        let mut image = self.durable.clone();
        let eager = random.below(4);
        for (page, versions) in &self.versions {
            if random.below(4) >= eager {
                let which = match random.once_in(2) {
                    true => versions.len() - 1,
                    false => random.below(versions.len() as u64) as usize,
                };
                image[page * PAGE..][..PAGE].copy_from_slice(&versions[which]);
            }
        }
        image
    }
}

pub(crate) fn open(medium: &Recorded, clock: Arc<dyn Clock>) -> Result<Pmem, ImageError> {
    let options = PmemOptions { clock, ..PmemOptions::default() };
    Pmem::open(Memory::new(Box::new(medium.clone())), options)
}

pub(crate) fn some_clock() -> Arc<dyn Clock> {
    Arc::new(Cut(Arc::new(SteppedClock::default())))
}

/// Opens an image in another run of the machine; what it shows then, and what that has stored.
fn after_power_cut(image: &[u8], host: u64) -> (States, Vec<Event>) {
    let medium = Recorded::unordered(image.to_vec(), host);
    medium.start();
    let files = open(&medium, some_clock()).unwrap();
    let events = medium.stop();
    files.audit().unwrap();
    (read(&medium.image()).unwrap(), events)
}

/// What happens between two checkpoints, and what a checkpoint does.
pub(crate) struct Part {
    pub(crate) operations: Vec<Event>,
    pub(crate) checkpoint: Vec<Event>,
    /// The state at the checkpoint.
    pub(crate) state: States,
}

/// A history of a seed in parts, on an image that was closed before. The last checkpoint closes it.
pub(crate) fn history(seed: u64, parts: u64) -> (Vec<u8>, Vec<Part>) {
    let moments = Arc::new(HistoryClock::default());
    moments.set_grain(GRAIN);
    let clock: Arc<dyn Clock> = moments.clone();
    let before = new_image(BYTES, &*clock).image();
    let medium = Recorded::unordered(before.clone(), 1);
    medium.start();
    let files = Arc::new(open(&medium, Arc::clone(&clock)).unwrap());
    let begun = medium.stop();
    let state = read(&medium.image()).unwrap();
    let mut all = vec![Part { operations: Vec::new(), checkpoint: begun, state }];
    let mut pair = Pair::new(files.clone() as Arc<dyn FileSystem>, Model::new(clock));
    let (mut generator, mut random) = (Generator::new(seed), Random::new(seed));
    for part in 1..=parts {
        medium.start();
        for step in 0..random.below(12) {
            moments.set(part * 16 + step);
            let _answer = pair.apply(&generator.draw());
        }
        if random.once_in(3) {
            let name = format!("s{part}");
            let _full_perhaps = files.snapshot("root", &name);
            if random.once_in(2) {
                let which = Which { dataset: "root", snapshot: Some(&name) };
                let _gone = files.destroy(&[which], false);
            }
        }
        let operations = medium.stop();
        if operations.contains(&Event::WriteBack) {
            // An operation on a full image has made a checkpoint of its own.
            break;
        }
        medium.start();
        if part == parts {
            files.close().unwrap()
        } else {
            files.checkpoint().unwrap()
        }
        let checkpoint = medium.stop();
        if part < parts && random.once_in(8) {
            files.audit().unwrap();
        }
        all.push(Part { operations, checkpoint, state: read(&medium.image()).unwrap() });
    }
    (before, all)
}

/// Some moments among so many events, the last one too.
fn moments(events: usize, count: u64, random: &mut Random) -> Vec<usize> {
    let some = (0..count).map(|_| random.below(events as u64 + 1) as usize);
    let mut moments: Vec<usize> = some.chain([events]).collect();
    moments.sort_unstable();
    moments
}

/// How often the power is cut while events happen, and what gets each image that is left.
pub(crate) struct Cuts<'v> {
    /// Beside the cut at the end.
    pub(crate) moments: u64,
    /// At each moment.
    pub(crate) states: u64,
    pub(crate) visit: &'v mut dyn FnMut(&[u8]),
}

/// Cuts the power at some moments of a row of events; what comes back is one of `allowed`.
///
/// # Errors
/// What else comes back.
pub(crate) fn judge_cuts(
    disk: &mut Disk,
    events: &[Event],
    allowed: &[&States],
    random: &mut Random,
    cuts: &mut Cuts<'_>,
) -> Result<u64, String> {
    let (mut at, mut states, mut seen) = (0, 0, HashSet::new());
    for moment in moments(events.len(), cuts.moments, random) {
        events[at..moment].iter().for_each(|event| disk.happen(event, random));
        at = moment;
        for _ in 0..cuts.states {
            let image = disk.cut(random);
            if !seen.insert(xxh3_64(&image)) {
                continue;
            }
            (cuts.visit)(&image);
            let (shown, recovery) = after_power_cut(&image, 2);
            if !allowed.contains(&&shown) {
                return Err(format!("event {moment}: another state"));
            }
            // The recovery is cut off too.
            let mut again = Disk::new(image);
            let stop = random.below(recovery.len() as u64 + 1) as usize;
            recovery[..stop].iter().for_each(|event| again.happen(event, random));
            let image = again.cut(random);
            (cuts.visit)(&image);
            if after_power_cut(&image, 3).0 != shown {
                return Err(format!("event {moment}: recovered as another state"));
            }
            states += 2;
        }
    }
    Ok(states)
}

/// As [`judge_cuts`], at few moments; another state is a failed test.
pub(crate) fn judge(
    disk: &mut Disk,
    events: &[Event],
    allowed: &[&States],
    random: &mut Random,
    what: &str,
) -> u64 {
    let mut cuts = Cuts { moments: 3, states: 1, visit: &mut |_| {} };
    let judged = judge_cuts(disk, events, allowed, random, &mut cuts);
    judged.map_err(|said| format!("{what}, {said}")).unwrap()
}

#[test]
fn a_power_cut_leaves_a_checkpoint() {
    let (mut states, mut random, mut seed) = (0, Random::new(5), 0);
    while states < 1_000 {
        seed += 1;
        let (before, parts) = history(seed, 15);
        let mut disk = Disk::new(before);
        let mut last = &parts[0].state;
        for (which, part) in parts.iter().enumerate() {
            let what = format!("seed {seed}, part {which}");
            let judged = judge(&mut disk, &part.operations, &[last], &mut random, &what);
            let allowed = [last, &part.state];
            states += judged + judge(&mut disk, &part.checkpoint, &allowed, &mut random, &what);
            // All of it is durable now.
            states += judge(&mut disk, &[], &[&part.state], &mut random, &what);
            last = &part.state;
        }
    }
    println!("{states} states");
}

/// A file system with a file, in run 1 of the machine.
fn begun() -> (Recorded, Pmem, Ino) {
    let clock = some_clock();
    let medium = Recorded::unordered(new_image(BYTES, &*clock).image(), 1);
    let files = open(&medium, clock).unwrap();
    let name = Name::new(b"f").unwrap();
    let file = files.create(ROOT_USER, Ino::ROOT, name, FILE).unwrap().ino;
    files.write(file, 0, &[1; 100], WriteOptions::default()).unwrap();
    (medium, files, file)
}

fn content(image: Vec<u8>, host: u64) -> Option<Vec<u8>> {
    let files = open(&Recorded::unordered(image, host), some_clock()).unwrap();
    let found = files.lookup(Ino::ROOT, Name::new(b"f").unwrap()).ok()?;
    let mut content = Vec::new();
    files.read(found.ino, 0, 1000, &mut content).unwrap();
    Some(content)
}

#[test]
fn a_checkpoint_that_cannot_be_read_is_not_replaced_by_one_that_holds_nothing() {
    let (medium, files, file) = begun();
    for number in 0..6 {
        files.write(file, 0, &[number; 9000], WriteOptions::default()).unwrap();
        files.sync_all().unwrap();
    }
    files.write(file, 0, &[9; 9000], WriteOptions::default()).unwrap();
    let mut image = medium.image();
    let sequence = |place: usize| u64::from_le_bytes(image[place..place + 8].try_into().unwrap());
    let newest = if sequence(1032) > sequence(1544) { 1024 } else { 1536 };
    image[newest] ^= 1;
    let refused = open(&Recorded::unordered(image, 2), some_clock()).err();
    let Some(ImageError::Damaged(said)) = refused else { panic!("{refused:?}") };
    assert!(said.contains("no checkpoint"), "{said}");
}

#[test]
fn a_killed_process_loses_nothing_and_a_power_cut_what_no_checkpoint_has() {
    let (medium, files, file) = begun();
    assert_eq!(content(medium.image(), 1), Some(vec![1; 100]));
    assert_eq!(content(medium.image(), 2), None);
    files.sync_all().unwrap();
    files.write(file, 0, &[2; 100], WriteOptions::default()).unwrap();
    assert_eq!(content(medium.image(), 1), Some(vec![2; 100]));
    assert_eq!(content(medium.image(), 2), Some(vec![1; 100]));
    files.close().unwrap();
    assert_eq!(content(medium.image(), 2), Some(vec![2; 100]));
    let late = files.write(file, 0, &[3; 100], WriteOptions::default());
    assert_eq!(late, Err(Error::ReadOnly));
}

#[test]
fn only_what_has_changed_makes_a_checkpoint() {
    let (medium, files, file) = begun();
    let cost = |run: &dyn Fn()| {
        medium.start();
        run();
        medium.stop().iter().filter(|event| **event == Event::WriteBack).count()
    };
    assert_eq!(cost(&|| files.sync_all().unwrap()), 2);
    assert_eq!(cost(&|| files.sync_all().unwrap()), 0);
    files.write(file, 50, &[2; 8], WriteOptions::default()).unwrap();
    assert_eq!(cost(&|| files.sync_all().unwrap()), 2);
    assert_eq!(cost(&|| files.close().unwrap()), 2);
}

#[test]
fn a_read_only_mount_after_a_power_cut_asks_for_one_that_writes() {
    let (medium, files, _) = begun();
    files.sync_all().unwrap();
    drop(files);
    let other = Recorded::unordered(medium.image(), 2);
    let options = PmemOptions { writable: false, ..PmemOptions::default() };
    let refused = Pmem::open(Memory::new(Box::new(other.clone())), options.clone()).err();
    assert_eq!(refused, Some(ImageError::Interrupted));
    open(&other, some_clock()).unwrap().close().unwrap();
    assert!(Pmem::open(Memory::new(Box::new(other)), options).is_ok());
}

#[test]
fn a_full_image_can_be_emptied_between_checkpoints() {
    let (_medium, files, file) = begun();
    let mut offset = 0;
    let full = loop {
        match files.write(file, offset, &[7; 8192], WriteOptions::default()) {
            Ok(()) => offset += 8192,
            Err(error) => break error,
        }
    };
    assert_eq!(full, Error::NoSpace);
    files.sync_all().unwrap();
    files.unlink(Ino::ROOT, Name::new(b"f").unwrap()).unwrap();
    files.forget_all();
    let name = Name::new(b"g").unwrap();
    let again = files.create(ROOT_USER, Ino::ROOT, name, FILE).unwrap().ino;
    for at in 0..offset / 8192 - 4 {
        files.write(again, at * 8192, &[8; 8192], WriteOptions::default()).unwrap();
    }
    files.audit().unwrap();
}

#[test]
fn many_snapshots_come_back_from_a_checkpoint() {
    let (medium, files, file) = begun();
    for number in 0..40 {
        files.write(file, 0, &[number; 10], WriteOptions::default()).unwrap();
        files.snapshot("root", &format!("s{number}")).unwrap();
    }
    files.sync_all().unwrap();
    let expected = read(&medium.image()).unwrap();
    files.snapshot("root", "late").unwrap();
    let third = Which { dataset: "root", snapshot: Some("s3") };
    files.destroy(&[third], false).unwrap();
    files.audit().unwrap();
    let (shown, _) = after_power_cut(&medium.image(), 2);
    assert_eq!(shown.len(), 41);
    assert!(shown == expected);
}

#[test]
fn a_write_back_that_fails_is_told_and_ends_all_changes() {
    let (medium, files, file) = begun();
    files.sync_all().unwrap();
    files.write(file, 0, &[2; 100], WriteOptions::default()).unwrap();
    medium.fail_write_back();
    assert!(matches!(files.sync_all(), Err(Error::Io(_))));
    assert!(matches!(files.sync_all(), Err(Error::Io(_))));
    let late = files.write(file, 0, &[3; 100], WriteOptions::default());
    assert_eq!(late, Err(Error::ReadOnly));
    assert!(files.failure().is_some());
    assert_eq!(content(medium.image(), 2), Some(vec![1; 100]));
}
