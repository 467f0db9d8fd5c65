//! Journals that `debugfs` writes, replayed by a mount and by `e2fsck`.

use crate::images::{SMALL, Shape, make, name, open_bytes, program};
use crate::judge::Judge;
use marram_device::{Device, MemoryDevice};
use marram_ext2::{AccessTimes, Consistency, Ext2, Ext2Options, ImageError};
use marram_sim::Random;
use marram_vfs::{Caller, FileSystem, Ino, Kind, NewNode, WriteOptions};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

pub(crate) const BLOCK: usize = 1024;
/// Blocks that no file has.
pub(crate) const FREE: std::ops::Range<u64> = 5000..7000;
const SHAPE: Shape = Shape { kind: "ext3", kib: 8192, ..SMALL };
const USER: Caller = Caller { uid: 7, gid: 8 };

/// A transaction: blocks with their bytes, and blocks that are not to be replayed.
#[derive(Default)]
pub(crate) struct Transaction {
    pub(crate) blocks: Vec<(u64, Vec<u8>)>,
    pub(crate) revoked: Vec<u64>,
}

/// Has `debugfs` write transactions into the journal of an image.
fn with_journal(image: &[u8], transactions: &[Transaction]) -> Vec<u8> {
    with_journal_of("journal_open", image, transactions)
}

/// The same for a journal of some form.
pub(crate) fn with_journal_of(
    opening: &str,
    image: &[u8],
    transactions: &[Transaction],
) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let at = |file: &str| folder.path().join(file);
    std::fs::write(at("image"), image).unwrap();
    let mut commands = format!("{opening}\n");
    let list = |blocks: &mut dyn Iterator<Item = u64>| {
        blocks.map(|block| block.to_string()).collect::<Vec<_>>().join(",")
    };
    for (which, transaction) in transactions.iter().enumerate() {
        let content: Vec<u8> = transaction.blocks.iter().flat_map(|it| it.1.clone()).collect();
        let file = at(&format!("content{which}"));
        std::fs::write(&file, content).unwrap();
        commands += "journal_write";
        if !transaction.revoked.is_empty() {
            commands += &format!(" -r {}", list(&mut transaction.revoked.iter().copied()));
        }
        let blocks = list(&mut transaction.blocks.iter().map(|it| it.0));
        commands += &format!(" -b {blocks} {}\n", file.display());
    }
    commands += "journal_close\n";
    std::fs::write(at("commands"), commands).unwrap();
    run("debugfs", &["-w", "-f", "commands", "image"], folder.path());
    std::fs::read(at("image")).unwrap()
}

pub(crate) fn run(what: &str, arguments: &[&str], folder: &Path) {
    let ran = Command::new(program(what)).args(arguments).current_dir(folder).output().unwrap();
    let code = ran.status.code().unwrap();
    assert!(code < 4, "{what} ended with {code}: {}", String::from_utf8_lossy(&ran.stdout));
}

/// What `e2fsck` makes of it.
pub(crate) fn replayed_by_e2fsck(image: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("image"), image).unwrap();
    run("e2fsck", &["-E", "journal_only", "-y", "image"], folder.path());
    std::fs::read(folder.path().join("image")).unwrap()
}

/// What a mount makes of it.
fn replayed(image: &[u8]) -> Result<Vec<u8>, ImageError> {
    let device = Arc::new(MemoryDevice::from_bytes(image.to_vec()));
    let options = Ext2Options { access_times: AccessTimes::Never, ..Ext2Options::default() };
    Ext2::open(Arc::clone(&device) as Arc<dyn Device>, options)?.close().unwrap();
    Ok(device.snapshot())
}

pub(crate) fn transactions(random: &mut Random) -> Vec<Transaction> {
    let block = |random: &mut Random| FREE.start + random.below(12);
    let mut transactions = Vec::new();
    for _ in 0..1 + random.below(6) {
        let mut transaction = Transaction::default();
        for _ in 0..1 + random.below(4) {
            let number = block(random);
            if transaction.blocks.iter().all(|it| it.0 != number) {
                let mut bytes = marram_sim::pattern(random.number(), BLOCK);
                if random.once_in(4) {
                    // Such a block is escaped in a journal.
                    bytes[..4].copy_from_slice(&[0xc0, 0x3b, 0x39, 0x98]);
                }
                transaction.blocks.push((number, bytes));
            }
        }
        if random.once_in(2) {
            transaction.revoked.push(block(random));
        }
        transactions.push(transaction);
    }
    transactions
}

fn free_part(image: &[u8]) -> &[u8] {
    &image[FREE.start as usize * BLOCK..FREE.end as usize * BLOCK]
}

#[test]
fn a_mount_replays_a_journal_as_e2fsck_does() {
    let (base, judge, mut random) = (make(SHAPE), Judge::new(), Random::new(3));
    let mut changed = 0;
    for round in 0..12 {
        let image = with_journal(&base, &transactions(&mut random));
        let (ours, theirs) = (replayed(&image).unwrap(), replayed_by_e2fsck(&image));
        assert!(free_part(&ours) == free_part(&theirs), "round {round}");
        changed += usize::from(free_part(&ours) != free_part(&base));
        judge.clean(&ours).unwrap();
        // Replayed once, it is not replayed again.
        assert!(replayed(&ours).unwrap() == ours, "round {round}");
    }
    assert!(changed > 3, "{changed}");
}

#[test]
fn a_torn_journal_ends_at_its_last_whole_transaction() {
    let (base, mut random) = (make(SHAPE), Random::new(9));
    let magic = [0xc0, 0x3b, 0x39, 0x98];
    for _ in 0..8 {
        let image = with_journal(&base, &transactions(&mut random));
        let heads: Vec<usize> = (0..image.len() / BLOCK)
            .map(|block| block * BLOCK)
            .filter(|at| image[*at..at + 4] == magic && image[at + 4..at + 8] == [0, 0, 0, 2])
            .collect();
        let torn = heads[random.below(heads.len() as u64) as usize];
        let mut image = image;
        image[torn..torn + BLOCK].fill(0);
        let (ours, theirs) = (replayed(&image).unwrap(), replayed_by_e2fsck(&image));
        assert!(free_part(&ours) == free_part(&theirs));
    }
}

#[test]
fn a_tree_that_is_only_in_the_journal_is_there_after_a_mount() {
    let base = make(SHAPE);
    let device = Arc::new(MemoryDevice::from_bytes(base.clone()));
    let consistency = Some(Consistency::SoftUpdates);
    let options = Ext2Options { consistency, ..Ext2Options::default() };
    let files = Ext2::open(Arc::clone(&device) as Arc<dyn Device>, options).unwrap();
    let directory = NewNode::Directory { permissions: 0o755 };
    let made = files.create(USER, Ino::ROOT, name("d"), directory).unwrap().ino;
    let file = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let file = files.create(USER, made, name("file"), file).unwrap().ino;
    files.write(file, 0, &[5; 20_000], WriteOptions::default()).unwrap();
    files.close().unwrap();
    let after = device.snapshot();
    let mut blocks: Vec<(u64, Vec<u8>)> = Vec::new();
    for (which, (old, new)) in base.chunks(BLOCK).zip(after.chunks(BLOCK)).enumerate() {
        if old != new {
            blocks.push((which as u64, new.to_vec()));
        }
    }
    let transaction = Transaction { blocks, revoked: Vec::new() };
    let image = with_journal(&base, &[transaction]);
    let ours = replayed(&image).unwrap();
    Judge::new().clean(&ours).unwrap();
    let device = Arc::new(MemoryDevice::from_bytes(image.clone()));
    let read_only = Ext2Options { writable: false, ..Ext2Options::default() };
    let below = Arc::clone(&device) as Arc<dyn Device>;
    for files in [Ext2::open(below, read_only).unwrap(), open_bytes(ours).unwrap()] {
        let found = files.lookup(Ino::ROOT, name("d")).unwrap().ino;
        let mut content = Vec::new();
        let file = files.lookup(found, name("file")).unwrap().ino;
        files.read(file, 0, 30_000, &mut content).unwrap();
        assert!(content == [5; 20_000]);
        files.close().unwrap();
    }
    assert!(device.snapshot() == image, "nothing is written to an image that is only read");
}

/// An image with a file whose blocks are numbered, and lie among others where transactions write.
fn with_numbered_file() -> Vec<u8> {
    let device = Arc::new(MemoryDevice::from_bytes(make(SHAPE)));
    let consistency = Some(Consistency::SoftUpdates);
    let options = Ext2Options { consistency, ..Ext2Options::default() };
    let files = Ext2::open(Arc::clone(&device) as Arc<dyn Device>, options).unwrap();
    let file = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let file = files.create(USER, Ino::ROOT, name("file"), file).unwrap().ino;
    for which in 0..6_000_u64 {
        let block = [&which.to_le_bytes()[..], &[3; BLOCK - 8]].concat();
        files.write(file, which * BLOCK as u64, &block, WriteOptions::default()).unwrap();
    }
    files.close().unwrap();
    device.snapshot()
}

#[test]
fn an_image_that_is_only_read_shows_what_a_replay_would_leave() {
    let (base, mut random, mut changed) = (with_numbered_file(), Random::new(12), 0);
    let which = |block: u64| {
        let at = block as usize * BLOCK;
        u64::from_le_bytes(base[at..at + 8].try_into().unwrap())
    };
    for round in 0..12 {
        let image = with_journal(&base, &transactions(&mut random));
        let ours = replayed(&image).unwrap();
        let device = Arc::new(MemoryDevice::from_bytes(image.clone()));
        let read_only = Ext2Options { writable: false, ..Ext2Options::default() };
        let files = Ext2::open(Arc::clone(&device) as Arc<dyn Device>, read_only).unwrap();
        let file = files.lookup(Ino::ROOT, name("file")).unwrap().ino;
        for block in FREE.start..FREE.start + 12 {
            let (at, skip) = (block as usize * BLOCK, random.below(9) as usize);
            let mut shown = Vec::new();
            let offset = which(block) * BLOCK as u64 + skip as u64;
            files.read(file, offset, BLOCK - skip, &mut shown).unwrap();
            assert!(shown == ours[at + skip..at + BLOCK], "round {round}, block {block}");
            changed += usize::from(shown != base[at + skip..at + BLOCK]);
        }
        assert!(device.snapshot() == image, "round {round}");
    }
    assert!(changed > 20, "{changed}");
}

#[test]
fn damaged_journals_are_refused_or_replayed_without_a_panic() {
    let (base, mut random) = (make(SHAPE), Random::new(4));
    let image = with_journal(&base, &transactions(&mut random));
    let used: Vec<usize> = (0..image.len()).filter(|at| image[*at] != base[*at]).collect();
    let (mut refused, mut opened) = (0, 0);
    for _ in 0..80 {
        let mut bad = image.clone();
        for _ in 0..=random.below(3) {
            bad[used[random.below(used.len() as u64) as usize]] = random.below(256) as u8;
        }
        match replayed(&bad) {
            Ok(_) => opened += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(opened > 12, "{opened} opened, {refused} refused");
}
