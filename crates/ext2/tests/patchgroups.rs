//! Groups of operations: whatever a crash leaves of one, all of those that it waits for is there,
//! under each order of writes.

use crate::crashes::states_of;
use crate::images::{JOURNALED, SMALL, Shape, make, name, open_bytes, program};
use crate::judge::Judge;
use crate::logged::mounted;
use crate::workload::{contents, opened_with};
use marram_ext2::{Consistency, Ext2, Ext2Options, JournalBug, Planted};
use marram_model::Model;
use marram_patch::Bug;
use marram_sim::Random;
use marram_sim::device::{CrashState, Fate, RecordingDevice, Trace};
use marram_vfs::{
    Caller, Error, FileSystem, Ino, Kind, NewNode, Patchgroup, Patchgroups, RenameMode, Result,
    SetAttributes, SteppedClock, SyncScope, WriteOptions,
};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

const USER: Caller = Caller { uid: 7, gid: 8 };
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
const DIRECTORY: NewNode<'_> = NewNode::Directory { permissions: 0o755 };
const ORDERS: [Consistency; 5] = [
    Consistency::SoftUpdates,
    Consistency::Async,
    Consistency::Journal,
    Consistency::JournalFull,
    Consistency::JournalWriteback,
];
/// Groups of a chain, each of which waits for the one before.
const GROUPS: u64 = 12;
/// Bytes of what a group appends, and of its place in a file that it overwrites a part of.
const RECORD_BYTES: u64 = 300;
const SLOT_BYTES: u64 = 64;
const TABLE_BYTES: u64 = 8192;
const CHAINS: [&str; 2] = ["a", "b"];
/// States of a run.
const STATES: usize = 60;

fn shape(order: Consistency) -> Shape {
    match order {
        Consistency::SoftUpdates | Consistency::Async => SMALL,
        _ => JOURNALED,
    }
}

fn options(order: Consistency, planted: Option<Planted>) -> Ext2Options {
    Ext2Options { consistency: Some(order), planted, ..Ext2Options::default() }
}

fn image(order: Consistency, planted: Option<Planted>) -> (Arc<RecordingDevice>, Arc<Ext2>) {
    let device = Arc::new(RecordingDevice::in_memory(make(shape(order))));
    let files = opened_with(&device, options(order, planted));
    (device, files)
}

fn made(files: &dyn FileSystem, node: NewNode<'_>, (parent, text): (Ino, &str)) -> Ino {
    let made = files.create(USER, parent, name(text), node).unwrap();
    files.forget(made.ino, 1);
    made.ino
}

fn write(files: &dyn FileSystem, ino: Ino, offset: u64, bytes: &[u8]) -> Result<()> {
    files.write(ino, offset, bytes, WriteOptions::default())
}

/// Where a group has its place in the table: neighbours lie in different blocks.
fn slot(group: u64) -> u64 {
    group * 37 % (TABLE_BYTES / SLOT_BYTES) * SLOT_BYTES
}

/// A chain of groups as it grows.
struct Chain {
    text: &'static str,
    log: Ino,
    table: Ino,
    directory: Ino,
    /// The last group and the handle of its operations.
    last: Option<(Patchgroup, Arc<dyn FileSystem>)>,
    group: u64,
    step: u64,
}

impl Chain {
    fn new(files: &Ext2, directory: Ino, text: &'static str) -> Chain {
        let [log, table] =
            ["log", "table"].map(|of| made(files, FILE, (Ino::ROOT, &format!("{text}-{of}"))));
        write(files, table, 0, &vec![0; TABLE_BYTES as usize]).unwrap();
        made(files, FILE, (Ino::ROOT, &format!("{text}-r0")));
        Chain { text, log, table, directory, last: None, group: 0, step: 0 }
    }

    /// The next operation of the group, or the next group.
    fn act(&mut self, files: &Ext2) {
        let Some((group, engaged)) = &self.last else { return self.begin(files) };
        let (k, byte, text) = (self.group, self.group as u8 + 1, self.text);
        match self.step {
            0 => {
                let file = made(&**engaged, FILE, (self.directory, &format!("{text}-g{k}")));
                write(&**engaged, file, 0, &vec![byte; 700 + k as usize]).unwrap();
            }
            1 => {
                let record = [byte; RECORD_BYTES as usize];
                engaged.append(self.log, &record, WriteOptions::default()).map(drop).unwrap();
            }
            2 => write(&**engaged, self.table, slot(k), &[byte; SLOT_BYTES as usize]).unwrap(),
            3 => {
                let [old, new] = [k, k + 1].map(|which| format!("{text}-r{which}"));
                let (from, to, mode) = (name(&old), name(&new), RenameMode::Replace);
                engaged.rename(USER, Ino::ROOT, from, Ino::ROOT, to, mode).unwrap();
            }
            _ => {
                let before = *group;
                self.begin_after(files, Some(before));
                self.group += 1;
                return;
            }
        }
        self.step += 1;
    }

    fn begin(&mut self, files: &Ext2) {
        self.begin_after(files, None);
    }

    fn begin_after(&mut self, files: &Ext2, before: Option<Patchgroup>) {
        let group = files.make_group().unwrap();
        if let Some(before) = before {
            files.depend(group, before).unwrap();
            files.close_group(before).unwrap();
        }
        self.last = Some((group, files.engaged(&[group]).unwrap()));
        self.step = 0;
    }
}

/// Records two chains of groups beside each other, and operations of none.
fn recorded(order: Consistency, planted: Option<Planted>, seed: u64) -> (Trace, usize) {
    let (device, files) = image(order, planted);
    let directory = made(&*files, DIRECTORY, (Ino::ROOT, "d1"));
    let mut chains = CHAINS.map(|text| Chain::new(&files, directory, text));
    let noise = made(&*files, FILE, (Ino::ROOT, "noise"));
    write(&*files, noise, 0, &[9; 4000]).unwrap();
    files.sync_all().unwrap();
    let from = device.event_count();
    let mut random = Random::new(seed);
    while chains.iter().any(|chain| chain.group < GROUPS) {
        let which = random.below(2) as usize;
        if chains[which].group < GROUPS {
            chains[which].act(&files);
        }
        match random.below(12) {
            // In no order a change of no group may hide names of a directory that it changes.
            2 if order == Consistency::Async => (),
            0 => drop(files.step().unwrap()),
            1 => write(&*files, noise, random.below(5000), &[9; 700]).unwrap(),
            2 => drop(made(&*files, FILE, (directory, &format!("n{}", random.number())))),
            3 if random.once_in(3) => files.sync(noise, SyncScope::All).unwrap(),
            _ => (),
        }
    }
    files.sync_all().unwrap();
    (device.trace(), from)
}

/// Whether anything of a group is there, and whether all of it is.
fn seen(found: &BTreeMap<String, Vec<u8>>, chain: &str, k: u64) -> (bool, bool) {
    let byte = k as u8 + 1;
    let file = found.get(&format!("1/{chain}-g{k}"));
    let none = Vec::new();
    let log = found.get(&format!("0/{chain}-log")).unwrap_or(&none);
    let record = log.iter().skip((k * RECORD_BYTES) as usize).take(RECORD_BYTES as usize);
    let record: Vec<u8> = record.copied().collect();
    let table = found.get(&format!("0/{chain}-table")).unwrap_or(&none);
    let own: Vec<u8> =
        table.iter().skip(slot(k) as usize).take(SLOT_BYTES as usize).copied().collect();
    let moved = |which: u64| found.contains_key(&format!("0/{chain}-r{which}"));
    let any = file.is_some() || !record.is_empty() || own.contains(&byte) || moved(k + 1);
    let all = file == Some(&vec![byte; 700 + k as usize])
        && record == [byte; RECORD_BYTES as usize]
        && own == [byte; SLOT_BYTES as usize]
        && (k + 1..=GROUPS).any(moved);
    (any, all)
}

/// Compares what is there with the order of the groups.
fn ordered(found: &BTreeMap<String, Vec<u8>>) -> std::result::Result<(), String> {
    for chain in CHAINS {
        let last = (0..GROUPS).rev().find(|k| seen(found, chain, *k).0);
        let missing = (0..last.unwrap_or(0)).find(|k| !seen(found, chain, *k).1);
        if let Some(missing) = missing {
            return Err(format!("{chain}: of group {last:?} something is there, not {missing}"));
        }
    }
    Ok(())
}

/// What `e2fsck -fy` makes of an image that has no order but that of its groups.
fn repaired(image: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, image).unwrap();
    Command::new(program("e2fsck")).arg("-fy").arg(&path).output().unwrap();
    std::fs::read(&path).unwrap()
}

fn judged(
    judge: &Judge,
    order: Consistency,
    trace: &Trace,
    state: CrashState,
) -> std::result::Result<(), String> {
    let image = trace.image(state);
    let opened = |image| open_bytes(image).map_err(|error| error.to_string());
    let files = match order {
        Consistency::SoftUpdates => {
            judge.soft(&image)?;
            opened(image)?
        }
        Consistency::Async => opened(repaired(&image))?,
        _ => mounted(judge, image)?,
    };
    ordered(&contents(&files)?)
}

/// Judges the crash states of a run.
fn run(
    order: Consistency,
    planted: Option<Planted>,
    seed: u64,
) -> std::result::Result<usize, String> {
    let ((trace, from), judge, mut count) = (recorded(order, planted, seed), Judge::new(), 0);
    let states = states_of(&trace, seed, 3 * STATES);
    for state in states.into_iter().filter(|state| state.cut >= from).take(STATES) {
        let said = judged(&judge, order, &trace, state);
        said.map_err(|said| format!("{}, run {seed}, {state}: {said}", order.name()))?;
        count += 1;
    }
    Ok(count)
}

#[test]
fn a_crash_never_leaves_a_group_without_those_that_it_waits_for() {
    for order in ORDERS {
        let counts = (0..2).map(|seed| run(order, None, seed).unwrap());
        assert!(counts.sum::<usize>() > STATES, "{}", order.name());
    }
}

#[test]
fn an_order_of_groups_that_is_left_out_is_found() {
    for (order, bug) in [
        (Consistency::SoftUpdates, Planted::Cache(Bug::GroupDropped)),
        (Consistency::Async, Planted::Cache(Bug::GroupDropped)),
        (Consistency::Journal, Planted::Journal(JournalBug::GroupsApart)),
        (Consistency::JournalWriteback, Planted::Journal(JournalBug::GroupsApart)),
    ] {
        assert!(
            (0..6).any(|seed| run(order, Some(bug), seed).is_err()),
            "{}: {bug:?}",
            order.name()
        );
    }
}

/// What is found after a crash that leaves nothing but what is durable.
fn crashed(device: &RecordingDevice, order: Consistency) -> BTreeMap<String, Vec<u8>> {
    let trace = device.trace();
    let image = trace.image(CrashState { cut: trace.events().len(), fate: Fate::Durable });
    let image = if order == Consistency::Async { repaired(&image) } else { image };
    contents(&open_bytes(image).unwrap()).unwrap()
}

#[test]
fn a_sync_of_a_group_makes_it_durable_with_the_names_of_its_files() {
    for order in ORDERS {
        let (device, files) = image(order, None);
        let directory = made(&*files, DIRECTORY, (Ino::ROOT, "d1"));
        let file = made(&*files, FILE, (directory, "f"));
        let [first, second] = [(); 2].map(|()| files.make_group().unwrap());
        let engaged = files.engaged(&[first]).unwrap();
        write(&*engaged, file, 0, &[5; 3000]).unwrap();
        files.depend(second, first).unwrap();
        let engaged = files.engaged(&[second]).unwrap();
        write(&*engaged, file, 3000, &[6; 3000]).unwrap();
        let third = files.make_group().unwrap();
        files.depend(third, second).unwrap();
        // It has no changes itself.
        files.sync_group(third).unwrap();
        let found = crashed(&device, order);
        let expected = [[5; 3000], [6; 3000]].concat();
        assert!(found.get("1/f") == Some(&expected), "{}", order.name());
        let before = files.counters().flushes;
        files.sync_group(first).unwrap();
        files.sync_group(second).unwrap();
        assert_eq!(files.counters().flushes, before, "{}: it is durable", order.name());
        files.close_group(second).unwrap();
        assert!(matches!(files.sync_group(second), Err(Error::InvalidArgument(_))));
        files.close().unwrap();
    }
}

/// Its write changes nothing, for the bytes of another write are there, which is not durable yet.
#[test]
fn what_a_group_writes_is_durable_with_it_though_it_was_there_already() {
    for order in ORDERS {
        let (device, files) = image(order, None);
        let file = made(&*files, FILE, (Ino::ROOT, "f"));
        write(&*files, file, 0, &[1; 3000]).unwrap();
        files.sync_all().unwrap();
        write(&*files, file, 100, &[2; 500]).unwrap();
        let [first, second] = [(); 2].map(|()| files.make_group().unwrap());
        write(&*files.engaged(&[first]).unwrap(), file, 100, &[2; 500]).unwrap();
        files.depend(second, first).unwrap();
        files.sync_group(second).unwrap();
        let found = crashed(&device, order);
        assert_eq!(found["0/f"][90..610], [&[1; 10][..], &[2; 500], &[1; 10]].concat());
        files.close().unwrap();
    }
}

#[test]
fn a_sync_of_a_group_leaves_what_others_wrote() {
    let (_device, files) = image(Consistency::SoftUpdates, None);
    let [own, other] = ["own", "other"].map(|text| made(&*files, FILE, (Ino::ROOT, text)));
    files.sync_all().unwrap();
    let group = files.make_group().unwrap();
    write(&*files, other, 0, &vec![1; 400_000]).unwrap();
    write(&*files.engaged(&[group]).unwrap(), own, 0, &[2; 2000]).unwrap();
    let before = files.counters();
    files.sync_group(group).unwrap();
    let after = files.counters();
    assert!(after.flushes - before.flushes <= 2, "{after:?}");
    assert!(after.written_bytes - before.written_bytes < 20_000, "{after:?}");
}

/// What is found of a block that a group has overwritten, and then a write of no group.
fn overwritten(bug: Option<JournalBug>) -> Vec<u8> {
    let order = Consistency::Journal;
    let (device, files) = image(order, bug.map(Planted::Journal));
    let file = made(&*files, FILE, (Ino::ROOT, "f"));
    write(&*files, file, 0, &[1; 3000]).unwrap();
    files.sync_all().unwrap();
    let group = files.make_group().unwrap();
    write(&*files.engaged(&[group]).unwrap(), file, 0, &[2; 3000]).unwrap();
    files.sync_group(group).unwrap();
    write(&*files, file, 0, &[3; 3000]).unwrap();
    files.sync(file, SyncScope::All).unwrap();
    crashed(&device, order)["0/f"].clone()
}

#[test]
fn a_replay_brings_back_no_older_bytes_of_what_a_group_has_overwritten() {
    assert_eq!(overwritten(None), [3; 3000]);
    assert_eq!(overwritten(Some(JournalBug::StaleCopies)), [2; 3000], "else this proves nothing");
}

#[test]
fn large_writes_of_a_group_and_over_it_fit_into_the_journal() {
    const BYTES: usize = 1 << 20;
    for order in ORDERS {
        let shape = Shape { kib: 8192, ..shape(order) };
        let device = Arc::new(RecordingDevice::in_memory(make(shape)));
        let files = opened_with(&device, options(order, None));
        let file = made(&*files, FILE, (Ino::ROOT, "f"));
        write(&*files, file, 0, &vec![1; BYTES]).unwrap();
        let group = files.make_group().unwrap();
        let engaged = files.engaged(&[group]).unwrap();
        write(&*engaged, file, 500, &vec![2; BYTES]).unwrap();
        write(&*engaged, file, 700, &vec![3; 200_000]).unwrap();
        write(&*files, file, 0, &vec![4; BYTES]).unwrap();
        engaged.set_attributes(USER, file, &cut(10_000)).unwrap();
        files.sync(file, SyncScope::All).unwrap();
        assert!(crashed(&device, order)["0/f"] == [4; 10_000], "{}", order.name());
        files.close().unwrap();
        let trace = device.trace();
        Judge::new().clean(&trace.state_at(trace.events().len())).unwrap();
    }
}

fn cut(size: u64) -> SetAttributes {
    SetAttributes { size: Some(size), ..SetAttributes::default() }
}

/// Groups of a file system, by the order in which they were made.
struct Sides {
    files: [Arc<dyn FileSystem>; 2],
    groups: [Vec<Patchgroup>; 2],
    handles: [Vec<Arc<dyn FileSystem>>; 2],
}

impl Sides {
    /// Does the same on both sides; they have to answer the same.
    fn both<R: PartialEq + std::fmt::Debug>(
        &mut self,
        act: impl Fn(&dyn Patchgroups, &mut Vec<Patchgroup>, &mut Vec<Arc<dyn FileSystem>>) -> R,
    ) {
        let [one, two] = [0, 1].map(|side| {
            let groups = self.files[side].capabilities().patchgroups.unwrap();
            act(groups, &mut self.groups[side], &mut self.handles[side])
        });
        assert_eq!(one, two);
    }
}

#[test]
fn groups_live_as_those_of_the_model() {
    for order in [Consistency::SoftUpdates, Consistency::Journal] {
        let (_device, files) = image(order, None);
        files.remove_directory(Ino::ROOT, name("lost+found")).unwrap();
        let model = Arc::new(Model::new(Arc::new(SteppedClock::default())));
        let (groups, handles) = Default::default();
        let mut sides = Sides { files: [files.clone(), model], groups, handles };
        let mut random = Random::new(3);
        for step in 0..2000_u64 {
            let mut one = || random.below(12) as usize;
            let (first, second, which) = (one(), one(), one());
            let text = format!("f{}", step % 40);
            sides.both(|groups, known, handles| {
                let group = |at: usize| known.get(known.len().wrapping_sub(at + 1)).copied();
                let (first, second) = (group(first), group(second));
                match (which, first, second) {
                    (0 | 1, ..) | (_, None, _) | (_, _, None) => {
                        known.push(groups.make_group().unwrap());
                        Ok(())
                    }
                    (2..5, Some(first), Some(second)) => groups.depend(first, second),
                    (5 | 6, Some(first), _) => {
                        groups.engaged(&[first]).map(|handle| handles.push(handle))
                    }
                    (7, Some(first), Some(second)) => {
                        groups.engaged(&[first, second]).map(|handle| handles.push(handle))
                    }
                    (8, Some(first), _) => groups.sync_group(first),
                    (9, Some(first), _) => groups.close_group(first),
                    _ => handles.last().map_or(Ok(()), |handle| {
                        let made = handle.create(USER, Ino::ROOT, name(&text), FILE);
                        match made {
                            Err(Error::Exists) => handle.unlink(Ino::ROOT, name(&text)),
                            made => made.map(|made| handle.forget(made.ino, 1)),
                        }
                    }),
                }
            });
        }
        files.close().unwrap();
    }
}

#[test]
fn an_image_that_is_only_read_has_no_groups() {
    let device = Arc::new(RecordingDevice::in_memory(make(SMALL)));
    let files = opened_with(&device, Ext2Options { writable: false, ..Ext2Options::default() });
    assert_eq!(files.make_group(), Err(Error::ReadOnly));
}

/// How messages are moved from one mailbox to another.
#[derive(Clone, Copy, PartialEq)]
enum Moving {
    /// Each step is synced before the next one.
    Synced,
    /// Each step is a group that waits for the one before; all is synced at the end.
    Grouped,
}

/// Flushes of moving so many messages of 2 KiB as an IMAP server does: each is appended to the new
/// mailbox, then marked as removed in the old one, which is cut at the end.
fn flushes(order: Consistency, moving: Moving, messages: u64) -> u64 {
    const BYTES: u64 = 2048;
    let shape = Shape { block_bytes: 4096, kib: 65_536, ..shape(order) };
    let device = Arc::new(RecordingDevice::in_memory(make(shape)));
    let files = opened_with(&device, options(order, None));
    let [old, new] = ["old", "new"].map(|text| made(&*files, FILE, (Ino::ROOT, text)));
    write(&*files, old, 0, &vec![b'm'; (messages * BYTES) as usize]).unwrap();
    files.sync_all().unwrap();
    let before = files.counters().flushes;
    let mut last = None;
    let mut step = |ino: Ino, act: &dyn Fn(&dyn FileSystem)| match moving {
        Moving::Synced => {
            act(&*files);
            files.sync(ino, SyncScope::All).unwrap();
        }
        Moving::Grouped => {
            let group = files.make_group().unwrap();
            if let Some(last) = last.replace(group) {
                files.depend(group, last).unwrap();
                files.close_group(last).unwrap();
            }
            act(&*files.engaged(&[group]).unwrap());
        }
    };
    for which in 0..messages {
        let message = [b'm'; BYTES as usize];
        step(new, &|files| {
            files.append(new, &message, WriteOptions::default()).unwrap();
        });
        step(old, &|files| write(files, old, which * BYTES, b"D").unwrap());
    }
    step(old, &|files| {
        files.set_attributes(USER, old, &cut(0)).unwrap();
    });
    if let Some(last) = last {
        files.sync_group(last).unwrap();
    }
    let flushes = files.counters().flushes - before;
    assert_eq!(crashed(&device, order)["0/new"].len() as u64, messages * BYTES);
    flushes
}

#[test]
fn moving_mail_in_groups_takes_a_thirteenth_of_the_flushes() {
    for (order, messages, times) in [
        (Consistency::SoftUpdates, 100, 0),
        (Consistency::Journal, 1000, 13),
        (Consistency::JournalFull, 1000, 13),
    ] {
        let [synced, grouped] =
            [Moving::Synced, Moving::Grouped].map(|moving| flushes(order, moving, messages));
        println!("{}: {synced} flushes with syncs, {grouped} with groups", order.name());
        assert!(synced >= times * grouped, "{synced} with syncs, {grouped} with groups");
    }
}
