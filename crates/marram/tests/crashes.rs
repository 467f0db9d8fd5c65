//! What a daemon that dies leaves, and a mount that is shut down as by a power cut.

use crate::workbench::{Workbench, can_mount, outcome};
use marram_format::key::{Key, kind};
use marram_format::log::{FrameWriter, LogBlock, LogHead, frame_header};
use marram_format::pointer::{Extent, GRAIN_BYTES};
use marram_format::superblock::{RING_OFFSETS, RING_SLOTS, SUPERBLOCK_BYTES, Superblock};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

fn mounted(options: &str) -> Option<Workbench> {
    if !can_mount() {
        return None;
    }
    let bench = Workbench::with_pool();
    bench.make_folder("mnt");
    bench.run(&format!("mount work.pool mnt {options}")).good();
    Some(bench)
}

/// Kills the daemon, and returns when the kernel has taken its lock back.
fn kill_daemon(bench: &Workbench) {
    let pid = rustix::process::Pid::from_raw(bench.daemon_pid("mnt")).expect("a process id");
    rustix::process::kill_process(pid, Signal::KILL).expect("the daemon is there");
    let began = Instant::now();
    let pool = fs::File::open(bench.path("work.pool")).expect("the pool is there");
    while pool.try_lock().is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "the daemon does not die");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Asks for `FS_IOC_SHUTDOWN` on `path` as the user `uid`; returns what Python says.
fn shut_down(path: &Path, how: u32, uid: u32) -> String {
    let program = format!(
        "import fcntl, os, struct, sys
file = os.open(sys.argv[1], os.O_RDONLY)
os.setuid({uid})
try:
    fcntl.ioctl(file, 0x8004587d, struct.pack('I', {how}))
    print('done')
except OSError as error:
    print(error.strerror)"
    );
    let told = outcome(Command::new("python3").arg("-c").arg(program).arg(path));
    told.good().out.trim().to_owned()
}

fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

const EIO: Option<i32> = Some(5);
const EROFS: Option<i32> = Some(30);

/// Rounds in which the daemon is killed while it shows changes to watchers.
const SHOWING_ROUNDS: u64 = 6;

#[test]
fn a_daemon_that_is_killed_while_it_shows_changes_is_gone_and_its_pool_is_free() {
    let Some(bench) = mounted("") else { return };
    for number in 0..2_000 {
        fs::create_dir_all(bench.path("mnt/d")).unwrap();
        fs::write(bench.path(&format!("mnt/d/f{number}")), "one").unwrap();
    }
    for round in 0..SHOWING_ROUNDS {
        bench.run("fork mnt/d try").good();
        let fork = bench.path("mnt/.marram/forks/try");
        for number in 0..2_000 {
            fs::write(fork.join(format!("f{number}")), format!("{round}")).unwrap();
        }
        // The kernel knows what it is to report.
        assert_eq!(bench.host(&["sh", "-c", "ls -l mnt/d > /dev/null"]).status, 0);
        bench.run("sync mnt").good();
        let mut merge = bench.command();
        merge.args(["merge", "mnt", "--fork", "try", "--drop"]);
        let piped = || std::process::Stdio::null();
        let mut merge = merge.stdout(piped()).stderr(piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(30 * (round + 1)));
        kill_daemon(&bench);
        merge.wait().unwrap();
        bench.host(&["umount", "-l", "mnt"]);
        bench.run("mount work.pool mnt").good();
        let first = fs::read_to_string(bench.path("mnt/d/f0")).unwrap();
        for number in 1..2_000 {
            let other = fs::read_to_string(bench.path(&format!("mnt/d/f{number}"))).unwrap();
            assert_eq!(other, first, "a part of a merge is there");
        }
        if bench.run("forks mnt -H").good().out.contains("try") {
            bench.run("destroy fork mnt try --yes --now").good();
        }
    }
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn a_shut_down_mount_keeps_what_was_durable_and_nothing_else() {
    for options in ["", "-o blkdev=off"] {
        let Some(bench) = mounted(options) else { return };
        fs::write(bench.path("mnt/kept"), "kept").unwrap();
        fs::File::open(bench.path("mnt/kept")).unwrap().sync_all().unwrap();
        fs::write(bench.path("mnt/lost"), "lost").unwrap();
        assert_eq!(shut_down(&bench.path("mnt"), 2, 65_534), "Operation not permitted");
        assert_eq!(shut_down(&bench.path("mnt/kept"), 7, 0), "Invalid argument");
        let open = fs::File::open(bench.path("mnt/kept")).unwrap();
        assert_eq!(shut_down(&bench.path("mnt/kept"), 2, 0), "done");
        assert_eq!(errno(fs::write(bench.path("mnt/new"), "")), EIO);
        assert_eq!(errno(fs::remove_file(bench.path("mnt/lost"))), EIO);
        assert_eq!(errno(fs::metadata(bench.path("mnt/unknown"))), EIO);
        assert_eq!(errno(open.sync_all()), EIO);
        assert_eq!(shut_down(&bench.path("mnt"), 2, 0), "Input/output error");
        drop(open);
        bench.run("status mnt").refused(3, &[]);
        let ended = bench.run("unmount mnt").good();
        assert_eq!((ended.out.as_str(), ended.err.as_str()), ("", ""));
        bench.run("check work.pool --data").good();
        bench.run("mount work.pool mnt").good();
        assert_eq!(fs::read_to_string(bench.path("mnt/kept")).unwrap(), "kept");
        assert!(!bench.path("mnt/lost").exists());
        bench.run("unmount mnt").good();
        let log = bench.log();
        assert!(log.contains("when it was shut down") && !log.contains("operation"), "{log}");
        assert!(!log.contains("failed") && !log.contains("group commit"), "{log}");
    }
}

#[test]
fn a_shutdown_may_flush_first_and_ends_all_mounts_of_the_pool() {
    for how in 0..2 {
        let Some(bench) = mounted("") else { return };
        bench.make_folder("again");
        bench.run("snapshot mnt@a").good();
        bench.run("clone mnt@a again").good();
        bench.run("mount work.pool again --dataset again").good();
        fs::write(bench.path("again/other"), "other").unwrap();
        fs::write(bench.path("mnt/file"), vec![7; 1 << 20]).unwrap();
        assert_eq!(shut_down(&bench.path("mnt/file"), how, 0), "done");
        let other = fs::File::open(bench.path("again/other")).unwrap();
        assert_eq!(errno(other.sync_all()), EIO);
        drop(other);
        assert_eq!(errno(fs::write(bench.path("again/new"), "")), EROFS);
        bench.run("unmount work.pool").good();
        bench.run("mount work.pool mnt").good();
        assert_eq!(fs::read(bench.path("mnt/file")).unwrap(), vec![7; 1 << 20]);
        bench.run("mount work.pool again --dataset again").good();
        assert_eq!(fs::read_to_string(bench.path("again/other")).unwrap(), "other");
        bench.run("unmount work.pool").good();
    }
}

#[test]
fn the_pool_stands_for_the_mounts_that_its_dead_daemon_has_left() {
    for options in ["", "-o blkdev=off"] {
        let Some(bench) = mounted(options) else { return };
        bench.make_folder("snap");
        bench.run("snapshot mnt@a").good();
        bench.run("mount work.pool@a snap").good();
        kill_daemon(&bench);
        let status = bench.run("status work.pool").refused(3, &[]);
        assert_eq!(status.out.matches("dead mount:").count(), 2, "{status:?}");
        bench.run("unmount work.pool").good();
        assert!(bench.mounts().is_empty(), "{:?}", bench.mounts());
        bench.run("status work.pool").good();
        bench.run("unmount work.pool").refused(10, &["not mounted"]);
        assert_eq!(fs::read_dir(bench.path("mnt")).unwrap().count(), 0);
    }
}

#[test]
fn mounting_a_pool_elsewhere_clears_what_its_dead_daemon_has_left() {
    let Some(bench) = mounted("") else { return };
    fs::write(bench.path("mnt/kept"), "kept").unwrap();
    bench.run("sync mnt").good();
    bench.make_folder("other");
    kill_daemon(&bench);
    bench.run("mount mnt other").refused(1, &["died", "marram unmount"]);
    bench.run("mount work.pool other").good();
    assert_eq!(bench.mounts().len(), 1, "{:?}", bench.mounts());
    assert_eq!(fs::read_to_string(bench.path("other/kept")).unwrap(), "kept");
    assert!(fs::read_dir(bench.path("mnt")).unwrap().next().is_none());
    bench.run("unmount other").good();
}

#[test]
fn a_dead_mount_is_unmounted_by_its_directory_in_every_way() {
    for how in ["marram", "marram -l", "umount.fuse.marram", "link"] {
        let Some(bench) = mounted("") else { return };
        kill_daemon(&bench);
        match how {
            "marram" => bench.run("unmount mnt/").good(),
            "marram -l" => bench.run("unmount --detach mnt").good(),
            "link" => {
                std::os::unix::fs::symlink(bench.path("mnt"), bench.path("link")).unwrap();
                bench.run("unmount link").good()
            }
            helper => bench.run_as(helper, "mnt -n").good(),
        };
        assert!(bench.mounts().is_empty(), "{how}: {:?}", bench.mounts());
    }
}

/// Where a grain of the log lies, in bytes.
fn place(copy: &[Extent], mut grain: u64) -> u64 {
    for extent in copy {
        match grain.checked_sub(u64::from(extent.grains)) {
            None => return (extent.start + grain) * GRAIN_BYTES,
            Some(left) => grain = left,
        }
    }
    panic!("the ring is shorter")
}

fn open_pool(pool: &Path) -> fs::File {
    fs::File::options().read(true).write(true).open(pool).expect("the pool is there")
}

/// The newest superblock of a pool, and the head of its log.
fn head_of(file: &fs::File) -> (Superblock, LogHead) {
    let slots = RING_OFFSETS
        .iter()
        .flat_map(|ring| (0..RING_SLOTS).map(move |slot| ring + slot * SUPERBLOCK_BYTES as u64));
    let found = slots.filter_map(|offset| {
        let mut slot = vec![0; SUPERBLOCK_BYTES];
        file.read_exact_at(&mut slot, offset).expect("it can be read");
        Superblock::decode(&slot).ok()
    });
    let superblock = found.max_by_key(|found| found.group).expect("it is a pool");
    let log = superblock.intent_log.as_ref().expect("it has a log");
    let head = LogHead::from_pointer(log).expect("its head is whole");
    (superblock, head)
}

/// A frame of the log that is whole in both copies, and names a dataset that is not there.
fn plant_malformed_frame(pool: &Path) {
    let file = open_pool(pool);
    let (superblock, head) = head_of(&file);
    let mut frame = FrameWriter::new();
    frame.begin_part(1 << 60, 999);
    frame.put(Key::new(9, kind::SECTION, 0), b"", LogBlock::None);
    let bytes = frame.finish(&superblock.pool_id, superblock.secret, head.start);
    for copy in &head.copies {
        let offset = place(copy, head.start % u64::from(head.grains));
        file.write_all_at(&bytes, offset).expect("it can be written");
    }
}

/// Damages the first frame of the log in both copies; others follow it.
fn damage_first_frame(pool: &Path) {
    let file = open_pool(pool);
    let (superblock, head) = head_of(&file);
    for copy in &head.copies {
        let offset = place(copy, head.start % u64::from(head.grains));
        let mut grain = vec![0; 4096];
        file.read_exact_at(&mut grain, offset).expect("it can be read");
        assert!(frame_header(&grain, &superblock.pool_id, head.start).is_some(), "it has frames");
        file.write_all_at(b"damaged", offset + 100).expect("it can be written");
    }
}

#[test]
fn what_a_damaged_log_has_lost_is_told_with_the_mount_and_after_it() {
    let Some(bench) = mounted("-o commit=300") else { return };
    for name in ["committed", "first", "second", "third"] {
        let path = bench.path("mnt").join(name);
        fs::write(&path, name).unwrap();
        match name {
            "committed" => drop(bench.run("snapshot mnt@a").good()),
            _ => fs::File::open(&path).unwrap().sync_all().unwrap(),
        }
    }
    kill_daemon(&bench);
    damage_first_frame(&bench.path("work.pool"));
    let words = ["the intent log", "later frames are whole", "is lost", "marram check"];
    let told = bench.run("mount work.pool mnt").good().err;
    for word in words {
        assert!(told.contains(word), "{word:?} is missing: {told}");
    }
    let log = bench.log();
    assert!(words[..3].iter().all(|word| log.contains(word)), "{log}");
    assert!(bench.path("mnt/committed").exists() && !bench.path("mnt/third").exists());
    fs::write(bench.path("mnt/after"), "").unwrap();
    bench.run("unmount mnt").good();
    let status = bench.run("status work.pool");
    assert!(status.status == 3 && status.out.contains("is lost"), "{status:?}");
    bench.run("check work.pool").good();
    assert_eq!(bench.run("status work.pool").status, 3, "it has not looked at everything");
    bench.run("check work.pool --data").good();
    bench.run("status work.pool").good();
}

#[test]
fn a_pool_whose_log_makes_no_sense_can_be_read_without_it() {
    let Some(bench) = mounted("") else { return };
    fs::write(bench.path("mnt/kept"), "kept").unwrap();
    bench.run("snapshot mnt@a").good();
    bench.run("unmount mnt").good();
    plant_malformed_frame(&bench.path("work.pool"));
    let before = fs::read(bench.path("work.pool")).unwrap();
    let words = ["work.pool", "dataset 999", "-o ro,norecovery"];
    bench.run("mount work.pool mnt").refused(1, &words);
    bench.run("mount work.pool mnt -o ro").refused(1, &words);
    bench.run("list work.pool").refused(1, &words);
    bench.run("mount work.pool mnt -o norecovery").refused(2, &["only with ro"]);
    for options in ["-o ro,norecovery", "-o ro,norecovery,blkdev=off"] {
        bench.run(&format!("mount work.pool mnt {options}")).good();
        assert_eq!(fs::read_to_string(bench.path("mnt/kept")).unwrap(), "kept");
        assert_eq!(errno(fs::write(bench.path("mnt/new"), "")), EROFS);
        assert!(bench.run("list mnt").good().out.contains("root@a"));
        bench.make_folder("snap");
        bench.run("mount work.pool@a snap").good();
        bench.run("unmount work.pool").good();
        fs::remove_dir(bench.path("snap")).unwrap();
    }
    assert!(before == fs::read(bench.path("work.pool")).unwrap(), "the pool was changed");
}

#[test]
fn a_pool_that_is_mounted_with_its_log_is_not_also_shown_without() {
    let Some(bench) = mounted("") else { return };
    bench.run("snapshot mnt@a").good();
    bench.make_folder("snap");
    let mount = "mount work.pool@a snap -o ro,norecovery";
    bench.run(mount).refused(2, &["norecovery", "unmount"]);
    bench.run("unmount mnt").good();
    bench.run(mount).good();
    bench.run("unmount snap").good();
}
