//! A recorded pool behind a real mount, served by this process as the daemon serves one.
//!
//! What the daemon does without being asked is done here too, only sooner: group commits and the
//! freeing of deleted files, at random moments some milliseconds apart, so that they fall between
//! any two writes of a program.

use crate::pool::{Result, empty_pool, open, words};
use marram_device::Device;
use marram_fuse::{MountOptions, Session, Unmount, clear_dead_mount};
use marram_pool::Pool;
use marram_posix::Posix;
use marram_sim::Random;
use marram_sim::device::{OverlayDevice, RecordingDevice, Trace};
use marram_vfs::FileSystem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The mountpoint in the folder of a campaign.
const MOUNTPOINT: &str = "mnt";
/// Longest time between two group commits, in microseconds.
const COMMIT_MICROSECONDS_MAX: u64 = 30_000;
/// How many items of deleted files are freed at a time.
const RECLAIM_ITEMS: usize = 64;
/// How long a mount may be in use when its program has ended.
const UNMOUNT_LIMIT: Duration = Duration::from_secs(10);

/// A mount. Dropping it takes it away.
pub(crate) struct Served {
    device: Arc<RecordingDevice>,
    pool: Arc<Pool>,
    session: Option<Session>,
    background: Option<Background>,
    mountpoint: PathBuf,
}

impl Served {
    /// Mounts an empty pool in `folder`; the seed decides when it commits.
    pub(crate) fn new(seed: u64, folder: &Path) -> Result<Served> {
        let mountpoint = folder.join(MOUNTPOINT);
        std::fs::create_dir_all(&mountpoint).map_err(words)?;
        let base = empty_pool(seed)?;
        let overlay = Arc::new(OverlayDevice::new(Arc::clone(&base), Arc::default()));
        let device = Arc::new(RecordingDevice::over(overlay, base));
        let (pool, posix) = open(Arc::clone(&device) as Arc<dyn Device>)?;
        let options = MountOptions::new(&mountpoint, "crash");
        let files = Arc::clone(&posix) as Arc<dyn FileSystem>;
        let session = marram_fuse::mount(files, options).map_err(words)?;
        let background = Background::start(Arc::clone(&pool), posix, seed)?;
        Ok(Served {
            device,
            pool,
            session: Some(session),
            background: Some(background),
            mountpoint,
        })
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        &self.mountpoint
    }

    /// Leaves a number in the trace, between what was done before and what comes after.
    pub(crate) fn mark(&self, mark: u64) {
        self.device.mark(mark);
    }

    /// Unmounts, closes the pool, and returns all that its device saw.
    pub(crate) fn end(mut self) -> Result<Trace> {
        let began = Instant::now();
        if let Some(session) = &self.session {
            while let Err(error) = session.unmount(Unmount::WhenUnused) {
                if began.elapsed() > UNMOUNT_LIMIT {
                    return Err(error.to_string());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        if let Some(session) = self.session.take() {
            session.wait().map_err(words)?;
        }
        if let Some(background) = self.background.take() {
            background.end()?;
        }
        self.pool.close().map_err(words)?;
        Ok(self.device.trace())
    }
}

/// Removes the folder of a campaign that was killed, and the mount that it left.
pub(crate) fn clear(folder: &Path) -> Result<()> {
    clear_dead_mount(&folder.join(MOUNTPOINT)).map_err(words)?;
    std::fs::remove_dir_all(folder).map_err(words)
}

/// Commits now and then, until it is dropped.
struct Background {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Background {
    fn start(pool: Arc<Pool>, posix: Arc<Posix>, seed: u64) -> Result<Background> {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::Builder::new()
            .name("commit".to_owned())
            .spawn(move || {
                let mut random = Random::new(seed);
                while !over.load(Ordering::SeqCst) {
                    let pause = random.below(COMMIT_MICROSECONDS_MAX);
                    std::thread::sleep(Duration::from_micros(pause));
                    pool.commit().map_err(words)?;
                    posix.reclaim_step(RECLAIM_ITEMS).map_err(words)?;
                }
                Ok(())
            })
            .map_err(words)?;
        Ok(Background { is_over, thread: Some(thread) })
    }

    fn end(mut self) -> Result<()> {
        self.join()
    }

    fn join(&mut self) -> Result<()> {
        self.is_over.store(true, Ordering::SeqCst);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().map_err(|_| "the thread that commits has panicked".to_owned())?
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _another_failure_is_told = self.join();
    }
}
