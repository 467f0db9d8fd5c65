//! Homes of a few dozen lines, mounted by the daemon as any other: a file system that is no store,
//! and stores that are no pool, one without any capability. Further ones go here.

use crate::control::protocol::{
    Answer, Author, CompareOrder, DifferenceRow, MountRequest, Operation, Request, SendOrder,
    StatusReport,
};
use crate::control::server::Service;
use crate::daemon::Log;
use crate::daemon::mounts::mount;
use crate::daemon::service::Shared;
use crate::daemon::state::Daemon;
use crate::daemon::tests::unmount;
use crate::engine::home::{ControlDirectory, Member, Snapshots, lacks};
use crate::engine::members;
use crate::engine::posix::open_view;
use crate::engine::volume::{Opened, VolumeOptions};
use crate::engine::{Home, Mounts, OpenMode, Volume};
use crate::error::Result;
use crate::identity::Identity;
use crate::options::{AccessTimes, BlockDevice, MountOptions};
use crate::paths;
use marram_model::Model;
use marram_store::memory::MemoryStore;
use marram_store::minimal::MinimalStore;
use marram_store::{DatasetName, Source, Store};
use marram_vfs::{Ino, SystemClock};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a home of the tests opens a dataset.
type Open = Box<dyn Fn(&Source, VolumeOptions) -> Result<Opened> + Send + Sync>;

/// A home that has nothing but file systems, or those of a store with their snapshots and forks.
struct Plain {
    folder: PathBuf,
    open: Open,
    store: Option<Arc<dyn Store>>,
}

impl Plain {
    /// The operations of the core of a store.
    fn perform_on(&self, store: &dyn Store, operation: &Operation) -> Result<Vec<Source>> {
        match operation {
            Operation::Snapshot { dataset, snapshot } => {
                store.snapshot(&dataset.parse()?, snapshot)?;
                Ok(vec![format!("{dataset}@{snapshot}").parse()?])
            }
            Operation::Fork { dataset, name, root } => {
                store.fork(&dataset.parse()?, &name.parse()?, *root)?;
                Ok(vec![name.parse()?])
            }
            Operation::Rollback { to } => {
                store.rollback(&to.parse()?, "before")?;
                Ok(Vec::new())
            }
            _ => Err(lacks(self, "such operation")),
        }
    }

    fn store(&self) -> marram_vfs::Result<&dyn Store> {
        self.store.as_deref().ok_or(marram_vfs::Error::NotFound)
    }
}

impl Snapshots for Plain {
    fn names(
        &self,
        dataset: &DatasetName,
        directory: ControlDirectory,
    ) -> marram_vfs::Result<Vec<String>> {
        members::names(self.store()?, dataset, directory)
    }

    fn find(
        &self,
        dataset: &DatasetName,
        directory: ControlDirectory,
        name: &str,
    ) -> marram_vfs::Result<Member> {
        members::find(self.store()?, dataset, directory, name)
    }

    fn compare(
        &self,
        _order: &CompareOrder,
        _visit: &mut dyn FnMut(DifferenceRow) -> Result<()>,
    ) -> Result<()> {
        Err(lacks(self, "comparison"))
    }
}

impl Volume for Model {}

impl Home for Plain {
    fn kind(&self) -> &'static str {
        "test"
    }

    fn id(&self) -> String {
        "0123456789abcdef".to_owned()
    }

    fn path(&self) -> &Path {
        &self.folder
    }

    fn identity(&self) -> Identity {
        Identity::of(&self.folder).unwrap()
    }

    fn open(&self, source: &Source, options: VolumeOptions) -> Result<Opened> {
        (self.open)(source, options)
    }

    fn perform(
        &self,
        operation: &Operation,
        _author: Option<&Author>,
        mounts: Option<&dyn Mounts>,
    ) -> Result<Answer> {
        match (operation, &self.store) {
            (Operation::Status, _) => Ok(Answer::Status(Box::new(StatusReport {
                pool: self.folder.clone(),
                health: "online".to_owned(),
                ..StatusReport::default()
            }))),
            (operation, Some(store)) => {
                let sources = self.perform_on(&**store, operation)?;
                if let Some(mounts) = mounts {
                    mounts.members_changed(&sources);
                }
                Ok(Answer::Done)
            }
            _ => Err(lacks(self, "such operation")),
        }
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn is_halted(&self) -> bool {
        false
    }

    fn held_back_bytes(&self) -> Option<u64> {
        None
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }

    fn close_for_good(&self) -> Result<()> {
        Ok(())
    }

    fn unlock(&self) {}

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        self.store.is_some().then_some(self)
    }
}

/// A home that is mounted in a folder of its own; the mount goes with it.
struct Mounted {
    daemon: Shared,
    directory: PathBuf,
    _folder: tempfile::TempDir,
}

impl Mounted {
    /// `None` where nothing can be mounted.
    fn new(open: Open, store: Option<Arc<dyn Store>>) -> Option<Mounted> {
        if !paths::is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: mounting needs root and /dev/fuse");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("marram-test-").tempdir().unwrap();
        let directory = folder.path().join("mnt");
        fs::create_dir(&directory).unwrap();
        let log = Log::to_file(&folder.path().join("log")).unwrap();
        let home = Arc::new(Plain { folder: folder.path().to_owned(), open, store });
        let daemon = Arc::new(Daemon::new(home, OpenMode::for_command(false), log));
        let options = MountOptions { block_device: BlockDevice::Off, ..MountOptions::default() };
        let request = MountRequest { directory: directory.clone(), options };
        let report = mount(&daemon, &request).unwrap();
        assert_eq!((report.source.as_str(), &report.directory), ("root", &directory));
        Some(Mounted { daemon: Shared(daemon), directory, _folder: folder })
    }

    fn perform(&self, operation: Operation) -> Result<Answer> {
        self.daemon.handle(Request::Perform(operation))
    }

    /// Files and directories are made, read, renamed and removed as on any mount.
    fn holds_files(&self) {
        let path = |name: &str| self.directory.join(name);
        let content: Vec<u8> = (0..300_000_u32).map(|at| at as u8).collect();
        fs::write(path("file"), &content).unwrap();
        assert_eq!(fs::read(path("file")).unwrap(), content);
        fs::create_dir(path("directory")).unwrap();
        fs::rename(path("file"), path("directory/moved")).unwrap();
        assert_eq!(fs::metadata(path("directory/moved")).unwrap().len(), 300_000);
        fs::remove_file(path("directory/moved")).unwrap();
        fs::remove_dir(path("directory")).unwrap();
        assert_eq!(fs::read_dir(&self.directory).unwrap().count(), 0);
        let has_members = self.daemon.0.home.snapshots().is_some();
        assert_eq!(path(".marram").exists(), has_members);
    }

    /// A snapshot and a fork are seen below the mount, and neither they nor the mount change with
    /// each other.
    fn keeps_states_apart(&self) {
        let path = |name: &str| self.directory.join(name);
        let read = |name: &str| fs::read_to_string(path(name)).unwrap();
        fs::write(path("file"), "before").unwrap();
        let snapshot = Operation::Snapshot { dataset: "root".into(), snapshot: "s".into() };
        self.perform(snapshot).unwrap();
        fs::write(path("file"), "after").unwrap();
        fs::write(path("new"), "new").unwrap();
        assert_eq!(read(".marram/snapshots/s/file"), "before");
        assert!(!path(".marram/snapshots/s/new").exists());
        let refused = fs::write(path(".marram/snapshots/s/file"), "x").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        let root = Ino::ROOT.0;
        let fork = Operation::Fork { dataset: "root".into(), name: "work".into(), root };
        self.perform(fork).unwrap();
        assert_eq!(read(".marram/forks/work/file"), "after");
        fs::write(path(".marram/forks/work/file"), "the fork's").unwrap();
        fs::remove_file(path("new")).unwrap();
        assert_eq!(read("file"), "after");
        assert_eq!(read(".marram/forks/work/file"), "the fork's");
        assert_eq!(read(".marram/forks/work/new"), "new");
        assert_eq!(read(".marram/snapshots/s/file"), "before");
    }

    /// The daemon tells how the home is, and refuses by name what the home does not have.
    fn answers(&self) {
        let Answer::Status(status) = self.perform(Operation::Status).unwrap() else { panic!() };
        assert_eq!((status.health.as_str(), status.mounts.len()), ("online", 1));
        let snapshot = Operation::Snapshot { dataset: "root".into(), snapshot: "s".into() };
        let refused = self.perform(snapshot).unwrap_err();
        assert!(refused.message.contains("is a test, which has no"), "{refused}");
        let order = SendOrder { snapshot: "root@s".to_owned(), base: None, resume: None };
        let refused = self.daemon.send(&order, &mut Vec::new()).unwrap_err();
        assert!(refused.message.contains("has no streams"), "{refused}");
        assert!(unmount(&self.daemon.0, Path::new("/nowhere"), false).is_err());
    }

    fn ends(self) {
        let Mounted { daemon: Shared(daemon), directory, .. } = self;
        let answer = unmount(&daemon, &directory, false).unwrap();
        let Answer::Unmounted { mounts_left, not_durable, used_elsewhere } = answer else {
            panic!("{answer:?}")
        };
        assert_eq!((mounts_left, not_durable, used_elsewhere), (0, None, false));
    }
}

#[test]
fn a_file_system_that_is_no_store_is_mounted() {
    let model = Arc::new(Model::new(Arc::new(SystemClock)));
    let open = move |_: &Source, _: VolumeOptions| {
        let volume: Arc<dyn Volume> = model.clone();
        Ok(Opened { volume, root: Ino::ROOT, access_times: AccessTimes::Never })
    };
    let Some(mounted) = Mounted::new(Box::new(open), None) else { return };
    mounted.holds_files();
    mounted.answers();
    mounted.ends();
}

#[test]
fn a_store_that_is_no_pool_is_mounted() {
    let store = MemoryStore::default();
    let open = move |source: &Source, options: VolumeOptions| {
        open_view(store.open(source)?, (source.to_string(), Ino::ROOT), options)
    };
    let Some(mounted) = Mounted::new(Box::new(open), None) else { return };
    mounted.holds_files();
    mounted.answers();
    mounted.ends();
}

#[test]
fn a_store_without_any_capability_is_mounted_with_its_snapshots_and_forks() {
    let store: Arc<dyn Store> = Arc::new(MinimalStore::default());
    let opening = Arc::clone(&store);
    let open = move |source: &Source, options: VolumeOptions| {
        let root = Ino(opening.report(source)?.root_object);
        open_view(opening.open(source)?, (source.to_string(), root), options)
    };
    let Some(mounted) = Mounted::new(Box::new(open), Some(store)) else { return };
    mounted.holds_files();
    mounted.keeps_states_apart();
    let rollback = Operation::Rollback { to: "root@s".to_owned() };
    let refused = mounted.perform(rollback).unwrap_err();
    assert!(refused.message.contains("has no rollback"), "{refused}");
    mounted.ends();
}
