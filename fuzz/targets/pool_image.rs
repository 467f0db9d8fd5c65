//! Whole images: a small pool with a file system in it, changed by the input, then opened, read,
//! written to, and checked. Whatever the bytes are, the answer is data that is right or a typed
//! error: no panic, no endless walk, no allocation out of proportion.
//!
//! The input is a list of changes. Superblocks and frames of the intent log get their checksum
//! mended, so that their fields are hostile and yet believed; every other block is found out by the
//! checksum in its pointer.

#![no_main]

use libfuzzer_sys::fuzz_target;
use marram_check::CheckOptions;
use marram_device::{Device, MemoryDevice, checked_range};
use marram_format::log::{FRAME_HEADER_BYTES, FRAME_MAGIC};
use marram_pool::{CreateOptions, OpenOptions, POOL_BYTES_MIN, Pool, create, probe};
use marram_posix::{Posix, PosixOptions};
use marram_store::{DatasetName, Properties, Source, Store};
use marram_vfs::{Caller, FileSystem, Ino, Kind, Name, NewNode, WriteOptions};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

const GRAIN_BYTES: usize = 4096;

/// Changes that one input can make.
const CHANGES_MAX: usize = 16;

/// Files in the image.
const FILES: u64 = 16;

/// Frames that wait in the image's intent log.
const FRAMES: u64 = 4;

/// The pool's secret: with it, frames can be written that are believed.
const SECRET: u64 = 7;

/// Inodes that are looked at: a hostile tree may claim any number.
const INODES_MAX: usize = 200;

fuzz_target!(|bytes: &[u8]| {
    let Some((mode, changes)) = bytes.split_first() else { return };
    let image = Changed::default();
    for change in changes.chunks_exact(8).take(CHANGES_MAX) {
        apply(&image, change);
    }
    let device: Arc<dyn Device> = Arc::new(image);
    let _ = probe(&*device);
    let _ = marram_check::check(
        &*device,
        &CheckOptions { read_data: true, snapshots: true },
        &mut |_| {},
    );
    let options = OpenOptions { read_only: mode % 2 == 0, ..OpenOptions::new(|| 0) };
    if let Ok(pool) = Pool::open(vec![device], options) {
        use_pool(&pool);
    }
});

/// A pool with directories, files of several blocks, a link, an attribute, and a snapshot.
fn base() -> &'static Vec<u8> {
    static BASE: OnceLock<Vec<u8>> = OnceLock::new();
    BASE.get_or_init(|| {
        let size = usize::try_from(POOL_BYTES_MIN).expect("32 MiB fit");
        let memory = Arc::new(MemoryDevice::new(size));
        let device: Arc<dyn Device> = Arc::clone(&memory) as Arc<dyn Device>;
        let options = CreateOptions {
            label: "fuzz".to_owned(),
            properties: Properties([("recordsize".to_owned(), "4096".to_owned())].into()),
            pool_id: [7; 16],
            secret: SECRET,
            now_seconds: 1_700_000_000,
        };
        create(&[Arc::clone(&device)], &options).expect("a pool is made");
        let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).expect("it opens");
        fill(&pool).expect("it takes files");
        pool.commit().expect("it commits");
        log(&pool).expect("it takes a little more");
        memory.snapshot()
    })
}

fn fill(pool: &Pool) -> Result<(), Box<dyn std::error::Error>> {
    let root = root();
    let files = Posix::new(pool.open(&root)?, PosixOptions::default())?;
    for number in 0..FILES {
        let ino = make(&files, &format!("file-{number}"))?;
        files.write(ino, 0, &content(number), WriteOptions::default())?;
        if number == FILES / 2 {
            pool.snapshot(&root.dataset, "kept")?;
        }
    }
    files.sync_all()?;
    Ok(())
}

/// Leaves frames in the intent log, each of one grain.
fn log(pool: &Pool) -> Result<(), Box<dyn std::error::Error>> {
    let files = Posix::new(pool.open(&root())?, PosixOptions::default())?;
    for number in 0..FRAMES {
        let ino = make(&files, &format!("synced-{number}"))?;
        files.write(ino, 0, &content(1)[..100], WriteOptions::default())?;
        files.write(ino, number * 4096, b"more", WriteOptions::default())?;
        files.sync_all()?;
    }
    Ok(())
}

/// Noise, so that it is neither compressed away nor kept in its pointer.
fn content(number: u64) -> Vec<u8> {
    let words = (0..number * 300).map(|at| xxhash_rust::xxh3::xxh3_64_with_seed(&[], at + number));
    words.flat_map(u64::to_le_bytes).collect()
}

fn root() -> Source {
    Source { dataset: DatasetName::root(), snapshot: None }
}

fn make(files: &dyn FileSystem, name: &str) -> marram_vfs::Result<Ino> {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let caller = Caller { uid: 0, gid: 0 };
    let name = Name::new(name.as_bytes())?;
    files.create(caller, Ino::ROOT, name, node).map(|made| made.ino)
}

/// Grains that are not all zeros: changes elsewhere would mostly say nothing. Those that are mended
/// come first, as a change names one of the first 256.
fn used_grains() -> &'static Vec<usize> {
    static USED: OnceLock<Vec<usize>> = OnceLock::new();
    USED.get_or_init(|| {
        let grains = base().chunks_exact(GRAIN_BYTES).enumerate();
        let used = grains.filter(|(_, grain)| grain.iter().any(|byte| *byte != 0));
        let mut used: Vec<usize> = used.map(|(at, _)| at).collect();
        let is_mended = |grain| grain_of(base(), grain).starts_with(b"Marram");
        used.sort_by_key(|grain| (!is_frame(*grain), !is_mended(*grain)));
        assert!(FRAMES == used.iter().filter(|grain| is_frame(**grain)).count() as u64 / 2);
        used
    })
}

fn is_frame(grain: usize) -> bool {
    grain_of(base(), grain).starts_with(&FRAME_MAGIC)
}

/// One change: which used grain, where in it, how, and four bytes.
fn apply(image: &Changed, change: &[u8]) {
    let used = used_grains();
    let grain = used[usize::from(change[0]) % used.len()];
    let place = (usize::from(change[1]) | usize::from(change[2]) << 8) % (GRAIN_BYTES - 4);
    let mut grains = image.grains.lock().expect("nobody panics with the lock");
    let page = grains.entry(grain).or_insert_with(|| grain_of(base(), grain).to_vec());
    match change[3] % 4 {
        0 => page[place..place + 4].copy_from_slice(&change[4..8]),
        1 => page[place] ^= change[4],
        2 => page[place..].fill(change[4]),
        _ => page.fill(0),
    }
    mend(page);
}

/// Gives a page the checksum that it should have.
fn mend(page: &mut [u8]) {
    if page.starts_with(&FRAME_MAGIC) {
        let len = u32::from_le_bytes([page[32], page[33], page[34], page[35]]) as usize;
        if (FRAME_HEADER_BYTES..=GRAIN_BYTES).contains(&len) {
            page[40..FRAME_HEADER_BYTES].fill(0);
            let checksum = xxhash_rust::xxh3::xxh3_128_with_seed(&page[..len], SECRET);
            page[40..FRAME_HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        }
    } else if page.starts_with(b"Marram") {
        let checksum = xxhash_rust::xxh3::xxh3_128(&page[..GRAIN_BYTES - 16]);
        page[GRAIN_BYTES - 16..].copy_from_slice(&checksum.to_le_bytes());
    }
}

fn grain_of(image: &[u8], grain: usize) -> &[u8] {
    &image[grain * GRAIN_BYTES..][..GRAIN_BYTES]
}

/// The base image with some grains changed: an input costs what it touches.
#[derive(Default)]
struct Changed {
    grains: Mutex<BTreeMap<usize, Vec<u8>>>,
}

impl Changed {
    /// Calls `visit` with each grain of a range, where the range begins in it, and which bytes of
    /// the caller's buffer it holds.
    fn each(offset: u64, len: usize, mut visit: impl FnMut(usize, usize, Range<usize>)) {
        let start = usize::try_from(offset).expect("the range was checked");
        let mut done = 0;
        while done < len {
            let (grain, within) = ((start + done) / GRAIN_BYTES, (start + done) % GRAIN_BYTES);
            let count = (GRAIN_BYTES - within).min(len - done);
            visit(grain, within, done..done + count);
            done += count;
        }
    }

    fn check(&self, offset: u64, len: usize) -> marram_device::Result<()> {
        checked_range(&self.name(), offset, len as u64, base().len() as u64).map(|_| ())
    }
}

impl Device for Changed {
    fn name(&self) -> String {
        "image".to_owned()
    }

    fn size(&self) -> marram_device::Result<u64> {
        Ok(base().len() as u64)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> marram_device::Result<()> {
        self.check(offset, buffer.len())?;
        let grains = self.grains.lock().expect("nobody panics with the lock");
        Changed::each(offset, buffer.len(), |grain, within, part| {
            let bytes = grains.get(&grain).map_or(grain_of(base(), grain), Vec::as_slice);
            let count = part.len();
            buffer[part].copy_from_slice(&bytes[within..within + count]);
        });
        Ok(())
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> marram_device::Result<()> {
        self.check(offset, buffer.len())?;
        let mut grains = self.grains.lock().expect("nobody panics with the lock");
        Changed::each(offset, buffer.len(), |grain, within, part| {
            let bytes = grains.entry(grain).or_insert_with(|| grain_of(base(), grain).to_vec());
            let count = part.len();
            bytes[within..within + count].copy_from_slice(&buffer[part]);
        });
        Ok(())
    }

    fn flush(&self) -> marram_device::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> marram_device::Result<()> {
        Ok(())
    }
}

/// Reads what can be read, writes a little, commits; errors are as good as answers.
fn use_pool(pool: &Arc<Pool>) {
    let _ = pool.list();
    for snapshot in [None, Some("kept".to_owned())] {
        let source = Source { dataset: DatasetName::root(), snapshot };
        let view = pool.open(&source);
        let files = view.map(|view| Posix::new(view, PosixOptions::default()));
        if let Ok(Ok(files)) = files {
            walk(&files);
            let _ = make(&files, "new")
                .map(|ino| files.write(ino, 10_000, b"content", WriteOptions::default()));
        }
    }
    let _ = pool.commit();
    let _ = pool.close();
}

fn walk(files: &dyn FileSystem) {
    let mut inodes = Vec::new();
    let _ = files.read_directory(Ino::ROOT, 0, false, &mut |entry| {
        inodes.push(entry.ino);
        inodes.len() < INODES_MAX
    });
    let mut content = Vec::new();
    for ino in inodes {
        content.clear();
        let _ = files.pin(ino);
        let _ = files.read(ino, 0, 1 << 20, &mut content);
        let _ = files.list_xattrs(ino);
        files.forget(ino, 1);
    }
}
