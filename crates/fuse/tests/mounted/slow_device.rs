//! A pool whose device hangs, behind a real mount: programs that need nothing of the device go on.

use crate::fixture::{Mounted, can_mount};
use marram_device::{Device, MemoryDevice, Result};
use marram_pool::{CreateOptions, OpenOptions, Pool, create};
use marram_posix::{Posix, PosixOptions};
use marram_store::{Properties, Store};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than anything takes that does not wait for the device.
const PATIENCE: Duration = Duration::from_secs(20);

/// Memory that answers nothing while it hangs.
struct HangingDevice {
    memory: MemoryDevice,
    /// Whether it hangs, and how many wait for it.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl HangingDevice {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        while state.0 {
            state = self.changed.wait(state).unwrap();
        }
        state.1 -= 1;
    }

    fn set_hanging(&self, hangs: bool) {
        self.state.lock().unwrap().0 = hangs;
        self.changed.notify_all();
    }

    fn waiting(&self) -> usize {
        self.state.lock().unwrap().1
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
        self.pass();
        self.memory.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        self.pass();
        self.memory.write(offset, buffer)
    }

    fn flush(&self) -> Result<()> {
        self.pass();
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.memory.discard(offset, len)
    }
}

fn pool_on(device: &Arc<HangingDevice>) -> Arc<Pool> {
    let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
    let options = CreateOptions {
        label: "slow".to_owned(),
        properties: Properties::default(),
        pool_id: [1; 16],
        secret: 1,
        now_seconds: 1,
    };
    create(&devices, &options).unwrap();
    Pool::open(devices, OpenOptions::new(|| 0)).unwrap()
}

/// What a program does that does not sync.
fn work(root: &Path, name: &str) {
    let path = root.join(name);
    assert_eq!(fs::read(root.join("kept")).unwrap(), [7; 50_000]);
    assert!(fs::metadata(root.join("missing")).is_err());
    fs::write(&path, [8; 5_000]).unwrap();
    assert_eq!(fs::read(&path).unwrap(), [8; 5_000]);
    fs::create_dir(root.join("d")).unwrap();
    fs::rename(&path, root.join("d/moved")).unwrap();
    assert_eq!(fs::read_dir(root.join("d")).unwrap().count(), 1);
    fs::remove_file(root.join("d/moved")).unwrap();
    fs::remove_dir(root.join("d")).unwrap();
}

#[test]
fn programs_go_on_while_a_sync_and_a_commit_hang() {
    if !can_mount() {
        return;
    }
    let device = Arc::new(HangingDevice {
        memory: MemoryDevice::new(64 << 20),
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    let pool = pool_on(&device);
    let view = pool.open(&"root".parse().unwrap()).unwrap();
    let files = Arc::new(Posix::new(view, PosixOptions::default()).unwrap());
    let mounted = Mounted::with(files, |_| ());
    let root = mounted.root();
    fs::write(root.join("kept"), [7; 50_000]).unwrap();
    work(&root, "warm");
    pool.commit().unwrap();

    device.set_hanging(true);
    let mut synced = File::create(root.join("synced")).unwrap();
    synced.write_all(b"x").unwrap();
    let sync = thread::spawn(move || synced.sync_all());
    let committed = Arc::clone(&pool);
    let commit = thread::spawn(move || committed.commit());
    let begun = Instant::now();
    while device.waiting() == 0 {
        assert!(begun.elapsed() < PATIENCE, "nobody asks the device");
        thread::sleep(Duration::from_millis(5));
    }
    let (done, end) = channel();
    let worker = thread::spawn(move || {
        work(&root, "first");
        work(&root, "second");
        pool.open(&"root".parse().unwrap()).unwrap();
        done.send(()).unwrap();
    });
    let ended = end.recv_timeout(PATIENCE);
    let is_stuck = !sync.is_finished() && !commit.is_finished();
    device.set_hanging(false);
    worker.join().unwrap();
    sync.join().unwrap().unwrap();
    commit.join().unwrap().unwrap();
    assert!(ended.is_ok(), "programs waited for the device");
    assert!(is_stuck, "the device did not hang");
    mounted.end();
}
