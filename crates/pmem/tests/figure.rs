//! The rows of figure 3.8 of the thesis, and what each costs: for the test that judges them and the
//! example that prints them.

use crate::images::{Cut, ROOT_USER, new_image, open_with};
use marram_pmem::memory::Tally;
use marram_pmem::{AccessTimes, Pmem};
use marram_vfs::{
    Clock, FileSystem, Ino, Kind, Name, NewNode, RenameMode, SetAttributes, SteppedClock,
    WriteOptions,
};
use std::sync::Arc;

pub(crate) const FILE: NewNode<'_> =
    NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
pub(crate) const DIRECTORY: NewNode<'_> = NewNode::Directory { permissions: 0o755 };
pub(crate) const KIB: usize = 1024;

/// A row: what it is called, what the thesis says, and what we promise where that is less.
pub(crate) struct Row {
    /// The operation.
    pub(crate) name: &'static str,
    /// Bytes that the thesis stores.
    pub(crate) thesis: u64,
    /// Most bytes that we promise to store.
    pub(crate) goal: u64,
    prepare: fn(&Files),
    run: fn(&Files),
}

/// The file system of a row, with a directory that has an entry already.
pub(crate) struct Files(pub(crate) Arc<Pmem>);

pub(crate) fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

impl Files {
    pub(crate) fn ino(&self, path: &str) -> Ino {
        path.split('/').filter(|part| !part.is_empty()).fold(Ino::ROOT, |at, part| {
            let found = self.0.lookup(at, name(part)).unwrap().ino;
            self.0.forget(found, 1);
            found
        })
    }

    pub(crate) fn make(&self, directory: &str, text: &str, node: NewNode<'_>) {
        let ino = self.0.create(ROOT_USER, self.ino(directory), name(text), node).unwrap().ino;
        self.0.forget(ino, 1);
    }

    pub(crate) fn write(&self, at: usize, len: usize) {
        let ino = self.ino("f");
        self.0.write(ino, at as u64, &vec![3; len], WriteOptions::default()).unwrap();
    }

    pub(crate) fn rename(&self, from: (&str, &str), to: (&str, &str)) {
        let (parent, new_parent) = (self.ino(from.0), self.ino(to.0));
        let mode = RenameMode::Replace;
        self.0.rename(ROOT_USER, parent, name(from.1), new_parent, name(to.1), mode).unwrap();
    }

    pub(crate) fn link(&self, text: &str) {
        let ino = self.0.link(self.ino("f"), Ino::ROOT, name(text)).unwrap().ino;
        self.0.forget(ino, 1);
    }

    pub(crate) fn set(&self, set: SetAttributes) {
        self.0.set_attributes(ROOT_USER, self.ino("f"), &set).unwrap();
    }
}

/// What a row stores, flushes and fences; with `after_snapshot` right after one.
pub(crate) fn measure(row: &Row, after_snapshot: bool) -> Tally {
    let clock: Arc<dyn Clock> = Arc::new(Cut(Arc::new(SteppedClock::default())));
    let medium = new_image(16 << 20, &*clock);
    let files = Files(open_with(&medium, clock, AccessTimes::Strict));
    for directory in ["d", "e"] {
        files.make("", directory, DIRECTORY);
        files.make(directory, "x", FILE);
    }
    files.make("", "f", FILE);
    (row.prepare)(&files);
    if after_snapshot {
        files.0.snapshot("root", "kept").unwrap();
    }
    let before = files.0.tally();
    (row.run)(&files);
    let after = files.0.tally();
    files.0.audit().unwrap();
    Tally {
        stored_bytes: after.stored_bytes - before.stored_bytes,
        flushed_lines: after.flushed_lines - before.flushed_lines,
        fences: after.fences - before.fences,
    }
}

/// All 32 rows.
pub(crate) fn rows() -> Vec<Row> {
    [content(), names(), renames()].into_iter().flatten().collect()
}

macro_rules! rows {
    ($($name:literal, $thesis:literal, $goal:literal, $prepare:expr, $run:expr;)*) => {
        [$(Row { name: $name, thesis: $thesis, goal: $goal, prepare: $prepare, run: $run }),*]
    };
}

fn content() -> Vec<Row> {
    Vec::from(rows! {
        "append 8 B to 0 B", 28, 28, |_| (), |it| it.write(0, 8);
        "append 4 KiB to 0 B", 4_116, 4_116, |_| (), |it| it.write(0, 4 * KIB);
        "append 128 KiB to 0 B", 131_356, 131_356, |_| (), |it| it.write(0, 128 * KIB);
        "append 8 B to 8 B", 20, 20, |it| it.write(0, 8), |it| it.write(8, 8);
        "append 4 KiB to 8 KiB", 4_116, 4_116, |it| it.write(0, 8 * KIB),
            |it| it.write(8 * KIB, 4 * KIB);
        "append 4 KiB to 2 MiB", 4_140, 4_140, |it| it.write(0, 2048 * KIB),
            |it| it.write(2048 * KIB, 4 * KIB);
        "append 128 KiB to 2 MiB", 131_364, 131_364, |it| it.write(0, 2048 * KIB),
            |it| it.write(2048 * KIB, 128 * KIB);
        "write 8 B at 0", 12, 12, |it| it.write(0, 8 * KIB), |it| it.write(0, 8);
        "write 8 B at 4092", 12_316, 80, |it| it.write(0, 8 * KIB), |it| it.write(4092, 8);
        "write 16 B at 0", 4_108, 80, |it| it.write(0, 8 * KIB), |it| it.write(0, 16);
        "write 4 KiB at 0", 4_108, 4_108, |it| it.write(0, 256 * KIB), |it| it.write(0, 4 * KIB);
        "write 4 KiB at 1", 12_316, 4_200, |it| it.write(0, 256 * KIB), |it| it.write(1, 4 * KIB);
        "write 124 KiB at 1", 135_436, 127_600, |it| it.write(0, 256 * KIB),
            |it| it.write(1, 124 * KIB);
        "write 128 KiB at 0", 135_436, 131_700, |it| it.write(0, 256 * KIB),
            |it| it.write(0, 128 * KIB);
    })
}

fn names() -> Vec<Row> {
    Vec::from(rows! {
        "create", 92, 80, |_| (), |it| it.make("", "a", FILE);
        "link", 40, 36, |_| (), |it| it.link("a");
        "symlink", 94, 94, |_| (), |it| it.make("", "a", NewNode::Symlink { target: b"t" });
        "mkdir", 98, 98, |_| (), |it| it.make("", "a", DIRECTORY);
        "unlink a file", 16, 14, |it| it.make("", "a", FILE),
            |it| it.0.unlink(Ino::ROOT, name("a")).unwrap();
        "unlink a symlink", 16, 14, |it| it.make("", "a", NewNode::Symlink { target: b"t" }),
            |it| it.0.unlink(Ino::ROOT, name("a")).unwrap();
        "unlink a hard link", 24, 24, |it| it.link("a"),
            |it| it.0.unlink(Ino::ROOT, name("a")).unwrap();
        "rmdir", 20, 20, |it| it.make("", "a", DIRECTORY),
            |it| it.0.remove_directory(Ino::ROOT, name("a")).unwrap();
        "chown", 12, 12, |_| (),
            |it| it.set(SetAttributes { uid: Some(5), gid: Some(6), ..SetAttributes::default() });
        "chmod", 8, 8, |_| (),
            |it| it.set(SetAttributes { permissions: Some(0o600), ..SetAttributes::default() });
        "read", 4, 4, |it| it.write(0, 8),
            |it| it.0.read(it.ino("f"), 0, 8, &mut Vec::new()).unwrap();
        "readdir", 8, 4, |_| (),
            |it| it.0.read_directory(Ino::ROOT, 0, false, &mut |_| true).unwrap();
    })
}

fn renames() -> Vec<Row> {
    Vec::from(rows! {
        "rename a file in a directory", 4_144, 160, |_| (), |it| it.rename(("", "f"), ("", "g"));
        "rename a file, clobber", 4_128, 160, |it| it.make("", "g", FILE),
            |it| it.rename(("", "f"), ("", "g"));
        "rename a file between directories", 12_360, 160, |_| (),
            |it| it.rename(("d", "x"), ("e", "y"));
        "rename a directory in a directory", 4_148, 160, |_| (),
            |it| it.rename(("", "d"), ("", "g"));
        "rename a directory, clobber", 4_136, 160, |it| it.make("", "g", DIRECTORY),
            |it| it.rename(("", "d"), ("", "g"));
        "rename a directory between directories", 12_372, 160, |it| it.make("d", "z", DIRECTORY),
            |it| it.rename(("d", "z"), ("e", "z"));
    })
}
