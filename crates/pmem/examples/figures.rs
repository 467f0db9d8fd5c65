//! The figures of the pmem home: the rows of figure 3.8, what snapshots cost beside many files and
//! many snapshots, how long a mount scans, what a linker has stored, and operations beside the same
//! on tmpfs.
//!
//! `figures [--folder FOLDER] [--files N,N] [--snapshots N] [--full GIB]`
//!
//! Prints lines with tabs between their parts: `row`, the operation, bytes of the thesis, our goal,
//! ours, ours right after a snapshot, lines flushed, fences; `engine`, what, beside how much, the
//! figure, its unit, the most that it may be; `beside`, the operation, microseconds here and on
//! tmpfs. The folder lies on tmpfs (`/dev/shm`). It needs `cc`, `ld` and `strace`.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

#[path = "../tests/figure.rs"]
mod figure;
#[path = "../tests/images/mod.rs"]
#[allow(dead_code, reason = "tests of crashes use the rest")]
mod images;
mod linking;

use figure::{DIRECTORY, FILE, measure, name, rows};
use images::ROOT_USER;
use marram_pmem::memory::Memory;
use marram_pmem::memory::mapped::Mapped;
use marram_pmem::{NewImage, Opening, Pmem, PmemOptions, Which, make};
use marram_vfs::{FileSystem, Ino, RenameMode, Timestamp, WriteOptions};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Files in a directory.
const FILES_EACH: u64 = 1000;
/// Bytes of an image for each file, and beside all of them.
const BYTES_PER_FILE: u64 = 200;
const BYTES_BESIDE: u64 = 256 << 20;
/// How often what is flat is measured.
const ROUNDS: usize = 101;
/// Files that are worked on beside tmpfs.
const SAMPLE: u64 = 10_000;
/// How often that is done.
const ROUNDS_BESIDE: usize = 5;
/// Bytes that are appended.
const APPENDED: usize = 4096;
/// The most microseconds of what is flat, milliseconds of a scan of a GiB, MiB of memory.
const FLAT_MAX: f64 = 20.0;
const SCAN_MAX: f64 = 50.0;
/// The most milliseconds until a mount answers, whatever it holds.
const ANSWER_MAX: f64 = 100.0;
/// GiB of content of the image that is full.
const FULL_GIB: u64 = 2;
const MEMORY_MAX: f64 = 300.0;
/// The most bytes that are stored beside those that a linker asks for, in percent.
const LINKED_MAX: f64 = 5.0;

/// An operation, and its microseconds here and there.
type Beside = (&'static str, f64, f64);

struct Request {
    folder: PathBuf,
    files: Vec<u64>,
    snapshots: usize,
    full_gib: u64,
}

fn read_request(mut words: impl Iterator<Item = String>) -> Request {
    let (folder, files) = (PathBuf::from("/dev/shm"), vec![1000, 100_000, 2_000_000]);
    let mut request = Request { folder, files, snapshots: 10_000, full_gib: FULL_GIB };
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        match word.as_str() {
            "--folder" => request.folder = value.into(),
            "--files" => {
                request.files = value.split(',').map(|number| number.parse().unwrap()).collect();
            }
            "--snapshots" => request.snapshots = value.parse().unwrap(),
            "--full" => request.full_gib = value.parse().unwrap(),
            _ => panic!("{word} is no option of this program"),
        }
    }
    request
}

fn main() {
    let request = read_request(std::env::args().skip(1));
    for row in rows() {
        let (ours, held) = (measure(&row, false), measure(&row, true));
        println!(
            "row\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
            row.name,
            row.thesis,
            row.goal,
            ours.stored_bytes,
            held.stored_bytes,
            ours.flushed_lines,
            ours.fences
        );
    }
    for files in &request.files {
        beside_files(&request.folder, *files);
    }
    beside_snapshots(&request.folder, request.snapshots);
    full_scan(&request.folder, request.full_gib);
    beside_linker(&request.folder);
    beside_tmpfs(&request.folder);
}

fn tell(what: &str, beside: &str, figure: f64, unit: &str, most: f64) {
    println!("engine\t{what}\t{beside}\t{figure:.2}\t{unit}\t{most}");
}

/// An image in a folder, gone when it is dropped.
struct Image {
    folder: tempfile::TempDir,
}

impl Image {
    fn new(folder: &Path, bytes: u64) -> (Image, Pmem) {
        let image = Image { folder: tempfile::tempdir_in(folder).unwrap() };
        let mapped = Mapped::create(&image.path(), bytes.next_multiple_of(4096), false).unwrap();
        let mut memory = Memory::new(Box::new(mapped));
        let now = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
        let (id, label) = ([1; 16], "figures".to_owned());
        make(&mut memory, &NewImage { id, label, now, root_owner: ROOT_USER }).unwrap();
        let files = Pmem::open(memory, PmemOptions::default()).unwrap();
        (image, files)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    /// Opens it at once, as a mount does.
    fn open(&self) -> Pmem {
        let mapped = Mapped::open(&self.path(), false, None).unwrap();
        let memory = Memory::new(Box::new(mapped));
        Opening::begin(memory, PmemOptions::default()).unwrap().finish().unwrap()
    }
}

fn fill(files: &Pmem, count: u64) {
    let mut parent = Ino::ROOT;
    for number in 0..count {
        if number % FILES_EACH == 0 {
            let text = format!("d{}", number / FILES_EACH);
            parent = files.create(ROOT_USER, Ino::ROOT, name(&text), DIRECTORY).unwrap().ino;
        }
        let text = number.to_string();
        let made = files.create(ROOT_USER, parent, name(&text), FILE).unwrap();
        files.forget(made.ino, 1);
    }
    files.forget_all();
}

/// The median of some times, in microseconds.
fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn took(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64() * 1e6
}

/// Snapshots, clones and rollbacks, with a change before each, and a mount.
fn beside_files(folder: &Path, count: u64) {
    let beside = format!("{count} files");
    let (image, files) = Image::new(folder, count * BYTES_PER_FILE + BYTES_BESIDE);
    fill(&files, count);
    let [mut snapshots, mut clones, mut rollbacks] = [const { Vec::new() }; 3];
    for round in 0..ROUNDS {
        let (kept, clone) = (format!("s{round}"), format!("c{round}"));
        let which = Which { dataset: "root", snapshot: Some(&kept) };
        snapshots.push(took(|| files.snapshot("root", &kept).unwrap()));
        clones.push(took(|| files.clone_snapshot(which, &clone).unwrap()));
        let made = files.create(ROOT_USER, Ino::ROOT, name("new"), FILE).unwrap();
        files.forget(made.ino, 1);
        rollbacks.push(took(|| files.roll_back("root", &kept, &format!("b{round}")).unwrap()));
    }
    tell("snapshot", &beside, median(&mut snapshots), "us", FLAT_MAX);
    tell("clone", &beside, median(&mut clones), "us", FLAT_MAX);
    tell("rollback", &beside, median(&mut rollbacks), "us", FLAT_MAX);
    // A mount looks at the names of each dataset by itself.
    let clones: Vec<String> = (0..ROUNDS).map(|round| format!("c{round}")).collect();
    let all = clones.iter().map(|clone| Which { dataset: clone, snapshot: None });
    files.destroy(&all.collect::<Vec<_>>(), false).unwrap();
    files.close().unwrap();
    drop(files);
    let mut files = None;
    let answered = took(|| files = Some(image.open())) / 1e3;
    tell("a mount answers", &beside, answered, "ms", ANSWER_MAX);
    let scanned = took(|| assert!(files.as_ref().unwrap().find_space().unwrap())) / 1e3;
    tell("the scan beside it", &beside, scanned, "ms", f64::INFINITY);
    tell("private memory of the process", &beside, private_mebibytes(), "MiB", MEMORY_MAX);
}

/// Memory of this process that is no page of a file.
fn private_mebibytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

/// The same beside many snapshots.
fn beside_snapshots(folder: &Path, count: usize) {
    let (_image, files) = Image::new(folder, BYTES_BESIDE);
    fill(&files, FILES_EACH);
    let mut times = Vec::new();
    for number in 0..count + ROUNDS {
        let kept = format!("s{number}");
        let time = took(|| files.snapshot("root", &kept).unwrap());
        if number >= count {
            times.push(time);
        }
    }
    let beside = format!("{count} snapshots");
    tell("snapshot", &beside, median(&mut times), "us", FLAT_MAX);
    let mut rollback = |round| {
        let back = format!("s{}", round * 7 % count);
        took(|| files.roll_back("root", &back, &format!("b{round}")).unwrap())
    };
    let mut times: Vec<f64> = (0..ROUNDS).map(&mut rollback).collect();
    tell("rollback", &beside, median(&mut times), "us", FLAT_MAX);
}

/// The scan of an image that is full of content.
fn full_scan(folder: &Path, gib: u64) {
    const GIB: u64 = 1 << 30;
    let (image, files) = Image::new(folder, gib * GIB + BYTES_BESIDE);
    let piece = vec![7; 1 << 20];
    for number in 0..gib * GIB / (64 << 20) {
        let text = format!("f{number}");
        let ino = files.create(ROOT_USER, Ino::ROOT, name(&text), FILE).unwrap().ino;
        for at in 0..64 {
            files.write(ino, at << 20, &piece, WriteOptions::default()).unwrap();
        }
    }
    files.close().unwrap();
    drop(files);
    let scanned = took(|| assert!(image.open().find_space().unwrap())) / 1e3 / gib as f64;
    let beside = format!("{gib} GiB of content");
    tell("scan of a GiB in files of 64 MiB", &beside, scanned, "ms", SCAN_MAX);
}

/// What a linker writes: how many bytes are stored beside those that it asks for.
fn beside_linker(folder: &Path) {
    let wrote = linking::recorded();
    let (_image, files) = Image::new(folder, BYTES_BESIDE);
    let ino = files.create(ROOT_USER, Ino::ROOT, name("program"), FILE).unwrap().ino;
    let (before, data) = (files.tally().stored_bytes, vec![7; 1 << 20]);
    for (at, len) in &wrote {
        files.write(ino, *at, &data[..*len], WriteOptions::default()).unwrap();
    }
    let asked: usize = wrote.iter().map(|(_, len)| len).sum();
    let stored = files.tally().stored_bytes - before;
    let beside = format!("{} writes of {} KiB", wrote.len(), asked >> 10);
    let copied = (stored as f64 / asked as f64 - 1.0) * 100.0;
    tell("a build with ld: bytes stored beside", &beside, copied, "%", LINKED_MAX);
}

/// Operations here and by system calls on tmpfs: medians of rounds on images of their own, for the
/// first one may be the first to touch the memory of the machine.
fn beside_tmpfs(folder: &Path) {
    let rounds: Vec<Vec<Beside>> = (0..ROUNDS_BESIDE).map(|_| round_beside(folder)).collect();
    for (at, (what, ..)) in rounds[0].iter().enumerate() {
        let middle = |figure: &dyn Fn(&Beside) -> f64| {
            median(&mut rounds.iter().map(|round| figure(&round[at])).collect::<Vec<f64>>())
        };
        let (ours, theirs) = (middle(&|it| it.1), middle(&|it| it.2));
        println!("beside\t{what}\t{ours:.3}\t{theirs:.3}");
    }
}

fn round_beside(folder: &Path) -> Vec<Beside> {
    let mut found = Vec::new();
    let (_image, files) = Image::new(folder, BYTES_BESIDE + SAMPLE * 8192);
    let parent = files.create(ROOT_USER, Ino::ROOT, name("d"), DIRECTORY).unwrap().ino;
    let there = tempfile::tempdir_in(folder).unwrap();
    let path = |word: &str, number: u64| there.path().join(format!("{word}{number}"));
    let mut each = |ours: &mut dyn FnMut(u64), theirs: &mut dyn FnMut(u64), what: &'static str| {
        let ours = took(|| (0..SAMPLE).for_each(&mut *ours)) / SAMPLE as f64;
        let theirs = took(|| (0..SAMPLE).for_each(&mut *theirs)) / SAMPLE as f64;
        found.push((what, ours, theirs));
    };
    let text = |word: &str, number: u64| format!("{word}{number}");
    let (data, word) = ([7; APPENDED], [9; 8]);
    let (mut inos, mut opened) = (Vec::new(), Vec::new());
    each(
        &mut |at| {
            let made = files.create(ROOT_USER, parent, name(&text("a", at)), FILE).unwrap();
            inos.push(made.ino);
        },
        &mut |at| opened.push(File::create_new(path("a", at)).unwrap()),
        "create",
    );
    each(
        &mut |at| {
            let found = files.lookup(parent, name(&text("a", at))).unwrap();
            files.forget(found.ino, 1);
        },
        &mut |at| assert!(std::fs::symlink_metadata(path("a", at)).unwrap().is_file()),
        "lookup",
    );
    each(
        &mut |at| files.write(inos[at as usize], 0, &data, WriteOptions::default()).unwrap(),
        &mut |at| opened[at as usize].write_all_at(&data, 0).unwrap(),
        "4 KiB append",
    );
    each(
        &mut |at| files.write(inos[at as usize], 64, &word, WriteOptions::default()).unwrap(),
        &mut |at| opened[at as usize].write_all_at(&word, 64).unwrap(),
        "8 B overwrite",
    );
    each(
        &mut |at| {
            let (from, to, mode) = (text("a", at), text("b", at), RenameMode::Replace);
            files.rename(ROOT_USER, parent, name(&from), parent, name(&to), mode).unwrap();
        },
        &mut |at| std::fs::rename(path("a", at), path("b", at)).unwrap(),
        "rename",
    );
    drop(opened);
    inos.iter().for_each(|ino| files.forget(*ino, 1));
    each(
        &mut |at| files.unlink(parent, name(&text("b", at))).unwrap(),
        &mut |at| std::fs::remove_file(path("b", at)).unwrap(),
        "unlink",
    );
    found
}
