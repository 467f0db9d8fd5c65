//! What transactions cost in the library, without a kernel and a request in between; and beside it,
//! if directories are named, what programs do today to replace files.
//!
//! `transactions --device FILE [--files N] [--beside DIRECTORY]...`
//!
//! The pool is made in FILE, which is opened as a mount opens it. Each line is the name of a
//! figure, the subject, microseconds, and flushes of the device; a dash stands for no number.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use marram_device::{Device, FileDevice, Result};
use marram_history::{MergeOptions, MergeSides, merge};
use marram_pool::{Author, CreateOptions, OpenOptions, Pool, create};
use marram_posix::{AccessTimes, Posix, PosixOptions};
use marram_store::{DatasetName, OperationLog, Properties, Source, Store};
use marram_vfs::{Caller, FileSystem, Ino, Kind, Name, NewNode, RenameMode, WriteOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ROOT: Caller = Caller { uid: 0, gid: 0 };
const FILE: NewNode<'static> = NewNode::Node { kind: Kind::Regular, permissions: 0o600, device: 0 };
const DIRECTORY: NewNode<'static> = NewNode::Directory { permissions: 0o755 };
/// Bytes of each file.
const FILE_BYTES: usize = 4096;
/// Bytes of the pool.
const POOL_BYTES: u64 = 4 << 30;
/// Files of a directory that is only there to make the tree large.
const FILES_PER_DIRECTORY: u64 = 1000;
/// Rounds of which the median is taken.
const ROUNDS: usize = 101;
/// How long processes commit beside each other.
const BESIDE_TIME: Duration = Duration::from_secs(6);
/// Where the kernel counts the flushes of a block device.
const FLUSHES_FIELD: usize = 15;

/// A device that counts its flushes.
struct Counting {
    inner: FileDevice,
    flushes: AtomicU64,
}

impl Device for Counting {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn size(&self) -> Result<u64> {
        self.inner.size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.inner.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        self.inner.write(offset, buffer)
    }

    fn write_parts(&self, offset: u64, parts: &[&[u8]]) -> Result<()> {
        self.inner.write_parts(offset, parts)
    }

    fn flush(&self) -> Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }
}

struct Request {
    device: PathBuf,
    files: Vec<u64>,
    beside: Vec<PathBuf>,
}

fn read_request(mut words: impl Iterator<Item = String>) -> Request {
    let mut request = Request { device: PathBuf::new(), files: Vec::new(), beside: Vec::new() };
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        match word.as_str() {
            "--device" => request.device = value.into(),
            "--files" => request.files.push(value.parse().unwrap()),
            "--beside" => request.beside.push(value.into()),
            _ => panic!("{word} is no option of this program"),
        }
    }
    request
}

fn tell(figure: &str, subject: &str, time: Option<Duration>, flushes: Option<f64>) {
    let microseconds = time.map(|time| format!("{:.1}", time.as_secs_f64() * 1e6));
    let flushes = flushes.map(|flushes| format!("{flushes:.3}"));
    let [time, flushes] = [microseconds, flushes].map(|it| it.unwrap_or_else(|| "-".to_owned()));
    println!("{figure}\t{subject}\t{time}\t{flushes}");
}

/// The time that so many of a hundred took at most.
fn quantile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

/// A pool that is open, and the files of its root dataset.
struct Opened {
    device: Arc<Counting>,
    pool: Arc<Pool>,
    posix: Posix,
    number: AtomicU64,
}

fn files_of(store: &dyn Store, source: &Source) -> Posix {
    let options = PosixOptions { access_times: AccessTimes::Never, ..PosixOptions::default() };
    Posix::new(store.open(source).unwrap(), options).unwrap()
}

impl Opened {
    fn new(path: &Path) -> Opened {
        let inner = FileDevice::create(path, POOL_BYTES, true).unwrap();
        let device = Arc::new(Counting { inner, flushes: AtomicU64::new(0) });
        let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
        let fresh = CreateOptions {
            label: String::new(),
            properties: Properties::default(),
            pool_id: [7; 16],
            secret: 7,
            now_seconds: 1_700_000_000,
        };
        create(&devices, &fresh).unwrap();
        let pool = Pool::open(devices, OpenOptions::new(|| 1_700_000_000)).unwrap();
        let posix = files_of(&*pool, &Source::live(DatasetName::root()));
        Opened { device, pool, posix, number: AtomicU64::new(0) }
    }

    fn flushes(&self) -> u64 {
        self.device.flushes.load(Ordering::Relaxed)
    }

    /// Runs a transaction from its begin to its end; one that changes nothing is aborted.
    fn transaction(&self, work: impl FnOnce(&Posix)) {
        let acting = self.pool.acting_for(Author { user: Some(0), command: "tx".to_owned() });
        let store: &dyn Store = &acting;
        let (dataset, id) = (DatasetName::root(), self.number.fetch_add(1, Ordering::Relaxed));
        let name = DatasetName::of_transaction(&id.to_string()).unwrap();
        store.begin_fork(&dataset, &name, Ino::ROOT.0).unwrap();
        let fork = Source::live(name.clone());
        let files = files_of(store, &fork);
        work(&files);
        if !store.is_unchanged(&name).unwrap() {
            let base = store.report(&fork).unwrap().origin.unwrap();
            let sides = MergeSides { dataset: &dataset, base: &base, fork: &fork, root: Ino::ROOT };
            let options = MergeOptions {
                strict: Some(&|_| Vec::new()),
                may_wait: true,
                ..MergeOptions::default()
            };
            let expected = acting.expecting_merge();
            let report = merge(&self.posix, &expected, sides, &options).unwrap();
            assert!(report.applied, "{report:?}");
            expected.settle_merges().unwrap();
        }
        drop(files);
        store.end_fork(&name).unwrap();
    }

    fn directory(&self, text: &str) -> Ino {
        self.posix.create(ROOT, Ino::ROOT, name(text), DIRECTORY).unwrap().ino
    }

    /// Fills directories with empty files up to so many.
    fn grow_to(&self, from: u64, to: u64) {
        for directory in from / FILES_PER_DIRECTORY..to / FILES_PER_DIRECTORY {
            let parent = self.directory(&format!("many-{directory}"));
            for file in 0..FILES_PER_DIRECTORY {
                let text = format!("file-{file}");
                let made = self.posix.create(ROOT, parent, name(&text), FILE).unwrap();
                self.posix.forget(made.ino, 1);
            }
            self.posix.forget(parent, 1);
        }
        self.pool.commit().unwrap();
    }
}

/// Makes or replaces files in a directory, each whole.
fn replace(files: &Posix, directory: Ino, count: u64, seed: u64) {
    for file in 0..count {
        let (text, new) = (format!("file-{file}"), "new".to_owned());
        let made = files.create(ROOT, directory, name(&new), FILE).unwrap();
        files.write(made.ino, 0, &content(seed + file), WriteOptions::default()).unwrap();
        let (new, text) = (name(&new), name(&text));
        files.rename(ROOT, directory, new, directory, text, RenameMode::Replace).unwrap();
        files.forget(made.ino, 1);
    }
}

/// Bytes that do not compress.
fn content(seed: u64) -> Vec<u8> {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..FILE_BYTES / 8).flat_map(|_| next()).collect()
}

/// Begin and abort, alone and beside a program that writes all the time.
fn begin_and_abort(opened: &Opened, files: u64) {
    let measure = |figure: String| {
        let before = opened.flushes();
        let mut times: Vec<Duration> = (0..ROUNDS)
            .map(|round| {
                let fork = DatasetName::of_transaction(&format!("begin{round}")).unwrap();
                let store: &dyn Store = &*opened.pool;
                let from = Instant::now();
                store.begin_fork(&DatasetName::root(), &fork, Ino::ROOT.0).unwrap();
                store.end_fork(&fork).unwrap();
                from.elapsed()
            })
            .collect();
        let flushes = (opened.flushes() - before) as f64 / ROUNDS as f64;
        tell(&figure, "marram", Some(quantile(&mut times, 50)), Some(flushes));
    };
    measure(format!("begin and abort, {files} files"));
    with_writer(opened, &format!("beside-{files}"), || {
        measure(format!("begin and abort beside a writer, {files} files"));
    });
}

/// Does something beside a program that writes all the time; returns how long its writes took.
fn with_writer(opened: &Opened, text: &str, work: impl FnOnce()) -> Vec<Duration> {
    let is_over = AtomicBool::new(false);
    let made = opened.posix.create(ROOT, Ino::ROOT, name(text), FILE).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut times = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let (at, bytes) = (times.len() as u64 % 256 * 4096, content(times.len() as u64));
                let from = Instant::now();
                opened.posix.write(made.ino, at, &bytes, WriteOptions::default()).unwrap();
                times.push(from.elapsed());
                std::thread::sleep(Duration::from_micros(50));
            }
            times
        });
        work();
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    })
}

/// Ten small files, one transaction after another, beside an append with a sync.
fn one_after_another(opened: &Opened) {
    let directory = opened.directory("ten");
    let before = opened.flushes();
    let mut times: Vec<Duration> = (0..ROUNDS as u64)
        .map(|round| {
            let from = Instant::now();
            opened.transaction(|files| replace(files, directory, 10, round * 10));
            from.elapsed()
        })
        .collect();
    let flushes = (opened.flushes() - before) as f64 / ROUNDS as f64;
    tell("commit of 10 files, 1 process", "marram", Some(quantile(&mut times, 50)), Some(flushes));
    let made = opened.posix.create(ROOT, directory, name("log"), FILE).unwrap();
    let before = opened.flushes();
    let mut times: Vec<Duration> = (0..ROUNDS as u64)
        .map(|round| {
            let bytes = content(round);
            let from = Instant::now();
            opened.posix.append(made.ino, &bytes, WriteOptions::default()).unwrap();
            opened.posix.sync(made.ino, marram_vfs::SyncScope::Data).unwrap();
            from.elapsed()
        })
        .collect();
    let flushes = (opened.flushes() - before) as f64 / ROUNDS as f64;
    tell("append and fdatasync", "marram", Some(quantile(&mut times, 50)), Some(flushes));
}

/// So many at once, each in a directory of its own.
fn beside_each_other(opened: &Opened, processes: u64) {
    let directories: Vec<Ino> =
        (0..processes).map(|it| opened.directory(&format!("p{processes}-{it}"))).collect();
    let before = opened.flushes();
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let start = |directory: Ino| {
            scope.spawn(move || {
                let (end, mut times) = (Instant::now() + BESIDE_TIME, Vec::new());
                while Instant::now() < end {
                    let from = Instant::now();
                    let seed = times.len() as u64 * 10;
                    opened.transaction(|files| replace(files, directory, 10, seed));
                    times.push(from.elapsed());
                }
                times
            })
        };
        let running: Vec<_> = directories.into_iter().map(start).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let flushes = (opened.flushes() - before) as f64 / times.len() as f64;
    let figure = format!("commit of 10 files, {processes} processes");
    tell(&figure, "marram", Some(quantile(&mut times, 50)), Some(flushes));
}

/// How long the writes of a plain program take while transactions of 1,000 files commit.
fn others_wait(opened: &Opened) {
    let directory = opened.directory("thousand");
    let mut waits = with_writer(opened, "waits", || {
        (0..5).for_each(|round| opened.transaction(|files| replace(files, directory, 1000, round)));
    });
    for (percent, what) in [(50, "median"), (99, "99 of 100"), (100, "the longest")] {
        let figure = format!("a write beside commits of 1000 files, {what}");
        tell(&figure, "marram", Some(quantile(&mut waits, percent)), None);
    }
}

/// The counts at which files are replaced as one.
const COUNTS: [u64; 4] = [1, 10, 100, 1000];

fn replaced_as_one(opened: &Opened) {
    for count in COUNTS {
        let directory = opened.directory(&format!("replaced-{count}"));
        replace(&opened.posix, directory, count, 0);
        opened.pool.commit().unwrap();
        let (mut times, before) = (Vec::new(), opened.flushes());
        for round in 1..=5 {
            let from = Instant::now();
            opened.transaction(|files| replace(files, directory, count, round * count));
            times.push(from.elapsed());
        }
        let flushes = (opened.flushes() - before) as f64 / 5.0;
        let figure = format!("{count} files replaced");
        tell(&figure, "marram", Some(quantile(&mut times, 50)), Some(flushes));
    }
}

/// Flushes of the block device that a directory lies on.
fn flushes_below(directory: &Path) -> Option<u64> {
    let device = std::fs::metadata(directory).unwrap().dev();
    let (major, minor) = ((device >> 8) & 0xfff, device & 0xff);
    // Btrfs has a device number of its own: that of its mount says which block device it is on.
    let place = match major {
        0 => {
            let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
            let here = directory.to_string_lossy().into_owned();
            let on = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
            let found = on.filter(|words| here.starts_with(words[1])).max_by_key(|it| it[1].len());
            format!("/sys/class/block/{}/stat", found?[0].rsplit('/').next()?)
        }
        _ => format!("/sys/dev/block/{major}:{minor}/stat"),
    };
    let words = std::fs::read_to_string(place).ok()?;
    words.split_whitespace().nth(FLUSHES_FIELD)?.parse().ok()
}

/// Each file by itself: a temporary file, `fsync`, a rename over the name, and one `fsync` of the
/// directory at the end.
fn replaced_one_by_one(root: &Path) {
    let subject = root.file_name().unwrap().to_string_lossy().into_owned();
    for count in COUNTS {
        let directory = root.join(format!("replaced-{count}"));
        std::fs::create_dir(&directory).unwrap();
        let round = |round: u64| {
            for file in 0..count {
                let (new, path) = (directory.join("new"), directory.join(format!("file-{file}")));
                let mut made = std::fs::File::create(&new).unwrap();
                std::io::Write::write_all(&mut made, &content(round * count + file)).unwrap();
                made.sync_all().unwrap();
                std::fs::rename(&new, path).unwrap();
            }
            std::fs::File::open(&directory).unwrap().sync_all().unwrap();
        };
        round(0);
        let (mut times, before) = (Vec::new(), flushes_below(&directory));
        for number in 1..=5 {
            let from = Instant::now();
            round(number);
            times.push(from.elapsed());
        }
        let flushes = flushes_below(&directory).zip(before);
        let flushes = flushes.map(|(after, before)| (after - before) as f64 / 5.0);
        let figure = format!("{count} files replaced");
        tell(&figure, &subject, Some(quantile(&mut times, 50)), flushes);
    }
}

fn main() {
    let request = read_request(std::env::args().skip(1));
    let opened = Opened::new(&request.device);
    let mut there = 0;
    for files in &request.files {
        opened.grow_to(there, *files);
        there = *files;
        begin_and_abort(&opened, there);
    }
    one_after_another(&opened);
    [8, 32].into_iter().for_each(|processes| beside_each_other(&opened, processes));
    others_wait(&opened);
    replaced_as_one(&opened);
    request.beside.iter().for_each(|root| replaced_one_by_one(root));
}
