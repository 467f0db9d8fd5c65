//! A device that hangs stops the callers that need it, and no others. While a commit, a sync or a
//! read waits for it, files that are in memory are read, written, looked up, made, renamed and
//! removed.
//!
//! No request to the device comes back until the test says so. A caller that waits for it, or for a
//! lock of another such caller, is seen as not coming to an end.

use marram_device::{Device, MemoryDevice, Result};
use marram_pool::{CreateOptions, OpenOptions, Pool, create};
use marram_posix::{AccessTimes, Posix, PosixOptions};
use marram_store::{Properties, Store};
use marram_vfs::{
    Caller, DirectoryEntry, FileSystem, Ino, Kind, Name, NewNode, RenameMode, SetAttributes,
    SyncScope, WriteOptions, XattrMode,
};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// Longer than anything takes that does not wait for the device.
const PATIENCE: Duration = Duration::from_secs(20);
const ROOT: Caller = Caller { uid: 0, gid: 0 };
const PLAIN: WriteOptions =
    WriteOptions { clear_privileges: false, keep_times: false, accepted: false, memory: None };

#[derive(Default)]
struct Hanging {
    hangs: bool,
    /// The callers that wait for it, in words.
    waiting: Vec<&'static str>,
}

/// Memory that answers nothing while it hangs.
struct HangingDevice {
    memory: MemoryDevice,
    state: Mutex<Hanging>,
    changed: Condvar,
}

impl HangingDevice {
    fn pass(&self, action: &'static str) {
        let mut state = self.state.lock().unwrap();
        if state.hangs {
            state.waiting.push(action);
            self.changed.notify_all();
            while state.hangs {
                state = self.changed.wait(state).unwrap();
            }
        }
    }

    fn hang(&self) {
        self.state.lock().unwrap().hangs = true;
    }

    fn go_on(&self) {
        let mut state = self.state.lock().unwrap();
        state.hangs = false;
        state.waiting.clear();
        self.changed.notify_all();
    }

    /// Returns when somebody waits.
    fn wait_until_asked(&self) {
        let mut state = self.state.lock().unwrap();
        while state.waiting.is_empty() {
            let (next, waited) = self.changed.wait_timeout(state, PATIENCE).unwrap();
            assert!(!waited.timed_out(), "nobody asks the device");
            state = next;
        }
    }

    fn asked(&self) -> Vec<&'static str> {
        self.state.lock().unwrap().waiting.clone()
    }
}

impl Device for HangingDevice {
    fn name(&self) -> String {
        "a device that hangs".to_owned()
    }

    fn size(&self) -> Result<u64> {
        self.memory.size()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.pass("read");
        self.memory.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        self.pass("write");
        self.memory.write(offset, buffer)
    }

    fn flush(&self) -> Result<()> {
        self.pass("flush");
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.memory.discard(offset, len)
    }
}

/// A pool with a mounted dataset: `/d/kept` and `/d/cold` are durable, and all but the content of
/// `cold` is in memory.
struct Bench {
    device: Arc<HangingDevice>,
    pool: Arc<Pool>,
    files: Arc<Posix>,
    directory: Ino,
    kept: Ino,
    cold: Ino,
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn mount(pool: &Pool) -> Arc<Posix> {
    let view = pool.open(&"root".parse().unwrap()).unwrap();
    let options = PosixOptions { access_times: AccessTimes::Never, ..PosixOptions::default() };
    Arc::new(Posix::new(view, options).unwrap())
}

fn file(files: &Posix, directory: Ino, text: &str) -> Ino {
    let node = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    files.create(ROOT, directory, name(text), node).unwrap().ino
}

fn read(files: &Posix, ino: Ino) -> Vec<u8> {
    let mut out = Vec::new();
    files.read(ino, 0, 1 << 20, &mut out).unwrap();
    out
}

/// Bytes that do not compress into a node.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

impl Bench {
    fn new() -> Bench {
        let device = Arc::new(HangingDevice {
            memory: MemoryDevice::new(64 << 20),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
        let options = CreateOptions {
            label: "slow".to_owned(),
            properties: Properties::default(),
            pool_id: [1; 16],
            secret: 1,
            now_seconds: 1,
        };
        create(&devices, &options).unwrap();
        let pool = Pool::open(devices.clone(), OpenOptions::new(|| 0)).unwrap();
        let files = mount(&pool);
        let node = NewNode::Directory { permissions: 0o755 };
        let directory = files.create(ROOT, Ino::ROOT, name("d"), node).unwrap().ino;
        let [kept, cold] = ["kept", "cold"].map(|text| file(&files, directory, text));
        for ino in [kept, cold] {
            files.write(ino, 0, &noise(100_000), PLAIN).unwrap();
        }
        drop(files);
        pool.close().unwrap();
        // Opened anew, so that nothing of `cold` is in memory.
        let pool = Pool::open(devices, OpenOptions::new(|| 0)).unwrap();
        let files = mount(&pool);
        let bench = Bench { device, pool, files, directory, kept, cold };
        // What a program that works here has in memory; and the log takes frames from now on.
        bench.work("warm");
        bench.files.sync_all().unwrap();
        bench
    }

    /// One of each operation that a hanging device must not stop.
    fn work(&self, text: &str) {
        let (files, directory) = (&*self.files, self.directory);
        assert_eq!(files.lookup(directory, name("kept")).unwrap().ino, self.kept);
        assert!(files.lookup(directory, name("missing")).is_err());
        assert!(read(files, self.kept)[5..] == noise(100_000)[5..], "the content of `kept`");
        files.write(self.kept, 0, b"again", PLAIN).unwrap();
        let mut names = 0;
        let mut count = |_: DirectoryEntry<'_>| {
            names += 1;
            true
        };
        files.read_directory(directory, 0, true, &mut count).unwrap();
        assert_eq!(names, 2);
        assert!(files.space().unwrap().free_bytes > 0);
        let made = file(files, directory, text);
        files.write(made, 0, &noise(5_000), PLAIN).unwrap();
        assert!(read(files, made) == noise(5_000), "the content of a new file");
        let set = SetAttributes { size: Some(100), ..SetAttributes::default() };
        files.set_attributes(ROOT, made, &set).unwrap();
        files.set_xattr(made, b"user.a", b"b", XattrMode::Any).unwrap();
        files.link(made, Ino::ROOT, name(text)).unwrap();
        let (old, new) = (name(text), name("renamed"));
        files.rename(ROOT, directory, old, Ino::ROOT, new, RenameMode::Replace).unwrap();
        files.unlink(Ino::ROOT, new).unwrap();
        files.unlink(Ino::ROOT, name(text)).unwrap();
        files.forget(made, 1);
    }

    /// Leaves something to write for a commit or a sync.
    fn make_dirty(&self) {
        let same = &noise(100_000)[50_000..50_100];
        self.files.write(self.kept, 50_000, same, PLAIN).unwrap();
    }

    /// While the device hangs, and `stuck` waits for it, others work.
    fn work_beside(self, asked_for: &str, stuck: impl FnOnce(&Bench) + Send + 'static) {
        self.device.hang();
        let bench = Arc::new(self);
        let (one, device) = (bench.clone(), bench.device.clone());
        let stuck = thread::spawn(move || stuck(&one));
        device.wait_until_asked();
        let (done, end) = channel();
        let two = bench.clone();
        let worker = thread::spawn(move || {
            two.work("first");
            two.work("second");
            done.send(()).unwrap();
        });
        let ended = end.recv_timeout(PATIENCE);
        let asked = device.asked();
        let is_stuck = !stuck.is_finished();
        device.go_on();
        assert_ne!(ended, Err(RecvTimeoutError::Timeout), "waits for a device asked to {asked:?}");
        worker.join().unwrap();
        stuck.join().unwrap();
        assert!(is_stuck, "what was to wait for the device did not");
        assert_eq!(asked, [asked_for], "the device was asked by the one that waits for it alone");
        bench.pool.close().unwrap();
    }
}

#[test]
fn a_commit_whose_first_write_hangs_stops_nobody() {
    Bench::new().work_beside("write", |bench| {
        bench.make_dirty();
        bench.pool.commit().unwrap();
    });
}

#[test]
fn a_sync_that_hangs_stops_nobody() {
    Bench::new().work_beside("write", |bench| {
        bench.make_dirty();
        bench.files.sync(bench.kept, SyncScope::All).unwrap();
    });
}

#[test]
fn a_read_that_hangs_stops_nobody_elsewhere() {
    Bench::new().work_beside("read", |bench| {
        assert!(read(&bench.files, bench.cold) == noise(100_000), "the content of `cold`");
    });
}
