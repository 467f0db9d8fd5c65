//! The golden image: the bytes of `docs/format-pmem.md`, which change only with the version.
//!
//! Each line of the file is an address and the sixteen bytes there; what no line names is zero.
//! With `MARRAM_RECORD_GOLDEN` set the file is written anew.

use crate::images::ROOT_USER;
use crate::reader::{Content, read};
use marram_pmem::memory::Memory;
use marram_pmem::memory::recorded::Recorded;
use marram_pmem::{NewImage, Pmem, PmemOptions, Which, make};
use marram_vfs::{
    Caller, Clock, FileSystem, Ino, Kind, Name, NewNode, RenameMode, Timestamp, WriteOptions,
    XattrMode,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const BYTES: usize = 1 << 20;
const ROW: usize = 16;
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
const KEPT: Which<'_> = Which { dataset: "root", snapshot: Some("kept") };

/// A second for each question.
struct Seconds(AtomicI64);

impl Clock for Seconds {
    fn now(&self) -> Timestamp {
        let seconds = 1_700_000_000 + self.0.fetch_add(1, Ordering::Relaxed);
        Timestamp { seconds, nanoseconds: 123_453_440 }
    }
}

/// An image with some of everything, made on zeros.
fn made() -> Vec<u8> {
    let clock = Arc::new(Seconds(AtomicI64::new(0)));
    let medium = Recorded::new(vec![0; BYTES]);
    let (id, label) = (*b"golden image, v3", "golden".to_owned());
    let new = NewImage { id, label, now: clock.now(), root_owner: ROOT_USER };
    make(&mut Memory::new(Box::new(medium.clone())), &new).unwrap();
    let options = PmemOptions { clock, ..PmemOptions::default() };
    let files = Pmem::open(Memory::new(Box::new(medium.clone())), options).unwrap();
    let name = |text: &'static str| Name::new(text.as_bytes()).unwrap();
    let user = Caller { uid: 1000, gid: 1000 };
    let make = |parent, text, node| files.create(user, parent, name(text), node).unwrap().ino;
    let directory = make(Ino::ROOT, "directory", NewNode::Directory { permissions: 0o755 });
    let file = make(directory, "file", FILE);
    files.write(file, 0, b"content", WriteOptions::default()).unwrap();
    files.write(file, 5000, b"behind a page", WriteOptions::default()).unwrap();
    files.link(file, Ino::ROOT, name("link")).unwrap();
    files.set_xattr(file, b"user.name", b"value", XattrMode::Any).unwrap();
    make(Ino::ROOT, "short", NewNode::Symlink { target: b"directory/file" });
    files.snapshot("root", "kept").unwrap();
    files.write(file, 2, b"NEW", WriteOptions::default()).unwrap();
    make(Ino::ROOT, "gone", FILE);
    files.unlink(Ino::ROOT, name("gone")).unwrap();
    let mode = RenameMode::Replace;
    files.rename(user, Ino::ROOT, name("short"), directory, name("moved"), mode).unwrap();
    files.clone_snapshot(KEPT, "clone").unwrap();
    files.close().unwrap();
    medium.image()
}

fn text_of(image: &[u8]) -> String {
    let rows = image.chunks(ROW).enumerate().filter(|(_, row)| row.iter().any(|byte| *byte != 0));
    let line = |(which, row): (usize, &[u8])| {
        let bytes: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:05x}: {}\n", which * ROW, bytes.join(" "))
    };
    rows.map(line).collect()
}

fn image_of(text: &str) -> Vec<u8> {
    let mut image = vec![0; BYTES];
    for line in text.lines() {
        let (at, bytes) = line.split_once(": ").unwrap();
        let at = usize::from_str_radix(at, 16).unwrap();
        for (which, byte) in bytes.split(' ').enumerate() {
            image[at + which] = u8::from_str_radix(byte, 16).unwrap();
        }
    }
    image
}

#[test]
fn the_golden_image_is_made_and_read() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/v3.image");
    let made = made();
    if std::env::var_os("MARRAM_RECORD_GOLDEN").is_some() {
        std::fs::write(path, text_of(&made)).unwrap();
    }
    let golden = image_of(&std::fs::read_to_string(path).unwrap());
    assert!(made == golden, "the format is another: this needs a version");
    let states = read(&golden).unwrap();
    assert_eq!(states.keys().collect::<Vec<_>>(), ["clone", "root", "root@kept"]);
    let first = |state: &str| match &states[state][&b"/link/"[..]].content {
        Content::Pages(pages) => pages[&0][..7].to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!((first("root"), first("root@kept")), (b"coNEWnt".to_vec(), b"content".to_vec()));
    let memory = Memory::new(Box::new(Recorded::new(golden)));
    let files = Pmem::open(memory, PmemOptions::default()).unwrap();
    files.audit().unwrap();
    let reports = files.datasets().unwrap();
    let shown = reports.iter().map(|it| (it.name.as_str(), it.origin.as_deref()));
    let expected = [("root", None), ("root@kept", None), ("clone", Some("root@kept"))];
    assert!(shown.eq(expected), "{reports:?}");
}
