//! Every store and every crash of random histories, and bugs that are planted into recordings.

use crate::images::{Cut, GRAIN, new_image, open};
use crate::judge::{Draw, Recording};
use marram_model::Model;
use marram_pmem::memory::recorded::{Event, Recorded};
use marram_pmem::{Pmem, Which};
use marram_sim::{Generator, HistoryClock, Pair, Random};
use marram_vfs::{
    Caller, Clock, FileSystem, Ino, Kind, Name, NewNode, RenameMode, SteppedClock, WriteOptions,
};
use std::sync::Arc;

const BYTES: usize = 1 << 20;
const USER: Caller = Caller { uid: 7, gid: 8 };
/// Most states between two fences.
const STATES_MAX: u64 = 24;

/// What is done to datasets between operations.
pub(crate) struct Datasets {
    random: Random,
    /// Snapshots of the root dataset that there are.
    kept: Vec<String>,
}

impl Datasets {
    pub(crate) fn new(seed: u64) -> Datasets {
        Datasets { random: Random::new(seed), kept: Vec::new() }
    }

    /// Makes, goes back to, clones or destroys a state; says what.
    pub(crate) fn step(&mut self, files: &Pmem, step: u64) -> String {
        let done = |done: marram_vfs::Result<()>| done.map_or_else(|_| "refused", |()| "done");
        if self.kept.len() < 2 {
            let name = format!("s{step}");
            let said = done(files.snapshot("root", &name));
            self.kept.push(name);
            return format!("snapshot: {said}");
        }
        let which = self.random.below(self.kept.len() as u64) as usize;
        let kept = self.kept[which].clone();
        let snapshot = Which { dataset: "root", snapshot: Some(&kept) };
        match self.random.below(5) {
            0 | 1 => {
                self.kept.retain(|name| *name != kept);
                format!("destroy: {}", done(files.destroy(&[snapshot], false).map(drop)))
            }
            2 => {
                let keep = format!("b{step}");
                let said = done(files.roll_back("root", &kept, &keep));
                self.kept.push(keep);
                format!("rollback: {said}")
            }
            _ => {
                let clone = Which { dataset: "clone", snapshot: None };
                match files.destroy(&[clone], false) {
                    Ok(_) => "destroy the clone".to_owned(),
                    Err(_) => format!("clone: {}", done(files.clone_snapshot(snapshot, "clone"))),
                }
            }
        }
    }
}

/// Runs the history of a seed, and calls `judge` with what each step stored. With `datasets` there
/// are snapshots, clones and rollbacks in it.
pub(crate) fn recorded(seed: u64, scale: (u64, bool), judge: &mut dyn FnMut(&Recording, &str)) {
    recorded_on(&|medium| medium, seed, scale, judge);
}

/// The same on another medium, which holds what a new one does.
pub(crate) fn recorded_on(
    medium_of: &dyn Fn(Recorded) -> Recorded,
    seed: u64,
    (steps, datasets): (u64, bool),
    judge: &mut dyn FnMut(&Recording, &str),
) {
    let moments = Arc::new(HistoryClock::default());
    moments.set_grain(GRAIN);
    let clock: Arc<dyn Clock> = moments.clone();
    let medium = medium_of(new_image(BYTES, &*clock));
    let files = open(&medium, Arc::clone(&clock));
    let mut pair = Pair::new(files.clone() as Arc<dyn FileSystem>, Model::new(clock));
    let mut generator = Generator::new(seed);
    let mut others = Datasets::new(seed);
    for step in 1..=steps {
        moments.set(step);
        let before = medium.image();
        medium.start();
        let what = if datasets && step % 8 == 0 {
            others.step(&files, step)
        } else {
            let operation = generator.draw();
            // What it answers is the oracle's business.
            let _answer = pair.apply(&operation);
            format!("{operation:?}")
        };
        let recording = Recording { before, events: medium.stop() };
        if !recording.events.is_empty() {
            judge(&recording, &format!("seed {seed}, step {step}: {what}"));
        }
    }
}

#[test]
fn after_each_store_the_state_is_that_before_or_that_after() {
    let mut checks = 0;
    for seed in 0..6 {
        recorded(seed, (250, seed % 2 == 1), &mut |recording, what| {
            let judged = recording.every_store().map_err(|said| format!("{what}: {said}"));
            checks += judged.unwrap();
        });
    }
    println!("{checks} stores");
    assert!(checks > 3_000, "{checks}");
}

#[test]
fn every_crash_leaves_a_whole_operation_or_none() {
    let (mut states, mut visit) = (0, |_: &[u8]| {});
    let mut draw = Draw::new(17, STATES_MAX, &mut visit);
    for seed in 20..25 {
        recorded(seed, (100, seed % 2 == 1), &mut |recording, what| {
            let judged = recording.every_crash(&mut draw);
            states += judged.map_err(|said| format!("{what}: {said}")).unwrap();
        });
    }
    println!("{states} states");
    assert!(states > 2_000, "{states}");
}

/// Some files and directories, and a recording of what follows.
struct Stage {
    medium: Recorded,
    files: Arc<Pmem>,
    file: Ino,
    directory: Ino,
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };

impl Stage {
    fn new() -> Stage {
        let clock: Arc<dyn Clock> = Arc::new(Cut(Arc::new(SteppedClock::default())));
        let medium = new_image(BYTES, &*clock);
        let files = open(&medium, clock);
        let node = NewNode::Directory { permissions: 0o755 };
        let directory = files.create(USER, Ino::ROOT, name("d"), node).unwrap().ino;
        files.create(USER, directory, name("below"), FILE).unwrap();
        let file = files.create(USER, Ino::ROOT, name("a"), FILE).unwrap().ino;
        files.write(file, 0, &[7; 6000], WriteOptions::default()).unwrap();
        Stage { medium, files, file, directory }
    }

    fn record(&self, run: impl FnOnce(&Pmem)) -> Recording {
        let before = self.medium.image();
        self.medium.start();
        run(&self.files);
        Recording { before, events: self.medium.stop() }
    }

    fn rename(&self) -> Recording {
        self.record(|files| {
            let mode = RenameMode::Replace;
            files.rename(USER, Ino::ROOT, name("a"), self.directory, name("b"), mode).unwrap();
        })
    }

    fn append(&self) -> Recording {
        self.record(|files| {
            files.write(self.file, 6000, &[9; 200], WriteOptions::default()).unwrap();
        })
    }

    fn create(&self) -> Recording {
        self.record(|files| {
            files.create(USER, self.directory, name("new"), FILE).unwrap();
        })
    }

    fn link(&self) -> Recording {
        self.record(|files| {
            files.link(self.file, self.directory, name("again")).unwrap();
        })
    }
}

/// What is found when each of the events that `is_meant` picks is planted with a bug in turn.
fn planted(
    recording: &Recording,
    is_meant: impl Fn(&Event) -> bool,
    plant: impl Fn(&mut Vec<Event>, usize),
    judge: impl Fn(&Recording) -> Result<u64, String>,
) -> (usize, usize) {
    judge(recording).unwrap();
    let (mut planted, mut found) = (0, 0);
    for which in 0..recording.events.len() {
        if !is_meant(&recording.events[which]) {
            continue;
        }
        let mut events = recording.events.clone();
        plant(&mut events, which);
        planted += 1;
        let recording = Recording { before: recording.before.clone(), events };
        found += usize::from(judge(&recording).is_err());
    }
    (planted, found)
}

fn crashes(recording: &Recording) -> Result<u64, String> {
    recording.every_crash(&mut Draw::new(3, STATES_MAX, &mut |_| {}))
}

/// A store of a word that commits.
fn is_word(event: &Event) -> bool {
    matches!(event, Event::Store { bytes, .. } if bytes.len() == 8)
}

#[test]
fn a_flush_or_fence_that_is_left_out_is_found() {
    let stage = Stage::new();
    let remove = |events: &mut Vec<Event>, which: usize| drop(events.remove(which));
    for recording in [stage.rename(), stage.create()] {
        let is_flush = |event: &Event| matches!(event, Event::Flush { .. });
        let (flushes, found) = planted(&recording, is_flush, remove, crashes);
        // Times, the last that is flushed, may come late; nothing else may.
        assert!(flushes > 2 && found >= 2, "{found} of {flushes} flushes");
        let is_fence = |event: &Event| *event == Event::Fence;
        let (fences, found) = planted(&recording, is_fence, remove, crashes);
        assert!(fences > 1 && found >= 1, "{found} of {fences} fences");
    }
}

#[test]
fn a_commit_before_its_data_is_found() {
    for recording in [Stage::new().append(), Stage::new().create()] {
        let to_front = |events: &mut Vec<Event>, which: usize| {
            let event = events.remove(which);
            events.insert(0, event);
        };
        let (commits, found) = planted(&recording, is_word, to_front, Recording::every_store);
        assert!(commits >= 1 && found >= 1, "{found} of {commits}");
    }
}

#[test]
fn a_commit_by_single_bytes_is_found() {
    for recording in [Stage::new().append(), Stage::new().create(), Stage::new().rename()] {
        let to_bytes = |events: &mut Vec<Event>, which: usize| {
            let Event::Store { at, bytes } = events.remove(which) else { unreachable!() };
            for (place, byte) in bytes.iter().enumerate().rev() {
                let event = Event::Store { at: at + place as u64, bytes: vec![*byte] };
                events.insert(which, event);
            }
        };
        let (commits, found) = planted(&recording, is_word, to_bytes, Recording::every_store);
        assert!(commits >= 1 && found >= 1, "{found} of {commits}");
    }
}

#[test]
fn a_field_that_is_not_initialised_is_found() {
    let recording = Stage::new().create();
    // The mode of a regular file, which is stored with the flags and the link count.
    let is_mode = |event: &Event| match event {
        Event::Store { bytes, .. } => bytes.len() == 8 && bytes[..2] == [0xa4, 0x81],
        _ => false,
    };
    let leave_out = |events: &mut Vec<Event>, which: usize| drop(events.remove(which));
    let judged = planted(&recording, is_mode, leave_out, Recording::every_store);
    assert_eq!(judged, (1, 1));
}

#[test]
fn what_is_wrong_for_one_store_and_put_back_is_found() {
    let stage = Stage::new();
    let before = stage.medium.image();
    let recording = stage.append();
    // The size, which lies where the last word was stored that has it, and a byte of content.
    let size = 6200_u64.to_le_bytes();
    let is_size = |event: &Event| matches!(event, Event::Store { bytes, .. } if bytes[..] == size);
    let flip = |events: &mut Vec<Event>, which: usize| {
        let event = events[which].clone();
        let Event::Store { at, .. } = &event else { unreachable!() };
        let wrong = Event::Store { at: *at, bytes: 9999_u64.to_le_bytes().to_vec() };
        events.splice(which + 1..which + 1, [wrong, event]);
    };
    assert_eq!(planted(&recording, is_size, flip, Recording::every_store), (1, 1));
    let content = before.windows(4096).position(|page| page.iter().all(|byte| *byte == 7));
    let at = content.unwrap() as u64;
    let hurt = |events: &mut Vec<Event>, which: usize| {
        let store = |byte| Event::Store { at, bytes: vec![byte] };
        events.splice(which..which, [store(8), store(7)]);
    };
    let (places, found) = planted(&recording, |_| true, hurt, Recording::every_store);
    assert_eq!(places, found);
}

#[test]
fn a_record_that_is_replayed_again_is_found() {
    let stage = Stage::new();
    let rename = stage.rename();
    let back = stage.record(|files| {
        let mode = RenameMode::Replace;
        files.rename(USER, stage.directory, name("b"), Ino::ROOT, name("a"), mode).unwrap();
    });
    // The first record stays open while the next operation runs.
    let unlink = stage.record(|files| files.unlink(Ino::ROOT, name("a")).unwrap());
    let mut before = back.before.clone();
    let close = rename
        .events
        .iter()
        .rev()
        .find(|event| matches!(event, Event::Store { at: 4096, bytes } if bytes.len() == 1));
    assert!(close.is_some(), "a rename closes its record");
    before[4096] = 1;
    let replayed = Recording { before, events: unlink.events.clone() };
    assert!(crashes(&unlink).is_ok() && crashes(&replayed).is_err());
}

#[test]
fn a_link_count_is_exact_whenever_it_stops() {
    let recording = Stage::new().link();
    recording.every_store().unwrap();
    crashes(&recording).unwrap();
    let is_intent = |event: &Event| matches!(event, Event::Store { at: 576, .. });
    let remove = |events: &mut Vec<Event>, which: usize| drop(events.remove(which));
    let (intents, found) = planted(&recording, is_intent, remove, Recording::every_store);
    assert_eq!((intents, found), (2, 1), "without the intent; the close alone changes nothing");
}

#[test]
fn a_held_page_that_is_changed_in_place_is_found() {
    let stage = Stage::new();
    stage.files.snapshot("root", "s").unwrap();
    let recording = stage.record(|files| {
        files.write(stage.file, 8, &[9; 8], WriteOptions::default()).unwrap();
    });
    // Each copy of a page: where it lies, and what was copied.
    let pages = recording.before.chunks(4096).map(<[u8]>::to_vec).enumerate();
    let pages: Vec<(u64, Vec<u8>)> = pages.map(|(page, it)| (page as u64 * 4096, it)).collect();
    let mut copies = Vec::new();
    for event in &recording.events {
        if let Event::Fill { at, bytes } = event
            && bytes.len() == 4096
        {
            copies
                .extend(pages.iter().find(|(_, page)| page == bytes).map(|(from, _)| (*at, *from)));
        }
    }
    assert!(copies.len() >= 2, "a page of inodes and one of content: {copies:?}");
    let from = |at: u64| copies.iter().find(|(to, _)| *to == at & !4095).map(|(_, from)| *from);
    // Times that follow may be as they were.
    let is_in_copy = |event: &Event| {
        is_word(event) && matches!(event, Event::Store { at, .. } if from(*at).is_some())
    };
    // As if the page had not been copied, the store goes to the one that the snapshot has too.
    let in_place = |events: &mut Vec<Event>, which: usize| {
        if let Event::Store { at, .. } = &mut events[which] {
            *at = from(*at).unwrap() + *at % 4096;
        }
    };
    let judged = planted(&recording, is_in_copy, in_place, Recording::every_store);
    assert_eq!(judged, (3, 3), "two pointers and the content");
}

#[test]
fn a_freed_page_that_is_used_again_too_early_is_found() {
    let stage = Stage::new();
    // The page of the file's content is free when this has returned, and not before.
    let overwrite = stage.record(|files| {
        files.write(stage.file, 0, &[1; 4096], WriteOptions::default()).unwrap();
    });
    let content = overwrite.before.chunks(4096).position(|page| page.iter().all(|it| *it == 7));
    let at = content.unwrap() as u64 * 4096;
    let reuse = Event::Fill { at, bytes: vec![5; 4096] };
    let commit = overwrite.events.iter().position(is_word).unwrap();
    let with = |place: usize| {
        let mut events = overwrite.events.clone();
        events.insert(place, reuse.clone());
        Recording { before: overwrite.before.clone(), events }
    };
    // Used again after the operation it does no harm; before its commit is durable it does.
    assert!(crashes(&with(overwrite.events.len())).is_ok());
    for place in [commit, commit + 1] {
        assert!(crashes(&with(place)).is_err(), "after {place} of {:?}", overwrite.events);
    }
}

/// A directory that is the last inode of its page of the inode table takes the page with it. No
/// crash leaves a note that leads there.
#[test]
fn a_directory_goes_with_its_page_of_the_table_in_each_crash() {
    const A_PAGE: u64 = 32;
    let clock: Arc<dyn Clock> = Arc::new(Cut(Arc::new(SteppedClock::default())));
    let medium = new_image(BYTES, &*clock);
    let files = open(&medium, clock);
    let node = NewNode::Directory { permissions: 0o755 };
    let make = |number: u64| {
        let text = format!("d{number}");
        (files.create(USER, Ino::ROOT, name(&text), node).unwrap().ino, text)
    };
    let made: Vec<(Ino, String)> = (0..3 * A_PAGE).map(make).collect();
    let in_page: Vec<&(Ino, String)> = made.iter().filter(|(ino, _)| ino.0 / A_PAGE == 1).collect();
    let (last, others) = in_page.split_last().unwrap();
    others.iter().for_each(|(_, text)| files.remove_directory(Ino::ROOT, name(text)).unwrap());
    let before = medium.image();
    medium.start();
    files.remove_directory(Ino::ROOT, name(&last.1)).unwrap();
    let recording = Recording { before, events: medium.stop() };
    let mut visit = |_: &[u8]| {};
    let mut draw = Draw::new(3, STATES_MAX, &mut visit);
    assert!(recording.every_crash(&mut draw).unwrap() > 3);
}
