//! What the operations of small files cost in the library: `posix` on a pool, without a kernel and
//! a request in between; and beside it, if a directory is named, through system calls there.
//!
//! `library_path [--files N] [--directories N] [--beside DIRECTORY] [--stream FILES]`
//!
//! Prints a line for each operation: its name, microseconds in the library, microseconds beside.
//! The pool is in memory; what a group commit of all of it costs stands in a line of its own, as
//! `sync` does for system calls. `--stream` does what `tar` asks of a mount for each file that it
//! unpacks, request by request, and nothing else: for profilers.

#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use marram_device::{Device, MemoryDevice};
use marram_pool::{CreateOptions, OpenOptions, Pool, create};
use marram_posix::{AccessTimes, Posix, PosixOptions};
use marram_store::{DatasetName, Properties, Source, Store};
use marram_vfs::{
    Caller, FileSystem, Ino, Kind, Name, NewNode, RenameMode, SetAttributes, SetTime, Timestamp,
    WriteOptions,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const ROOT: Caller = Caller { uid: 0, gid: 0 };
const FILE: NewNode<'static> = NewNode::Node { kind: Kind::Regular, permissions: 0o600, device: 0 };
const DIRECTORY: NewNode<'static> = NewNode::Directory { permissions: 0o755 };
/// Bytes of the pool for each file, and beside all files.
const BYTES_PER_FILE: usize = 48 << 10;
const BYTES_BESIDE: usize = 8 << 30;
/// What `tar` writes at once, in bytes.
const TAR_RECORD_BYTES: usize = 10_240;

struct Request {
    files: u64,
    directories: u64,
    beside: Option<PathBuf>,
    stream: bool,
}

fn read_request(mut words: impl Iterator<Item = String>) -> Request {
    let mut request = Request { files: 100_000, directories: 100, beside: None, stream: false };
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        match word.as_str() {
            "--files" => request.files = value.parse().unwrap(),
            "--directories" => request.directories = value.parse().unwrap(),
            "--beside" => request.beside = Some(value.into()),
            "--stream" => (request.files, request.stream) = (value.parse().unwrap(), true),
            _ => panic!("{word} is no option of this program"),
        }
    }
    request
}

/// One side of the comparison. Files and directories go by their numbers.
trait Side {
    fn make_directory(&mut self, directory: u64);
    fn create(&mut self, file: u64);
    fn look_up(&mut self, file: u64);
    fn miss(&mut self, file: u64);
    fn write(&mut self, file: u64, content: &[u8]);
    fn rename(&mut self, file: u64);
    fn unlink(&mut self, file: u64);
    fn commit(&mut self);
}

fn old_name(file: u64) -> String {
    format!("file-{file}.c")
}

fn new_name(file: u64) -> String {
    format!("renamed-{file}.c")
}

/// The library.
struct Library {
    pool: Arc<Pool>,
    posix: Posix,
    directories: Vec<Ino>,
    inodes: Vec<Ino>,
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn open(files: u64) -> (Arc<Pool>, Posix) {
    let size = BYTES_BESIDE + usize::try_from(files).unwrap() * BYTES_PER_FILE;
    let devices: Vec<Arc<dyn Device>> = vec![Arc::new(MemoryDevice::new(size))];
    let fresh = CreateOptions {
        label: String::new(),
        properties: Properties::default(),
        pool_id: [7; 16],
        secret: 7,
        now_seconds: 1_700_000_000,
    };
    create(&devices, &fresh).unwrap();
    let options = OpenOptions { cache_bytes: 256 << 20, ..OpenOptions::new(|| 0) };
    let pool = Pool::open(devices, options).unwrap();
    let root = Source { dataset: DatasetName::root(), snapshot: None };
    let options = PosixOptions { access_times: AccessTimes::Never, ..PosixOptions::default() };
    let posix = Posix::new(pool.open(&root).unwrap(), options).unwrap();
    (pool, posix)
}

impl Library {
    fn new(files: u64) -> Library {
        let (pool, posix) = open(files);
        Library { pool, posix, directories: Vec::new(), inodes: Vec::new() }
    }

    fn directory_of(&self, file: u64) -> Ino {
        self.directories[usize::try_from(file).unwrap() % self.directories.len()]
    }
}

impl Side for Library {
    fn make_directory(&mut self, directory: u64) {
        let text = format!("directory-{directory}");
        let made = self.posix.create(ROOT, Ino::ROOT, name(&text), DIRECTORY).unwrap();
        self.directories.push(made.ino);
    }

    fn create(&mut self, file: u64) {
        let text = old_name(file);
        let made = self.posix.create(ROOT, self.directory_of(file), name(&text), FILE).unwrap();
        self.inodes.push(made.ino);
    }

    fn look_up(&mut self, file: u64) {
        let text = old_name(file);
        let found = self.posix.lookup(self.directory_of(file), name(&text)).unwrap();
        self.posix.forget(found.ino, 1);
    }

    fn miss(&mut self, file: u64) {
        let text = new_name(file);
        assert!(self.posix.lookup(self.directory_of(file), name(&text)).is_err());
    }

    fn write(&mut self, file: u64, content: &[u8]) {
        let ino = self.inodes[usize::try_from(file).unwrap()];
        self.posix.write(ino, 0, content, WriteOptions::default()).unwrap();
    }

    fn rename(&mut self, file: u64) {
        let (old, new) = (old_name(file), new_name(file));
        let parent = self.directory_of(file);
        let (old, new) = (name(&old), name(&new));
        self.posix.rename(ROOT, parent, old, parent, new, RenameMode::Replace).unwrap();
    }

    fn unlink(&mut self, file: u64) {
        let text = new_name(file);
        self.posix.unlink(self.directory_of(file), name(&text)).unwrap();
        self.posix.forget(self.inodes[usize::try_from(file).unwrap()], 1);
    }

    fn commit(&mut self) {
        while self.posix.reclaim_step(1000).unwrap() {}
        self.pool.commit().unwrap();
    }
}

/// The file system of a directory, through system calls.
struct SystemCalls {
    root: PathBuf,
    directories: u64,
}

impl SystemCalls {
    fn path(&self, file: u64, text: &str) -> PathBuf {
        self.root.join(format!("directory-{}", file % self.directories)).join(text)
    }
}

impl Side for SystemCalls {
    fn make_directory(&mut self, directory: u64) {
        std::fs::create_dir(self.root.join(format!("directory-{directory}"))).unwrap();
        self.directories += 1;
    }

    fn create(&mut self, file: u64) {
        std::fs::File::create_new(self.path(file, &old_name(file))).unwrap();
    }

    fn look_up(&mut self, file: u64) {
        std::fs::symlink_metadata(self.path(file, &old_name(file))).unwrap();
    }

    fn miss(&mut self, file: u64) {
        assert!(std::fs::symlink_metadata(self.path(file, &new_name(file))).is_err());
    }

    fn write(&mut self, file: u64, content: &[u8]) {
        std::fs::write(self.path(file, &old_name(file)), content).unwrap();
    }

    fn rename(&mut self, file: u64) {
        let (old, new) = (old_name(file), new_name(file));
        std::fs::rename(self.path(file, &old), self.path(file, &new)).unwrap();
    }

    fn unlink(&mut self, file: u64) {
        std::fs::remove_file(self.path(file, &new_name(file))).unwrap();
    }

    fn commit(&mut self) {
        let status = std::process::Command::new("sync").arg("-f").arg(&self.root).status();
        assert!(status.unwrap().success());
    }
}

/// Microseconds for each file of each operation, in order.
fn measure(side: &mut dyn Side, request: &Request) -> Vec<(&'static str, f64)> {
    let content = [b'x'; 4096];
    let mut times = Vec::new();
    let mut all = |what: &'static str, side: &mut dyn Side, one: &dyn Fn(&mut dyn Side, u64)| {
        let began = Instant::now();
        (0..request.files).for_each(|file| one(side, file));
        times.push((what, began.elapsed().as_secs_f64() * 1e6 / request.files as f64));
    };
    (0..request.directories).for_each(|directory| side.make_directory(directory));
    side.commit();
    let commit = |side: &mut dyn Side, file: u64| {
        if file == 0 {
            side.commit();
        }
    };
    all("create", side, &|side, file| side.create(file));
    all("lookup", side, &|side, file| side.look_up(file));
    all("lookup of nothing", side, &|side, file| side.miss(file));
    all("write 4 KiB", side, &|side, file| side.write(file, &content));
    all("commit of these", side, &commit);
    all("lookup after a commit", side, &|side, file| side.look_up(file));
    all("rename", side, &|side, file| side.rename(file));
    all("unlink", side, &|side, file| side.unlink(file));
    all("commit of these", side, &commit);
    times
}

fn beside(directory: &Path, request: &Request) -> Vec<(&'static str, f64)> {
    let root = directory.join(format!("library-path-{}", std::process::id()));
    std::fs::create_dir(&root).unwrap();
    let mut side = SystemCalls { root: root.clone(), directories: 0 };
    let times = measure(&mut side, request);
    std::fs::remove_dir_all(root).unwrap();
    times
}

/// What `tar` asks for a file of 20 KiB, by the count of requests of a mount.
fn unpack_one(posix: &Posix, parent: Ino, file: u64, content: &[u8]) {
    let text = old_name(file);
    assert!(posix.lookup(parent, name(&text)).is_err());
    posix.attributes(parent).unwrap();
    let ino = posix.create(ROOT, parent, name(&text), FILE).unwrap().ino;
    let mut offset = 0;
    for piece in content.chunks(TAR_RECORD_BYTES) {
        if offset == 0 {
            assert!(posix.xattr(ino, b"security.capability").is_err());
        }
        posix.write(ino, offset, piece, WriteOptions::default()).unwrap();
        offset += piece.len() as u64;
    }
    let modified = SetTime::At(Timestamp { seconds: 1_700_000_000, nanoseconds: 0 });
    let none = SetAttributes::default();
    let set = |set: SetAttributes| posix.set_attributes(ROOT, ino, &set).unwrap();
    set(SetAttributes { modified: Some(modified), ..none });
    assert!(posix.xattr(ino, b"security.capability").is_err());
    set(SetAttributes { uid: Some(0), gid: Some(0), ..none });
    set(SetAttributes { permissions: Some(0o644), ..none });
}

fn stream(request: &Request) {
    let (pool, posix) = open(request.files);
    let content: Vec<u8> = (0..20_000_u32).map(|at| b"int static;\n"[at as usize % 12]).collect();
    let began = Instant::now();
    let mut parent = Ino::ROOT;
    for file in 0..request.files {
        if file % 100 == 0 {
            let text = format!("directory-{file}");
            parent = posix.create(ROOT, Ino::ROOT, name(&text), DIRECTORY).unwrap().ino;
        }
        if file % 2000 == 1999 {
            pool.commit().unwrap();
        }
        unpack_one(&posix, parent, file, &content);
    }
    pool.commit().unwrap();
    println!("{:.2} us a file", began.elapsed().as_secs_f64() * 1e6 / request.files as f64);
}

fn main() {
    let request = read_request(std::env::args().skip(1));
    if request.stream {
        return stream(&request);
    }
    let library = measure(&mut Library::new(request.files), &request);
    let other = request.beside.as_ref().map(|directory| beside(directory, &request));
    for (index, (what, ours)) in library.iter().enumerate() {
        let theirs = other.as_ref().map_or(String::new(), |all| format!("\t{:.2}", all[index].1));
        println!("{what}\t{ours:.2}{theirs}");
    }
}
