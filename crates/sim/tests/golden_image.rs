//! A whole pool of each version of the format, kept as it was written then: it opens, has what was
//! put into it, passes the verifier, and goes on being used.
//!
//! `WRITE_GOLDEN=1 cargo test -p marram-sim --test golden_image` writes the image of the present
//! version if there is none; it never overwrites one.

use marram_check::{CheckOptions, Finding, check};
use marram_codec::{Compression, codec_id, compress, decompress};
use marram_device::{Device, MemoryDevice};
use marram_format::version::FormatVersion;
use marram_pool::{CreateOptions, OpenOptions, Pool, create};
use marram_posix::{Posix, PosixOptions};
use marram_sim::pattern;
use marram_store::{Properties, Store};
use marram_vfs::{
    Caller, FileSystem, Ino, Kind, Name, NewNode, SteppedClock, WriteOptions, XattrMode,
};
use std::path::PathBuf;
use std::sync::Arc;

const POOL_BYTES: usize = 32 << 20;
/// The image is compressed in parts of this size.
const PART_BYTES: usize = 1 << 20;
const CALLER: Caller = Caller { uid: 1000, gid: 1000 };

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../format/golden")
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a name")
}

fn open(device: &Arc<dyn Device>) -> Arc<Pool> {
    Pool::open(vec![device.clone()], OpenOptions::default()).expect("the pool opens")
}

fn mounted(pool: &Pool, source: &str) -> Posix {
    let view = pool.open(&source.parse().expect("a name")).expect("the dataset is there");
    let options = PosixOptions { clock: Arc::new(SteppedClock::default()), ..Default::default() };
    Posix::new(view, options).expect("the dataset has a file system")
}

fn file(files: &Posix, parent: Ino, text: &str, content: &[u8]) -> Ino {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o640, device: 0 };
    let ino = files.create(CALLER, parent, name(text), node).expect("a file is made").ino;
    for (part, bytes) in content.chunks(PART_BYTES).enumerate() {
        let offset = (part * PART_BYTES) as u64;
        files.write(ino, offset, bytes, WriteOptions::default()).expect("a file is written");
    }
    ino
}

fn content(files: &Posix, path: &str) -> Vec<u8> {
    let find = |ino, part| files.lookup(ino, name(part)).expect(path).ino;
    let ino = path.split('/').fold(Ino::ROOT, find);
    let mut out = Vec::new();
    files.read(ino, 0, POOL_BYTES, &mut out).expect("the file can be read");
    out
}

/// What the image has; the seed tells versions apart should they ever need different ones.
fn fill(pool: &Pool) {
    let files = mounted(pool, "root");
    let directory = NewNode::Directory { permissions: 0o750 };
    let folder = files.create(CALLER, Ino::ROOT, name("folder"), directory).expect("a folder").ino;
    file(&files, folder, "tiny", b"tiny");
    file(&files, folder, "noise", &pattern(1, 300_000));
    let zeros = file(&files, Ino::ROOT, "zeros", &vec![0; 2 << 20]);
    files.set_xattr(zeros, b"user.colour", b"green", XattrMode::Any).expect("an attribute");
    let target = NewNode::Symlink { target: b"folder/tiny" };
    files.create(CALLER, Ino::ROOT, name("link"), target).expect("a link");
    files.sync_all().expect("memory takes it");
    pool.snapshot(&"root".parse().expect("a name"), "before").expect("a snapshot");
    let noise = files.lookup(folder, name("noise")).expect("it is there").ino;
    files.write(noise, 100_000, &pattern(2, 5000), WriteOptions::default()).expect("written");
    files.copy_range(noise, 0, zeros, 1 << 20, 200_000).expect("blocks are shared");
    files.unlink(Ino::ROOT, name("link")).expect("the link goes");
    files.sync_all().expect("memory takes it");
    let origin = "root@before".parse().expect("a name");
    pool.clone_snapshot(&origin, &"copy".parse().expect("a name")).expect("a clone");
    file(&mounted(pool, "copy"), Ino::ROOT, "only-in-copy", b"copy");
    pool.close().expect("memory takes it");
}

/// Leaves two frames in the intent log that no commit has. The first sync after an opening is a
/// commit.
fn log(pool: &Pool) {
    let files = mounted(pool, "root");
    let ino = file(&files, Ino::ROOT, "synced", &pattern(3, 10_000));
    files.sync_all().expect("memory takes it");
    for len in [100, 200] {
        files.write(ino, 5000, &pattern(4, len), WriteOptions::default()).expect("written");
        files.sync_all().expect("memory takes it");
    }
}

fn assert_logged(pool: &Pool) {
    let mut expected = pattern(3, 10_000);
    expected[5000..5200].copy_from_slice(&pattern(4, 200));
    assert_eq!(content(&mounted(pool, "root"), "synced"), expected);
}

fn assert_filled(pool: &Pool) {
    let changed = [&pattern(1, 300_000)[..100_000], &pattern(2, 5000)].concat();
    let noise = [&changed[..], &pattern(1, 300_000)[105_000..]].concat();
    let live = mounted(pool, "root");
    assert_eq!(content(&live, "folder/tiny"), b"tiny");
    assert_eq!(content(&live, "folder/noise"), noise);
    let zeros = content(&live, "zeros");
    assert_eq!(zeros.len(), 2 << 20);
    assert_eq!(&zeros[1 << 20..(1 << 20) + 200_000], &noise[..200_000]);
    let before = mounted(pool, "root@before");
    assert_eq!(content(&before, "folder/noise"), pattern(1, 300_000));
    let link = before.lookup(Ino::ROOT, name("link")).expect("the snapshot kept it").ino;
    assert_eq!(before.read_link(link).expect("a target"), b"folder/tiny");
    assert_eq!(content(&mounted(pool, "copy"), "only-in-copy"), b"copy");
}

/// Returns how many frames wait in the intent log.
fn assert_clean(device: &dyn Device) -> u64 {
    let options = CheckOptions { read_data: true, snapshots: true };
    let mut findings = Vec::new();
    let mut note = |finding: Finding| findings.push(finding.to_string());
    let summary = check(device, &options, &mut note).expect("a pool");
    assert!(findings.is_empty(), "{findings:?}");
    summary.log_frames
}

fn image_of(version: FormatVersion) -> PathBuf {
    folder().join(format!("v{version}")).join("pool.image")
}

fn pack(image: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut output = Vec::new();
    for part in image.chunks(PART_BYTES) {
        assert!(compress(Compression::Zstd { level: 19 }, part, &mut output), "it compresses");
        packed.extend((output.len() as u32).to_le_bytes());
        packed.extend(&output);
    }
    packed
}

fn unpack(mut packed: &[u8]) -> Vec<u8> {
    let mut image = Vec::new();
    while let Some((len, rest)) = packed.split_first_chunk() {
        let (part, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
        image.extend(decompress(codec_id::ZSTD, part, PART_BYTES).expect("a part of the image"));
        packed = rest;
    }
    image
}

fn new_image() -> Vec<u8> {
    let memory = Arc::new(MemoryDevice::new(POOL_BYTES));
    let device: Arc<dyn Device> = memory.clone();
    let options = CreateOptions {
        label: "golden".to_owned(),
        properties: Properties::default(),
        pool_id: [0x60; 16],
        secret: 7,
        now_seconds: 1_795_000_000,
    };
    create(std::slice::from_ref(&device), &options).expect("a pool is made");
    fill(&open(&device));
    log(&open(&device));
    memory.snapshot()
}

#[test]
fn pools_of_every_version_open_and_go_on() {
    let present = image_of(FormatVersion::CURRENT);
    if !present.exists() && std::env::var_os("WRITE_GOLDEN").is_some() {
        std::fs::write(&present, pack(&new_image())).expect("the image is written");
    }
    assert!(present.exists(), "there is no image of the present version: see the header");
    let versions = std::fs::read_dir(folder()).expect("the golden folder");
    for version in versions {
        let path = version.expect("a folder").path().join("pool.image");
        let image = unpack(&std::fs::read(&path).expect("an image of each version"));
        let memory = Arc::new(MemoryDevice::from_bytes(image));
        let device: Arc<dyn Device> = memory.clone();
        let frames = assert_clean(&*device);
        let pool = open(&device);
        assert_filled(&pool);
        if path != image_of(FormatVersion { major: 1, minor: 0 }) {
            assert_eq!(frames, 2, "version 1.1 has brought the intent log");
            assert_logged(&pool);
        }
        file(&mounted(&pool, "root"), Ino::ROOT, "new", &pattern(9, 400_000));
        pool.close().expect("memory takes it");
        drop(pool);
        let pool = open(&device);
        assert_filled(&pool);
        assert_eq!(content(&mounted(&pool, "root"), "new"), pattern(9, 400_000));
        assert_eq!(assert_clean(&*device), 0);
    }
}
