//! The ext2 home behind the seam: an ext2 or ext3 image, which is one file system.

use super::home::{Home, Task, lacks};
use super::pool::pool_lock::check_not_looped;
use super::source::{Kind, OpenMode, Probe};
use super::volume::{Opened, Volume, VolumeOptions};
use crate::control::protocol::{Answer, Author, DatasetRow, Operation, StatusReport, WriteOrder};
use crate::engine::mounts::Mounts;
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::names::hexadecimal;
use crate::options::{AccessTimes, Consistency as Asked};
use crate::paths;
use marram_casefold::Folding;
use marram_device::{Device, FileDevice, Lock};
use marram_ext2::{
    Consistency, Ext2, Ext2Options, Header, ImageError, SUPERBLOCK_AT, SUPERBLOCK_BYTES,
    decode_header,
};
use marram_store::Source;
use marram_vfs::{FileSystem, Ino};
use parking_lot::Mutex;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the background looks whether the daemon is ending.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Most waves one after the other: more than any order of one operation is deep.
const WAVES_MAX: usize = 16;

/// Directories or inodes that are looked at in one step of the search for leaks.
const RECLAIM_STEP: u64 = 64;

/// Ext2 and ext3 images, as sources are recognised.
pub(super) struct Ext2Kind;

/// An image that is open.
struct Ext2Home {
    path: PathBuf,
    identity: Identity,
    header: Header,
    files: Arc<Ext2>,
    /// The same as it is shown.
    shown: Arc<dyn Volume>,
    lock: Mutex<Option<Lock>>,
    /// Most time that a change waits to become durable.
    interval: Duration,
    read_only: bool,
}

impl Volume for Ext2 {}
impl Volume for Folding {}

fn failed(path: &Path, error: &ImageError) -> Error {
    let said = Error::failed(error.to_string()).during(path.display());
    match error {
        ImageError::Consistency(_) => Error::usage(error.to_string()).during(path.display()),
        _ => said,
    }
}

/// The superblock of an image that begins somewhere at a path; nothing where it cannot be read.
fn superblock(path: &Path, offset_bytes: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    let is_pipe = std::fs::metadata(path).is_ok_and(|it| !it.is_file() && !is_block(&it));
    if is_pipe {
        return None;
    }
    let file = File::open(path).ok()?;
    file.read_exact_at(&mut bytes, offset_bytes.checked_add(SUPERBLOCK_AT)?).ok().map(|()| bytes)
}

fn is_block(metadata: &std::fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_block_device(&metadata.file_type())
}

/// Whether there is an ext2, ext3 or ext4 image at a path: e2fsprogs make and check it.
pub(crate) fn is_image(path: &Path) -> bool {
    superblock(path, 0).is_some_and(|bytes| decode_header(&bytes).is_ok())
}

/// What is known of the image that begins at a place.
///
/// # Errors
/// There is none.
pub(super) fn probe_at(path: &Path, offset_bytes: u64) -> Result<Probe> {
    let header = superblock(path, offset_bytes).and_then(|bytes| decode_header(&bytes).ok());
    let header = header.ok_or_else(|| {
        let place = path.display();
        Error::not_found(format!("{place}: no ext2 or ext3 image begins at byte {offset_bytes}"))
            .hint("`sfdisk -d` shows where partitions begin, in sectors of 512 bytes")
    })?;
    Ok(Probe { id: hexadecimal(&header.id), label: header.label })
}

fn consistency(asked: Option<Asked>) -> std::result::Result<Option<Consistency>, ImageError> {
    asked.map(|asked| Consistency::parse(asked.name())).transpose()
}

impl Kind for Ext2Kind {
    fn probe(&self, path: &Path) -> Result<Option<Probe>> {
        let header = superblock(path, 0).and_then(|bytes| decode_header(&bytes).ok());
        Ok(header.map(|header| Probe { id: hexadecimal(&header.id), label: header.label }))
    }

    fn open(&self, path: &Path, mode: &OpenMode) -> Result<Arc<dyn Home>> {
        let device = Arc::new(FileDevice::open(path, mode.read_only)?);
        let identity = Identity::of(path).map_err(|error| Error::system("look at", path, error))?;
        let lock = device.lock_exclusive().map_err(|error| Error::in_use(error.to_string()))?;
        if !mode.read_only {
            // The kernel may have it mounted, and knows nothing of our lock.
            check_not_looped(path)?;
        }
        let offset_bytes = mode.offset_bytes.unwrap_or(0);
        let bytes = superblock(path, offset_bytes).unwrap_or_default();
        let header = decode_header(&bytes).map_err(|error| failed(path, &error))?;
        let consistency = consistency(mode.consistency).map_err(|error| failed(path, &error))?;
        let writable = !mode.read_only;
        let fakeroot = mode.fakeroot;
        let options =
            Ext2Options { writable, consistency, offset_bytes, fakeroot, ..Ext2Options::default() };
        let device: Arc<dyn Device> = device;
        let files = Ext2::open(device, options).map_err(|error| failed(path, &error))?;
        let files = Arc::new(files);
        let shown: Arc<dyn Volume> = match mode.casefold {
            true => Arc::new(Folding::new(Arc::clone(&files) as Arc<dyn FileSystem>)),
            false => Arc::clone(&files) as Arc<dyn Volume>,
        };
        Ok(Arc::new(Ext2Home {
            path: path.to_owned(),
            identity,
            header,
            files,
            shown,
            lock: Mutex::new(Some(lock)),
            interval: Duration::from_secs(mode.pace.commit_seconds),
            read_only: mode.read_only,
        }))
    }

    fn takes(&self) -> &'static [&'static str] {
        &["consistency", "fakeroot", "casefold", "commit"]
    }
}

impl Ext2Home {
    fn label(&self) -> Result<String> {
        let volume: &dyn FileSystem = &*self.files;
        Ok(volume.label()?)
    }

    fn status(&self) -> Result<StatusReport> {
        let (space, counters) = (self.files.space()?, self.files.counters());
        let failure = self.files.failure();
        Ok(StatusReport {
            pool: self.path.clone(),
            pool_id: self.id(),
            label: self.label()?,
            health: if failure.is_some() { "read-only" } else { "online" }.to_owned(),
            reason: failure,
            medium: Some(self.medium()),
            total_bytes: space.total_bytes,
            allocated_bytes: space.total_bytes - space.free_bytes.min(space.total_bytes),
            free_bytes: space.free_bytes,
            write_order: Some(WriteOrder {
                consistency: self.files.consistency().name().to_owned(),
                commits: self.files.commits(),
                patches: counters.patches(),
                hard: counters.hard,
                joined: counters.joined(),
                joined_hard: counters.into_hard,
                joined_overlapped: counters.into_overlapped,
                joined_near: counters.into_near,
                waiting: counters.waiting,
                undo_bytes: counters.undo_bytes,
                kept_bytes: counters.kept_bytes,
                graph_bytes: counters.graph_bytes,
                rollbacks: counters.rollbacks,
                waves: counters.waves,
                flushes: counters.flushes,
                written_bytes: counters.written_bytes,
                twice_bytes: counters.twice_bytes,
            }),
            ..StatusReport::default()
        })
    }

    /// What the image is.
    fn medium(&self) -> String {
        let kind = self.header.kind;
        format!("an {kind} image with blocks of {} bytes", self.files.block_bytes())
    }

    /// The one file system that it is.
    fn row(&self) -> Result<DatasetRow> {
        let space = self.files.space()?;
        let used_bytes = space.total_bytes - space.free_bytes.min(space.total_bytes);
        Ok(DatasetRow {
            name: "root".to_owned(),
            kind: "dataset".to_owned(),
            origin: None,
            base: None,
            root: Ino::ROOT.0,
            directory: None,
            holds: Vec::new(),
            internal: false,
            created_seconds: 0,
            referenced_bytes: used_bytes,
            unique_bytes: used_bytes,
        })
    }

    /// Writes what waits, every interval, until the daemon ends.
    fn write_back(&self, mounts: &dyn Mounts) {
        let mut last = Instant::now();
        while !mounts.is_shut() {
            std::thread::sleep(LOOK_INTERVAL.min(self.interval));
            if last.elapsed() < self.interval {
                continue;
            }
            last = Instant::now();
            if let Err(error) = self.write_waves() {
                mounts.log(&format!("{error}: nothing more is written to the image"));
                return;
            }
        }
    }

    /// Gives back what a crash has left in use without a user, until the daemon ends. Operations go
    /// on between two steps.
    fn reclaim(&self, mounts: &dyn Mounts) {
        while !mounts.is_shut() {
            match self.files.reclaim(RECLAIM_STEP) {
                Ok(true) => (),
                Ok(false) => return,
                Err(error) => {
                    let next = "run e2fsck on the image when it is not mounted";
                    mounts.log(&format!("the search for leaks has ended: {error}; {next}"));
                    return;
                }
            }
        }
    }

    /// Writes what waits now. Operations go on between two waves.
    fn write_waves(&self) -> marram_vfs::Result<()> {
        for _ in 0..WAVES_MAX {
            if !self.files.step()? {
                break;
            }
        }
        Ok(())
    }
}

/// What an operation needs that an image does not have.
fn lacking(operation: &Operation) -> &'static str {
    match operation {
        Operation::Snapshot { .. } | Operation::SnapshotBelow { .. } | Operation::Thin(_) => {
            "snapshots"
        }
        Operation::Clone { .. } => "clones",
        Operation::Fork { .. } | Operation::ForkPlace { .. } => "forks",
        Operation::Rollback { .. } | Operation::RollbackDirectory(_) => "rollback",
        Operation::Versions(_) => "versions",
        Operation::Merge(_) => "merges",
        Operation::Get { .. } | Operation::Set { .. } => "properties (as compression)",
        Operation::Owners { .. } | Operation::SetLimit { .. } => "quotas",
        Operation::Log | Operation::Undo { .. } => "log of operations",
        Operation::Grow { .. } => "way to grow; `resize2fs` has one",
        Operation::Partials | Operation::DropPartial { .. } => "streams",
        Operation::Space { .. } | Operation::Footprints(_) | Operation::Sharing => {
            "report of space; `df` has one"
        }
        Operation::Hold { .. } | Operation::Release { .. } => "snapshots",
        Operation::Grants(_) => "rights to hand out",
        Operation::Resolve { .. } => "transactions",
        _ => "datasets",
    }
}

impl Home for Ext2Home {
    fn kind(&self) -> &'static str {
        "file system image (ext2 or ext3)"
    }

    fn id(&self) -> String {
        hexadecimal(&self.header.id)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn open(&self, source: &Source, options: VolumeOptions) -> Result<Opened> {
        if source.to_string() != "root" {
            return Err(lacks(self, "datasets and no snapshots"));
        }
        let access_times = options.access_times.unwrap_or(AccessTimes::Relative);
        let times = match access_times {
            AccessTimes::Never => marram_ext2::AccessTimes::Never,
            AccessTimes::Relative => marram_ext2::AccessTimes::Relative,
            AccessTimes::Strict => marram_ext2::AccessTimes::Strict,
        };
        self.files.set_access_times(times, options.directory_access_times);
        let volume = Arc::clone(&self.shown);
        Ok(Opened { volume, root: Ino::ROOT, access_times })
    }

    fn perform(
        &self,
        operation: &Operation,
        _author: Option<&Author>,
        _mounts: Option<&dyn Mounts>,
    ) -> Result<Answer> {
        match operation {
            Operation::Status => Ok(Answer::Status(Box::new(self.status()?))),
            Operation::List => Ok(Answer::Datasets(vec![self.row()?])),
            Operation::Sync => {
                self.sync()?;
                Ok(Answer::Done)
            }
            Operation::Label { label } => {
                let (volume, caller): (&dyn FileSystem, _) = (&*self.files, paths::own_identity());
                volume.set_label(caller, label)?;
                Ok(Answer::Done)
            }
            other => Err(lacks(self, lacking(other))),
        }
    }

    fn sync(&self) -> Result<()> {
        Ok(self.files.sync_all()?)
    }

    fn is_halted(&self) -> bool {
        false
    }

    fn held_back_bytes(&self) -> Option<u64> {
        None
    }

    fn tasks(self: Arc<Self>) -> Vec<Task> {
        if self.read_only {
            return Vec::new();
        }
        let home = Arc::clone(&self);
        vec![
            Task {
                name: "write-back",
                run: Box::new(move |mounts: &dyn Mounts| self.write_back(mounts)),
            },
            Task {
                name: "reclaim",
                run: Box::new(move |mounts: &dyn Mounts| home.reclaim(mounts)),
            },
        ]
    }

    fn close(&self) -> Result<()> {
        Ok(self.files.close()?)
    }

    fn close_for_good(&self) -> Result<()> {
        self.close()
    }

    fn unlock(&self) {
        *self.lock.lock() = None;
    }
}
