//! What reading a file asks of the device, where nothing of it is in memory. Short neighbours come
//! in one read, and what lies apart is announced to the device before the first wait. And what
//! writing into a file has to read.

use marram_device::{Device, MemoryDevice, Result};
use marram_pool::{CreateOptions, OpenOptions, Pool, create};
use marram_posix::{AccessTimes, Posix, PosixOptions};
use marram_sim::{Random, pattern};
use marram_store::{DatasetName, Properties, Source, Store};
use marram_vfs::{Caller, ExtentMap, FileSystem, Ino, Kind, Name, NewNode, WriteOptions};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

const DEVICE_BYTES: usize = 256 << 20;
const ROOT: Caller = Caller { uid: 0, gid: 0 };
const LINE_BYTES: usize = 80;
const LINES: usize = 20_000;
/// So many lines are in each group commit.
const COMMIT_LINES: usize = 500;
const PAGE_BYTES: u64 = 4096;
const MIB: usize = 1 << 20;

/// What a device was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Expect(u64),
    Read(u64),
}

/// Memory that keeps in mind what was read.
struct ListeningDevice {
    memory: MemoryDevice,
    asked: Mutex<Vec<Asked>>,
}

impl ListeningDevice {
    fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

impl Device for ListeningDevice {
    fn name(&self) -> String {
        self.memory.name()
    }

    fn size(&self) -> Result<u64> {
        self.memory.size()
    }

    fn expect_read(&self, offset: u64, _len: u64) {
        self.asked.lock().unwrap().push(Asked::Expect(offset));
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.asked.lock().unwrap().push(Asked::Read(offset));
        self.memory.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        self.memory.write(offset, buffer)
    }

    fn flush(&self) -> Result<()> {
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.memory.discard(offset, len)
    }
}

/// A pool with a file system, on a device that listens.
struct Bench {
    device: Arc<ListeningDevice>,
    pool: Arc<Pool>,
    files: Posix,
}

impl Bench {
    fn new() -> Bench {
        let memory = MemoryDevice::new(DEVICE_BYTES);
        let device = Arc::new(ListeningDevice { memory, asked: Mutex::default() });
        let options = CreateOptions {
            label: "costs".to_owned(),
            properties: Properties::default(),
            pool_id: [3; 16],
            secret: 7,
            now_seconds: 1_700_000_000,
        };
        create(&[Arc::clone(&device) as Arc<dyn Device>], &options).unwrap();
        Bench::on(device)
    }

    fn on(device: Arc<ListeningDevice>) -> Bench {
        let dynamic = Arc::clone(&device) as Arc<dyn Device>;
        let pool = Pool::open(vec![dynamic], OpenOptions::new(|| 0)).unwrap();
        let view = pool.open(&Source { dataset: DatasetName::root(), snapshot: None }).unwrap();
        let options = PosixOptions { access_times: AccessTimes::Never, ..PosixOptions::default() };
        let files = Posix::new(view, options).unwrap();
        Bench { device, pool, files }
    }

    /// Opens it anew: nothing is in memory but what opening, and looking for the extents of
    /// `file`, has read.
    fn cold(self, file: Ino) -> Bench {
        let Bench { device, pool, files } = self;
        drop(files);
        pool.close().unwrap();
        drop(pool);
        let bench = Bench::on(device);
        bench.files.pin(file).unwrap();
        bench.extents(file);
        bench.device.take_asked();
        bench
    }

    fn make(&self, name: &str) -> Ino {
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
        let name = Name::new(name.as_bytes()).unwrap();
        self.files.create(ROOT, Ino::ROOT, name, node).unwrap().ino
    }

    fn write(&self, file: Ino, offset: u64, data: &[u8]) {
        self.files.write(file, offset, data, WriteOptions::default()).unwrap();
    }

    fn read(&self, file: Ino, offset: u64, len: usize) -> Vec<u8> {
        let mut out = Vec::new();
        self.files.read(file, offset, len, &mut out).unwrap();
        out
    }

    fn extents(&self, file: Ino) -> usize {
        self.files.extents(file, 0, usize::MAX).unwrap().len()
    }
}

fn line(number: usize) -> Vec<u8> {
    format!("{number:0width$}\n", width = LINE_BYTES - 1).into_bytes()
}

#[test]
fn a_log_of_synced_lines_is_read_back_in_few_reads() {
    let bench = Bench::new();
    let file = bench.make("server.log");
    for number in 0..LINES {
        bench.write(file, (number * LINE_BYTES) as u64, &line(number));
        if number % COMMIT_LINES == 0 {
            bench.pool.commit().unwrap();
        }
    }
    let bench = bench.cold(file);
    let extents = bench.extents(file);
    assert!(extents >= LINES / COMMIT_LINES, "the file lies in {extents} pieces");
    // As Linux reads ahead of a program that reads on and on.
    let mut content = Vec::new();
    for len in [16 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20] {
        let offset = content.len() as u64;
        content.extend(bench.read(file, offset, len));
    }
    assert!(content == (0..LINES).flat_map(line).collect::<Vec<u8>>());
    let asked = bench.device.take_asked();
    println!("{extents} pieces, asked {} times", asked.len());
    assert!(asked.len() <= 10, "6 requests, {extents} pieces: {asked:?}");
}

#[test]
fn of_pieces_that_lie_apart_the_device_is_told_before_it_is_waited_for() {
    const PAGES: u64 = 20;
    let bench = Bench::new();
    let (file, other) = (bench.make("scattered"), bench.make("between"));
    // Noise, so that no page fits beside its item.
    let page = |at: u64| pattern(3 * at + 2, usize::try_from(PAGE_BYTES).unwrap());
    for at in 0..PAGES {
        bench.write(file, at * PAGE_BYTES, &page(at));
        bench.pool.commit().unwrap();
        bench.write(other, at * PAGE_BYTES, &page(at + PAGES));
        bench.pool.commit().unwrap();
    }
    let bench = bench.cold(file);
    let len = usize::try_from(PAGES * PAGE_BYTES).unwrap();
    assert!(bench.read(file, 0, len) == (0..PAGES).flat_map(page).collect::<Vec<u8>>());
    let asked = bench.device.take_asked();
    let told: Vec<u64> = asked
        .iter()
        .map_while(|asked| match asked {
            Asked::Expect(at) => Some(*at),
            Asked::Read(_) => None,
        })
        .collect();
    let reads = asked.iter().filter_map(|asked| match asked {
        Asked::Expect(_) => None,
        Asked::Read(at) => Some(*at),
    });
    assert!(reads.clone().count() > 2, "nothing lies apart: {asked:?}");
    for read in reads {
        assert!(told.contains(&read), "the read of {read} came unexpectedly: {asked:?}");
    }
}

/// Reads of the device for the same request of a cold file of 17 MiB, the first time to the fourth.
fn reads_of_the_same(compression: &str, (offset, len): (u64, usize)) -> [usize; 4] {
    let bench = Bench::new();
    bench.pool.set_property(&DatasetName::root(), "compression", Some(compression)).unwrap();
    let file = bench.make("read again");
    let mut content = pattern(2, 17 * MIB);
    if compression != "off" {
        content.chunks_mut(4096).for_each(|page| page[2048..].fill(0));
    }
    bench.write(file, 0, &content);
    let bench = bench.cold(file);
    let expected = &content[usize::try_from(offset).unwrap()..][..len];
    [(); 4].map(|()| {
        assert!(bench.read(file, offset, len) == expected, "{compression}, {len} at {offset}");
        let asked = bench.device.take_asked();
        asked.iter().filter(|asked| matches!(asked, Asked::Read(_))).count()
    })
}

#[test]
fn long_records_far_into_a_file_are_kept_the_third_time_and_all_others_at_once() {
    const FAR: u64 = 16 << 20;
    for compression in ["off", "lz4", "zle"] {
        assert_eq!(reads_of_the_same(compression, (FAR, MIB)), [8, 8, 8, 0], "{compression}");
    }
    assert_eq!(reads_of_the_same("zstd", (FAR, MIB)), [8, 0, 0, 0], "slow to unpack");
    assert_eq!(reads_of_the_same("lz4", (0, MIB)), [8, 0, 0, 0], "the beginning of a file");
    assert_eq!(reads_of_the_same("lz4", (FAR + 4096, 4096)), [1, 0, 0, 0], "a page");
    assert_eq!(reads_of_the_same("off", (FAR, MIB / 16)), [1, 0, 0, 0], "half of a record");
}

/// Overwrites so many bytes of pages at random, the first of each and no page twice, in a file of
/// whole records; how many reads that took.
fn reads_of_overwrites(len: usize) -> usize {
    const RECORDS: u64 = 128;
    const RECORD_BYTES: u64 = 128 << 10;
    const WRITES: usize = 1000;
    let bench = Bench::new();
    let file = bench.make("database");
    for record in 0..RECORDS {
        let content = pattern(3 * record + 2, usize::try_from(RECORD_BYTES).unwrap());
        bench.write(file, record * RECORD_BYTES, &content);
    }
    let bench = bench.cold(file);
    let (mut random, mut written) = (Random::new(7), BTreeSet::new());
    while written.len() < WRITES {
        let page = random.below(RECORDS * RECORD_BYTES / PAGE_BYTES);
        if written.insert(page) {
            bench.write(file, page * PAGE_BYTES, &pattern(3 * page + 1, len));
        }
    }
    let asked = bench.device.take_asked();
    asked.iter().filter(|asked| matches!(asked, Asked::Read(_))).count()
}

#[test]
fn whole_pages_are_overwritten_without_a_read_of_what_is_beside_them() {
    let page = usize::try_from(PAGE_BYTES).unwrap();
    let (whole, halves) = (reads_of_overwrites(page), reads_of_overwrites(page / 2));
    println!("1,000 writes: {whole} reads for whole pages, {halves} for halves");
    assert_eq!(whole, 0, "all that is written or left over is whole pages");
    assert!(halves > 100, "what is shorter than a page is copied: {halves}");
}
