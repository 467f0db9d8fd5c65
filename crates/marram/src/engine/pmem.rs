//! The pmem home behind the seam: an image in a mapped file.

mod datasets;
mod device;

pub(crate) use device::on_dax_device;

use super::changes::Known;
use super::home::{ControlDirectory, Home, Member, Snapshots, Task, lacks};
use super::source::{Kind, OpenMode, Probe};
use super::volume::{Opened, Volume, VolumeOptions};
use crate::control::protocol::{
    Answer, Author, CompareOrder, DifferenceRow, Operation, StatusReport,
};
use crate::engine::mounts::Mounts;
use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::names::hexadecimal;
use crate::options::{AccessTimes, Durable as Asked};
use crate::paths;
use marram_pmem::memory::Memory;
use marram_pmem::memory::mapped::{
    Durable, Mapped, MediumKind, device_bytes, first_bytes, host_of,
};
use marram_pmem::{Header, ImageError, NewImage, Opening, Pmem, PmemOptions, make};
use marram_store::{DatasetName, Source};
use marram_vfs::{Clock, FileSystem, Ino, SpaceReport, SystemClock, Timestamp};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// How often the background looks whether the daemon is ending.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a mount waits for the look through an image. What has not ended then goes on beside it.
const SCAN_PATIENCE: Duration = Duration::from_millis(50);

/// Pmem images, as sources are recognised.
pub(super) struct PmemKind;

/// An image that is open.
struct PmemHome {
    path: PathBuf,
    identity: Identity,
    id: String,
    files: Arc<Pmem>,
    medium: MediumKind,
    durable: Durable,
    /// Most time that what has returned waits for a checkpoint.
    interval: Duration,
    read_only: bool,
}

/// An image to make.
pub(crate) struct CreatePmem<'r> {
    /// Its size in bytes.
    pub(crate) size_bytes: Option<u64>,
    /// Overwrite what is there.
    pub(crate) force: bool,
    /// Its label.
    pub(crate) label: &'r str,
}

impl Volume for Pmem {
    fn known(&self) -> Option<&dyn Known> {
        Some(self)
    }
}

impl Known for Pmem {
    fn inodes(&self) -> Vec<Ino> {
        self.pinned_inodes()
    }

    fn root(&self) -> Ino {
        Ino::ROOT
    }

    fn count(&self) -> usize {
        self.pinned_inodes().len()
    }

    fn has(&self, ino: Ino) -> bool {
        ino == Ino::ROOT || self.is_pinned(ino)
    }

    /// An inode does not say where its names are.
    fn place_of(&self, _ino: Ino) -> Option<(Ino, Vec<u8>)> {
        None
    }

    fn path_of(&self, _ino: Ino) -> Option<Vec<u8>> {
        None
    }
}

fn failed(path: &Path, error: ImageError) -> Error {
    match error {
        ImageError::InUse { .. } => Error::in_use(error.to_string()),
        ImageError::Unusable { .. } => Error::failed(error.to_string()),
        other => Error::failed(other.to_string()).during(path.display()),
    }
}

/// What the image at a path lies on, and what that keeps; none if there is no image.
pub(crate) fn medium(path: &Path) -> Option<String> {
    PmemKind.probe(path).ok()??;
    let kind = MediumKind::of(&File::open(path).ok()?).ok()?;
    Some(kind.to_string())
}

/// The run of the machine for which the live state of the image at a path can be right; none if
/// there is no image.
pub(crate) fn host(path: &Path) -> Option<u64> {
    PmemKind.probe(path).ok()??;
    host_of(&File::open(path).ok()?, path).ok()
}

/// Makes an image at `path`; returns its size in bytes.
///
/// # Errors
/// When something is there, or it cannot be made; then everything is as it was.
pub(crate) fn create(path: &Path, request: &CreatePmem<'_>) -> Result<u64> {
    let device_bytes = device_bytes(path);
    let Some(bytes) = device_bytes.or(request.size_bytes) else {
        let example = format!("marram create --home pmem {} --size 4G", path.display());
        return Err(Error::usage("a pmem home needs a size").hint(example));
    };
    if device_bytes.is_some() && request.size_bytes.is_some_and(|asked| asked != bytes) {
        let said = format!("{} is taken whole: {bytes} bytes", path.display());
        return Err(Error::usage(said).hint("leave --size out"));
    }
    let is_empty = || first_bytes(path).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0));
    let is_taken = path.exists() && !(device_bytes.is_some() && is_empty());
    if !request.force && is_taken {
        return Err(Error::failed(format!("{} is there already", path.display()))
            .hint("use --force to overwrite it; all that it holds is lost then"));
    }
    let new = NewImage {
        id: random_id()?,
        label: request.label.to_owned(),
        now: SystemClock.now(),
        root_owner: paths::own_identity(),
    };
    new.check()?;
    let mapped = Mapped::create(path, bytes, request.force).map_err(|error| failed(path, error))?;
    make(&mut Memory::new(Box::new(mapped)), &new).map_err(|error| failed(path, error))?;
    Ok(bytes)
}

fn random_id() -> Result<[u8; 16]> {
    let mut id = [0; 16];
    let source = Path::new("/dev/urandom");
    File::open(source)
        .and_then(|mut random| random.read_exact(&mut id))
        .map_err(|error| Error::system("read", source, error))?;
    Ok(id)
}

impl Kind for PmemKind {
    fn probe(&self, path: &Path) -> Result<Option<Probe>> {
        let Ok(bytes) = first_bytes(path) else { return Ok(None) };
        match Header::decode(&bytes) {
            Ok(header) => Ok(Some(Probe { id: hexadecimal(&header.id), label: header.label })),
            Err(ImageError::NoImage(_)) => Ok(None),
            Err(error) => Err(failed(path, error)),
        }
    }

    fn open(&self, path: &Path, mode: &OpenMode) -> Result<Arc<dyn Home>> {
        let mapped = Mapped::open(path, mode.read_only, mode.durable.map(kept))
            .map_err(|error| failed(path, error))?;
        let (medium, durable) = (mapped.kind(), mapped.durable());
        let identity = Identity::of(path).map_err(|error| Error::system("look at", path, error))?;
        let options = PmemOptions { writable: !mode.read_only, ..PmemOptions::default() };
        let files = open_at_once(Memory::new(Box::new(mapped)), options)
            .map_err(|error| failed(path, error))?;
        let header = files.header().map_err(|error| failed(path, error))?;
        let (path, id) = (path.to_owned(), hexadecimal(&header.id));
        let (files, read_only) = (Arc::new(files), mode.read_only);
        let interval = Duration::from_secs(mode.pace.commit_seconds);
        Ok(Arc::new(PmemHome { path, identity, id, files, medium, durable, interval, read_only }))
    }

    fn takes(&self) -> &'static [&'static str] {
        &["durable", "commit"]
    }
}

/// Opens an image; what it holds is looked through by a thread of its own. An image that makes no
/// sense is refused if that is seen in time.
fn open_at_once(memory: Memory, options: PmemOptions) -> std::result::Result<Pmem, ImageError> {
    let opening = Opening::begin(memory, options)?;
    let scan = opening.scan();
    let (done, wait) = mpsc::channel();
    let thread = std::thread::Builder::new().name("scan".to_owned()).spawn(move || {
        scan.run();
        let _nothing_waits_any_more = done.send(());
    });
    match thread {
        Ok(_ends_by_itself) => {
            let _goes_on_beside = wait.recv_timeout(SCAN_PATIENCE);
        }
        Err(_no_thread) => opening.scan().run(),
    }
    opening.finish()
}

/// A mode as the engine names it.
fn kept(asked: Asked) -> Durable {
    match asked {
        Asked::Each => Durable::Each,
        Asked::Epoch => Durable::Epoch,
        Asked::Checkpoint => Durable::Checkpoint,
    }
}

impl PmemHome {
    /// Takes in what the look through the image finds.
    fn find_space(&self, mounts: &dyn Mounts) {
        if let Err(error) = self.files.find_space() {
            mounts.log(&format!("{error}: nothing more is changed in the image"));
        }
    }

    /// Makes a checkpoint every interval, until the daemon ends.
    fn make_checkpoints(&self, mounts: &dyn Mounts) {
        let mut last = Instant::now();
        while !mounts.is_shut() {
            std::thread::sleep(LOOK_INTERVAL.min(self.interval));
            if last.elapsed() < self.interval {
                continue;
            }
            last = Instant::now();
            match self.files.checkpoint() {
                // The next one may find space again.
                Ok(()) | Err(marram_vfs::Error::NoSpace) => {}
                Err(error) => {
                    mounts.log(&format!("{error}: nothing more is changed in the image"));
                    return;
                }
            }
        }
    }

    /// A dataset or snapshot as a file system. The root dataset is open always.
    fn volume(&self, source: &Source) -> Result<Arc<Pmem>> {
        if *source == Source::live(DatasetName::root()) {
            return Ok(Arc::clone(&self.files));
        }
        match self.files.open_other(datasets::which(source)) {
            Ok(files) => Ok(Arc::new(files)),
            Err(marram_vfs::Error::NotFound) => {
                Err(marram_store::Error::NoDataset(source.to_string()).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// What could not be had after a failure is left out.
    fn status(&self) -> Result<StatusReport> {
        let failure = self.files.failure();
        let space = match self.files.space() {
            Err(_) if failure.is_some() => SpaceReport::default(),
            space => space?,
        };
        let label = match self.files.header() {
            Err(_) if failure.is_some() => String::new(),
            header => header.map_err(|error| failed(&self.path, error))?.label,
        };
        Ok(StatusReport {
            pool: self.path.clone(),
            pool_id: self.id.clone(),
            label,
            health: if failure.is_some() { "read-only" } else { "online" }.to_owned(),
            reason: failure,
            medium: Some(match self.durable {
                Durable::Epoch => format!("{}, but for the last one", self.medium),
                _ => self.medium.to_string(),
            }),
            total_bytes: space.total_bytes,
            allocated_bytes: space.total_bytes - space.free_bytes,
            free_bytes: space.free_bytes,
            ..StatusReport::default()
        })
    }
}

/// What an operation needs that this home does not have.
fn lacking(operation: &Operation) -> &'static str {
    match operation {
        Operation::SnapshotBelow { .. } => "snapshots of several datasets yet",
        Operation::Thin(_) => "automatic snapshots yet",
        Operation::Fork { .. } | Operation::ForkPlace { .. } => "forks of directories yet",
        Operation::RollbackDirectory(_) => "rollback of directories yet",
        Operation::CreateDataset { .. } => "empty datasets yet: clone a snapshot",
        Operation::Rename { .. } | Operation::Promote { .. } => "other names for datasets yet",
        Operation::Hold { .. } | Operation::Release { .. } => "holds yet",
        Operation::Space { .. } | Operation::Footprints(_) => "report of space yet",
        Operation::Versions(_) => "versions",
        Operation::Merge(_) => "merges",
        Operation::Get { .. } | Operation::Set { .. } => "properties (as compression)",
        Operation::Owners { .. } | Operation::SetLimit { .. } => "quotas",
        Operation::Grants(_) => "rights to hand out",
        Operation::Log | Operation::Undo { .. } => "log of operations",
        Operation::Grow { .. } => "way to grow",
        Operation::Partials | Operation::DropPartial { .. } => "streams",
        _ => "such an operation",
    }
}

impl Home for PmemHome {
    fn kind(&self) -> &'static str {
        "pmem home"
    }

    fn id(&self) -> String {
        self.id.clone()
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn open(&self, source: &Source, options: VolumeOptions) -> Result<Opened> {
        let files = self.volume(source)?;
        let access_times = options.access_times.unwrap_or(AccessTimes::Relative);
        let times = match access_times {
            AccessTimes::Never => marram_pmem::AccessTimes::Never,
            AccessTimes::Relative => marram_pmem::AccessTimes::Relative,
            AccessTimes::Strict => marram_pmem::AccessTimes::Strict,
        };
        files.set_access_times(times, options.directory_access_times);
        Ok(Opened { volume: files, root: Ino::ROOT, access_times })
    }

    fn perform(
        &self,
        operation: &Operation,
        _author: Option<&Author>,
        mounts: Option<&dyn Mounts>,
    ) -> Result<Answer> {
        let files = &*self.files;
        match operation {
            Operation::Status => Ok(Answer::Status(Box::new(self.status()?))),
            Operation::List => Ok(Answer::Datasets(datasets::rows(files)?)),
            Operation::Snapshot { dataset, snapshot } => {
                datasets::snapshot(files, (dataset, snapshot), mounts)
            }
            Operation::Clone { origin, name } => datasets::clone(files, origin, name),
            Operation::Rollback { to } => datasets::roll_back(files, to, mounts),
            Operation::Destroy { sources, dry_run } => {
                let report = datasets::destroy(files, sources, *dry_run, mounts)?;
                Ok(Answer::Destruction(report))
            }
            // There is no undo that could bring it back.
            Operation::Hide { sources } => {
                let report = datasets::destroy(files, sources, false, mounts)?;
                Ok(Answer::Hidden { report, kept_until_seconds: None })
            }
            Operation::Sync => {
                self.sync()?;
                Ok(Answer::Done)
            }
            Operation::Label { label } => {
                let (volume, caller): (&dyn FileSystem, _) = (files, paths::own_identity());
                volume.set_label(caller, label)?;
                Ok(Answer::Done)
            }
            other => Err(lacks(self, lacking(other))),
        }
    }

    fn sync(&self) -> Result<()> {
        Ok(self.files.checkpoint()?)
    }

    fn tasks(self: Arc<Self>) -> Vec<Task> {
        let home = Arc::clone(&self);
        let mut tasks = vec![Task {
            name: "free space",
            run: Box::new(move |mounts: &dyn Mounts| home.find_space(mounts)),
        }];
        if !self.read_only && self.medium.durable() == Durable::Checkpoint {
            tasks.push(Task {
                name: "checkpoints",
                run: Box::new(move |mounts: &dyn Mounts| self.make_checkpoints(mounts)),
            });
        }
        tasks
    }

    /// A rollback tells of inodes alone.
    fn names_what_changes(&self) -> bool {
        false
    }

    fn is_halted(&self) -> bool {
        false
    }

    fn held_back_bytes(&self) -> Option<u64> {
        None
    }

    fn close(&self) -> Result<()> {
        Ok(self.files.close()?)
    }

    fn close_for_good(&self) -> Result<()> {
        self.close()
    }

    /// The lock ends with the process.
    fn unlock(&self) {}

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        Some(self)
    }
}

impl Snapshots for PmemHome {
    fn names(
        &self,
        dataset: &DatasetName,
        directory: ControlDirectory,
    ) -> marram_vfs::Result<Vec<String>> {
        datasets::names(&self.files, dataset, directory)
    }

    fn has_directory(
        &self,
        snapshot: &Source,
        ino: Ino,
        created: Timestamp,
    ) -> marram_vfs::Result<bool> {
        let files = self.files.open_other(datasets::which(snapshot))?;
        match FileSystem::attributes(&files, ino) {
            Ok(found) => Ok(found.kind == marram_vfs::Kind::Directory && found.created == created),
            Err(marram_vfs::Error::Stale) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn find(
        &self,
        dataset: &DatasetName,
        directory: ControlDirectory,
        name: &str,
    ) -> marram_vfs::Result<Member> {
        datasets::find(&self.files, dataset, directory, name)
    }

    fn compare(
        &self,
        _order: &CompareOrder,
        _visit: &mut dyn FnMut(DifferenceRow) -> Result<()>,
    ) -> Result<()> {
        Err(lacks(self, "diff yet"))
    }
}
