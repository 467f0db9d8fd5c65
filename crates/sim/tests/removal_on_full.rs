//! Files are removed from a file system that many writers have just filled: no removal is refused,
//! however they meet each other, the background that frees, and commits.

use marram_device::{Device, MemoryDevice};
use marram_pool::{CreateOptions, OpenOptions, Pool, create};
use marram_posix::{Posix, PosixOptions};
use marram_sim::{Random, pattern};
use marram_store::{Properties, Store};
use marram_vfs::{
    Caller, Error, FileSystem, Ino, Kind, Name, NewNode, RenameMode, Result, SetAttributes,
    WriteOptions,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SEEDS: u64 = 6;
const WORKERS: u64 = 8;
const POOL_BYTES: usize = 32 << 20;
/// What one large file takes at the start, so that small ones need not fill it all.
const BALLAST_PIECES: u64 = 12;
const PIECE: usize = 1 << 20;
/// Items that the background frees in one step.
const RECLAIM_ITEMS: usize = 1000;
const ROOT: Caller = Caller { uid: 0, gid: 0 };

/// What was done, and whether it was refused.
type Outcome = (&'static str, Result<()>);

fn new_pool() -> Arc<Pool> {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(POOL_BYTES));
    let options = CreateOptions {
        label: "full".to_owned(),
        properties: Properties([("compression".to_owned(), "off".to_owned())].into()),
        pool_id: [4; 16],
        secret: 7,
        now_seconds: 1_700_000_000,
    };
    create(std::slice::from_ref(&device), &options).unwrap();
    Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap()
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn file(files: &Posix, directory: Ino, text: &str) -> Result<Ino> {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    Ok(files.create(ROOT, directory, name(text), node)?.ino)
}

fn directory(files: &Posix, worker: u64) -> Ino {
    let node = NewNode::Directory { permissions: 0o755 };
    files.create(ROOT, Ino::ROOT, name(&format!("d{worker}")), node).unwrap().ino
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    pattern(3 * seed + 2, len)
}

/// Makes files of all sizes until nothing more fits. What one of the workers writes a cache has
/// accepted.
fn write_until_full(files: &Posix, directory: Ino, worker: u64, random: &mut Random) {
    let options = WriteOptions { accepted: worker == 0, ..WriteOptions::default() };
    for number in 0.. {
        let len = match random.below(40) {
            0 => PIECE,
            1 | 2 => 200_000,
            3..8 => 20_000,
            _ => 1024,
        };
        let made = file(files, directory, &format!("f{number}")).and_then(|ino| {
            let written = files.write(ino, 0, &noise(random.number() >> 8, len), options);
            files.forget(ino, 1);
            written
        });
        match made {
            Ok(()) => {}
            Err(Error::NoSpace) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

fn names(files: &Posix, directory: Ino) -> Vec<String> {
    let mut names = Vec::new();
    let mut visit = |entry: marram_vfs::DirectoryEntry<'_>| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        true
    };
    files.read_directory(directory, 0, false, &mut visit).unwrap();
    names
}

/// One way in which a file goes, and what came of it. A rename needs `other` in its directory.
fn remove(files: &Posix, directory: Ino, text: &str, other: Option<&str>, way: u64) -> Outcome {
    let unlink = || files.unlink(directory, name(text));
    match (way, other) {
        (0, _) => ("cut and unlinked", {
            let ino = files.lookup(directory, name(text)).unwrap().ino;
            let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
            let gone = files.set_attributes(ROOT, ino, &cut).and_then(|_| unlink());
            files.forget(ino, 1);
            gone
        }),
        (1, Some(other)) => ("replaced by a rename", {
            let (from, to) = (name(text), name(other));
            files.rename(ROOT, directory, from, directory, to, RenameMode::Replace)
        }),
        (2, _) => ("unlinked", unlink()),
        // As the kernel does: it knows the file, and lets go of it later.
        _ => ("unlinked in use", {
            let ino = files.lookup(directory, name(text)).unwrap().ino;
            let gone = unlink();
            files.forget(ino, 1);
            gone
        }),
    }
}

/// Removes everything below a directory and then itself.
fn remove_all(files: &Posix, worker: u64, directory: Ino, random: &mut Random) -> Outcome {
    let mut names = names(files, directory);
    while let Some(text) = names.pop() {
        let other = names.last().map(String::as_str);
        let outcome = remove(files, directory, &text, other, random.below(6));
        if outcome.1.is_err() {
            return outcome;
        }
    }
    files.forget(directory, 1);
    ("its directory", files.remove_directory(Ino::ROOT, name(&format!("d{worker}"))))
}

/// Frees and commits as a daemon does, until all is done.
fn in_background(files: &Posix, pool: &Pool, done: &AtomicBool) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                files.reclaim_step(RECLAIM_ITEMS).expect("what has no name is freed");
                std::thread::yield_now();
            }
        });
        while !done.load(Ordering::Acquire) {
            pool.commit().expect("what was taken can be committed");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

fn side_by_side(directories: &[Ino], seed: u64, act: impl Fn(u64, Ino, &mut Random) + Sync) {
    std::thread::scope(|scope| {
        for (worker, directory) in (0..).zip(directories) {
            let act = &act;
            let mut random = Random::new(seed * WORKERS + worker);
            scope.spawn(move || act(worker, *directory, &mut random));
        }
    });
}

fn round(seed: u64) {
    let pool = new_pool();
    let files = Posix::new(pool.open(&"root".parse().unwrap()).unwrap(), PosixOptions::default());
    let files = files.unwrap();
    let ballast = file(&files, Ino::ROOT, "ballast").unwrap();
    for piece in 0..BALLAST_PIECES {
        let content = noise(piece, PIECE);
        files.write(ballast, piece * PIECE as u64, &content, WriteOptions::default()).unwrap();
    }
    let directories: Vec<Ino> = (0..WORKERS).map(|worker| directory(&files, worker)).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| in_background(&files, &pool, &done));
        let _ends = End(&done);
        side_by_side(&directories, seed, |worker, directory, random| {
            write_until_full(&files, directory, worker, random);
        });
        side_by_side(&directories, seed, |worker, directory, random| {
            let (what, removed) = remove_all(&files, worker, directory, random);
            assert_eq!(removed, Ok(()), "{what}, worker {worker}, seed {seed}");
        });
    });
    files.unlink(Ino::ROOT, name("ballast")).unwrap();
    files.forget(ballast, 1);
    while files.reclaim_step(RECLAIM_ITEMS).unwrap() {}
    pool.commit().unwrap();
    let allocated = pool.status().allocated_bytes;
    assert!(allocated < 4 << 20, "{allocated} bytes of nothing, seed {seed}");
}

/// Ends the background, also when a worker fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn what_many_writers_have_filled_can_be_removed() {
    (1..=SEEDS).for_each(round);
}
