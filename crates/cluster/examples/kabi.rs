//! The experiment of the thesis Kabi, tables 5.2 to 5.4: what a snapshot of a file takes after a
//! range was overwritten, and after a range was inserted.
//!
//! `kabi [--rounds N]`
//!
//! Each round forks the file, inserts in one fork in one of the ways of programs, and overwrites in
//! another one; offsets and lengths are those of the thesis, uniform and in an even sequence.
//! Prints a line for each row, with tabs between its parts: `row`, the table, the size of the file
//! in blocks, the part of its sections that are truncated, and then as parts of the file's size:
//! what is new, overwritten, inserted in place, written anew, renamed over; and the four once more
//! with all rows of the database.
//!
//! A snapshot takes its new blocks with their ids, and its new sections: where each begins, its
//! length and start, the id and length of its block. Other items count with their keys and values.
//! All rows are these with the keys, indexes and seals of the database, and what the state before
//! needs to stay readable. Content does not compress.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use marram_cluster::database::{Row, Table};
use marram_cluster::format::{Head, Header, Seal, keys};
use marram_cluster::memory::MemoryDatabase;
use marram_cluster::{Cluster, Database, NewStore, OpenOptions, make};
use marram_posix::{Posix, PosixOptions};
use marram_store::{Store, kind};
use marram_vfs::{
    Caller, FileSystem, Ino, Kind, Name, NewNode, RenameMode, SetAttributes, Sharing, WriteOptions,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const BLOCK: usize = 4096;
/// Rounds on one file.
const ROUNDS_A_FILE: usize = 20;
/// Content of a block counts as it is, with an id of so many bytes.
const ID_BYTES: u64 = 32;
/// A section: where it begins, its length, its start, the id of its block and the length of that.
const SECTION_BYTES: u64 = 8 + 8 + 4 + ID_BYTES + 4;
/// The key of another item.
const KEY_BYTES: u64 = 17;
const ROOT: Caller = Caller { uid: 0, gid: 0 };

/// The rows of the tables: which, blocks of the file, part of the sections that are truncated.
const ROWS: [(&str, f64, f64); 18] = [
    ("5.2", 98.5, 0.03),
    ("5.2", 985.0, 0.03),
    ("5.3", 5.5, 0.17),
    ("5.3", 11.0, 0.17),
    ("5.3", 16.5, 0.17),
    ("5.3", 27.5, 0.17),
    ("5.3", 55.0, 0.17),
    ("5.3", 109.4375, 0.17),
    ("5.4", 100.0, 0.0),
    ("5.4", 100.0, 0.10),
    ("5.4", 100.0, 0.18),
    ("5.4", 100.0, 0.33),
    ("5.4", 100.0, 0.46),
    ("5.4", 100.0, 0.57),
    ("5.4", 100.0, 0.71),
    ("5.4", 100.0, 0.82),
    ("5.4", 100.0, 0.91),
    ("5.4", 100.0, 1.0),
];

/// Random bytes, which do not compress.
struct Noise(u64);

impl Noise {
    fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.word().to_le_bytes());
        words.take(len.div_ceil(8)).flatten().take(len).collect()
    }
}

fn main() {
    let mut rounds = 10_000;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--rounds" => rounds = words.next().unwrap().parse().unwrap(),
            other => panic!("not understood: {other}"),
        }
    }
    for (table, ratio, truncated) in ROWS {
        let parts = row(rounds, ratio, truncated);
        let parts: Vec<String> = parts.iter().map(|part| format!("{part:.5}")).collect();
        println!("row\t{table}\t{ratio}\t{truncated}\t{}", parts.join("\t"));
    }
}

/// A row: means of the parts of the file's size.
fn row(rounds: usize, ratio: f64, truncated: f64) -> [f64; 9] {
    let mut sums = [0.0; 9];
    let mut counts = [0_u32; 9];
    let mut add = |place: usize, part: f64| {
        sums[place] += part;
        counts[place] += 1;
    };
    let mut file = None;
    for round in 0..rounds {
        if round % ROUNDS_A_FILE == 0 {
            file = Some(File::make(round as u64 + 1, (ratio * BLOCK as f64) as usize, truncated));
        }
        let file = file.as_mut().unwrap();
        let size = file.content.len();
        // An even sequence in two dimensions: the mean is that of uniform numbers.
        let even = |step: f64| ((round as f64 + 0.5) * step).fract();
        let at = (even(0.754_877_666_2) * size as f64) as usize;
        let len = (even(0.569_840_290_998) * (size - at) as f64) as usize;
        let part = |bytes: u64| bytes as f64 / size as f64;
        let new = file.noise.bytes(len);
        let taken = file.round(round, &|files, ino, content| {
            let whole = [&content[..at], &new, &content[at + len..]].concat();
            write(files, ino, at, &new);
            whole
        });
        add(0, part(len as u64));
        add(1, part(taken.snapshot));
        add(5, part(taken.rows));
        let new = file.noise.bytes(len);
        let way = round % 3;
        let taken = file.round(round, &|files, ino, content| {
            let whole = [&content[..at], &new, &content[at..]].concat();
            insert(files, ino, way, at, &whole);
            whole
        });
        add(2 + way, part(taken.snapshot));
        add(6 + way, part(taken.rows));
    }
    let mut means = [0.0; 9];
    for (mean, (sum, count)) in means.iter_mut().zip(sums.iter().zip(counts)) {
        *mean = sum / f64::from(count.max(1));
    }
    means
}

/// The three ways in which programs insert.
fn insert(files: &Posix, ino: Ino, way: usize, at: usize, whole: &[u8]) {
    match way {
        0 => write(files, ino, at, &whole[at..]),
        1 => {
            let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
            files.set_attributes(ROOT, ino, &set).unwrap();
            write(files, ino, 0, whole);
        }
        _ => {
            let new = create(files, "new");
            write(files, new, 0, whole);
            let (from, to) = (name("new"), name("file"));
            files.rename(ROOT, Ino::ROOT, from, Ino::ROOT, to, RenameMode::Replace).unwrap();
        }
    }
}

fn name(name: &str) -> Name<'_> {
    Name::new(name.as_bytes()).unwrap()
}

fn create(files: &Posix, called: &str) -> Ino {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    files.create(ROOT, Ino::ROOT, name(called), node).unwrap().ino
}

fn write(files: &Posix, ino: Ino, at: usize, data: &[u8]) {
    for (number, bytes) in data.chunks(128 << 10).enumerate() {
        let offset = (at + number * (128 << 10)) as u64;
        files.write(ino, offset, bytes, WriteOptions::default()).unwrap();
    }
}

fn content(files: &Posix) -> Vec<u8> {
    let (ino, mut out) = (files.lookup(Ino::ROOT, name("file")).unwrap().ino, Vec::new());
    files.read(ino, 0, 64 << 20, &mut out).unwrap();
    out
}

/// Rows of a database by their tables and keys.
type Rows = BTreeMap<(Table, Vec<u8>), bytes::Bytes>;

/// What is done with the file; returns what it is then.
type Work<'w> = &'w dyn Fn(&Posix, Ino, &[u8]) -> Vec<u8>;

/// What a snapshot takes, in bytes.
struct Taken {
    snapshot: u64,
    rows: u64,
}

/// A file in a store of its own, of which there is a snapshot.
struct File {
    memory: MemoryDatabase,
    cluster: Cluster,
    content: Vec<u8>,
    noise: Noise,
    forks: usize,
}

impl File {
    fn make(seed: u64, size: usize, truncated: f64) -> File {
        let memory = MemoryDatabase::default();
        let database: Arc<dyn Database> = Arc::new(memory.clone());
        make(Arc::clone(&database), &NewStore { id: [1; 16], key: [2; 32], now: 1, objects: None })
            .unwrap();
        let options = OpenOptions {
            session: [3; 16],
            name: "kabi".to_owned(),
            judge: Arc::new(|_| Ok(Vec::new())),
            read_only: false,
            cache_bytes: 64 << 20,
            clock: Arc::new(|| 1),
            space: None,
            bucket: None,
        };
        let cluster = Cluster::open(database, options).unwrap();
        let root = "root".parse().unwrap();
        cluster.set_property(&root, "recordsize", Some(&BLOCK.to_string())).unwrap();
        cluster.set_property(&root, "undo", Some("off")).unwrap();
        cluster.set_property(&root, "delta", Some("on")).unwrap();
        let view = cluster.open(&"root".parse().unwrap()).unwrap();
        let files = Posix::new(view, PosixOptions::default()).unwrap();
        let mut noise = Noise(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        fill(&files, &mut noise, size, truncated);
        files.sync_all().unwrap();
        let content = content(&files);
        assert_eq!(content.len(), size);
        drop(files);
        cluster.snapshot(&"root".parse().unwrap(), "before").unwrap();
        File { memory, cluster, content, noise, forks: 0 }
    }

    /// Does something in a fork of its own.
    fn round(&mut self, round: usize, work: Work<'_>) -> Taken {
        self.forks += 1;
        let fork = format!("fork{}", self.forks);
        let source = "root@before".parse().unwrap();
        self.cluster.clone_snapshot(&source, &fork.parse().unwrap()).unwrap();
        let view = self.cluster.open(&fork.parse().unwrap()).unwrap();
        let files = Posix::new(view, PosixOptions::default()).unwrap();
        let ino = files.lookup(Ino::ROOT, name("file")).unwrap().ino;
        files.sync_all().unwrap();
        let before = self.rows();
        let whole = work(&files, ino, &self.content);
        files.sync_all().unwrap();
        let taken = self.taken(&before);
        assert!(content(&files) == whole, "round {round} reads what was written");
        drop(files);
        self.cluster.destroy(&fork.parse().unwrap(), false).unwrap();
        while self.cluster.prune_step().unwrap().more {}
        taken
    }

    /// The rows that stay: neither entries of the log, nor notes for the next sweep.
    fn rows(&self) -> Rows {
        let stays = |table: Table| !matches!(table, Table::Log | Table::Loose | Table::Header);
        let rows = self.memory.rows().into_iter().filter(|(table, _)| stays(*table));
        let row = |(table, (key, value)): (Table, Row)| ((table, key.to_vec()), value);
        rows.map(row).collect()
    }

    fn taken(&self, before: &Rows) -> Taken {
        let seal = Seal::of(&Header { id: [1; 16], key: [2; 32], has_blocks_outside: false });
        let mut taken = Taken { snapshot: 0, rows: 0 };
        for ((table, key), sealed) in self.rows() {
            let is_same = before.get(&(table, key.clone())).is_some_and(|it| *it == sealed);
            if is_same {
                continue;
            }
            if table != Table::Datasets {
                taken.rows += (key.len() + sealed.len()) as u64;
            }
            let value = seal.open(table, &key, &sealed).unwrap();
            taken.snapshot += match table {
                Table::Blocks => ID_BYTES + value.len() as u64,
                Table::Heads => item_bytes(&key, value),
                _ => 0,
            };
        }
        taken
    }
}

/// What a new item takes.
fn item_bytes(row: &[u8], value: &[u8]) -> u64 {
    let (key, head) = (keys::decode_head(row).unwrap().1, Head::decode(value).unwrap());
    match head.item {
        None => 0,
        Some(item) if key.kind == kind::SECTION => {
            item.block.map_or(KEY_BYTES + item.value.len() as u64, |_| SECTION_BYTES)
        }
        Some(item) => KEY_BYTES + item.value.len() as u64,
    }
}

/// Fills a file with sections, of which a part are the first halves of blocks.
fn fill(files: &Posix, noise: &mut Noise, size: usize, truncated: f64) {
    let (blocks, file) = (create(files, "blocks"), create(files, "file"));
    let (mut at, mut block, mut owed) = (0, 0, 0.0);
    while at < size {
        owed += truncated;
        let is_truncated = owed >= 1.0 - 1e-9;
        owed -= f64::from(u8::from(is_truncated));
        let len = if is_truncated { BLOCK / 2 } else { BLOCK }.min(size - at);
        let content = noise.bytes(BLOCK);
        write(files, blocks, block * BLOCK, &content);
        files.share_range(blocks, (block * BLOCK) as u64, file, at as u64, len as u64).unwrap();
        (at, block) = (at + len, block + 1);
    }
    files.unlink(Ino::ROOT, name("blocks")).unwrap();
}
