//! The life of a mount: how it shows, how it ends, what a dead one leaves.

use crate::fixture::{Mounted, USER, can_mount, model, mounted, open_to_all, shell, transport};
use crate::proxy::Proxy;
use marram_fuse::{
    Event, MountError, MountOptions, TransportChoice, Unmount, clear_dead_mount, is_dead_mount,
    mount, mounts,
};
use marram_vfs::{FileSystem, Ino, Name};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// How long a dead server's connection may still be there.
const GONE: Duration = Duration::from_secs(5);

/// Tells the test program that it is to be a server that gets killed.
const SERVE_VARIABLE: &str = "MARRAM_FUSE_TEST_SERVE";

#[test]
fn the_table_of_mounts_tells_type_and_source() {
    let Some(mounted) = mounted() else { return };
    let entry = mounts().into_iter().find(|entry| entry.mountpoint == mounted.root()).unwrap();
    assert_eq!(entry.kind, "fuse.marram");
    assert_eq!(entry.source.to_str(), Some("the model"));
    mounted.end();
}

#[test]
fn a_mount_in_use_is_busy_unless_it_may_end_lazily() {
    let Some(mut mounted) = mounted() else { return };
    fs::write(mounted.path("f"), b"still here").unwrap();
    let file = File::open(mounted.path("f")).unwrap();
    let session = mounted.session.take().unwrap();
    let handle = session.handle();
    assert!(matches!(session.unmount(Unmount::WhenUnused), Err(MountError::Busy { .. })));
    session.unmount(Unmount::Lazily).unwrap();
    assert!(!mounted.path("f").exists());
    assert_eq!(std::io::read_to_string(&file).unwrap(), "still here");
    assert!(handle.is_served());
    drop(file);
    session.wait().unwrap();
    assert!(!handle.is_served());
    handle.unmount(Unmount::WhenUnused).unwrap();
}

#[test]
fn a_mount_that_ends_is_known_to_have_ended_before_its_last_work_is_done() {
    if !can_mount() {
        return;
    }
    let proxy = Proxy::new();
    let mut mounted = Mounted::with(proxy.clone(), |_| ());
    let session = mounted.session.take().unwrap();
    let handle = session.handle();
    assert!(handle.is_connected());
    proxy.sync_ms.store(1500, SeqCst);
    let slow = mounted.path("slow");
    let caller = std::thread::spawn(move || slow.exists());
    std::thread::sleep(Duration::from_millis(300));
    // By force, it ends in the middle of a request.
    let umount = Command::new("umount").args(["-f", "-l"]).arg(mounted.root()).status().unwrap();
    assert!(umount.success());
    assert!(handle.is_served(), "a thread is at work for it");
    assert!(!handle.is_connected());
    assert!(!caller.join().unwrap());
    proxy.sync_ms.store(0, SeqCst);
    session.wait().unwrap();
    assert!(!handle.is_connected());
}

#[test]
fn nothing_of_a_session_is_left_behind() {
    if !can_mount() {
        return;
    }
    let model = model();
    for _ in 0..5 {
        let mounted = Mounted::with(model.clone(), |options| options.threads = 8);
        fs::write(mounted.path("f"), b"x").unwrap();
        File::open(mounted.path("f")).unwrap().sync_all().unwrap();
        mounted.end();
        assert_eq!(Arc::strong_count(&model), 1, "a thread still has it");
    }
}

#[test]
fn a_read_only_mount_refuses_changes() {
    if !can_mount() {
        return;
    }
    let model = model();
    let mounted = Mounted::with(model.clone(), |_| ());
    fs::write(mounted.path("f"), b"x").unwrap();
    mounted.end();
    let mounted = Mounted::with(model, |options| options.read_only = true);
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"x");
    assert!(fs::write(mounted.path("g"), b"x").is_err());
    mounted.end();
}

#[test]
fn a_panic_fails_one_request_and_is_told() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with(Proxy::new(), |_| ());
    let error = fs::metadata(mounted.path("panic")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
    fs::write(mounted.path("f"), b"all others go on").unwrap();
    let events = std::mem::take(&mut *mounted.events.lock().unwrap());
    assert!(matches!(&events[..], [Event::Panicked { opcode: 1, ino: Ino::ROOT, message }]
        if message == "a planted panic"));
    mounted.end();
}

#[test]
fn changes_behind_the_kernels_back_are_seen_once_told() {
    if !can_mount() {
        return;
    }
    let model = model();
    let mounted = Mounted::with(model.clone(), |_| ());
    fs::write(mounted.path("f"), b"old").unwrap();
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"old");
    assert!(!mounted.path("g").exists());
    let name = |text: &'static str| Name::new(text.as_bytes()).unwrap();
    let ino = model.lookup(Ino::ROOT, name("f")).unwrap().ino;
    model.write(ino, 0, b"new", Default::default()).unwrap();
    model.link(ino, Ino::ROOT, name("g")).unwrap();
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"old", "the kernel trusts its cache");
    let handle = mounted.session.as_ref().unwrap().handle();
    handle.notify_inode(ino, &(0..3));
    handle.notify_entry(Ino::ROOT, name("g"));
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"new");
    assert!(mounted.path("g").exists());
    mounted.end();
}

#[test]
fn the_kernel_forgets_only_the_pages_that_it_is_told_of() {
    if !can_mount() {
        return;
    }
    let model = model();
    let mounted = Mounted::with(model.clone(), |_| ());
    let path = mounted.path("f");
    let page_bytes = 4096;
    fs::write(&path, vec![b'a'; 3 * page_bytes]).unwrap();
    let firsts = || {
        let content = fs::read(&path).unwrap();
        content.chunks(page_bytes).map(|page| char::from(page[0])).collect::<String>()
    };
    assert_eq!(firsts(), "aaa");
    let ino = model.lookup(Ino::ROOT, Name::new(b"f").unwrap()).unwrap().ino;
    model.write(ino, 0, &vec![b'b'; 3 * page_bytes], Default::default()).unwrap();
    let handle = mounted.session.as_ref().unwrap().handle();
    handle.notify_inode(ino, &(0..0));
    assert_eq!(firsts(), "aaa", "only its attributes have changed");
    handle.notify_inode(ino, &(5000..5001));
    assert_eq!(firsts(), "aba");
    handle.notify_inode(ino, &(8192..u64::MAX));
    assert_eq!(firsts(), "abb");
    handle.notify_inode(ino, &(0..4096));
    assert_eq!(firsts(), "bbb");
    mounted.end();
}

#[test]
fn a_block_device_mount_is_durable_when_unmount_returns() {
    let Some(device) = LoopDevice::new() else { return };
    let proxy = Proxy::new();
    let path = device.path.clone();
    let told = Arc::new(AtomicBool::new(false));
    let mounted = Mounted::with(proxy.clone(), |options| {
        options.block_device = Some(path.into());
        let told = Arc::clone(&told);
        options.on_destroyed = Arc::new(move || {
            std::thread::sleep(Duration::from_millis(50));
            told.store(true, SeqCst);
        });
    });
    let entry = mounts().into_iter().find(|entry| entry.mountpoint == mounted.root()).unwrap();
    assert_eq!(entry.kind, "fuseblk.marram");
    assert_eq!(entry.source.to_str(), Some(device.path.as_str()));
    fs::write(mounted.path("f"), b"x").unwrap();
    rustix::fs::syncfs(File::open(mounted.root()).unwrap()).unwrap();
    assert_eq!(proxy.full_syncs.load(SeqCst), 1, "syncfs reaches the file system");

    let second = tempfile::tempdir().unwrap();
    let mut options = MountOptions::new(second.path(), "x");
    options.block_device = Some(device.path.clone().into());
    let refused = mount(model(), options).unwrap_err();
    assert!(matches!(refused, MountError::DeviceMounted { .. }), "{refused}");

    proxy.sync_ms.store(100, SeqCst);
    let before = proxy.full_syncs.load(SeqCst);
    let session = mounted.session.as_ref().unwrap();
    let handle = session.handle();
    assert!(!handle.is_destroyed() && !told.load(SeqCst));
    session.unmount(Unmount::WhenUnused).unwrap();
    assert!(proxy.full_syncs.load(SeqCst) > before, "umount waits for the file system");
    assert!(handle.is_destroyed() && told.load(SeqCst), "nobody can have it any more");
    mounted.end();
}

/// A small loop device that goes away with its test.
struct LoopDevice {
    path: String,
    _image: tempfile::NamedTempFile,
}

impl LoopDevice {
    fn new() -> Option<LoopDevice> {
        if !can_mount() {
            return None;
        }
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(1 << 20).unwrap();
        let made = Command::new("losetup").args(["-f", "--show"]).arg(image.path()).output();
        let path = made.ok().filter(|output| output.status.success());
        let path = path.map(|output| String::from_utf8(output.stdout).unwrap().trim().to_owned());
        if path.is_none() {
            eprintln!("skipped: needs loop devices");
        }
        Some(LoopDevice { path: path?, _image: image })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _left_over = Command::new("losetup").arg("-d").arg(&self.path).status();
    }
}

/// Not a test: what the tests below run in a process of its own.
#[test]
fn served_by_a_process_that_gets_killed() {
    if let Some(mountpoint) = std::env::var_os(SERVE_VARIABLE) {
        let mut options = MountOptions::new(mountpoint, "killed");
        options.transport = transport();
        mount(model(), options).unwrap().wait().unwrap();
    }
}

fn server(mountpoint: &Path, uid: u32) -> Child {
    let server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sessions::served_by_a_process_that_gets_killed"])
        .env(SERVE_VARIABLE, mountpoint)
        .stdout(Stdio::null())
        .uid(uid)
        .gid(uid)
        .spawn()
        .unwrap();
    wait_until(|| mounts().iter().any(|entry| entry.mountpoint == mountpoint));
    server
}

fn wait_until(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(10), "it does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_server_leaves_a_dead_mount_that_can_be_cleared() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut server = server(directory.path(), 0);
    fs::write(directory.path().join("f"), b"x").unwrap();
    assert!(!is_dead_mount(directory.path()));
    assert_eq!(clear_dead_mount(directory.path()).unwrap(), 0, "a living one is left alone");
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(is_dead_mount(directory.path()));
    let write = || fs::write(directory.path().join("g"), b"x").unwrap_err().raw_os_error();
    let begin = Instant::now();
    while write() != Some(107) {
        // With io_uring the connection outlives the process by a moment.
        assert!(transport() != TransportChoice::Classic && begin.elapsed() < GONE, "{:?}", write());
    }
    assert_eq!(clear_dead_mount(directory.path()).unwrap(), 1);
    assert!(!is_dead_mount(directory.path()));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_user_mounts_through_fusermount() {
    if !can_mount() {
        return;
    }
    if fs::metadata("/dev/fuse").unwrap().mode() & 0o006 != 0o006 {
        eprintln!("skipped: /dev/fuse is not for users here");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    open_to_all(directory.path());
    let mountpoint = directory.path().join("mnt");
    fs::create_dir(&mountpoint).unwrap();
    std::os::unix::fs::chown(&mountpoint, Some(USER), Some(USER)).unwrap();
    let mut server = server(&mountpoint, USER);
    let entry = mounts().into_iter().find(|entry| entry.mountpoint == mountpoint).unwrap();
    assert_eq!((entry.kind.as_str(), entry.source.to_str()), ("fuse.marram", Some("killed")));
    let used = shell(&mountpoint, USER, "stat . && echo x | cat > /dev/null");
    assert!(used.status.success(), "{used:?}");
    let unmounted = shell(directory.path(), USER, "fusermount3 -u mnt");
    assert!(unmounted.status.success(), "{unmounted:?}");
    assert!(server.wait().unwrap().success());
}

/// How many descriptors of this process ask for short latencies.
fn latency_holds() -> usize {
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.filter(|target| target == std::path::Path::new("/dev/cpu_dma_latency")).count()
}

#[test]
fn processors_are_kept_awake_while_requests_flow_and_only_then() {
    if !can_mount() || !marram_fuse::can_be_wakeful() {
        return;
    }
    let mounted = Mounted::with(model(), |options| options.wakeful = true);
    let until = |count: usize, meanwhile: &dyn Fn()| {
        let begin = Instant::now();
        while latency_holds() != count {
            assert!(begin.elapsed() < Duration::from_secs(20), "waited in vain");
            meanwhile();
        }
    };
    assert_eq!(latency_holds(), 0);
    until(1, &|| fs::write(mounted.path("f"), b"x").unwrap());
    until(0, &|| std::thread::sleep(Duration::from_millis(10)));
    mounted.end();
}
