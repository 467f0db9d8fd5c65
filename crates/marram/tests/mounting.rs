//! Pools on real mounts: commands, daemon, control socket and mount helpers together.

use crate::workbench::{Outcome, Workbench, can_mount, mounted, outcome};
use std::fs;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Whether anybody has the pool: the lock that every daemon takes.
fn is_free(pool: &Path) -> bool {
    fs::File::open(pool).expect("the pool is there").try_lock().is_ok()
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
    rustix::process::kill_process(pid, signal).expect("the daemon is there");
}

#[test]
fn what_is_written_is_there_after_a_remount_and_the_device_is_free_between() {
    let Some(bench) = mounted() else { return };
    fs::write(bench.path("mnt/file"), "content").unwrap();
    assert!(!is_free(&bench.path("work.pool")));
    let outcome = bench.run("unmount mnt").good();
    assert_eq!((outcome.out.as_str(), outcome.err.as_str()), ("", ""));
    assert!(bench.mounts().is_empty() && is_free(&bench.path("work.pool")));
    bench.run("mount work.pool mnt").good();
    assert_eq!(fs::read_to_string(bench.path("mnt/file")).unwrap(), "content");
    bench.run("umount work.pool").good();
}

#[test]
fn a_second_mount_without_a_block_device_is_refused_with_the_holder() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    bench.make_folder("mnt");
    bench.make_folder("two");
    bench.run("mount work.pool mnt -o blkdev=off").good();
    let pid = bench.daemon_pid("mnt").to_string();
    bench.run("mount work.pool two").refused(11, &["mounted", &pid]);
    bench.run("mount mnt two").refused(11, &["mounted", &pid]);
    bench.run("create work.pool --force").refused(11, &[&pid]);
    bench.run("mount work.pool two -o commit=30 --snapshot x").refused(2, &["commit=5"]);
    assert_eq!(bench.mounts().len(), 1);
    bench.run("unmount mnt").good();
}

/// Makes a control call by its number on a file, with bytes that it may change; prints them, or
/// the number of the error.
const CONTROL_CALL: &str = "import fcntl, os, sys
bytes_ = bytearray.fromhex(sys.argv[3]).ljust(int(sys.argv[4]), bytes(1))
try:
    fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[2], 16), bytes_, True)
    print(bytes_.rstrip(bytes(1)).decode())
except OSError as error:
    print('errno', error.errno)";

/// What a control call says; its argument is `bytes`, in hexadecimal, and zeros up to a length.
fn control(bench: &Workbench, path: &str, number: &str, bytes: &str, len: &str) -> String {
    let path = bench.path(path).display().to_string();
    let said = bench.host(&["python3", "-c", CONTROL_CALL, &path, number, bytes, len]).good();
    said.out.trim_end().to_owned()
}

#[test]
fn a_strict_mount_refuses_to_open_what_may_not_change() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    bench.make_folder("mnt");
    bench.run("mount work.pool mnt -o strictopen").good();
    let (frozen, log) = (bench.path("mnt/frozen"), bench.path("mnt/log"));
    fs::write(&frozen, "old").unwrap();
    fs::write(&log, "old").unwrap();
    let mark = |name: &str, flags: &str| control(&bench, name, "0x40086602", flags, "8");
    if mark("mnt/frozen", "10") == "errno 1" {
        eprintln!("skipped: needs the right to set flags");
        bench.run("unmount mnt").good();
        return;
    }
    mark("mnt/log", "20");
    let refused = |options: &mut fs::OpenOptions, path: &Path| {
        options.open(path).map(|_| ()).map_err(|error| error.raw_os_error()) == Err(Some(1))
    };
    let mut write = fs::OpenOptions::new();
    write.write(true);
    assert!(refused(&mut write, &frozen) && refused(&mut write, &log));
    assert!(refused(fs::OpenOptions::new().append(true), &frozen));
    assert!(!refused(fs::OpenOptions::new().append(true), &log));
    assert_eq!(fs::read_to_string(&frozen).unwrap(), "old");
    fs::write(bench.path("mnt/new"), "new").unwrap();
    mark("mnt/frozen", "00");
    mark("mnt/log", "00");
    fs::write(&frozen, "new").unwrap();
    assert_eq!(fs::read_to_string(&frozen).unwrap(), "new");
    bench.run("unmount mnt").good();
}

#[test]
fn a_pool_is_called_something_else() {
    let bench = Workbench::with_pool();
    bench.run("label work.pool first").good();
    assert_eq!(bench.run("label work.pool").good().out, "first\n");
    bench.run(&format!("label work.pool {}", "x".repeat(65))).refused(2, &["64 bytes"]);
    assert_eq!(bench.run("label work.pool --json").result()["label"], "first");
    if can_mount() {
        bench.make_folder("mnt");
        bench.run("mount work.pool mnt").good();
        let get = || control(&bench, "mnt", "0x81009431", "", "256");
        let set = |label: &str| {
            let bytes: String = label.bytes().map(|byte| format!("{byte:02x}")).collect();
            control(&bench, "mnt", "0x41009432", &bytes, "256")
        };
        assert_eq!(get(), "first");
        bench.run("label mnt second").good();
        assert_eq!(get(), "second");
        assert_eq!(set(&"x".repeat(65)), "errno 22");
        if set("third") != "errno 1" {
            assert_eq!(bench.run("label mnt").good().out, "third\n");
            let out = bench.run("log mnt --last 1").good().out;
            assert!(out.contains("\"third\"") && out.contains("FS_IOC_SETFSLABEL"), "{out}");
        }
        let last = get();
        bench.run("unmount mnt").good();
        assert_eq!(bench.run("label work.pool").good().out.trim_end(), last);
    }
    outcome(bench.command().args(["label", "work.pool", ""])).good();
    assert_eq!(bench.run("label work.pool").good().out, "");
    bench.run("check work.pool").good();
}

/// Whether the mounts of a bench are of block devices; without a free loop device they are not.
fn has_block_device(bench: &Workbench) -> bool {
    let has = bench.mounts().iter().all(|line| line.contains(" fuseblk.marram "));
    if !has {
        eprintln!("skipped: needs a loop device");
    }
    has
}

#[test]
fn a_second_mount_is_another_place_of_the_first() {
    let Some(bench) = mounted() else { return };
    if !has_block_device(&bench) {
        return;
    }
    bench.make_folder("two");
    fs::write(bench.path("mnt/file"), "content").unwrap();
    bench.run_as("mount.marram", "work.pool two -o noexec").good();
    let lines = bench.mounts();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(!lines[0].contains("noexec") && lines[1].contains("noexec"), "{lines:?}");
    assert_eq!(bench.daemon_pid("mnt"), bench.daemon_pid("two"));
    assert_eq!(
        bench.run("status work.pool --json").result()[0]["mounts"].as_array().unwrap().len(),
        2
    );
    // One file system: nothing that one place shows is out of date in the other.
    fs::rename(bench.path("two/file"), bench.path("two/moved")).unwrap();
    assert_eq!(fs::read_to_string(bench.path("mnt/moved")).unwrap(), "content");
    assert!(!bench.path("mnt/file").exists());
    fs::write(bench.path("mnt/moved"), "changed").unwrap();
    assert_eq!(fs::read_to_string(bench.path("two/moved")).unwrap(), "changed");

    bench.make_folder("three");
    for option in ["ro", "noatime", "writeback", "noallow_other", "blkdev=off"] {
        bench.run(&format!("mount work.pool three -o {option}")).refused(11, &["mounted", option]);
    }
    bench.run("mount work.pool two").refused(11, &["already"]);
    assert_eq!(bench.mounts().len(), 2);
    bench.run("unmount work.pool").good();
    assert!(bench.mounts().is_empty());
}

#[test]
fn of_two_places_whichever_is_unmounted_the_other_stays() {
    let Some(bench) = mounted() else { return };
    if !has_block_device(&bench) {
        return;
    }
    bench.make_folder("two");
    bench.run("mount work.pool two").good();
    bench.run("unmount mnt").good();
    fs::write(bench.path("two/x"), "1").unwrap();
    bench.run("mount work.pool mnt").good();
    bench.run_as("umount.fuseblk.marram", "two").good();
    assert_eq!(fs::read_to_string(bench.path("mnt/x")).unwrap(), "1");
    assert!(!is_free(&bench.path("work.pool")));
    bench.run("mount work.pool two").good();
    let held = fs::File::open(bench.path("two/x")).unwrap();
    bench.run("unmount two").refused(11, &["in use"]);
    bench.run("unmount mnt").good();
    drop(held);
    bench.run("mount work.pool mnt").good();
    bench.run("unmount work.pool").good();
    assert!(bench.mounts().is_empty() && is_free(&bench.path("work.pool")));
    bench.run("check work.pool").good();
}

#[test]
fn a_snapshot_and_a_clone_are_mounted_beside_the_live_tree() {
    let Some(bench) = mounted() else { return };
    fs::write(bench.path("mnt/file"), "before").unwrap();
    bench.run("snapshot mnt@a").good();
    fs::write(bench.path("mnt/file"), "after").unwrap();
    bench.run("clone mnt@a copy").good();
    bench.make_folder("snap");
    bench.make_folder("copy");
    bench.run("mount work.pool@a snap").good();
    bench.run("mount mnt copy --dataset copy").good();
    fs::write(bench.path("copy/file"), "other").unwrap();
    let read = |name: &str| fs::read_to_string(bench.path(name)).unwrap();
    assert_eq!((read("mnt/file"), read("snap/file")), ("after".into(), "before".into()));
    assert_eq!(read("copy/file"), "other");
    assert!(fs::write(bench.path("snap/new"), "").is_err());

    bench.run("snapshot snap@b").refused(2, &["never changes", "--dataset root"]);
    bench.run("destroy dataset mnt --dataset copy --yes").refused(11, &["copy"]);
    bench.run("destroy snapshot mnt@a --yes").refused(11, &["root@a"]);
    bench.run("snapshot copy@c").good();
    let list = bench.run("list mnt -H").good().out;
    assert!(list.contains("copy@c\tsnapshot"), "{list}");

    let status = bench.run("status mnt --json").result();
    assert_eq!(status[0]["mounts"].as_array().unwrap().len(), 3);
    bench.run("unmount copy").good();
    assert_eq!(bench.mounts().len(), 2);
    bench.run("unmount work.pool").good();
    assert!(bench.mounts().is_empty() && is_free(&bench.path("work.pool")));
}

#[test]
fn the_kind_of_access_lists_counts_from_the_next_mount_on() {
    let Some(bench) = mounted() else { return };
    let options = || bench.run("status mnt").good().out;
    assert!(options().contains("default_permissions"));
    bench.run("set mnt acl=nfsv4").good();
    assert!(options().contains("default_permissions"), "not before");
    bench.run("unmount mnt").good();
    for refused in ["writeback", "dev"] {
        let mount = format!("mount work.pool mnt -o {refused}");
        bench.run(&mount).refused(2, &[refused, "acl=nfsv4"]);
    }
    bench.run("mount work.pool mnt").good();
    assert!(!options().contains("default_permissions") && options().contains("nodev"));
    bench.run("set mnt acl=everything").refused(2, &["posix", "nfsv4", "off"]);
    bench.run("unmount mnt").good();
}

#[test]
fn commands_reach_the_daemon_from_below_the_mount() {
    let Some(bench) = mounted() else { return };
    bench.make_folder("mnt/deep/er");
    bench.run("set mnt/deep/er compression=zstd:3").good();
    let got = bench.run("get work.pool compression -H").good().out;
    assert_eq!(got, "root\tcompression\tzstd:3\tlocal\n");
    bench.run("sync mnt/deep").good();
    let grown = bench.run("grow mnt --size 256M --json").result();
    assert_eq!(grown["size_bytes"], 256 << 20);
    fs::write(bench.path("mnt/deep/big"), vec![7; 1 << 20]).unwrap();
    bench.run("unmount mnt").good();
}

#[test]
fn a_busy_mount_stays_unless_it_is_detached() {
    let Some(bench) = mounted() else { return };
    fs::write(bench.path("mnt/file"), "content").unwrap();
    let mut open = fs::File::open(bench.path("mnt/file")).unwrap();
    bench.run("unmount mnt").refused(11, &["in use", "--detach"]);
    assert_eq!(bench.mounts().len(), 1);
    bench.run("unmount --detach mnt").good();
    assert!(bench.mounts().is_empty());
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "content");
    drop(open);
    wait_until("the daemon lets go", || is_free(&bench.path("work.pool")));
}

#[test]
fn a_mount_that_is_bound_elsewhere_lives_on_there() {
    let Some(bench) = mounted() else { return };
    let other = bench.make_folder("other");
    let bind = || rustix::mount::mount_bind(bench.path("mnt"), &other).unwrap();
    bind();
    let silent = bench.run_as("umount.fuseblk.marram", "other").good();
    assert_eq!((silent.out.as_str(), silent.err.as_str()), ("", ""));
    assert_eq!(bench.mounts().len(), 1);
    bind();
    bench.run("unmount mnt").refused(3, &["still in use", "another place"]);
    fs::write(bench.path("other/file"), "content").unwrap();
    bench.run("unmount other").good();
    assert!(is_free(&bench.path("work.pool")), "the last place is gone");
    bench.run("mount work.pool mnt").good();
    assert_eq!(fs::read_to_string(bench.path("mnt/file")).unwrap(), "content");
    bench.run("unmount mnt").good();
}

#[test]
fn a_pool_is_made_anew_once_the_last_user_of_the_old_one_is_gone() {
    let Some(bench) = mounted() else { return };
    fs::write(bench.path("mnt/old"), "old").unwrap();
    bench.run_as("mkfs.marram", "-f work.pool").refused(1, &["in use by process"]);
    let open = fs::File::open(bench.path("mnt/old")).unwrap();
    bench.run("unmount --detach mnt").good();
    let closing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(open);
    });
    bench.run_as("mkfs.marram", "-f work.pool").good();
    closing.join().unwrap();
    bench.run("mount work.pool mnt").good();
    assert!(fs::read_dir(bench.path("mnt")).unwrap().next().is_none(), "the old content");
    bench.run("unmount mnt").good();
}

#[test]
fn whoever_comes_after_a_bare_umount_does_not_meet_its_daemon() {
    let Some(bench) = mounted() else { return };
    let other = bench.make_folder("other");
    for round in 0..5 {
        fs::write(bench.path("mnt/old"), vec![round; 1 << 20]).unwrap();
        rustix::mount::mount_bind(bench.path("mnt"), &other).unwrap();
        [&bench.path("mnt"), &other].iter().for_each(|place| umount(place));
        match round % 2 {
            0 => bench.run_as("fsck.marram", "-n work.pool").good(),
            _ => bench.run_as("mkfs.marram", "-f work.pool").good(),
        };
        bench.run("mount work.pool mnt").good();
        assert_eq!(bench.path("mnt/old").exists(), round % 2 == 0, "in round {round}");
    }
    bench.run("unmount mnt").good();
}

/// `umount(2)` of what nobody uses, but for a moment the child of another test: it has copies of
/// all open files until it runs its program, also of those that are closed here meanwhile.
fn umount(place: &Path) {
    let unmount = || rustix::mount::unmount(place, rustix::mount::UnmountFlags::empty());
    wait_until("nobody uses the mount", || match unmount() {
        Err(rustix::io::Errno::BUSY) => false,
        other => other.map(|()| true).expect("it is mounted"),
    });
}

/// The beginning of the pool's file: where it says what its last commit was.
fn beginning(bench: &Workbench) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    let mut pool = fs::File::open(bench.path("work.pool")).expect("the pool is there");
    pool.read_exact(&mut bytes).expect("a pool is larger");
    bytes
}

#[test]
fn nothing_is_written_to_a_pool_once_its_last_umount_has_come_back() {
    let Some(bench) = mounted() else { return };
    if !has_block_device(&bench) {
        return;
    }
    bench.make_folder("two");
    for round in 0..5 {
        bench.run("mount work.pool two").good();
        // What is synced goes to the intent log, and waits for a commit.
        fs::write(bench.path("mnt/synced"), vec![round; 1 << 20]).unwrap();
        fs::File::open(bench.path("mnt/synced")).unwrap().sync_all().unwrap();
        fs::write(bench.path("mnt/new"), [round]).unwrap();
        ["two", "mnt"].iter().for_each(|place| umount(&bench.path(place)));
        let left = beginning(&bench);
        wait_until("the daemon lets go", || is_free(&bench.path("work.pool")));
        assert!(beginning(&bench) == left, "written after the umount, in round {round}");
        bench.run("check work.pool").good();
        bench.run("mount work.pool mnt").good();
        assert_eq!(fs::read(bench.path("mnt/new")).unwrap(), [round]);
    }
    bench.run("unmount mnt").good();
}

/// A loop device on a file of a bench, for as long as it is there.
struct Attached<'b>(&'b Workbench, String);

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.0.host(&["losetup", "-d", &self.1]);
    }
}

#[test]
fn a_block_device_is_claimed_as_long_as_anything_of_its_pool_is_mounted() {
    let Some(bench) = mounted() else { return };
    bench.run("unmount mnt").good();
    let found = bench.host(&["losetup", "--show", "-f", "work.pool"]);
    if found.status != 0 {
        eprintln!("skipped: needs a loop device");
        return;
    }
    let device = Attached(&bench, found.out.trim().to_owned());
    let path = &device.1;
    let is_claimed = || {
        const EXCLUSIVELY: i32 = 0o200;
        let mut open = fs::OpenOptions::new();
        open.read(true).custom_flags(EXCLUSIVELY).open(path).is_err()
    };
    bench.make_folder("two");
    bench.run(&format!("create {path} --dataset other")).good();
    bench.run(&format!("mount {path} mnt")).good();
    bench.run(&format!("mount {path} two --dataset other")).good();
    assert!(is_claimed());
    bench.run("unmount mnt").good();
    wait_until("the daemon claims the device again", is_claimed);
    fs::write(bench.path("two/file"), "content").unwrap();
    bench.run("unmount two").good();
    assert!(!is_claimed());
}

#[test]
fn a_terminated_daemon_has_made_everything_durable() {
    let Some(bench) = mounted() else { return };
    fs::write(bench.path("mnt/file"), "content").unwrap();
    signal(bench.daemon_pid("mnt"), rustix::process::Signal::TERM);
    wait_until("the daemon lets go", || is_free(&bench.path("work.pool")));
    assert!(bench.mounts().is_empty());
    bench.run("mount work.pool mnt -o ro").good();
    assert_eq!(fs::read_to_string(bench.path("mnt/file")).unwrap(), "content");
    assert!(fs::write(bench.path("mnt/new"), "").is_err());
    bench.run("unmount mnt").good();
}

#[test]
fn a_crash_is_not_in_the_way_of_the_next_mount() {
    let Some(bench) = mounted() else { return };
    fs::write(bench.path("mnt/kept"), "kept").unwrap();
    bench.run("sync mnt").good();
    let status = bench.run("status mnt --json").result();
    let socket = format!("/run/marram/{}.sock", status[0]["pool_id"].as_str().unwrap());
    let pid = bench.daemon_pid("mnt");
    signal(pid, rustix::process::Signal::KILL);
    wait_until("the kernel takes the lock back", || is_free(&bench.path("work.pool")));
    bench.run("status work.pool").refused(3, &[]);
    assert!(!Path::new(&socket).exists(), "status, or a daemon beside this, clears the abandoned");
    assert!(fs::write(bench.path("mnt/new"), "").is_err());
    bench.run("status mnt").refused(1, &["died", "marram unmount"]);
    bench.run("list work.pool").good();
    bench.run("mount work.pool mnt").good();
    assert_eq!(fs::read_to_string(bench.path("mnt/kept")).unwrap(), "kept");
    assert_eq!(bench.mounts().len(), 1);
    signal(bench.daemon_pid("mnt"), rustix::process::Signal::KILL);
    wait_until("the kernel takes the lock back", || is_free(&bench.path("work.pool")));
    bench.run("unmount mnt").good();
    assert!(bench.mounts().is_empty());
}

#[test]
fn a_mount_waits_for_the_one_before_it_to_end() {
    let Some(bench) = mounted() else { return };
    fs::write(bench.path("mnt/file"), "content").unwrap();
    let open = fs::File::open(bench.path("mnt/file")).unwrap();
    bench.run("unmount --detach mnt").good();
    let closing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(open);
    });
    bench.run("mount work.pool mnt").good();
    closing.join().unwrap();
    assert_eq!(fs::read_to_string(bench.path("mnt/file")).unwrap(), "content");
    bench.run("unmount mnt").good();
}

#[test]
fn a_file_that_is_bound_to_another_is_unmounted_by_its_name() {
    let Some(bench) = mounted() else { return };
    for file in ["mnt/file", "bound"] {
        fs::write(bench.path(file), file).unwrap();
    }
    rustix::mount::mount_bind(bench.path("mnt/file"), bench.path("bound")).unwrap();
    assert_eq!(fs::read(bench.path("bound")).unwrap(), b"mnt/file");
    let silent = bench.run_as("umount.fuseblk.marram", "bound").good();
    assert_eq!((silent.out.as_str(), silent.err.as_str()), ("", ""));
    assert_eq!(fs::read(bench.path("bound")).unwrap(), b"bound");
    bench.run("unmount mnt").good();
}

#[test]
fn a_device_that_can_only_be_read_is_mounted_for_reading() {
    let Some(bench) = mounted() else { return };
    fs::write(bench.path("mnt/file"), "content").unwrap();
    bench.run("unmount mnt").good();
    let attach = ["losetup", "--read-only", "--show", "-f", "work.pool"];
    let device = bench.host(&attach).good().out.trim().to_owned();
    let told = bench.run_as("mount.fuseblk.marram", &format!("{device} mnt -o rw"));
    let found = fs::read_to_string(bench.path("mnt/file"));
    let refused = fs::write(bench.path("mnt/file"), "changed").unwrap_err();
    let after = bench.run_as("umount.fuseblk.marram", "mnt");
    bench.host(&["losetup", "-d", &device]).good();
    assert_eq!((told.status, after.status), (0, 0), "{told:?} {after:?}");
    assert!(told.err.contains("write-protected, mounted read-only"), "{}", told.err);
    assert_eq!(found.unwrap(), "content");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn the_helpers_of_mount_behave_as_their_callers_expect() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    bench.make_folder("mnt");
    let silent = |outcome: Outcome| {
        let outcome = outcome.good();
        assert_eq!((outcome.out.as_str(), outcome.err.as_str()), ("", ""));
    };
    silent(bench.run_as("mount.fuse.marram", "work.pool mnt -f -o rw"));
    assert!(bench.mounts().is_empty(), "-f only pretends");
    silent(bench.run_as("mount.fuse.marram", "work.pool mnt -sv -o rw,nofail,_netdev,noexec"));
    assert!(bench.mounts()[0].contains("noexec"), "{:?}", bench.mounts());
    bench.run_as("mount.marram", "work.pool mnt").refused(32, &["already"]);
    bench.run_as("mount.marram", "work.pool mnt -o frobnicate").refused(1, &["frobnicate"]);
    silent(bench.run_as("mount.marram", "work.pool mnt -o remount,ro"));
    assert!(fs::write(bench.path("mnt/x"), "").is_err());
    silent(bench.run_as("mount.marram", "work.pool mnt -o remount,rw,exec"));
    fs::write(bench.path("mnt/x"), "").unwrap();
    silent(bench.run_as("umount.fuse.marram", "mnt -n"));
    assert!(is_free(&bench.path("work.pool")));
    bench.run_as("umount.fuse.marram", "mnt").refused(32, &["mnt"]);
    silent(bench.run_as("mount.marram", "work.pool mnt -o blkdev=off,ro"));
    let line = bench.mounts().remove(0);
    assert!(line.contains(" fuse.marram ro,") && line.contains("work.pool"), "{line}");
    let held = fs::File::open(bench.path("mnt/x")).unwrap();
    bench.run_as("mount.marram", "work.pool mnt -o remount,rw").refused(32, &["from the start"]);
    drop(held);
    silent(bench.run_as("mount.marram", "work.pool mnt -o remount,rw,noatime,noexec"));
    fs::write(bench.path("mnt/x"), "changed").unwrap();
    assert!(bench.mounts()[0].contains(",noexec,relatime"), "{:?}", bench.mounts());
    silent(bench.run_as("umount.marram", "mnt"));
}

#[test]
fn a_foreground_daemon_logs_to_standard_error_and_ends_with_its_mount() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::with_pool();
    bench.make_folder("mnt");
    let mut command = bench.command();
    command.args(["mount", "work.pool", "mnt", "--foreground", "-o", "cache=32M"]);
    let child = command.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    wait_until("the mount answers", || bench.mounts().len() == 1);
    wait_until("the daemon answers", || bench.run("status mnt").status == 0);
    // It is the process that was started, and takes no more memory than one in the background.
    let status = bench.run("status mnt --json").result();
    assert_eq!(status[0]["daemon"]["pid"], child.id());
    let words = fs::read(format!("/proc/{}/environ", child.id())).unwrap();
    assert!(words.split(|byte| *byte == 0).any(|word| word == b"MALLOC_ARENA_MAX=2"));
    bench.run("unmount mnt").good();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("mounted root") && log.contains("durable"), "{log}");
}

#[test]
fn a_client_that_says_nothing_or_nonsense_harms_nobody() {
    let Some(bench) = mounted() else { return };
    let id = bench.run("status mnt --json").result()[0]["pool_id"].as_str().unwrap().to_owned();
    let socket = format!("/run/marram/{id}.sock");
    let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    // All may ask root's daemon, and nobody but root puts a socket there.
    assert_eq!((mode(&socket), mode("/run/marram")), (0o666, 0o755));
    let silent: Vec<UnixStream> = (0..8).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    bench.run("status mnt").good();
    drop(silent);
    bench.run("unmount mnt").good();
    assert!(!Path::new(&socket).exists());
}

#[test]
fn quickstart_can_be_run_again() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::new();
    let text = bench.run("quickstart mnt --size 256M").good().out;
    assert!(text.contains("Three things to try") && text.contains("marram snapshot"), "{text}");
    assert!(bench.path(".local/share/marram/quickstart.pool").exists());
    let rule = bench.run("get mnt snapshots -H").good().out;
    assert_eq!(rule.trim(), "root\tsnapshots\t15m:8,1h:24,1d:7\tlocal");
    let again = bench.run("quickstart mnt --json").result();
    assert_eq!((&again["created"], &again["mounted"]), (&false.into(), &false.into()));
    bench.run("unmount mnt").good();
    let again = bench.run("quickstart mnt --json").result();
    assert_eq!((&again["created"], &again["mounted"]), (&false.into(), &true.into()));
    bench.run("unmount mnt").good();
}

#[test]
fn a_file_system_outlives_many_mounts_at_once_and_in_a_row() {
    let Some(bench) = mounted() else { return };
    bench.run("snapshot mnt@a").good();
    bench.run("unmount mnt").good();
    for round in 0..5 {
        bench.run("mount work.pool mnt").good();
        let name = format!("mnt/{round}");
        fs::write(bench.path(&name), name.as_bytes()).unwrap();
        let outcomes = std::thread::scope(|scope| {
            let mounts: Vec<_> = (0..4)
                .map(|at| {
                    let directory = format!("snap{at}");
                    bench.make_folder(&directory);
                    let bench = &bench;
                    scope.spawn(move || bench.run(&format!("mount work.pool@a {directory}")))
                })
                .collect();
            mounts.into_iter().map(|mount| mount.join().unwrap()).collect::<Vec<_>>()
        });
        outcomes.into_iter().for_each(|outcome| drop(outcome.good()));
        assert_eq!(bench.mounts().len(), 5);
        bench.run("unmount work.pool").good();
    }
    bench.run("mount work.pool mnt -o ro").good();
    assert_eq!(fs::read_dir(bench.path("mnt")).unwrap().count(), 5);
    bench.run("unmount mnt").good();
}

#[test]
fn a_pool_inside_a_mounted_pool_is_meant_itself() {
    let Some(bench) = mounted() else { return };
    bench.run("create mnt/inner.pool --size 64M --label inner").good();
    let status = bench.run("status mnt/inner.pool --json").result();
    assert_eq!(status[0]["label"], "inner");
    bench.run("unmount mnt").good();
}

#[test]
fn damaged_data_is_an_error_for_its_range_alone_and_is_named() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::new();
    bench.run("create work.pool --size 128M -O compression=off -O recordsize=64K").good();
    bench.make_folder("mnt");
    bench.run("mount work.pool mnt").good();
    bench.make_folder("mnt/deep");
    let content: Vec<u8> = (0..1_u32 << 18).flat_map(|word| (word * 77).to_le_bytes()).collect();
    fs::write(bench.path("mnt/deep/file"), &content).unwrap();
    bench.run("unmount mnt").good();

    let damaged = 5 * (64 << 10) + 100;
    let mut pool = fs::read(bench.path("work.pool")).unwrap();
    let sought = &content[damaged..damaged + 64];
    let at = pool.windows(64).position(|bytes| bytes == sought).expect("stored as it is");
    pool[at] ^= 1;
    fs::write(bench.path("work.pool"), &pool).unwrap();

    let report = bench.run("check work.pool --data --json");
    assert_eq!(report.status, 3, "{report:?}");
    assert!(report.out.contains("deep/file"), "{report:?}");
    bench.run("mount work.pool mnt").good();
    assert!(fs::read(bench.path("mnt/deep/file")).is_err());
    let file = fs::File::open(bench.path("mnt/deep/file")).unwrap();
    let mut whole = vec![0; 64 << 10];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut whole, 0).unwrap();
    assert_eq!(whole, content[..64 << 10]);
    drop(file);
    let status = bench.run("status mnt --json");
    assert_eq!(status.status, 3, "{status:?}");
    let damage = status.envelope()["result"][0]["damage"][0].clone();
    assert_eq!(damage["place"], "root:/deep/file");
    assert_eq!(damage["offset"], 5 * (64 << 10));
    assert_eq!(damage["len"], 64 << 10);
    bench.run("unmount mnt").good();
    let log = bench.log();
    assert!(log.contains("damaged: root:/deep/file at offset 327680"), "{log}");
}

#[test]
fn a_device_that_runs_full_loses_nothing_that_was_durable_and_is_told() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::new();
    let small = bench.make_folder("small");
    bench.make_folder("mnt");
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("none", &small, "tmpfs", flags, c"size=40M").unwrap();
    bench.run("create small/work.pool --size 1G").good();
    bench.run("mount small/work.pool mnt").good();
    fs::write(bench.path("mnt/kept"), "kept").unwrap();
    bench.run("sync mnt").good();
    let mut word = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (word >> 56) as u8
    })
    .take(64 << 20)
    .collect();
    let written = fs::write(bench.path("mnt/big"), noise);
    let synced = bench.run("sync mnt");
    assert!(written.is_err() || synced.status == 1, "{synced:?}");
    let status = bench.run("status mnt").refused(3, &[]);
    assert!(status.out.contains("read-only") && status.out.contains("No space"), "{status:?}");
    assert_eq!(fs::read_to_string(bench.path("mnt/kept")).unwrap(), "kept");
    let errno = |result: std::io::Result<()>| result.err().and_then(|error| error.raw_os_error());
    for _ in 0..2 {
        for name in ["mnt", "mnt/kept"] {
            let file = fs::File::open(bench.path(name)).unwrap();
            assert_eq!(errno(file.sync_all()), Some(5), "an error is told each time");
            assert_eq!(errno(file.sync_data()), Some(5));
            assert_eq!(rustix::fs::syncfs(&file), Err(rustix::io::Errno::IO));
        }
        assert_eq!(errno(fs::write(bench.path("mnt/new"), "")), Some(30), "read-only");
    }
    bench.run("unmount mnt").refused(1, &["not all of it is durable", "No space"]);
    assert!(is_free(&bench.path("small/work.pool")));
    bench.run("check small/work.pool").good();
    bench.run("mount small/work.pool mnt").good();
    assert_eq!(fs::read_to_string(bench.path("mnt/kept")).unwrap(), "kept");
    bench.run("unmount mnt").good();
    rustix::mount::unmount(&small, rustix::mount::UnmountFlags::empty()).unwrap();
}

#[test]
fn random_bytes_in_a_pool_never_end_in_a_panic() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::new();
    bench.run("create base.pool --size 32M").good();
    bench.make_folder("mnt");
    bench.run("mount base.pool mnt").good();
    for at in 0..200 {
        fs::write(bench.path(&format!("mnt/file {at}")), vec![at as u8; 300 * at]).unwrap();
    }
    bench.run("snapshot mnt@a").good();
    bench.run("unmount mnt").good();
    let base = fs::read(bench.path("base.pool")).unwrap();
    let used: Vec<usize> =
        (0..base.len()).step_by(4096).filter(|at| base[*at..*at + 4096] != [0; 4096]).collect();
    for seed in 0..8_usize {
        let mut pool = base.clone();
        for at in used.iter().skip(seed).step_by(8) {
            let place = *at + (*at * 31 + seed * 517) % 4000;
            pool[place..place + 64].iter_mut().for_each(|byte| *byte ^= 0x5a);
        }
        fs::write(bench.path("bad.pool"), &pool).unwrap();
        for line in ["status bad.pool", "list bad.pool", "check bad.pool --data"] {
            let outcome = bench.run(line);
            assert!(outcome.status <= 3 && !outcome.err.contains("panicked"), "{outcome:?}");
        }
        if bench.run("mount bad.pool mnt").status == 0 {
            for entry in fs::read_dir(bench.path("mnt")).into_iter().flatten().flatten() {
                let _good_or_an_error = fs::read(entry.path());
            }
            bench.run("status mnt");
            bench.run("unmount mnt");
        }
        assert!(bench.mounts().is_empty(), "seed {seed}");
    }
    for entry in fs::read_dir(bench.path("state/marram")).unwrap().flatten() {
        let log = fs::read_to_string(entry.path()).unwrap();
        assert!(!log.contains("panicked"), "{log}");
    }
}

/// A daemon that ends while all are asked is left out, and the rest is reported all the same.
#[test]
fn status_of_all_is_told_while_daemons_come_and_go() {
    let Some(bench) = mounted() else { return };
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            for _ in 0..15 {
                bench.run("unmount mnt").good();
                bench.run("mount work.pool mnt").good();
            }
        });
        while !others.is_finished() {
            let told = bench.run("status --json").envelope();
            assert!(told["result"].is_array(), "{told}");
        }
    });
}
