//! The four workloads: a source tree is unpacked, removed, and compiled, and a mail server works.

use crate::images::name;
use marram_ext2::{Counters, Ext2};
use marram_sim::Random;
use marram_vfs::{
    Caller, FileSystem, Ino, Kind, NewNode, RenameMode, SetAttributes, SetTime, Timestamp,
    WriteOptions,
};

const USER: Caller = Caller { uid: 7, gid: 8 };
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o600, device: 0 };
const DIRECTORY: NewNode<'_> = NewNode::Directory { permissions: 0o755 };
/// Operations after which what waits is written in the background.
const WRITE_BACK_EACH: u64 = 10_000;
/// Operations after which the memory of the graph is looked at.
const LOOK_EACH: u64 = 256;
/// Bytes of a write of `tar`, and of the buffered streams of the C library.
const TAR_BYTES: usize = 10 << 10;
const STREAM_BYTES: usize = 4096;
/// Files of the source tree, and of a directory of it.
const TREE_FILES: u64 = 20_000;
const DIRECTORY_FILES: u64 = 16;
/// Sources that are compiled.
const SOURCES: u64 = 2000;
/// PostMark: files, transactions, and sizes of files.
const MAIL_FILES: u64 = 500;
const MAIL_BYTES: (u64, u64) = (500, 4_000_000);

/// A workload: what is there before it, and what it does.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) prepare: fn(&mut Running<'_>, u64),
    pub(crate) act: fn(&mut Running<'_>, u64),
}

pub(crate) const WORKLOADS: [Workload; 4] = [
    Workload { name: "untar", prepare: |_, _| (), act: unpack },
    Workload { name: "delete", prepare: unpack, act: remove },
    Workload { name: "PostMark", prepare: |_, _| (), act: serve_mail },
    Workload { name: "compile", prepare: |_, _| (), act: compile },
];

/// Files in use, and the most that the graph took.
pub(crate) struct Running<'f> {
    files: &'f Ext2,
    operations: u64,
    peak: Counters,
}

impl<'f> Running<'f> {
    pub(crate) fn new(files: &'f Ext2) -> Running<'f> {
        Running { files, operations: 0, peak: Counters::default() }
    }

    /// The moment at which the graph took most.
    pub(crate) fn peak(mut self) -> Counters {
        self.look();
        self.peak
    }

    fn look(&mut self) {
        let now = self.files.counters();
        if now.graph_bytes > self.peak.graph_bytes {
            self.peak = now;
        }
    }

    fn note(&mut self) {
        self.operations += 1;
        if self.operations.is_multiple_of(LOOK_EACH) {
            self.look();
        }
        if self.operations.is_multiple_of(WRITE_BACK_EACH) {
            while self.files.step().unwrap() {}
        }
    }

    fn make(&mut self, node: NewNode<'_>, (parent, text): (Ino, &str)) -> Ino {
        let made = self.files.create(USER, parent, name(text), node).unwrap();
        self.files.forget(made.ino, 1);
        self.note();
        made.ino
    }

    fn append(&mut self, file: Ino, bytes: usize, piece_bytes: usize) {
        let piece = vec![b'x'; piece_bytes];
        let mut left = bytes;
        while left > 0 {
            let len = left.min(piece_bytes);
            self.files.append(file, &piece[..len], WriteOptions::default()).unwrap();
            self.note();
            left -= len;
        }
    }

    fn unlink(&mut self, parent: Ino, text: &str) {
        self.files.unlink(parent, name(text)).unwrap();
        self.note();
    }

    fn set(&mut self, file: Ino, set: &SetAttributes) {
        self.files.set_attributes(USER, file, set).unwrap();
        self.note();
    }
}

/// Bytes of a source: most are small.
fn source_bytes(random: &mut Random) -> usize {
    let bytes = match random.below(100) {
        0..50 => 200 + random.below(4000),
        50..85 => 4096 + random.below(12_000),
        _ => 16_384 + random.below(80_000),
    };
    bytes as usize
}

/// A file as `tar` makes it: written, then given its time and its permissions.
fn unpack_file(running: &mut Running<'_>, place: (Ino, &str), bytes: usize) {
    let file = running.make(FILE, place);
    running.append(file, bytes, TAR_BYTES);
    let modified = Some(SetTime::At(Timestamp { seconds: 1_136_073_600, nanoseconds: 0 }));
    running.set(file, &SetAttributes { modified, ..SetAttributes::default() });
    let permissions = Some(0o644);
    running.set(file, &SetAttributes { permissions, ..SetAttributes::default() });
}

fn unpack(running: &mut Running<'_>, divisor: u64) {
    let mut random = Random::new(1);
    let mut directory = Ino::ROOT;
    for which in 0..TREE_FILES / divisor {
        if which.is_multiple_of(DIRECTORY_FILES) {
            directory = running.make(DIRECTORY, (Ino::ROOT, &format!("directory{which}")));
        }
        let bytes = source_bytes(&mut random);
        unpack_file(running, (directory, &format!("source-{which}.c")), bytes);
    }
}

fn remove(running: &mut Running<'_>, divisor: u64) {
    let mut directory = (Ino::ROOT, String::new());
    let leave = |running: &mut Running<'_>, text: &str| {
        if !text.is_empty() {
            running.files.remove_directory(Ino::ROOT, name(text)).unwrap();
            running.note();
        }
    };
    for which in 0..TREE_FILES / divisor {
        if which.is_multiple_of(DIRECTORY_FILES) {
            leave(running, &directory.1);
            let text = format!("directory{which}");
            let found = running.files.lookup(Ino::ROOT, name(&text)).unwrap();
            running.files.forget(found.ino, 1);
            directory = (found.ino, text);
        }
        running.unlink(directory.0, &format!("source-{which}.c"));
    }
    leave(running, &directory.1);
}

fn serve_mail(running: &mut Running<'_>, divisor: u64) {
    let mut random = Random::new(2);
    let (least, most) = MAIL_BYTES;
    let mut there: Vec<(Ino, String)> = Vec::new();
    let deliver = |running: &mut Running<'_>, random: &mut Random, which: u64| {
        let text = format!("{which}");
        let file = running.make(FILE, (Ino::ROOT, &text));
        running.append(file, (least + random.below(most - least)) as usize, STREAM_BYTES);
        (file, text)
    };
    for which in 0..MAIL_FILES / divisor {
        there.push(deliver(running, &mut random, which));
    }
    // Each transaction reads or appends, and makes or removes.
    for which in 0..MAIL_FILES / divisor {
        let chosen = random.below(there.len() as u64) as usize;
        if random.once_in(2) {
            let bytes = random.below(least * 20) as usize;
            running.append(there[chosen].0, bytes, STREAM_BYTES);
        }
        if random.once_in(2) || there.len() < 2 {
            there.push(deliver(running, &mut random, MAIL_FILES + which));
        } else {
            let (_, text) = there.swap_remove(chosen);
            running.unlink(Ino::ROOT, &text);
        }
    }
    for (_, text) in there {
        running.unlink(Ino::ROOT, &text);
    }
}

/// Sources are copied, then compiled one by one, then linked.
fn compile(running: &mut Running<'_>, divisor: u64) {
    let mut random = Random::new(3);
    let [sources, objects, temporary] =
        ["src", "obj", "tmp"].map(|text| running.make(DIRECTORY, (Ino::ROOT, text)));
    for which in 0..SOURCES / divisor {
        let bytes = source_bytes(&mut random);
        unpack_file(running, (sources, &format!("source-{which}.c")), bytes);
    }
    for which in 0..SOURCES / divisor {
        let assembly = format!("cc{which}.s");
        let file = running.make(FILE, (temporary, &assembly));
        running.append(file, 8000 + random.below(60_000) as usize, STREAM_BYTES);
        let object = running.make(FILE, (objects, &format!("source-{which}.o")));
        running.append(object, 4000 + random.below(30_000) as usize, STREAM_BYTES);
        running.unlink(temporary, &assembly);
        let (depends, new) = (format!("source-{which}.d"), format!("source-{which}.d.new"));
        let file = running.make(FILE, (objects, &new));
        running.append(file, 300, STREAM_BYTES);
        let (old, new, mode) = (name(&new), name(&depends), RenameMode::Replace);
        running.files.rename(USER, objects, old, objects, new, mode).unwrap();
        running.note();
    }
    let program = running.make(FILE, (objects, "program"));
    running.append(program, (SOURCES / divisor) as usize * 8000, STREAM_BYTES);
    let permissions = Some(0o755);
    running.set(program, &SetAttributes { permissions, ..SetAttributes::default() });
}
