//! Whole pools of each version of the format, kept as they were written then: they open, have what
//! was put into them, pass the verifier, and go on being used. `contents` has files, `operations` a
//! history and the log of it.
//!
//! `WRITE_GOLDEN=1 cargo test -p marram-sim --test golden_image` writes the images of the present
//! version that are not there yet; it never overwrites one.

mod contents;
mod operations;
mod packed;

use crate::soundness::assert_sound;
use marram_device::{Device, MemoryDevice};
use marram_format::version::FormatVersion;
use marram_pool::{Author, CreateOptions, OpenOptions, Pool, create};
use marram_posix::{Posix, PosixOptions};
use marram_sim::pattern;
use marram_store::{DatasetName, Properties, Source, Store};
use marram_vfs::{Caller, Clock, FileSystem, Ino, Kind, Name, NewNode, SteppedClock, WriteOptions};
use packed::{PART_BYTES, pack, unpack};
use std::path::PathBuf;
use std::sync::Arc;

const POOL_BYTES: usize = 32 << 20;
const CALLER: Caller = Caller { uid: 1000, gid: 1000 };
/// When all happened, and when it is looked at: what is kept for an undo is so for ever.
const NOW_SECONDS: i64 = 1_795_000_000;
/// The name of an image in the folder of its version.
const CONTENTS: &str = "pool.image";
const OPERATIONS: &str = "operations.image";

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../format/golden")
}

fn version(minor: u16) -> FormatVersion {
    FormatVersion { minor, ..FormatVersion::CURRENT }
}

fn path_of(version: FormatVersion, image: &str) -> PathBuf {
    folder().join(format!("v{version}")).join(image)
}

/// The images of this name of all versions from one on. That of the present version is written if
/// it is not there and somebody wants it.
fn images(name: &str, since: u16, write: fn() -> Vec<u8>) -> Vec<(FormatVersion, Vec<u8>)> {
    let present = path_of(FormatVersion::CURRENT, name);
    if !present.exists() && std::env::var_os("WRITE_GOLDEN").is_some() {
        std::fs::write(&present, pack(&write())).expect("the image is written");
    }
    assert!(present.exists(), "there is no {name} of the present version: see the header");
    let versions = (since..=FormatVersion::CURRENT.minor).map(version);
    let image = |version| {
        let packed = std::fs::read(path_of(version, name)).expect("an image of each version");
        (version, unpack(&packed))
    };
    versions.map(image).collect()
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a name")
}

fn root() -> DatasetName {
    DatasetName::root()
}

fn source(text: &str) -> Source {
    text.parse().expect("the name of a dataset or snapshot")
}

fn empty_pool(label: &str) -> Arc<MemoryDevice> {
    let memory = Arc::new(MemoryDevice::new(POOL_BYTES));
    let device: Arc<dyn Device> = memory.clone();
    let options = CreateOptions {
        label: label.to_owned(),
        properties: Properties::default(),
        pool_id: [0x60; 16],
        secret: 7,
        now_seconds: NOW_SECONDS,
    };
    create(&[device], &options).expect("a pool is made");
    memory
}

fn open(device: &Arc<dyn Device>) -> Pool {
    let options = OpenOptions::new(|| NOW_SECONDS);
    let pool = Pool::open(vec![device.clone()], options).expect("the pool opens");
    pool.acting_for(Author { user: Some(CALLER.uid), command: "marram golden".to_owned() })
}

fn mounted(pool: &Pool, text: &str) -> Posix {
    mounted_with(pool, text, Arc::new(SteppedClock::default()))
}

/// The file system of a dataset or snapshot, from the directory that it shows as its root.
fn mounted_with(pool: &Pool, text: &str, clock: Arc<dyn Clock>) -> Posix {
    let source = source(text);
    let root = Ino(pool.report(&source).expect("the dataset is there").root_object);
    let view = pool.open(&source).expect("the dataset opens");
    let options = PosixOptions { clock, root, ..PosixOptions::default() };
    Posix::new(view, options).expect("the dataset has a file system")
}

fn directory(files: &Posix, text: &str) -> Ino {
    let node = NewNode::Directory { permissions: 0o750 };
    let ino = files.create(CALLER, Ino::ROOT, name(text), node).expect("a folder").ino;
    files.forget(ino, 1);
    ino
}

fn file(files: &Posix, parent: Ino, text: &str, content: &[u8]) -> Ino {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o640, device: 0 };
    let ino = files.create(CALLER, parent, name(text), node).expect("a file is made").ino;
    for (part, bytes) in content.chunks(PART_BYTES).enumerate() {
        let offset = (part * PART_BYTES) as u64;
        files.write(ino, offset, bytes, WriteOptions::default()).expect("a file is written");
    }
    files.forget(ino, 1);
    ino
}

fn content(files: &Posix, path: &str) -> Vec<u8> {
    let find = |ino, part| files.lookup(ino, name(part)).expect(path).ino;
    let ino = path.split('/').fold(files.root_directory(), find);
    let mut out = Vec::new();
    files.read(ino, 0, POOL_BYTES, &mut out).expect("the file can be read");
    out
}

#[test]
fn pools_of_every_version_open_and_go_on() {
    for (version, image) in images(CONTENTS, 0, contents::new_image) {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(image));
        let told = format!("version {version}");
        let frames = assert_sound(&*device, &told).log_frames;
        let pool = open(&device);
        contents::assert_filled(&pool);
        if version.minor > 0 {
            assert_eq!(frames, 2, "version 1.1 has brought the intent log");
            contents::assert_logged(&pool);
        }
        file(&mounted(&pool, "root"), Ino::ROOT, "new", &pattern(9, 400_000));
        pool.close().expect("memory takes it");
        drop(pool);
        let pool = open(&device);
        contents::assert_filled(&pool);
        assert_eq!(content(&mounted(&pool, "root"), "new"), pattern(9, 400_000));
        assert_eq!(assert_sound(&*device, &told).log_frames, 0);
    }
}

#[test]
fn the_history_of_pools_since_version_1_4_is_told_and_taken_back() {
    for (version, image) in images(OPERATIONS, 4, operations::new_image) {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(image));
        let told = format!("version {version}");
        let summary = assert_sound(&*device, &told);
        assert_eq!(summary.label, operations::LABEL);
        let pool = open(&device);
        operations::assert_history(&pool, version);
        operations::assert_contents(&pool);
        operations::take_back(&pool, version);
        pool.close().expect("memory takes it");
        drop(pool);
        operations::assert_taken_back(&open(&device), version);
        assert_sound(&*device, &told);
    }
}
