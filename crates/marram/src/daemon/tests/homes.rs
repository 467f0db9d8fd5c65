//! Homes of a few dozen lines, mounted by the daemon as any other: a file system that is no store,
//! and a store that is no pool. Further ones go here.

use crate::control::protocol::{
    Answer, Author, MountRequest, Operation, Request, SendOrder, StatusReport,
};
use crate::control::server::Service;
use crate::daemon::Log;
use crate::daemon::mounts::mount;
use crate::daemon::service::{Shared, unmount};
use crate::daemon::state::Daemon;
use crate::engine::home::lacks;
use crate::engine::posix::open_view;
use crate::engine::volume::{Opened, VolumeOptions};
use crate::engine::{Home, Mounts, OpenMode, Volume};
use crate::error::{Kind, Result};
use crate::identity::Identity;
use crate::options::{AccessTimes, BlockDevice, MountOptions};
use crate::paths;
use marram_model::Model;
use marram_store::memory::MemoryStore;
use marram_store::{Source, Store};
use marram_vfs::{Ino, SystemClock};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a home of the tests opens a dataset.
type Open = Box<dyn Fn(&Source, VolumeOptions) -> Result<Opened> + Send + Sync>;

/// A home that has nothing but file systems.
struct Plain {
    folder: PathBuf,
    open: Open,
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
        _mounts: Option<&dyn Mounts>,
    ) -> Result<Answer> {
        match operation {
            Operation::Status => Ok(Answer::Status(Box::new(StatusReport {
                pool: self.folder.clone(),
                health: "online".to_owned(),
                ..StatusReport::default()
            }))),
            _ => Err(lacks(self, "such operation")),
        }
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn is_halted(&self) -> bool {
        false
    }

    fn held_back_bytes(&self) -> u64 {
        0
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }

    fn close_for_good(&self) -> Result<()> {
        Ok(())
    }

    fn unlock(&self) {}
}

/// A home that is mounted in a folder of its own; the mount goes with it.
struct Mounted {
    daemon: Shared,
    directory: PathBuf,
    _folder: tempfile::TempDir,
}

impl Mounted {
    /// `None` where nothing can be mounted.
    fn new(open: Open) -> Option<Mounted> {
        if !paths::is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: mounting needs root and /dev/fuse");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("marram-test-").tempdir().unwrap();
        let directory = folder.path().join("mnt");
        fs::create_dir(&directory).unwrap();
        let log = Log::to_file(&folder.path().join("log")).unwrap();
        let home = Arc::new(Plain { folder: folder.path().to_owned(), open });
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
        assert!(!path(".marram").exists(), "it has no snapshots");
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
        let missing = unmount(&self.daemon.0, Path::new("/nowhere"), false).unwrap_err();
        assert_eq!(missing.kind, Kind::NotFound);
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
    let Some(mounted) = Mounted::new(Box::new(open)) else { return };
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
    let Some(mounted) = Mounted::new(Box::new(open)) else { return };
    mounted.holds_files();
    mounted.answers();
    mounted.ends();
}
