//! A mounted file system that goes away with its test.

use marram_fuse::{Event, MountOptions, Session, TransportChoice, Unmount, mount};
use marram_model::Model;
use marram_vfs::{FileSystem, SystemClock};
use rustix::fs::{Access, access};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// An ordinary user that the system knows, as fusermount3 wants it: nobody.
pub(crate) const USER: u32 = 65_534;

pub(crate) struct Mounted {
    pub(crate) session: Option<Session>,
    pub(crate) events: Arc<Mutex<Vec<Event>>>,
    directory: TempDir,
}

/// Whether mounts can be made here; says why not.
pub(crate) fn can_mount() -> bool {
    let possible = rustix::process::geteuid().is_root()
        && access("/dev/fuse", Access::READ_OK | Access::WRITE_OK).is_ok();
    if !possible {
        eprintln!("skipped: needs root and /dev/fuse");
    }
    possible
}

pub(crate) fn model() -> Arc<Model> {
    Arc::new(Model::new(Arc::new(SystemClock)))
}

/// How requests come: as `MARRAM_TEST_TRANSPORT` says, so that all tests can run over either way.
pub(crate) fn transport() -> TransportChoice {
    match std::env::var("MARRAM_TEST_TRANSPORT").as_deref() {
        Ok("io_uring") => TransportChoice::IoUring,
        Ok("classic") => TransportChoice::Classic,
        Ok(other) => panic!("MARRAM_TEST_TRANSPORT={other}"),
        Err(_) => TransportChoice::Auto,
    }
}

/// Mounts a fresh model, or `None` where that is impossible.
pub(crate) fn mounted() -> Option<Mounted> {
    can_mount().then(|| Mounted::with(model(), |_| ()))
}

impl Mounted {
    pub(crate) fn with(
        file_system: Arc<dyn FileSystem>,
        change: impl FnOnce(&mut MountOptions),
    ) -> Mounted {
        let directory = tempfile::Builder::new().prefix("marram-fuse-").tempdir().unwrap();
        let mountpoint = directory.path().join("mnt");
        std::fs::create_dir(&mountpoint).unwrap();
        open_to_all(directory.path());
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let mut options = MountOptions::new(mountpoint, "the model");
        options.allow_other = true;
        options.transport = transport();
        options.on_event = Arc::new(move |event| sink.lock().unwrap().push(event));
        change(&mut options);
        let session = mount(file_system, options).unwrap();
        Mounted { session: Some(session), events, directory }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Unmounts and waits for the end; nothing may still be in use, but for a moment by the child
    /// of another test, which holds copies of all open files until it runs its program.
    pub(crate) fn end(mut self) {
        let session = self.session.take().unwrap();
        let begin = Instant::now();
        while let Err(error) = session.unmount(Unmount::WhenUnused) {
            assert!(begin.elapsed() < Duration::from_secs(2), "{error}");
            std::thread::sleep(Duration::from_millis(10));
        }
        session.wait().unwrap();
        assert!(self.events.lock().unwrap().is_empty(), "{:?}", self.events);
    }
}

/// Lets everyone through a temporary directory.
pub(crate) fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a shell command in `directory`, as root or as [`USER`].
pub(crate) fn shell(directory: &Path, uid: u32, command: &str) -> Output {
    Command::new("sh")
        .args(["-c", command])
        .current_dir(directory)
        .uid(uid)
        .gid(uid)
        .output()
        .unwrap()
}

/// The output of a command that must succeed.
pub(crate) fn shell_ok(directory: &Path, uid: u32, command: &str) -> String {
    let output = shell(directory, uid, command);
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Makes the kernel forget what it has cached and nobody uses. Where the machine does not allow
/// that, tests see less of the file system and are right all the same.
pub(crate) fn drop_caches() {
    rustix::fs::sync();
    let _refused_on_some_machines = std::fs::write("/proc/sys/vm/drop_caches", "3");
}
