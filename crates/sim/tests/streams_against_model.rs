//! Every snapshot of random histories is sent to a second pool, the first one whole and each later
//! one from the one before it. What is looked at is what was received: it must be what the model
//! kept, and its clones must work. Before each stream somebody looks at all that there is, as a
//! mount of the receiver would: access times move there, and are in nobody's way.

use crate::homes::{mount, run_seeds, text};
use marram_check::{CheckOptions, check};
use marram_device::{Device, MemoryDevice};
use marram_pool::{CreateOptions, OpenOptions, Pool, ReceiveRequest, SendRequest, create};
use marram_posix::{AccessTimes, Posix, PosixOptions};
use marram_sim::{HistoryClock, Home, HomeCapabilities, HomeResult};
use marram_store::{DatasetName, Properties, Source, Store};
use marram_vfs::{FileSystem, Ino, Kind, SteppedClock};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const POOL_BYTES: usize = 96 << 20;

fn new_pool(id: u8, compression: &str) -> (Arc<MemoryDevice>, Arc<Pool>) {
    let memory = Arc::new(MemoryDevice::new(POOL_BYTES));
    let device: Arc<dyn Device> = memory.clone();
    let properties = [("compression", compression), ("recordsize", "4096")];
    let properties = properties.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = CreateOptions {
        label: "sent".to_owned(),
        properties: Properties(properties.into()),
        pool_id: [id; 16],
        secret: 7,
        now_seconds: 1,
    };
    create(std::slice::from_ref(&device), &options).unwrap();
    let now = AtomicI64::new(1);
    let options = OpenOptions::new(move || now.fetch_add(1, Ordering::Relaxed));
    (memory, Pool::open(vec![device], options).unwrap())
}

/// A pool, and another one that has its snapshots.
struct SentHome {
    from: Arc<Pool>,
    to: Arc<Pool>,
    received: Arc<MemoryDevice>,
    clock: Arc<HistoryClock>,
    live: Arc<Posix>,
    /// The snapshot that was sent last.
    last: Option<String>,
    /// Snapshots that nobody wants any more, but that the next stream goes on from.
    unwanted: Vec<String>,
}

fn root() -> DatasetName {
    DatasetName::root()
}

fn copy() -> DatasetName {
    "copy".parse().unwrap()
}

fn kept(dataset: DatasetName, name: &str) -> Source {
    Source { dataset, snapshot: Some(name.to_owned()) }
}

impl SentHome {
    fn boxed(seed: u64, clock: Arc<HistoryClock>) -> HomeResult<Box<dyn Home>> {
        let compression = ["lz4", "off", "zstd"][usize::try_from(seed % 3).unwrap()];
        let (_, from) = new_pool(1, compression);
        let (received, to) = new_pool(2, "lz4");
        let live = mount(from.open(&Source::live(root())).map_err(text)?, &clock)?;
        Ok(Box::new(SentHome { from, to, received, clock, live, last: None, unwanted: vec![] }))
    }

    fn send(&self, name: &str) -> HomeResult<Vec<u8>> {
        let base = self.last.as_ref().map(|last| kept(root(), last));
        let request = SendRequest { snapshot: kept(root(), name), base, resume: None };
        let mut stream = Vec::new();
        self.from.send(&request, &mut stream, &mut |_| {}).map_err(text)?;
        Ok(stream)
    }
}

/// Reads every directory and a byte of every file of what was received, and has access times move.
fn look_at_all(pool: &Pool) -> marram_vfs::Result<()> {
    let options = PosixOptions {
        clock: Arc::new(SteppedClock::default()),
        access_times: AccessTimes::Strict,
        ..PosixOptions::default()
    };
    let view = pool.open(&Source::live(copy())).expect("it is there");
    let files = Posix::new(view, options)?;
    let mut directories = vec![Ino::ROOT];
    while let Some(directory) = directories.pop() {
        let mut found = Vec::new();
        files.read_directory(directory, 0, false, &mut |entry| {
            found.push((entry.ino, entry.kind));
            true
        })?;
        for (ino, kind) in found {
            match kind {
                Kind::Directory => directories.push(ino),
                Kind::Regular => files.read(ino, 0, 1, &mut Vec::new())?,
                _ => {}
            }
        }
    }
    Ok(())
}

impl Home for SentHome {
    fn file_system(&self) -> Arc<dyn FileSystem> {
        Arc::clone(&self.live) as Arc<dyn FileSystem>
    }

    /// What it shows is what streams carry: snapshots and their clones.
    fn capabilities(&self) -> HomeCapabilities {
        HomeCapabilities::default()
    }

    fn remount(&mut self) -> HomeResult<()> {
        self.live.forget_all();
        Ok(())
    }

    fn commit(&mut self) -> HomeResult<()> {
        self.live.reclaim_step(9).map_err(text)?;
        self.from.commit().map_err(text)
    }

    fn snapshot(&mut self, name: &str) -> HomeResult<()> {
        self.from.snapshot(&root(), name).map_err(text)?;
        if self.last.is_some() {
            look_at_all(&self.to).map_err(text)?;
        }
        let stream = self.send(name)?;
        let request = ReceiveRequest { dataset: copy(), force: false, resumable: true };
        let incoming = self.to.receive(&request, &mut &stream[..], &mut |_| {}).map_err(text)?;
        incoming.publish().map_err(text)?;
        self.last = Some(name.to_owned());
        for name in std::mem::take(&mut self.unwanted) {
            self.destroy_snapshot(&name)?;
        }
        Ok(())
    }

    fn open_snapshot(&self, name: &str) -> HomeResult<Arc<dyn FileSystem>> {
        let view = self.to.open(&kept(copy(), name)).map_err(text)?;
        Ok(mount(view, &self.clock)? as Arc<dyn FileSystem>)
    }

    fn destroy_snapshot(&mut self, name: &str) -> HomeResult<()> {
        if self.last.as_deref() == Some(name) {
            self.unwanted.push(name.to_owned());
            return Ok(());
        }
        self.from.destroy(&kept(root(), name), false).map_err(text)?;
        self.to.destroy(&kept(copy(), name), false).map_err(text)?;
        Ok(())
    }

    fn clone_snapshot(&mut self, snapshot: &str, clone: &str) -> HomeResult<Arc<dyn FileSystem>> {
        let clone: DatasetName = clone.parse().map_err(text)?;
        self.to.clone_snapshot(&kept(copy(), snapshot), &clone).map_err(text)?;
        let view = self.to.open(&Source::live(clone)).map_err(text)?;
        Ok(mount(view, &self.clock)? as Arc<dyn FileSystem>)
    }

    fn destroy_clone(&mut self, clone: &str) -> HomeResult<()> {
        let clone: Source = clone.parse().map_err(text)?;
        self.to.destroy(&clone, false).map(|_| ()).map_err(text)
    }

    /// The verifier finds nothing in the pool that received, in each file system of it.
    fn check(&mut self) -> HomeResult<()> {
        while self.to.reclaim_step().map_err(text)? {}
        self.to.commit().map_err(text)?;
        let options = CheckOptions { read_data: true, ..CheckOptions::default() };
        let mut findings = Vec::new();
        check(&*self.received, &options, &mut |finding| findings.push(finding.to_string()))
            .map_err(text)?;
        if findings.is_empty() { Ok(()) } else { Err(findings.join("\n")) }
    }
}

#[test]
fn what_is_received_is_what_the_model_kept() {
    let sum = run_seeds(SentHome::boxed, 0..20, 500);
    assert!(sum.snapshots > 20 && sum.clones > 1, "{sum:?}");
}
