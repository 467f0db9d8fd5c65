//! A run of programs' habits on a recorded device, with what each crash of it has to leave.

use crate::images::{SMALL, Shape, make, name};
use marram_device::Device;
use marram_ext2::{AccessTimes, Ext2, Ext2Options, Planted};
use marram_sim::Random;
use marram_sim::crash::{Digest, tree_digest};
use marram_sim::device::RecordingDevice;
use marram_vfs::{
    Caller, Clock, FileSystem, Ino, Kind, NewNode, RenameMode, Result, SetAttributes, SteppedClock,
    SyncScope, WriteOptions, XattrMode,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const USER: Caller = Caller { uid: 7, gid: 8 };
const FILE: NewNode<'_> = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
/// Files that come and go.
const FILES: u64 = 24;

/// What has to be found at a path after each crash between two events.
#[derive(Clone, Debug)]
pub(crate) struct Promise {
    pub(crate) path: String,
    pub(crate) from: usize,
    pub(crate) until: usize,
    /// Whole contents, of which one has to be there.
    pub(crate) contents: Vec<Vec<u8>>,
}

/// What there was between two operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Events of the device before it.
    pub(crate) at: usize,
    /// It was made durable then.
    pub(crate) is_synced: bool,
    pub(crate) outline: String,
    pub(crate) digest: Digest,
}

/// A run that has been recorded.
pub(crate) struct Run {
    pub(crate) device: Arc<RecordingDevice>,
    pub(crate) promises: Vec<Promise>,
    /// What there was after each operation, if that was asked for.
    pub(crate) moments: Vec<Moment>,
}

/// The files of a run as they are while it goes on.
struct Running {
    files: Arc<Ext2>,
    device: Arc<RecordingDevice>,
    promises: Vec<Promise>,
    /// Contents by path.
    now: BTreeMap<String, Vec<u8>>,
    /// Promises that hold still, by path.
    open: BTreeMap<String, usize>,
    directories: Vec<Ino>,
    moments: Option<Vec<Moment>>,
}

impl Running {
    /// Notes what there is now.
    fn note(&mut self, is_synced: bool) {
        let Some(moments) = &mut self.moments else { return };
        let (at, files) = (self.device.event_count(), &*self.files);
        let outline = outline(files).unwrap();
        let digest = tree_digest(files).unwrap();
        moments.push(Moment { at, is_synced, outline, digest });
    }

    fn split(&self, path: &str) -> (Ino, String) {
        let (directory, name) = path.split_once('/').unwrap();
        (self.directories[directory.parse::<usize>().unwrap()], name.to_owned())
    }

    fn ino(&self, path: &str) -> Ino {
        let (directory, file) = self.split(path);
        let found = self.files.lookup(directory, name(&file)).unwrap();
        self.files.forget(found.ino, 1);
        found.ino
    }

    /// What was promised of a path is not promised any more.
    fn changes(&mut self, path: &str) {
        if let Some(which) = self.open.remove(path) {
            self.promises[which].until = self.device.event_count();
        }
    }

    fn create(&mut self, path: &str) -> Result<()> {
        let (directory, file) = self.split(path);
        let made = self.files.create(USER, directory, name(&file), FILE)?;
        self.files.forget(made.ino, 1);
        self.now.insert(path.to_owned(), Vec::new());
        self.note(false);
        Ok(())
    }

    fn append(&mut self, path: &str, len: usize, byte: u8) {
        self.changes(path);
        let (ino, content) = (self.ino(path), &self.now[path]);
        let data = vec![byte; len];
        let at = content.len() as u64;
        if self.files.write(ino, at, &data, WriteOptions::default()).is_ok() {
            self.now.get_mut(path).unwrap().extend(data);
        }
        self.note(false);
    }

    fn tag(&mut self, path: &str, len: usize, byte: u8) {
        let (ino, tag) = (self.ino(path), vec![byte; len]);
        self.files.set_xattr(ino, b"user.tag", &tag, XattrMode::Any).unwrap();
        self.note(false);
    }

    fn cut(&mut self, path: &str, len: usize) {
        self.changes(path);
        let set = SetAttributes { size: Some(len as u64), ..SetAttributes::default() };
        self.files.set_attributes(USER, self.ino(path), &set).unwrap();
        self.now.get_mut(path).unwrap().resize(len, 0);
        self.note(false);
    }

    fn unlink(&mut self, path: &str) {
        self.changes(path);
        let (directory, file) = self.split(path);
        self.files.unlink(directory, name(&file)).unwrap();
        self.now.remove(path);
        self.note(false);
    }

    fn rename(&mut self, from: &str, to: &str) {
        self.changes(from);
        self.changes(to);
        let ((old, old_name), (new, new_name)) = (self.split(from), self.split(to));
        let mode = RenameMode::Replace;
        self.files.rename(USER, old, name(&old_name), new, name(&new_name), mode).unwrap();
        let content = self.now.remove(from).unwrap();
        self.now.insert(to.to_owned(), content);
        self.note(false);
    }

    fn sync(&mut self) {
        self.files.sync_all().unwrap();
        self.note(true);
        let from = self.device.event_count();
        for (path, content) in &self.now {
            if !self.open.contains_key(path) {
                self.open.insert(path.clone(), self.promises.len());
                let contents = vec![content.clone()];
                let (path, until) = (path.clone(), usize::MAX);
                self.promises.push(Promise { path, from, until, contents });
            }
        }
    }

    /// Syncs one file alone.
    fn sync_file(&mut self, path: &str) {
        self.files.sync(self.ino(path), SyncScope::All).unwrap();
        self.note(false);
        if !self.open.contains_key(path) {
            self.open.insert(path.to_owned(), self.promises.len());
            let (from, contents) = (self.device.event_count(), vec![self.now[path].clone()]);
            let (path, until) = (path.to_owned(), usize::MAX);
            self.promises.push(Promise { path, from, until, contents });
        }
    }

    /// The file of a number, wherever it is now.
    fn path_of(&self, file: u64) -> Option<String> {
        let known = self.now.keys().find(|path| path.ends_with(&format!("/f{file}")));
        known.cloned()
    }

    fn act(&mut self, random: &mut Random) {
        let file = random.below(FILES);
        let byte = 1 + file as u8;
        let directory = random.below(self.directories.len() as u64);
        match (self.path_of(file), random.below(12)) {
            (None, _) => {
                let path = format!("{directory}/f{file}");
                if self.create(&path).is_ok() {
                    self.append(&path, random.below(9000) as usize, byte);
                }
            }
            (Some(path), 0..4) => self.append(&path, 1 + random.below(30_000) as usize, byte),
            (Some(path), 4 | 5) => {
                let len = random.below(1 + self.now[&path].len() as u64) as usize;
                self.cut(&path, len);
                if random.once_in(2) {
                    self.cut(&path, len + random.below(20_000) as usize);
                }
            }
            (Some(path), 6..8) => self.unlink(&path),
            (Some(path), 8) => self.tag(&path, random.below(700) as usize, byte),
            (Some(path), _) => {
                let to = format!("{directory}/f{file}");
                if to != path {
                    self.rename(&path, &to);
                }
            }
        }
    }

    /// Replaces a file the way editors do.
    fn replace(&mut self, version: u8) {
        let content = vec![version; 700 + usize::from(version) * 40];
        self.create("0/new").unwrap();
        let ino = self.ino("0/new");
        self.files.write(ino, 0, &content, WriteOptions::default()).unwrap();
        self.note(false);
        let (root, mode) = (self.directories[0], RenameMode::Replace);
        self.files.rename(USER, root, name("new"), root, name("kept"), mode).unwrap();
        self.now.remove("0/new");
        self.note(false);
    }
}

/// Records the run of a seed. A file named `fN` never has other bytes than N + 1.
pub(crate) fn run(seed: u64, acts: u64, options: Ext2Options) -> Run {
    run_on(SMALL, false, seed, acts, options)
}

/// The same on an image of a shape, with the moments between the operations.
pub(crate) fn run_on(
    shape: Shape,
    with_moments: bool,
    seed: u64,
    acts: u64,
    options: Ext2Options,
) -> Run {
    let inner = Arc::new(RecordingDevice::in_memory(make(shape)));
    let clock: Arc<dyn Clock> = Arc::new(SteppedClock::default());
    let device = Arc::clone(&inner) as Arc<dyn Device>;
    let options = Ext2Options { clock, access_times: AccessTimes::Never, ..options };
    let files = Arc::new(Ext2::open(device, options).unwrap());
    let (directories, node) = (vec![Ino::ROOT], NewNode::Directory { permissions: 0o755 });
    let (now, open) = (BTreeMap::new(), BTreeMap::new());
    let moments = with_moments.then(Vec::new);
    let mut running =
        Running { files, device: inner, promises: Vec::new(), now, open, directories, moments };
    running.note(true);
    for which in 1..4 {
        let text = format!("d{which}");
        let made = running.files.create(USER, Ino::ROOT, name(&text), node).unwrap();
        running.directories.push(made.ino);
        running.note(false);
    }
    running.replace(1);
    running.sync();
    let kept = (1..=64).map(|version: u8| vec![version; 700 + usize::from(version) * 40]);
    let (path, from) = ("0/kept".to_owned(), running.device.event_count());
    let contents = kept.collect();
    running.promises.push(Promise { path, from, until: usize::MAX, contents });
    let (mut random, mut version) = (Random::new(seed), 1);
    for _ in 0..acts {
        running.act(&mut random);
        if random.once_in(9) && version < 64 {
            version += 1;
            running.replace(version);
        }
        if random.once_in(6) {
            running.files.step().unwrap();
        }
        if random.once_in(5) {
            let synced = running.path_of(random.below(FILES));
            synced.into_iter().for_each(|path| running.sync_file(&path));
        }
        if random.once_in(15) {
            running.sync();
        }
    }
    running.files.close().unwrap();
    let Running { device, promises, moments, .. } = running;
    Run { device, promises, moments: moments.unwrap_or_default() }
}

/// All paths of an image with their attributes, in a line each.
pub(crate) fn outline(files: &Ext2) -> std::result::Result<String, String> {
    let mut lines = String::new();
    let mut left = vec![(Ino::ROOT, String::new())];
    while let Some((directory, path)) = left.pop() {
        let entries = marram_sim::read_directory(files, directory, false, usize::MAX)
            .map_err(|error| format!("{path}: {error}"))?;
        for entry in entries {
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            let it = files.attributes(entry.ino).map_err(|error| format!("{path}: {error}"))?;
            let what = (it.kind, it.size, it.links, it.permissions, it.modified, it.changed);
            lines += &format!("{path} {what:?}\n");
            if it.kind == Kind::Directory {
                left.push((entry.ino, path));
            }
        }
    }
    Ok(lines)
}

/// All files of an image, by path.
pub(crate) fn contents(files: &Ext2) -> std::result::Result<BTreeMap<String, Vec<u8>>, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![(Ino::ROOT, "0".to_owned())];
    while let Some((directory, path)) = left.pop() {
        let entries = marram_sim::read_directory(files, directory, false, usize::MAX)
            .map_err(|error| format!("{path}: {error}"))?;
        for entry in entries {
            let text = String::from_utf8_lossy(&entry.name).into_owned();
            match entry.kind {
                Kind::Directory => {
                    left.push((entry.ino, text.strip_prefix('d').unwrap_or("x").to_owned()));
                }
                Kind::Regular => {
                    let mut content = Vec::new();
                    let read = files.read(entry.ino, 0, 1 << 24, &mut content);
                    read.map_err(|error| format!("{path}/{text}: {error}"))?;
                    found.insert(format!("{path}/{text}"), content);
                }
                _ => (),
            }
        }
    }
    Ok(found)
}

/// Compares what a crash has left with what was promised.
///
/// # Errors
/// What differs.
pub(crate) fn check(
    promises: &[Promise],
    cut: usize,
    found: &BTreeMap<String, Vec<u8>>,
) -> std::result::Result<(), String> {
    for promise in promises.iter().filter(|it| it.from <= cut && cut <= it.until) {
        let content = found.get(&promise.path);
        if !content.is_some_and(|content| promise.contents.contains(content)) {
            let len = content.map(Vec::len);
            return Err(format!("{} was synced, and {len:?} bytes are there", promise.path));
        }
    }
    for (path, content) in found {
        let Some(file) = path.rsplit_once("/f").and_then(|it| it.1.parse::<u8>().ok()) else {
            continue;
        };
        if let Some(byte) = content.iter().find(|byte| ![0, file + 1].contains(byte)) {
            return Err(format!("{path} has the byte {byte} of another file"));
        }
    }
    Ok(())
}

/// A small run of an open device, for tests of single operations.
pub(crate) fn opened(device: &Arc<RecordingDevice>) -> Arc<Ext2> {
    opened_with(device, stepped(None))
}

/// Options with a clock of steps.
pub(crate) fn stepped(planted: Option<Planted>) -> Ext2Options {
    let clock: Arc<dyn Clock> = Arc::new(SteppedClock::default());
    Ext2Options { clock, planted, ..Ext2Options::default() }
}

/// The same with other options.
pub(crate) fn opened_with(device: &Arc<RecordingDevice>, options: Ext2Options) -> Arc<Ext2> {
    let options = Ext2Options { access_times: AccessTimes::Never, ..options };
    Arc::new(Ext2::open(Arc::clone(device) as Arc<dyn Device>, options).unwrap())
}
