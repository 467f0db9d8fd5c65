//! The daemon in the test's own process: for moments that a command comes to only when a device
//! fails, or when threads meet.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod homes;
mod schedules;

use super::Log;
use super::mounts::mount;
use super::service::unmounted;
use super::state::Daemon;
use crate::control::protocol::{Answer, Author, MountRequest, Operation, UnmountedPlace};
use crate::engine::history::rollback;
use crate::engine::pool::PoolHome;
use crate::engine::{CreateRequest, Home, Mounts, OpenMode, create};
use crate::error::{Error, Kind};
use crate::mountinfo;
use crate::options::{BlockDevice, MountOptions};
use crate::paths;
use marram_posix::Posix;
use marram_store::{DatasetName, Lineage, Source, Store};
use std::any::Any;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// How long a thread has to come to a point that it must not reach. If it is slower, a test that
/// should fail may pass; none that should pass fails.
const ARRIVAL: Duration = Duration::from_millis(300);

/// A daemon with a pool in a folder of its own; what it has mounted goes with it.
struct Bench {
    daemon: Arc<Daemon>,
    home: Arc<PoolHome>,
    mount: MountRequest,
    _folder: TempDir,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::Builder::new().prefix("marram-test-").tempdir().unwrap();
        let pool = folder.path().join("work.pool");
        create(&pool, &CreateRequest { size_bytes: Some(64 << 20), ..CreateRequest::default() })
            .unwrap();
        let directory = folder.path().join("mnt");
        fs::create_dir(&directory).unwrap();
        let options = MountOptions { block_device: BlockDevice::Off, ..MountOptions::default() };
        let mount = MountRequest { directory, options };
        let log = Log::to_file(&folder.path().join("log")).unwrap();
        let mode = OpenMode::for_command(false);
        let home = Arc::new(PoolHome::open(&pool, &mode).unwrap());
        let daemon = Arc::new(Daemon::new(Arc::clone(&home) as Arc<dyn Home>, mode, log));
        Bench { daemon, home, mount, _folder: folder }
    }

    /// With a mount; `None` where nothing can be mounted.
    fn mounted() -> Option<Bench> {
        if !paths::is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("skipped: mounting needs root and /dev/fuse");
            return None;
        }
        let bench = Bench::new();
        mount(&bench.daemon, &bench.mount).unwrap();
        Some(bench)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mount.directory.join(name)
    }

    /// A file that was changed, and one that was made, since the snapshot `s`. The kernel knows
    /// both as they are now.
    fn changed_since_snapshot(&self) {
        fs::write(self.path("changed"), "before").unwrap();
        self.home.pool().snapshot(&DatasetName::root(), "s").unwrap();
        fs::write(self.path("changed"), "after!").unwrap();
        fs::write(self.path("made"), "").unwrap();
        self.shows_the_change();
    }

    fn shows_the_change(&self) {
        assert_eq!(fs::read(self.path("changed")).unwrap(), b"after!");
        assert!(self.path("made").exists());
    }

    /// Lets the dataset go back to `s`, of which nobody tells the kernel; what it was is `kept`.
    fn go_back(&self) {
        let files = self.files();
        let to: Source = "root@s".parse().unwrap();
        let pool = self.home.pool();
        files.roll_back(|| Ok::<(), Error>(pool.rollback(&to, "kept")?)).unwrap();
    }

    /// The file system that the mount shows.
    fn files(&self) -> Arc<Posix> {
        let open: Arc<dyn Any + Send + Sync> = self.daemon.volume_of(&root()).unwrap();
        open.downcast().unwrap()
    }

    fn perform(&self, operation: &Operation) -> crate::error::Result<Answer> {
        let nobody = Author { user: 0, command: String::new(), bound: None };
        self.home.perform(operation, Some(&nobody), Some(&*self.daemon))
    }

    fn shows_the_snapshot(&self) {
        assert_eq!(fs::read(self.path("changed")).unwrap(), b"before");
        assert!(!self.path("made").exists());
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !self.daemon.mounts.reports().is_empty()
            && unmount(&self.daemon, &self.mount.directory, false).is_err()
        {
            unmount(&self.daemon, &self.mount.directory, true).unwrap();
        }
    }
}

/// Unmounts as a command does: first itself, and then the daemon learns of it.
fn unmount(
    daemon: &Daemon,
    directory: &Path,
    detached: bool,
) -> Result<Answer, marram_fuse::MountError> {
    let device = daemon.mounts.reports().first().and_then(|mount| mount.device).unwrap();
    marram_fuse::unmount(directory, detached)?;
    let (directory, namespace) = (directory.to_owned(), mountinfo::own_namespace());
    let place = UnmountedPlace { device, directory, namespace, detached };
    Ok(unmounted(daemon, &place))
}

fn root() -> Source {
    Source::live(DatasetName::root())
}

#[test]
fn an_operation_on_what_nobody_has_open_waits_for_work_on_what_was_just_closed() {
    let bench = Bench::new();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let step = bench.daemon.steps.begin();
        let operation = scope.spawn(|| {
            let shown = bench.home.shown(bench.home.pool(), &*bench.daemon);
            let opened_in_a_step =
                shown.on_whole(&root(), |_| Ok(!is_over.load(Ordering::Acquire)));
            assert_eq!(opened_in_a_step, Ok(false));
        });
        thread::sleep(ARRIVAL);
        is_over.store(true, Ordering::Release);
        drop(step);
        operation.join().unwrap();
    });
}

#[test]
fn what_cannot_be_looked_up_after_a_rollback_is_read_anew() {
    let Some(bench) = Bench::mounted() else { return };
    bench.changed_since_snapshot();
    bench.go_back();
    let failed = marram_vfs::Error::Damaged("a node of the tree".to_owned());
    let shown = bench.home.shown(bench.home.pool(), &*bench.daemon);
    shown.tell_changes(&root(), &bench.files(), Err(failed));
    bench.shows_the_snapshot();
}

#[test]
fn an_operation_that_fails_after_it_was_committed_is_shown() {
    let Some(bench) = Bench::mounted() else { return };
    bench.changed_since_snapshot();
    let directory = bench.path(".marram/snapshots");
    let names = || -> Vec<_> {
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!((names().len(), directory.join("kept").exists()), (1, false));
    let shown = bench.home.shown(bench.home.pool(), &*bench.daemon);
    let failed = shown.on_whole(&root(), |_| {
        bench.go_back();
        Err::<(), _>(Error::failed("a sync that came after it"))
    });
    failed.unwrap_err();
    bench.shows_the_snapshot();
    assert_eq!((names().len(), directory.join("kept").exists()), (2, true), "and what it was");
}

#[test]
fn the_undo_of_a_rollback_and_the_undo_of_that_are_shown() {
    let Some(bench) = Bench::mounted() else { return };
    bench.changed_since_snapshot();
    let perform = |operation: Operation| {
        let _told = bench.perform(&operation).unwrap();
    };
    perform(Operation::Rollback { to: "root@s".to_owned() });
    bench.shows_the_snapshot();
    perform(Operation::Undo { number: None, force: false });
    bench.shows_the_change();
    perform(Operation::Undo { number: None, force: false });
    bench.shows_the_snapshot();
}

#[test]
fn what_is_being_destroyed_is_opened_again_only_if_that_fails() {
    let Some(bench) = Bench::mounted() else { return };
    fs::write(bench.path("file"), "").unwrap();
    let pool = bench.home.pool();
    pool.snapshot(&DatasetName::root(), "s").unwrap();
    let snapshot: Source = "root@s".parse().unwrap();
    let file = bench.path(".marram/snapshots/s/file");
    let is_busy =
        || fs::metadata(&file).is_err_and(|error| error.kind() == ErrorKind::ResourceBusy);
    let first = bench.daemon.mounts.withhold(std::slice::from_ref(&snapshot));
    let second = bench.daemon.mounts.withhold(std::slice::from_ref(&snapshot));
    assert!(is_busy());
    drop(second);
    assert!(is_busy(), "another destruction goes on");
    drop(first);
    assert!(file.exists());

    let directory = bench.path("..").join("alone");
    fs::create_dir(&directory).unwrap();
    let withheld = bench.daemon.mounts.withhold(std::slice::from_ref(&snapshot));
    let options = MountOptions { snapshot: Some("s".to_owned()), ..bench.mount.options.clone() };
    let refused = mount(&bench.daemon, &MountRequest { directory, options }).unwrap_err();
    assert_eq!(refused.kind, Kind::InUse, "{refused}");
    drop(withheld);

    let used = pool.open(&snapshot).unwrap();
    let destroy = Operation::Destroy { sources: vec![snapshot.to_string()], dry_run: false };
    let destroy = || bench.perform(&destroy);
    assert_eq!(destroy().unwrap_err().kind, Kind::InUse);
    assert!(file.exists(), "it stays, and is shown again");
    drop(used);
    destroy().unwrap();
    assert!(!file.exists());
}

#[test]
fn what_others_go_on_looking_at_is_destroyed_at_once() {
    const FORKS: usize = 60;
    let Some(bench) = Bench::mounted() else { return };
    fs::write(bench.path("file"), "").unwrap();
    let pool = bench.home.pool();
    let (is_over, file) = (AtomicBool::new(false), bench.path(".marram/forks/f/file"));
    let destroyed = thread::scope(|scope| {
        let look = || {
            while !is_over.load(Ordering::Acquire) {
                let _there_or_not = fs::metadata(&file);
            }
        };
        (0..4).for_each(|_| drop(scope.spawn(look)));
        let name: DatasetName = "f".parse().unwrap();
        let destroyed = (0..FORKS).try_for_each(|number| {
            pool.fork(&DatasetName::root(), &name, marram_vfs::Ino::ROOT.0)?;
            let goes = match number % 2 {
                0 => Operation::Hide { sources: vec![name.to_string()] },
                _ => Operation::Undo { number: None, force: false },
            };
            bench.perform(&goes).map(|_| ())
        });
        is_over.store(true, Ordering::Release);
        destroyed
    });
    assert_eq!(destroyed, Ok(()));
}

#[test]
fn a_snapshot_that_goes_during_a_rollback_to_it_is_said_to_be_gone() {
    let bench = Bench::new();
    let pool = bench.home.pool();
    pool.snapshot(&DatasetName::root(), "s").unwrap();
    let snapshot: Source = "root@s".parse().unwrap();
    let unread = Error::from(marram_vfs::Error::Io("no dataset or snapshot".to_owned()));
    let failed = |goes: bool| {
        let gone = rollback(&**pool, &snapshot, |_| {
            if goes {
                pool.destroy(&snapshot, false)?;
            }
            Err(unread.clone())
        });
        gone.unwrap_err()
    };
    assert_eq!(failed(false), unread, "it is there");
    let gone = failed(true);
    assert_eq!(gone.kind, Kind::NotFound);
    assert!(gone.message.contains("root@s") && gone.hint.is_some(), "{gone:?}");
}

#[test]
fn what_is_mounted_in_a_mount_stays_when_any_member_may_have_come_or_gone() {
    let Some(bench) = Bench::mounted() else { return };
    let (place, name) = (bench.path("place"), bench.path("place/name"));
    fs::create_dir(&place).unwrap();
    fs::write(bench.path("under"), "").unwrap();
    if rustix::mount::mount_bind(bench.mount.directory.join(".marram"), &place).is_err() {
        return;
    }
    bench.daemon.all_members_changed();
    let is_bound = || place.join("snapshots").exists();
    let held = (0..3).all(|_| is_bound() && !name.exists());
    let _gone_if_it_has_not_held =
        rustix::mount::unmount(&place, rustix::mount::UnmountFlags::DETACH);
    assert!(held);
}
