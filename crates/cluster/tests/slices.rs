//! New content of a file is published as slices of what it replaces, and what is new.

use crate::interrupted::Interrupted;
use crate::stores::{StillClock, in_memory, in_memory_at, made, seal, together_in};
use marram_cluster::database::{Change, Guard, Range, Row, Table};
use marram_cluster::format::BlockRow;
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::verify::verify;
use marram_cluster::{Cluster, Database};
use marram_posix::{Posix, PosixOptions};
use marram_store::{Batch, Error, Key, Store, kind};
use marram_stream::Transfers;
use marram_vfs::{
    Caller, Copying, FileSystem, Ino, Kind, Name, NewNode, RenameMode, SetAttributes, WriteOptions,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) const ROOT: Caller = Caller { uid: 0, gid: 0 };
const RECORD: usize = 4096;
const FILE_BYTES: usize = 40 * RECORD + 1000;
/// Where a test inserts, and how much.
const AT: usize = 10 * RECORD + 1234;
const INSERTED: usize = 3000;
/// What may be sent beside what is new, in bytes: edges too short to be worth a reference.
const EDGES: u64 = 1024;

/// Bytes that do not compress, and that no two seeds have in common.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as u8
    };
    (0..len).map(|_| word()).collect()
}

pub(crate) fn set(cluster: &Cluster, property: &str, value: &str) {
    cluster.set_property(&"root".parse().unwrap(), property, Some(value)).unwrap();
}

pub(crate) fn mounted(cluster: &Cluster, source: &str) -> Posix {
    let view = cluster.open(&source.parse().unwrap()).unwrap();
    Posix::new(view, PosixOptions::default()).unwrap()
}

pub(crate) fn name(name: &str) -> Name<'_> {
    Name::new(name.as_bytes()).unwrap()
}

pub(crate) fn create(files: &Posix, called: &str) -> Ino {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    files.create(ROOT, Ino::ROOT, name(called), node).unwrap().ino
}

/// Writes in pieces, as programs do.
pub(crate) fn write(files: &Posix, ino: Ino, at: usize, data: &[u8], piece: usize) {
    for (number, bytes) in data.chunks(piece).enumerate() {
        let offset = (at + number * piece) as u64;
        files.write(ino, offset, bytes, WriteOptions::default()).unwrap();
    }
}

pub(crate) fn cut(files: &Posix, ino: Ino, size: usize) {
    let set = SetAttributes { size: Some(size as u64), ..SetAttributes::default() };
    files.set_attributes(ROOT, ino, &set).unwrap();
}

pub(crate) fn content(files: &Posix, ino: Ino) -> Vec<u8> {
    let mut out = Vec::new();
    files.read(ino, 0, 64 << 20, &mut out).unwrap();
    out
}

pub(crate) fn content_of(files: &Posix, called: &str) -> Vec<u8> {
    content(files, files.lookup(Ino::ROOT, name(called)).unwrap().ino)
}

/// Bytes of all blocks that the database has, by their ids.
pub(crate) fn blocks(memory: &MemoryDatabase) -> BTreeMap<Vec<u8>, u64> {
    let blocks = memory.rows().into_iter().filter(|(table, _)| *table == Table::Blocks);
    let block = |(_, (key, sealed)): (Table, Row)| {
        let value = seal().open(Table::Blocks, &key, &sealed).unwrap().to_vec();
        (key.to_vec(), u64::from(BlockRow::decode(&value).unwrap().len))
    };
    blocks.map(block).collect()
}

/// Bytes of the blocks that come while something is done.
fn sent(memory: &MemoryDatabase, work: impl FnOnce()) -> u64 {
    let before = blocks(memory);
    work();
    let new = blocks(memory).into_iter().filter(|(id, _)| !before.contains_key(id));
    new.map(|(_, bytes)| bytes).sum()
}

pub(crate) fn inserted(old: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    [&old[..at], new, &old[at..]].concat()
}

fn assert_sound(memory: &MemoryDatabase) {
    assert_all_sound(memory, 0);
}

pub(crate) fn assert_all_sound(memory: &MemoryDatabase, seed: u64) {
    assert_eq!(verify(memory).unwrap().findings, Vec::<String>::new(), "seed {seed}");
}

/// The ways in which programs insert.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// All behind the place is written over what is there.
    TailInPlace,
    /// The file is cut to nothing, and written anew.
    CutAndWrite,
    /// The same, and what was cut is published before.
    CutSyncAndWrite,
    /// A new file is written, and renamed over the old one.
    Rename,
    /// The old file is unlinked, and a new one gets its name.
    UnlinkAndCreate,
}

const WAYS: [Way; 5] =
    [Way::TailInPlace, Way::CutAndWrite, Way::CutSyncAndWrite, Way::Rename, Way::UnlinkAndCreate];

fn insert(files: &Posix, way: Way, ino: Ino, whole: &[u8], piece: usize) {
    match way {
        Way::TailInPlace => write(files, ino, AT, &whole[AT..], piece),
        Way::CutAndWrite => {
            cut(files, ino, 0);
            write(files, ino, 0, whole, piece);
        }
        Way::CutSyncAndWrite => {
            cut(files, ino, 0);
            files.sync_all().unwrap();
            write(files, ino, 0, whole, piece);
        }
        Way::Rename => {
            let new = create(files, "new");
            write(files, new, 0, whole, piece);
            let (from, to) = (name("new"), name("file"));
            files.rename(ROOT, Ino::ROOT, from, Ino::ROOT, to, RenameMode::Replace).unwrap();
        }
        Way::UnlinkAndCreate => {
            files.unlink(Ino::ROOT, name("file")).unwrap();
            let new = create(files, "file");
            write(files, new, 0, whole, piece);
        }
    }
    files.sync_all().unwrap();
}

/// A store with one file, published and kept by a snapshot.
fn with_file(delta: &str) -> (MemoryDatabase, Cluster, Posix, Ino, Vec<u8>) {
    let (memory, cluster) = in_memory();
    set(&cluster, "recordsize", "4096");
    set(&cluster, "delta", delta);
    let files = mounted(&cluster, "root");
    let (ino, old) = (create(&files, "file"), noise(1, FILE_BYTES));
    write(&files, ino, 0, &old, 1 << 20);
    files.sync_all().unwrap();
    cluster.snapshot(&"root".parse().unwrap(), "before").unwrap();
    (memory, cluster, files, ino, old)
}

#[test]
fn every_way_of_inserting_sends_what_is_new() {
    for way in WAYS {
        for piece in [1 << 20, 10_000, RECORD] {
            let (memory, cluster, files, ino, old) = with_file("on");
            let whole = inserted(&old, AT, &noise(2, INSERTED));
            let bytes = sent(&memory, || insert(&files, way, ino, &whole, piece));
            assert!(bytes <= INSERTED as u64 + EDGES, "{way:?} by {piece}: {bytes}");
            assert_eq!(content_of(&files, "file"), whole, "{way:?} by {piece}");
            assert_eq!(content_of(&mounted(&cluster, "root@before"), "file"), old);
            assert_sound(&memory);
        }
    }
}

#[test]
fn without_it_all_behind_the_place_is_sent() {
    let (memory, _cluster, files, ino, old) = with_file("off");
    let whole = inserted(&old, AT, &noise(2, INSERTED));
    let bytes = sent(&memory, || insert(&files, Way::TailInPlace, ino, &whole, 1 << 20));
    assert!(bytes >= (whole.len() - AT) as u64, "{bytes}");
}

#[test]
fn by_itself_it_searches_what_a_snapshot_keeps() {
    let whole = |old: &[u8]| inserted(old, AT, &noise(2, INSERTED));
    let (memory, _cluster, files, ino, old) = with_file("auto");
    let bytes = sent(&memory, || insert(&files, Way::TailInPlace, ino, &whole(&old), 1 << 20));
    assert!(bytes <= INSERTED as u64 + EDGES, "{bytes}");
    // A database of this host, and nothing that keeps what is replaced: it is not worth the time.
    let (memory, cluster) = in_memory();
    set(&cluster, "recordsize", "4096");
    let files = mounted(&cluster, "root");
    let ino = create(&files, "file");
    write(&files, ino, 0, &old, 1 << 20);
    files.sync_all().unwrap();
    let bytes = sent(&memory, || insert(&files, Way::TailInPlace, ino, &whole(&old), 1 << 20));
    assert!(bytes > 100_000, "{bytes}");
}

#[test]
fn slices_of_cut_blocks_are_found() {
    let (memory, cluster, files, ino, old) = with_file("on");
    // Every other half record of the file is another one's: sections of half a block each.
    let mut whole = old.clone();
    for number in 0..20 {
        let (at, fresh) = (number * 2 * RECORD + 700, noise(100 + number as u64, 1500));
        write(&files, ino, at, &fresh, 1 << 20);
        whole[at..at + fresh.len()].copy_from_slice(&fresh);
    }
    files.sync_all().unwrap();
    cluster.snapshot(&"root".parse().unwrap(), "cut").unwrap();
    let whole = inserted(&whole, 777, &noise(3, 10));
    let bytes = sent(&memory, || {
        write(&files, ino, 777, &whole[777..], 1 << 20);
        files.sync_all().unwrap();
    });
    assert!(bytes <= 10 + EDGES, "{bytes}");
    assert_eq!(content(&files, ino), whole);
    assert_sound(&memory);
}

#[test]
fn two_clients_share_what_each_other_has_written() {
    let memory = MemoryDatabase::default();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made(&database);
    let clients = together_in(&[Arc::clone(&database), database], &StillClock::new());
    set(&clients[0], "recordsize", "4096");
    set(&clients[0], "delta", "on");
    let (here, there) = (mounted(&clients[0], "root"), mounted(&clients[1], "root"));
    let (ino, old) = (create(&here, "file"), noise(1, FILE_BYTES));
    write(&here, ino, 0, &old, 1 << 16);
    let mut whole = old;
    for (number, (files, way)) in
        [(&there, Way::TailInPlace), (&here, Way::CutAndWrite), (&there, Way::CutSyncAndWrite)]
            .into_iter()
            .enumerate()
    {
        whole = inserted(&whole, AT, &noise(10 + number as u64, INSERTED));
        let bytes = sent(&memory, || insert(files, way, ino, &whole, 1 << 16));
        // Beside others each write is a publication, and its edges are blocks.
        assert!(bytes <= INSERTED as u64 + 8 * EDGES, "{way:?}: {bytes}");
        for files in [&here, &there] {
            assert_eq!(content_of(files, "file"), whole, "{way:?}");
        }
    }
    assert_sound(&memory);
}

/// Inserts into a file whose blocks have gone from the database, and are in memory. Returns what
/// should be read, and what another client finds.
fn inserted_into_what_is_gone(
    over: &dyn Fn(MemoryDatabase) -> Arc<dyn Database>,
) -> (Vec<u8>, marram_vfs::Result<Vec<u8>>) {
    let memory = MemoryDatabase::default();
    made(&(Arc::new(memory.clone()) as Arc<dyn Database>));
    let options = |client| crate::stores::options(client, None, &StillClock::new());
    let cluster = Cluster::open(over(memory.clone()), options(1)).unwrap();
    set(&cluster, "recordsize", "4096");
    set(&cluster, "delta", "on");
    let files = mounted(&cluster, "root");
    let (ino, old) = (create(&files, "file"), noise(1, FILE_BYTES));
    write(&files, ino, 0, &old, 1 << 20);
    files.sync_all().unwrap();
    let gone = blocks(&memory).into_keys().map(|id| Change::remove(Table::Blocks, id));
    memory.write(&gone.collect::<Vec<Change>>()).unwrap();
    let whole = inserted(&old, 5, b"abc");
    cut(&files, ino, 0);
    write(&files, ino, 0, &whole, 1 << 20);
    files.sync_all().unwrap();
    drop(files);
    cluster.close().unwrap();
    let again = Cluster::open(Arc::new(memory), options(2)).unwrap();
    let (files, mut found) = (mounted(&again, "root"), Vec::new());
    let ino = files.lookup(Ino::ROOT, name("file")).unwrap().ino;
    let read = files.read(ino, 0, 1 << 20, &mut found);
    (whole, read.map(|()| found))
}

#[test]
fn old_blocks_that_have_gone_meanwhile_are_sent_whole() {
    let (whole, found) = inserted_into_what_is_gone(&|memory| Arc::new(memory));
    assert!(found.unwrap() == whole);
}

/// A database that never forgets that it had a block.
#[derive(Default)]
struct Believing {
    inner: MemoryDatabase,
    had: Mutex<BTreeSet<Vec<u8>>>,
}

impl Database for Believing {
    fn insert(&self, table: Table, key: &[u8], value: &[u8]) -> marram_store::Result<bool> {
        self.inner.insert(table, key, value)
    }

    fn write(&self, changes: &[Change]) -> marram_store::Result<()> {
        let blocks = changes.iter().filter(|change| change.table == Table::Blocks);
        self.had.lock().extend(blocks.map(|change| change.key.clone()));
        self.inner.write(changes)
    }

    fn read(&self, ranges: &[Range]) -> marram_store::Result<Vec<Vec<Row>>> {
        self.inner.read(ranges)
    }

    fn has(&self, table: Table, keys: &[Vec<u8>]) -> marram_store::Result<Vec<bool>> {
        let known = self.inner.has(table, keys)?;
        let had = self.had.lock();
        Ok(known.into_iter().zip(keys).map(|(has, key)| has || had.contains(key)).collect())
    }

    fn insert_if(
        &self,
        guard: &Guard,
        table: Table,
        key: &[u8],
        value: &[u8],
    ) -> marram_store::Result<bool> {
        self.inner.insert_if(guard, table, key, value)
    }

    fn write_if(&self, guard: &Guard, changes: &[Change]) -> marram_store::Result<bool> {
        self.inner.write_if(guard, changes)
    }

    fn bytes(&self) -> marram_store::Result<u64> {
        self.inner.bytes()
    }

    fn engine(&self) -> &'static str {
        "believing"
    }
}

#[test]
fn a_client_that_does_not_ask_for_old_blocks_is_caught() {
    let (whole, found) = inserted_into_what_is_gone(&|memory| {
        Arc::new(Believing { inner: memory, ..Believing::default() })
    });
    assert!(found.map_or(true, |found| found != whole), "the planted bug is not seen");
}

#[test]
fn what_was_read_before_files_are_cut_anew_is_overtaken() {
    let (_memory, cluster, files, ino, old) = with_file("on");
    let view = cluster.open(&"root".parse().unwrap()).unwrap();
    let look = || view.capabilities().together.unwrap().look().unwrap();
    let whole = inserted(&old, AT, &noise(2, INSERTED));
    write(&files, ino, AT, &whole[AT..], 1 << 20);
    let stirred = || view.capabilities().together.unwrap().stirred();
    let (before, stirred_before) = (look(), stirred());
    cluster.sync().unwrap();
    let after = look();
    assert_ne!(stirred(), stirred_before, "what reads in several steps has to read anew");
    assert_eq!(after.changed, before.changed, "no other client has changed anything");
    assert!(after.recut > before.recut);
    let key = Key::new(ino.0, kind::SECTION, 0);
    let apply = |seen| {
        let mut batch = Batch { seen: Some(seen), ..Batch::new() };
        batch.put(key, view.get(key).unwrap().unwrap());
        view.apply(batch)
    };
    assert_eq!(apply(before), Err(Error::Overtaken));
    assert_eq!(apply(after), Ok(()));
    cluster.sync().unwrap();
    assert!(content(&files, ino) == whole);
}

/// Later parts of a stream say what lies at which key.
#[test]
fn what_is_being_received_is_not_cut_anew() {
    let (_memory, cluster, _files, ino, old) = with_file("on");
    let base = "root@before".parse().unwrap();
    cluster.hide(&cluster.begin_of(&base).unwrap(), Some(&base)).unwrap();
    let view = cluster.open(&"receive:1".parse().unwrap()).unwrap();
    let files = mounted(&cluster, "receive:1");
    let whole = inserted(&old, AT, &noise(2, INSERTED));
    write(&files, ino, AT, &whole[AT..], 1 << 20);
    let look = || view.capabilities().together.unwrap().look().unwrap();
    let before = look();
    cluster.sync().unwrap();
    assert_eq!(look().recut, before.recut);
    assert!(content(&files, ino) == whole);
}

#[test]
fn what_is_shared_outlives_what_it_was_shared_with() {
    let clock = StillClock::new();
    let (memory, cluster) = in_memory_at(&clock);
    set(&cluster, "recordsize", "4096");
    set(&cluster, "delta", "on");
    let files = mounted(&cluster, "root");
    let (ino, mut whole) = (create(&files, "file"), noise(1, FILE_BYTES));
    write(&files, ino, 0, &whole, 1 << 20);
    files.sync_all().unwrap();
    for number in 0..6 {
        let snapshot = format!("s{number}");
        cluster.snapshot(&"root".parse().unwrap(), &snapshot).unwrap();
        whole = inserted(&whole, 999 * number, &noise(20 + number as u64, 50));
        insert(&files, WAYS[number % 3], ino, &whole, 1 << 20);
        if number % 2 == 1 {
            let source = format!("root@{snapshot}").parse().unwrap();
            cluster.destroy(&source, false).unwrap();
        }
        clock.advance(1000);
        while cluster.prune_step().unwrap().more {}
        let mut from = Vec::new();
        while {
            let (swept, next) = cluster.sweep_step(from).unwrap();
            from = next;
            swept.more
        } {}
        assert_sound(&memory);
    }
    drop(files);
    cluster.close().unwrap();
    let database: Arc<dyn Database> = Arc::new(memory);
    let again = Cluster::open(database, crate::stores::options(2, None, &clock)).unwrap();
    assert_eq!(content_of(&mounted(&again, "root"), "file"), whole);
}

#[test]
fn files_are_cut_anew_while_they_are_read_and_written() {
    let (memory, cluster, files, ino, old) = with_file("on");
    let (files, is_done) = (Arc::new(files), Arc::new(AtomicBool::new(false)));
    let worker = |work: Box<dyn Fn(&Posix) + Send>| {
        let (files, is_done) = (Arc::clone(&files), Arc::clone(&is_done));
        std::thread::spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                work(&files);
            }
        })
    };
    let other = create(&files, "other");
    let workers = [
        worker(Box::new(|files| files.sync_all().unwrap())),
        worker(Box::new(|files| {
            files.reclaim_step(100).unwrap();
        })),
        // What is copied is the file as it was at one moment, up to the size of then.
        worker(Box::new(move |files| {
            files.read(ino, 0, 1 << 20, &mut Vec::new()).unwrap();
            files.copy_range(ino, 0, other, 0, 1 << 20).unwrap();
        })),
    ];
    let mut whole = old;
    for number in 0..150_usize {
        let at = (number * 7919) % (whole.len() - 100);
        match number % 3 {
            0 => whole = inserted(&whole, at, &noise(number as u64, 33)),
            1 => drop(whole.drain(at..at + 34)),
            _ => whole[at..at + 50].copy_from_slice(&noise(number as u64, 50)),
        }
        write(&files, ino, at, &whole[at..], 20_000);
        cut(&files, ino, whole.len());
        assert!(content(&files, ino) == whole, "after {number} edits");
        // The first section is not the first of the file then: cut anew, it may end elsewhere.
        for from in [whole.len() / 7, whole.len() / 3, whole.len() / 2] {
            let mut rest = Vec::new();
            files.read(ino, from as u64, whole.len(), &mut rest).unwrap();
            assert!(rest == whole[from..], "after {number} edits, from {from}");
        }
    }
    is_done.store(true, Ordering::Relaxed);
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    files.sync_all().unwrap();
    assert!(content(&files, ino) == whole);
    drop(cluster);
    assert_sound(&memory);
}

#[test]
fn an_equal_weak_sum_shares_nothing() {
    let (memory, _cluster, files, ino, old) = with_file("on");
    // In each stretch of 512 bytes three neighbours change, and both parts of the sum stay.
    let mut new = old.clone();
    for cell in new.chunks_mut(512) {
        let fits = |at: &usize| cell[*at] < 255 && cell[at + 1] > 1 && cell[at + 2] < 255;
        let at = (250..cell.len().saturating_sub(2)).find(fits);
        if let Some(at) = at {
            (cell[at], cell[at + 1], cell[at + 2]) =
                (cell[at] + 1, cell[at + 1] - 2, cell[at + 2] + 1);
            assert_ne!(cell.len(), 0);
        }
    }
    for (old, new) in old.chunks_exact(512).zip(new.chunks_exact(512)) {
        assert_eq!(marram_codec::delta::weak_sum(old), marram_codec::delta::weak_sum(new));
    }
    let bytes = sent(&memory, || {
        write(&files, ino, 0, &new, 1 << 20);
        files.sync_all().unwrap();
    });
    assert_eq!(content(&files, ino), new);
    assert!(bytes >= FILE_BYTES as u64 / 4, "not many slices of 512 bytes are left: {bytes}");
}

#[test]
fn a_publication_that_shares_costs_one_question_more() {
    let (memory, _cluster, files, ino, old) = with_file("on");
    assert_eq!(content(&files, ino), old);
    let trips = |work: &dyn Fn()| {
        let before = memory.round_trips();
        work();
        memory.round_trips() - before
    };
    // What was under the keys, which blocks are there, those that are not, the entry, its rows.
    let overwrite = noise(5, RECORD);
    files.write(ino, 0, &overwrite, WriteOptions::default()).unwrap();
    assert_eq!(trips(&|| files.sync_all().unwrap()), 5, "nothing is shared");
    let whole = inserted(&content(&files, ino), AT, &noise(2, INSERTED));
    write(&files, ino, AT, &whole[AT..], 1 << 20);
    assert_eq!(trips(&|| files.sync_all().unwrap()), 6, "and what is under the new keys");
}

#[test]
fn only_what_the_property_can_be_is_taken() {
    let (_memory, cluster) = in_memory();
    let root = "root".parse().unwrap();
    for value in ["auto", "on", "off"] {
        cluster.set_property(&root, "delta", Some(value)).unwrap();
    }
    let refused = cluster.set_property(&root, "delta", Some("always")).unwrap_err();
    assert!(refused.to_string().contains("auto, on or off"), "{refused}");
}

#[test]
fn an_overtaken_write_shares_what_is_there_then() {
    let memory = MemoryDatabase::default();
    let database: Arc<dyn Database> = Arc::new(memory.clone());
    made(&database);
    let handle = Interrupted::new(Arc::clone(&database));
    let databases: [Arc<dyn Database>; 2] = [Arc::new(handle.clone()), database];
    let clients = together_in(&databases, &StillClock::new());
    set(&clients[0], "recordsize", "4096");
    set(&clients[0], "delta", "on");
    let (here, there) = (mounted(&clients[0], "root"), Arc::new(mounted(&clients[1], "root")));
    let (ino, old) = (create(&here, "file"), noise(1, 20 * RECORD));
    write(&here, ino, 0, &old, 1 << 20);
    let whole = inserted(&old, 100, b"inserted");
    for call in 0..24 {
        write(&here, ino, 0, &old, 1 << 20);
        cut(&here, ino, old.len());
        let other = Arc::clone(&there);
        // The other client cuts the blocks that this one is about to share.
        let event = move || write(&other, ino, 3 * RECORD, b"theirs", 10);
        handle.at(crate::interrupted::At::Call(call), Box::new(event));
        write(&here, ino, 0, &whole, 1 << 20);
        let is_first = handle.take().is_none();
        let found = content(&there, ino);
        let mut behind = whole.clone();
        behind[3 * RECORD..3 * RECORD + 6].copy_from_slice(b"theirs");
        assert!(found == whole || (is_first && found == behind), "at call {call}");
    }
    assert_sound(&memory);
}
