//! How requests come makes no difference but in time. Run with `MARRAM_TEST_TRANSPORT=io_uring` and
//! the kernel's parameter set, all tests of this program are about requests over io_uring.

use crate::fixture::{Mounted, can_mount, model, transport};
use crate::proxy::Proxy;
use marram_fuse::{
    MountError, MountOptions, TransportChoice, TransportInUse, Unmount, mount, mounts,
};
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// How long slow requests take.
const SLOW: Duration = Duration::from_secs(3);

fn is_offered() -> bool {
    let parameter = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    parameter.is_ok_and(|value| value.trim() == "Y")
}

#[test]
fn the_transport_is_the_one_that_was_asked_for() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with(model(), |options| options.transport = TransportChoice::Classic);
    let in_use = |mounted: &Mounted| mounted.session.as_ref().unwrap().handle().transport();
    assert_eq!(in_use(&mounted), TransportInUse::Classic);
    mounted.end();
    if is_offered() {
        let ring = |options: &mut MountOptions| options.transport = TransportChoice::IoUring;
        let mounted = Mounted::with(model(), ring);
        assert_eq!(in_use(&mounted), TransportInUse::IoUring);
        fs::write(mounted.path("f"), b"x").unwrap();
        mounted.end();
    } else {
        let folder = tempfile::tempdir().unwrap();
        let mut options = MountOptions::new(folder.path(), "x");
        options.transport = TransportChoice::IoUring;
        let refused = mount(model(), options).unwrap_err();
        assert!(matches!(refused, MountError::IoUring { .. }), "{refused}");
        assert!(refused.to_string().contains("enable_uring"), "{refused}");
        assert!(mounts().iter().all(|entry| entry.mountpoint != folder.path()));
    }
}

#[test]
fn large_transfers_arrive_whole() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::with(model(), |_| ());
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap();
    let mut open = File::options();
    let open = open.read(true).write(true).create(true).custom_flags(direct);
    let file = open.open(mounted.path("f")).unwrap();
    let mut space = vec![0_u8; (3 << 20) + 4096];
    let begin = space.as_ptr().align_offset(4096);
    let data = &mut space[begin..begin + (3 << 20)];
    data.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
    file.write_all_at(data, 4096).unwrap();
    data.fill(0);
    file.read_exact_at(data, 4096).unwrap();
    assert!(data.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
    drop(file);
    mounted.end();
}

/// A mount of a file system in which some names take long to find.
fn slow_mount(threads: usize) -> (Arc<Proxy>, Mounted) {
    let proxy = Proxy::new();
    let mounted = Mounted::with(proxy.clone(), |options| {
        options.threads = threads;
    });
    proxy.sync_ms.store(u64::try_from(SLOW.as_millis()).unwrap(), SeqCst);
    (proxy, mounted)
}

/// Programs that ask for a slow name each, all on the first processor.
fn slow_programs(mounted: &Mounted, count: usize) -> Vec<Child> {
    let one = |number| {
        let mut program = Command::new("taskset");
        program.args(["-c", "0", "stat"]).arg(mounted.path(&format!("slow{number}")));
        program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let programs = (0..count).map(one).collect();
    std::thread::sleep(Duration::from_millis(500));
    programs
}

#[test]
fn slow_requests_leave_the_others_of_their_processor_alone() {
    if !can_mount() {
        return;
    }
    let (proxy, mounted) = slow_mount(16);
    let began = Instant::now();
    let programs = slow_programs(&mounted, 8);
    let quick =
        Command::new("taskset").args(["-c", "0", "stat", "-f"]).arg(mounted.root()).output();
    assert!(quick.unwrap().status.success());
    assert!(began.elapsed() < SLOW, "{:?}", began.elapsed());
    for mut program in programs {
        program.wait().unwrap();
    }
    assert!(began.elapsed() < SLOW * 2, "they are served side by side: {:?}", began.elapsed());
    // Other programs of the machine look up names on all mounts now and then.
    assert!(proxy.lookups.load(SeqCst) >= 8);
    proxy.sync_ms.store(0, SeqCst);
    mounted.end();
}

#[test]
fn many_killed_programs_go_and_what_they_asked_for_is_forgotten() {
    if !can_mount() {
        return;
    }
    let (proxy, mounted) = slow_mount(16);
    let mut programs = slow_programs(&mounted, 12);
    let began = Instant::now();
    programs.iter_mut().for_each(|program| program.kill().unwrap());
    for program in &mut programs {
        program.wait().unwrap();
    }
    assert!(began.elapsed() < SLOW - Duration::from_secs(1), "{:?}", began.elapsed());
    fs::write(mounted.path("f"), b"others go on").unwrap();
    std::thread::sleep(SLOW);
    proxy.sync_ms.store(0, SeqCst);
    for round in 0..100 {
        fs::write(mounted.path(&round.to_string()), b"and on").unwrap();
    }
    mounted.end();
}

#[test]
fn an_aborted_connection_ends_the_session_and_everybodys_wait() {
    if !can_mount() {
        return;
    }
    let (_proxy, mut mounted) = slow_mount(4);
    let device = rustix::fs::stat(mounted.root()).unwrap().st_dev;
    let programs = slow_programs(&mounted, 3);
    let connection = format!("/sys/fs/fuse/connections/{}", rustix::fs::minor(device));
    if let Err(error) = fs::write(format!("{connection}/abort"), "1") {
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        eprintln!("skipped: needs fusectl on /sys/fs/fuse/connections");
        return;
    }
    for mut program in programs {
        assert!(!program.wait().unwrap().success());
    }
    let session = mounted.session.take().unwrap();
    let handle = session.handle();
    handle.unmount(Unmount::Lazily).unwrap();
    session.wait().unwrap();
    assert!(!handle.is_served());
}

#[test]
fn mounts_come_and_go_under_load() {
    if !can_mount() {
        return;
    }
    for _ in 0..10 {
        let mounted = Mounted::with(model(), |_| ());
        let path = mounted.path("f");
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let path = path.with_file_name(thread.to_string());
                scope.spawn(move || {
                    for _ in 0..20 {
                        fs::write(&path, b"x").unwrap();
                        File::open(&path).unwrap().sync_all().unwrap();
                    }
                });
            }
        });
        let wanted = transport();
        let in_use = mounted.session.as_ref().unwrap().handle().transport();
        assert!(wanted != TransportChoice::IoUring || in_use == TransportInUse::IoUring);
        mounted.end();
    }
}
