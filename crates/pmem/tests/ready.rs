//! Mounts that answer before it is known which pages are free: operations go on meanwhile, whatever
//! they do is as safe as ever, and what is known afterwards is exact.

use crate::checkpoints::{Cuts, Disk, judge_cuts, some_clock};
use crate::crashes::Datasets;
use crate::images::{GRAIN, ROOT_USER, new_image};
use crate::judge::{Draw, Recording};
use crate::reader::read;
use marram_model::Model;
use marram_pmem::memory::Memory;
use marram_pmem::memory::recorded::Recorded;
use marram_pmem::{ImageError, Opening, Pmem, PmemOptions};
use marram_sim::{Generator, HistoryClock, Pair, Random};
use marram_vfs::{Clock, Error, FileSystem, Ino, Kind, Name, NewNode, WriteOptions};
use std::sync::Arc;

const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
/// An image with some tens of spare pages.
const BYTES: usize = 4 << 20;

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

/// Opens an image of which nothing is known.
fn opened(medium: &Recorded, clock: Arc<dyn Clock>) -> Result<Pmem, ImageError> {
    let options = PmemOptions { clock, ..PmemOptions::default() };
    Opening::begin(Memory::new(Box::new(medium.clone())), options)?.finish()
}

/// A closed image with files of a page and a snapshot.
fn stage(count: u64) -> Recorded {
    let medium = new_image(BYTES, &*some_clock());
    let files = opened(&medium, some_clock()).unwrap();
    files.find_space().unwrap();
    for number in 0..count {
        let made = files.create(ROOT_USER, Ino::ROOT, name(&format!("f{number}")), FILE).unwrap();
        files.write(made.ino, 0, &[7; 4096], WriteOptions::default()).unwrap();
    }
    files.snapshot("root", "kept").unwrap();
    files.close().unwrap();
    Recorded::new(medium.image())
}

fn write(files: &Pmem, text: &str, byte: u8, bytes: usize) -> Result<(), Error> {
    let ino = files.lookup(Ino::ROOT, name(text))?.ino;
    files.write(ino, 0, &vec![byte; bytes], WriteOptions::default())
}

fn content(files: &Pmem, text: &str) -> Vec<u8> {
    let (ino, mut content) = (files.lookup(Ino::ROOT, name(text)).unwrap().ino, Vec::new());
    files.read(ino, 0, 1 << 20, &mut content).unwrap();
    content
}

#[test]
fn reads_and_writes_go_on_and_a_report_of_space_is_exact() {
    let files = opened(&stage(40), some_clock()).unwrap();
    write(&files, "f3", 9, 100).unwrap();
    files.create(ROOT_USER, Ino::ROOT, name("new"), FILE).unwrap();
    files.unlink(Ino::ROOT, name("f4")).unwrap();
    files.snapshot("root", "meanwhile").unwrap();
    write(&files, "f3", 8, 50).unwrap();
    let expected = [&[8; 50][..], &[9; 50], &[7; 3996]].concat();
    assert!(content(&files, "f3") == expected && content(&files, "f5") == [7; 4096]);
    let before = files.space().unwrap();
    assert!(!files.find_space().unwrap(), "the report has waited for it");
    files.audit().unwrap();
    assert_eq!(before.inodes_used, 41);
    assert_eq!(before.free_bytes, files.space().unwrap().free_bytes);
}

#[test]
fn more_than_the_spare_pages_waits_for_the_scan() {
    let files = opened(&stage(10), some_clock()).unwrap();
    let made = files.create(ROOT_USER, Ino::ROOT, name("large"), FILE).unwrap().ino;
    for piece in 0..20 {
        files.write(made, piece << 16, &[5; 1 << 16], WriteOptions::default()).unwrap();
    }
    assert!(!files.find_space().unwrap(), "a write has waited for it");
    assert!(content(&files, "large") == [5; 1 << 20]);
    files.audit().unwrap();
}

#[test]
fn a_full_image_has_no_spare_pages_and_has_some_again_later() {
    let medium = stage(1);
    let spare = || medium.image()[2048..4096].iter().any(|byte| *byte != 0);
    let files = opened(&medium, some_clock()).unwrap();
    assert!(spare());
    let made = files.create(ROOT_USER, Ino::ROOT, name("large"), FILE).unwrap().ino;
    let mut at = 0;
    while files.write(made, at, &[5; 4096], WriteOptions::default()).is_ok() {
        at += 4096;
    }
    assert!(!spare() && at > 3 << 20);
    drop(files);
    // A mount of a full image answers too, and everything in it can be deleted.
    let files = opened(&medium, some_clock()).unwrap();
    files.unlink(Ino::ROOT, name("large")).unwrap();
    files.unlink(Ino::ROOT, name("f0")).unwrap();
    files.audit().unwrap();
    files.close().unwrap();
    assert!(spare());
}

/// An image in which the content of a file lies where the inode table does.
fn circular(mut image: Vec<u8>, text: &str) -> Vec<u8> {
    let files = opened(&Recorded::new(image.clone()), some_clock()).unwrap();
    let ino = files.lookup(Ino::ROOT, name(text)).unwrap().ino;
    drop(files);
    let root = u64::from_le_bytes(image[12_288 + 264..][..8].try_into().unwrap());
    let (top, height) = ((root & !0xfff) as usize, root & 7);
    assert_eq!(height, 1, "the inode table has several pages");
    let page =
        u64::from_le_bytes(image[top + (ino.0 as usize / 32) * 8..][..8].try_into().unwrap());
    let pointer = page as usize + (ino.0 as usize % 32) * 128 + 24;
    image[pointer..pointer + 8].copy_from_slice(&(root & !0xfff).to_le_bytes());
    image
}

#[test]
fn an_image_that_makes_no_sense_is_refused_or_not_changed_any_more() {
    let image = circular(stage(40).image(), "f9");
    let medium = Recorded::new(image);
    let refused = Pmem::open(Memory::new(Box::new(medium.clone())), PmemOptions::default()).err();
    assert!(matches!(refused, Some(ImageError::Damaged(_))), "{refused:?}");
    let files = opened(&medium, some_clock()).unwrap();
    write(&files, "f1", 9, 100).unwrap();
    let Err(Error::Damaged(said)) = files.find_space() else { panic!("it was not seen") };
    assert!(said.contains("used twice"), "{said}");
    assert_eq!(write(&files, "f1", 8, 100), Err(Error::ReadOnly));
    assert!(files.failure().is_some() && files.space().is_err());
    assert_eq!(content(&files, "f1")[..100], [9; 100]);
}

#[test]
fn a_page_that_is_said_to_be_free_and_is_used_is_found() {
    let medium = stage(5);
    let mut image = medium.image();
    let word = u64::from_le_bytes(image[2048..2056].try_into().unwrap());
    let first = (word & 0x7fff_ffff) * 4096;
    // The root directory's inode gets a page of names there.
    let root = u64::from_le_bytes(image[12_288 + 264..][..8].try_into().unwrap());
    let table = u64::from_le_bytes(image[(root & !0xfff) as usize..][..8].try_into().unwrap());
    let inode = if root & 7 == 0 { root & !0xfff } else { table } as usize + 128;
    let names = u64::from_le_bytes(image[inode + 24..][..8].try_into().unwrap()) as usize;
    image.copy_within(names..names + 4096, first as usize);
    image[inode + 24..][..8].copy_from_slice(&first.to_le_bytes());
    let refused = Pmem::open(Memory::new(Box::new(Recorded::new(image))), PmemOptions::default());
    let Some(ImageError::Damaged(said)) = refused.err() else { panic!("it was opened") };
    assert!(said.contains("said to be free"), "{said}");
}

/// Runs random operations on an image that is opened again and again, and calls `judge` with what
/// each step stored before the scan has ended.
fn histories(seed: u64, judge: &mut dyn FnMut(&Recording, &str)) {
    let moments = Arc::new(HistoryClock::default());
    moments.set_grain(GRAIN);
    let clock: Arc<dyn Clock> = moments.clone();
    let medium = new_image(BYTES, &*clock);
    let (mut generator, mut random) = (Generator::new(seed), Random::new(seed));
    let mut others = Datasets::new(seed);
    let mut files = Arc::new(opened(&medium, Arc::clone(&clock)).unwrap());
    let mut pair = Pair::new(files.clone() as Arc<dyn FileSystem>, Model::new(clock.clone()));
    let mut step = 0;
    for round in 0..12 {
        for _ in 0..random.below(10) {
            step += 1;
            moments.set(step);
            let before = medium.image();
            medium.start();
            let what = match random.once_in(6) {
                true => others.step(&files, step),
                false => {
                    let operation = generator.draw();
                    let _answer = pair.apply(&operation);
                    format!("{operation:?}")
                }
            };
            let recording = Recording { before, events: medium.stop() };
            if !recording.events.is_empty() {
                judge(&recording, &format!("seed {seed}, round {round}: {what}"));
            }
        }
        if random.once_in(2) {
            files.audit().unwrap();
        }
        let expected = read(&medium.image()).unwrap();
        pair.release();
        drop(files);
        files = Arc::new(opened(&medium, Arc::clone(&clock)).unwrap());
        assert!(read(&medium.image()).unwrap() == expected, "seed {seed}, round {round}");
        pair.forget_all();
        pair.resume(files.clone() as Arc<dyn FileSystem>);
    }
    files.audit().unwrap();
}

#[test]
fn every_store_and_crash_before_the_scan_has_ended_leaves_a_whole_operation_or_none() {
    let (mut stores, mut states) = (0, 0);
    for seed in 0..3 {
        let mut visit = |_: &[u8]| {};
        let mut draw = Draw::new(seed, 6, &mut visit);
        histories(seed, &mut |recording, what| {
            let said = |said: String| format!("{what}: {said}");
            stores += recording.every_store().map_err(said).unwrap();
            states += recording.every_crash(&mut draw).map_err(said).unwrap();
        });
    }
    println!("{stores} stores, {states} states");
    assert!(stores > 300 && states > 300, "{stores} stores, {states} states");
}

#[test]
fn a_power_cut_before_the_scan_has_ended_leaves_a_checkpoint() {
    let mut random = Random::new(3);
    let image = stage(40).image();
    let medium = Recorded::unordered(image.clone(), 1);
    let mut disk = Disk::new(image);
    let mut states = vec![read(&medium.image()).unwrap()];
    medium.start();
    let files = opened(&medium, some_clock()).unwrap();
    for number in 0..6 {
        write(&files, &format!("f{number}"), 9, 200).unwrap();
        files.unlink(Ino::ROOT, name(&format!("f{}", number + 20))).unwrap();
        files.checkpoint().unwrap();
        states.push(read(&medium.image()).unwrap());
        let allowed: Vec<_> = states.iter().rev().take(2).collect();
        let mut cuts = Cuts { moments: 6, states: 4, visit: &mut |_| {} };
        let events = medium.stop();
        judge_cuts(&mut disk, &events, &allowed, &mut random, &mut cuts).unwrap();
        medium.start();
    }
    files.audit().unwrap();
}

/// An image of a run of the machine that has ended, with a checkpoint, and an image of before it
/// was left: a file was written after the checkpoint.
fn cut_off() -> [Vec<u8>; 2] {
    let medium = Recorded::unordered(stage(40).image(), 1);
    let files = opened(&medium, some_clock()).unwrap();
    write(&files, "f1", 9, 200).unwrap();
    files.checkpoint().unwrap();
    let before = medium.image();
    write(&files, "f2", 9, 200).unwrap();
    drop(files);
    [before, medium.image()]
}

#[test]
fn a_mount_after_a_power_cut_answers_at_once_and_another_cut_leaves_a_checkpoint() {
    let [_, image] = cut_off();
    let (medium, mut disk) = (Recorded::unordered(image.clone(), 9), Disk::new(image));
    medium.start();
    let files = opened(&medium, some_clock()).unwrap();
    assert_eq!(content(&files, "f1")[..200], [9; 200]);
    assert_eq!(content(&files, "f2"), [7; 4096], "it was written after the checkpoint");
    let mut states = vec![read(&medium.image()).unwrap()];
    write(&files, "f3", 8, 200).unwrap();
    files.unlink(Ino::ROOT, name("f4")).unwrap();
    files.checkpoint().unwrap();
    states.push(read(&medium.image()).unwrap());
    let (allowed, mut random): (Vec<_>, _) = (states.iter().collect(), Random::new(4));
    let mut cuts = Cuts { moments: 30, states: 6, visit: &mut |_| {} };
    judge_cuts(&mut disk, &medium.stop(), &allowed, &mut random, &mut cuts).unwrap();
    files.audit().unwrap();
}

/// A look through the checkpoint would meet what makes no sense, so the mount has not looked.
#[test]
fn what_makes_no_sense_in_a_checkpoint_is_seen_beside_operations() {
    let [image, _] = cut_off();
    let medium = Recorded::unordered(circular(image, "f9"), 9);
    let files = opened(&medium, some_clock()).unwrap();
    assert_eq!(content(&files, "f1")[..200], [9; 200]);
    let Err(Error::Damaged(said)) = files.find_space() else { panic!("it was not seen") };
    assert!(said.contains("used twice"), "{said}");
    assert!(write(&files, "f1", 8, 100).is_err() && files.failure().is_some());
}
