//! A medium that fails in the midst of an operation: that operation is refused, nothing is stored
//! any more, and what is shown is the state before the operation or the one after it.

use crate::images::{Cut, ROOT_USER, new_image, open};
use marram_pmem::memory::recorded::Recorded;
use marram_pmem::memory::{Medium, Memory};
use marram_pmem::{Pmem, PmemOptions, Which};
use marram_vfs::{
    Attributes, Clock, Error, FileSystem, Ino, Kind, Name, NewNode, RenameMode, Result,
    SetAttributes, SteppedClock, Timestamp, WriteOptions, XattrMode,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
const DIRECTORY: NewNode<'_> = NewNode::Directory { permissions: 0o755 };
const KEPT: Which<'_> = Which { dataset: "root", snapshot: Some("kept") };

/// What a file system shows: attributes without times, content and attributes by name.
type Shown = BTreeMap<Vec<u8>, (Attributes, Vec<u8>, Vec<Vec<u8>>)>;

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn ino(files: &Pmem, path: &[&str]) -> Ino {
    path.iter().fold(Ino::ROOT, |parent, part| files.lookup(parent, name(part)).unwrap().ino)
}

fn timeless(attributes: Attributes) -> Attributes {
    let never = Timestamp { seconds: 0, nanoseconds: 0 };
    Attributes { accessed: never, modified: never, changed: never, created: never, ..attributes }
}

fn shown(files: &Pmem) -> Result<Shown> {
    let (mut shown, mut left) = (Shown::new(), vec![(b"/".to_vec(), Ino::ROOT)]);
    while let Some((path, ino)) = left.pop() {
        let attributes = timeless(files.attributes(ino)?);
        let mut content = Vec::new();
        match attributes.kind {
            Kind::Regular => files.read(ino, 0, 1 << 20, &mut content)?,
            Kind::Directory => {
                let below = |name: &[u8]| [&path[..], name, b"/"].concat();
                let mut visit = |entry: marram_vfs::DirectoryEntry<'_>| {
                    left.push((below(entry.name), entry.ino));
                    true
                };
                files.read_directory(ino, 0, false, &mut visit)?;
            }
            _ => content = files.read_link(ino)?,
        }
        shown.insert(path, (attributes, content, files.list_xattrs(ino)?));
    }
    Ok(shown)
}

/// All that an image shows, with its snapshots.
fn all(files: &Pmem) -> Result<BTreeMap<String, Shown>> {
    let mut all = BTreeMap::from([("root".to_owned(), shown(files)?)]);
    for snapshot in files.snapshot_names("root")? {
        let other = files.open_other(Which { dataset: "root", snapshot: Some(&snapshot) })?;
        all.insert(snapshot, shown(&other)?);
    }
    Ok(all)
}

/// An image with some files and a snapshot.
fn stage() -> (Recorded, Arc<dyn Clock>) {
    let clock: Arc<dyn Clock> = Arc::new(Cut(Arc::new(SteppedClock::default())));
    let medium = new_image(1 << 20, &*clock);
    let files = open(&medium, Arc::clone(&clock));
    let make = |parent, text, node| files.create(ROOT_USER, parent, name(text), node).unwrap().ino;
    let directory = make(Ino::ROOT, "d", DIRECTORY);
    make(Ino::ROOT, "e", DIRECTORY);
    make(directory, "below", DIRECTORY);
    let file = make(directory, "f", FILE);
    files.write(file, 0, &[5; 9000], WriteOptions::default()).unwrap();
    files.link(file, Ino::ROOT, name("again")).unwrap();
    make(Ino::ROOT, "a", FILE);
    files.snapshot("root", "kept").unwrap();
    files.write(file, 0, &[6; 100], WriteOptions::default()).unwrap();
    files.close().unwrap();
    (Recorded::new(medium.image()), clock)
}

type Change = (&'static str, fn(&Pmem) -> Result<()>);

fn write(files: &Pmem, offset: u64, bytes: usize) -> Result<()> {
    files.write(ino(files, &["d", "f"]), offset, &vec![9; bytes], WriteOptions::default())
}

const CHANGES: [Change; 13] = [
    ("create", |it| it.create(ROOT_USER, Ino::ROOT, name("new"), FILE).map(drop)),
    ("mkdir", |it| it.create(ROOT_USER, ino(it, &["d"]), name("new"), DIRECTORY).map(drop)),
    ("link", |it| it.link(ino(it, &["a"]), ino(it, &["d"]), name("new")).map(drop)),
    ("unlink", |it| it.unlink(ino(it, &["d"]), name("f"))),
    ("rmdir", |it| it.remove_directory(ino(it, &["d"]), name("below"))),
    ("append", |it| write(it, 9000, 5000)),
    ("write over words", |it| write(it, 4090, 12)),
    ("write over pages", |it| write(it, 1, 8000)),
    ("rename", |it| {
        let (d, e) = (ino(it, &["d"]), ino(it, &["e"]));
        it.rename(ROOT_USER, d, name("below"), e, name("moved"), RenameMode::Replace)
    }),
    ("cut", |it| {
        let set = SetAttributes { size: Some(10), ..SetAttributes::default() };
        it.set_attributes(ROOT_USER, ino(it, &["d", "f"]), &set).map(drop)
    }),
    ("xattr", |it| it.set_xattr(ino(it, &["a"]), b"user.x", b"v", XattrMode::Any)),
    ("snapshot", |it| it.snapshot("root", "new")),
    ("rollback", |it| it.roll_back("root", "kept", "before")),
];

/// Lets the medium fail after `count` stores of a change; whether it has failed.
fn fails_after(change: &Change, count: u64) -> bool {
    let (medium, clock) = stage();
    let files = open(&medium, Arc::clone(&clock));
    let before = all(&files).unwrap();
    medium.fail_after(count);
    let done = change.1(&files);
    if files.failure().is_none() {
        done.unwrap();
        return false;
    }
    let what = format!("{} after {count} stores", change.0);
    assert!(matches!(done, Err(Error::Io(_)) | Ok(())), "{what}: {done:?}");
    assert_eq!(files.write(ino(&files, &["a"]), 0, b"x", WriteOptions::default()), {
        Err(Error::ReadOnly)
    });
    assert!(matches!(files.sync_all(), Err(Error::Io(_))));
    let image = medium.image();
    let left = all(&files).map_err(|error| format!("{what}: {error}")).unwrap();
    assert!(files.close().is_err(), "not all of it is there");
    assert!(medium.image() == image, "{what}: nothing is stored");

    // A mount on a medium that works shows the same, and the state is one of the two.
    let again = open(&Recorded::new(image), Arc::clone(&clock));
    assert!(all(&again).unwrap() == left, "{what}: a mount shows another state");
    let (whole, clock) = stage();
    let changed = open(&whole, clock);
    change.1(&changed).unwrap();
    let after = all(&changed).unwrap();
    assert!(left == before || left == after, "{what}: neither before nor after");
    true
}

#[test]
fn a_medium_that_fails_leaves_a_whole_operation_or_none() {
    let mut failures = 0;
    for change in &CHANGES {
        let failed = (0..).take_while(|count| fails_after(change, *count)).count();
        assert!(failed > 0, "{} stores nothing", change.0);
        failures += failed;
    }
    println!("{failures} failures");
    assert!(failures > 60, "{failures}");
}

#[test]
fn what_is_known_of_an_operation_that_failed_is_forgotten() {
    let (medium, clock) = stage();
    let files = open(&medium, clock);
    let folder = ino(&files, &["d"]);
    let names = |files: &Pmem| {
        let mut names = Vec::new();
        let visit = &mut |entry: marram_vfs::DirectoryEntry<'_>| {
            names.push(entry.name.to_vec());
            true
        };
        files.read_directory(folder, 0, false, visit).unwrap();
        names
    };
    let known = names(&files);
    medium.fail_after(0);
    assert!(matches!(files.unlink(folder, name("f")), Err(Error::Io(_))));
    assert!(files.lookup(folder, name("f")).is_ok());
    assert_eq!(names(&files), known);
    assert_eq!(files.snapshot("root", "late"), Err(Error::ReadOnly));
    assert_eq!(files.destroy(&[KEPT], false).map(drop), Err(Error::ReadOnly));
    let why = files.failure().unwrap();
    assert!(why.contains("no more stores"), "{why}");
}

/// A medium of which nothing can be had from some moment on.
struct Gone(Recorded, Arc<std::sync::atomic::AtomicBool>);

impl Gone {
    fn is_gone(&self) -> bool {
        self.1.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn check(&self) -> Result<()> {
        if self.is_gone() { Err(Error::Io("gone".to_owned())) } else { Ok(()) }
    }
}

impl Medium for Gone {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn reader(&self) -> Box<dyn Medium> {
        Box::new(Gone(self.0.clone(), Arc::clone(&self.1)))
    }

    fn read(&self, at: u64, out: &mut [u8]) -> Result<()> {
        self.check()?;
        self.0.read(at, out)
    }

    fn store(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.check()?;
        self.0.store(at, bytes)
    }

    fn fill(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.check()?;
        self.0.fill(at, bytes)
    }

    fn flush(&mut self, at: u64, bytes: u64) {
        self.0.flush(at, bytes);
    }

    fn fence(&mut self) {
        self.0.fence();
    }

    fn failure(&self) -> Option<String> {
        self.is_gone().then(|| "gone".to_owned())
    }
}

#[test]
fn of_an_image_that_is_gone_the_root_directory_is_shown_still() {
    let (medium, _) = stage();
    let is_gone = Arc::default();
    let memory = Memory::new(Box::new(Gone(medium, Arc::clone(&is_gone))));
    let files = Pmem::open(memory, PmemOptions::default()).unwrap();
    let (root, folder) = (files.attributes(Ino::ROOT).unwrap(), ino(&files, &["d"]));
    is_gone.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(files.attributes(Ino::ROOT), Ok(root));
    assert!(matches!(files.attributes(folder), Err(Error::Io(_))));
    assert!(matches!(files.lookup(Ino::ROOT, name("a")), Err(Error::Io(_))));
    assert_eq!(files.failure().as_deref(), Some("gone"));
    assert!(files.close().is_err());
}
