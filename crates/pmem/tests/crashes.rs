//! Every store and every crash of random histories, and bugs that are planted into recordings.

use crate::images::{Cut, new_image, open};
use crate::judge::Recording;
use marram_model::Model;
use marram_pmem::memory::recorded::{Event, Recorded};
use marram_sim::{Generator, HistoryClock, Pair, Random};
use marram_vfs::{
    Caller, Clock, FileSystem, Ino, Kind, Name, NewNode, RenameMode, SteppedClock, WriteOptions,
};
use std::sync::Arc;

const BYTES: usize = 1 << 20;
const USER: Caller = Caller { uid: 7, gid: 8 };

/// Runs the history of a seed, and calls `judge` with what each step stored.
fn recorded(seed: u64, steps: u64, judge: &mut dyn FnMut(&Recording, &str)) {
    let moments = Arc::new(HistoryClock::default());
    let clock: Arc<dyn Clock> = Arc::new(Cut(Arc::clone(&moments)));
    let medium = new_image(BYTES, &*clock);
    let files = open(&medium, Arc::clone(&clock));
    let mut pair = Pair::new(files as Arc<dyn FileSystem>, Model::new(clock));
    let mut generator = Generator::new(seed);
    for step in 1..=steps {
        moments.set(step);
        let operation = generator.draw();
        let before = medium.image();
        medium.start();
        // What it answers is the oracle's business.
        let _answer = pair.apply(&operation);
        let recording = Recording { before, events: medium.stop() };
        if !recording.events.is_empty() {
            judge(&recording, &format!("seed {seed}, step {step}: {operation:?}"));
        }
    }
}

#[test]
fn after_each_store_the_state_is_that_before_or_that_after() {
    let mut checks = 0;
    for seed in 0..6 {
        recorded(seed, 250, &mut |recording, what| {
            let judged = recording.every_store().map_err(|said| format!("{what}: {said}"));
            checks += judged.unwrap();
        });
    }
    println!("{checks} stores");
    assert!(checks > 3_000, "{checks}");
}

#[test]
fn every_crash_leaves_a_whole_operation_or_none() {
    let (mut states, mut random) = (0, Random::new(17));
    for seed in 20..24 {
        recorded(seed, 120, &mut |recording, what| {
            let judged = recording.every_crash(&mut random);
            states += judged.map_err(|said| format!("{what}: {said}")).unwrap();
        });
    }
    println!("{states} states");
    assert!(states > 2_000, "{states}");
}

/// Some files and directories, and a recording of what follows.
struct Stage {
    medium: Recorded,
    files: Arc<dyn FileSystem>,
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
        let files = open(&medium, clock) as Arc<dyn FileSystem>;
        let node = NewNode::Directory { permissions: 0o755 };
        let directory = files.create(USER, Ino::ROOT, name("d"), node).unwrap().ino;
        files.create(USER, directory, name("below"), FILE).unwrap();
        let file = files.create(USER, Ino::ROOT, name("a"), FILE).unwrap().ino;
        files.write(file, 0, &[7; 6000], WriteOptions::default()).unwrap();
        Stage { medium, files, file, directory }
    }

    fn record(&self, run: impl FnOnce(&dyn FileSystem)) -> Recording {
        let before = self.medium.image();
        self.medium.start();
        run(&*self.files);
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
    recording.every_crash(&mut Random::new(3))
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
    let is_inode = |event: &Event| matches!(event, Event::Fill { bytes, .. } if bytes.len() == 64);
    let leave_out = |events: &mut Vec<Event>, which: usize| {
        if let Event::Fill { at, bytes } = &events[which] {
            // The image was noise before it was made, as memory is.
            events[which] = Event::Fill { at: at + 8, bytes: bytes[8..].to_vec() };
        }
    };
    let judged = planted(&recording, is_inode, leave_out, Recording::every_store);
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
