//! Changes that free something on a pool that is full to the last item: those are never refused,
//! and what only looks like one of them does not take the part that is kept for them.

use marram_device::{Device, MemoryDevice};
use marram_pool::{CreateOptions, OpenOptions, Pool, create};
use marram_posix::{Posix, PosixOptions};
use marram_sim::pattern;
use marram_store::{Properties, Store};
use marram_vfs::{
    Allocate, Caller, Error, FileSystem, Ino, Kind, Name, NewNode, Ranges, Result,
    StoredAccessLists, WriteOptions, XattrMode,
};
use std::sync::Arc;

const POOL_BYTES: usize = 32 << 20;
/// One section of a file.
const RECORD: u64 = 128 << 10;
const PAGE: u64 = 4096;
/// Files whose attributes and lists are removed.
const FILES: u64 = 400;
const ROOT: Caller = Caller { uid: 0, gid: 0 };
const LIST: &[u8] = b"system.posix_acl_access";
const ATTRIBUTE: &[u8] = b"user.comment";

struct Bench {
    pool: Arc<Pool>,
    files: Posix,
}

impl Bench {
    fn new() -> Bench {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(POOL_BYTES));
        let properties = [("compression", "off"), ("acl", "posix")];
        let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let options = CreateOptions {
            label: "full".to_owned(),
            properties: Properties(properties.into()),
            pool_id: [4; 16],
            secret: 7,
            now_seconds: 1_700_000_000,
        };
        create(std::slice::from_ref(&device), &options).unwrap();
        let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).unwrap();
        let view = pool.open(&"root".parse().unwrap()).unwrap();
        Bench { files: Posix::new(view, PosixOptions::default()).unwrap(), pool }
    }

    fn file(&self, text: &str) -> Result<Ino> {
        let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
        let name = Name::new(text.as_bytes()).unwrap();
        let ino = self.files.create(ROOT, Ino::ROOT, name, node)?.ino;
        self.files.forget(ino, 1);
        Ok(ino)
    }

    fn write(&self, ino: Ino, offset: u64, len: usize) -> Result<()> {
        let content = pattern(3 * offset + 2, len);
        self.files.write(ino, offset, &content, WriteOptions::default())
    }

    /// Makes and writes until nothing is taken any more, however small.
    fn fill(&self) {
        let ino = self.file("filler").unwrap();
        let (mut end, mut made, mut set) = (0, 0, 0);
        loop {
            let before = (end, made, set);
            for len in [1 << 20, 64 << 10, PAGE] {
                end += until_full(|count| self.write(ino, end + count * len, len as usize)) * len;
            }
            made += until_full(|count| self.file(&format!("small{}", made + count)).map(|_| ()));
            // Nothing changes fewer items than one attribute.
            let name = |number: u64| format!("user.{number:0200}");
            set += until_full(|count| self.set(ino, name(set + count).as_bytes()));
            self.pool.commit().unwrap();
            if (end, made, set) == before {
                return;
            }
        }
    }

    fn punch(&self, ino: Ino, offset: u64, len: u64) -> Result<()> {
        self.files.allocate(ino, Allocate::PunchHole, offset, len)
    }

    fn set(&self, ino: Ino, attribute: &[u8]) -> Result<()> {
        match attribute {
            LIST => self.files.set_access_list(ino, LIST, &list(), false),
            _ => self.files.set_xattr(ino, attribute, b"so long", XattrMode::Any),
        }
    }
}

/// How often something goes well before there is no space.
fn until_full(mut act: impl FnMut(u64) -> Result<()>) -> u64 {
    for count in 0.. {
        match act(count) {
            Ok(()) => {}
            Err(Error::NoSpace) => return count,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("a pool has an end")
}

/// A list that says more than permissions can: owner, a named user, group, mask and others.
fn list() -> Vec<u8> {
    let entries = [(1, 6, u32::MAX), (2, 4, 1234), (4, 4, u32::MAX), (16, 4, u32::MAX)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries.into_iter().chain([(32_u16, 0_u16, u32::MAX)]) {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

#[test]
fn attributes_and_lists_can_be_removed_from_a_full_pool() {
    for attribute in [ATTRIBUTE, LIST] {
        let bench = Bench::new();
        let name = |number: u64| format!("{number:0100}");
        let inodes: Vec<Ino> = (0..FILES).map(|it| bench.file(&name(it)).unwrap()).collect();
        inodes.iter().for_each(|ino| bench.set(*ino, attribute).unwrap());
        let bare = bench.file("bare").unwrap();
        bench.fill();
        assert_eq!(bench.set(bare, attribute), Err(Error::NoSpace), "it is full");
        for ino in &inodes {
            assert_eq!(bench.files.remove_xattr(*ino, attribute), Ok(()));
        }
        bench.pool.commit().unwrap();
        for ino in inodes {
            assert_eq!(bench.files.xattr(ino, attribute), Err(Error::NoAttribute));
        }
    }
}

#[test]
fn a_hole_inside_of_a_section_takes_no_space_that_removals_need() {
    let bench = Bench::new();
    let holed = bench.file("holed").unwrap();
    bench.write(holed, 0, 2 << 20).unwrap();
    bench.fill();
    let inside = bench.punch(holed, PAGE, PAGE);
    assert_eq!(inside, Err(Error::NoSpace), "two sections and more are made of one");
    let mut content = Vec::new();
    bench.files.read(holed, 0, 2 << 20, &mut content).unwrap();
    assert!(content == pattern(2, 2 << 20), "a refusal changes nothing");
    for record in 0..16 {
        assert_eq!(bench.punch(holed, record * RECORD, RECORD), Ok(()), "record {record}");
    }
    bench.pool.commit().unwrap();
    bench.write(holed, 0, 1 << 20).unwrap();
    assert_eq!(bench.punch(holed, PAGE, PAGE), Ok(()), "there is space again");
}
