//! The pmem home as users have it: made, mounted, killed in the middle of work, and what it has
//! not.

use crate::workbench::{Workbench, can_mount};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// A workbench, and an image on tmpfs.
struct Place {
    bench: Workbench,
    folder: tempfile::TempDir,
}

impl Place {
    fn new(size: &str) -> Option<Place> {
        if !can_mount() || !Path::new("/dev/shm").is_dir() {
            return None;
        }
        let (bench, folder) = (Workbench::new(), tempfile::tempdir_in("/dev/shm").unwrap());
        bench.make_folder("mnt");
        let place = Place { bench, folder };
        let made = place.run(&format!("create --home pmem IMAGE --size {size} --label trees"));
        assert!(made.good().out.contains("nothing a reboot"));
        Some(place)
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn run(&self, line: &str) -> crate::workbench::Outcome {
        self.bench.run(&line.replace("IMAGE", self.image().to_str().unwrap()))
    }

    fn mount(&self) -> PathBuf {
        self.run("mount IMAGE mnt").good();
        self.bench.path("mnt")
    }

    /// Kills the daemon, and returns when its lock is gone and so is the mount.
    fn kill(&self) {
        let pid = Pid::from_raw(self.bench.daemon_pid("mnt")).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        let began = Instant::now();
        let image = fs::File::open(self.image()).unwrap();
        while image.try_lock().is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "the daemon does not die");
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(image);
        self.bench.host(&["umount", "-l", "mnt"]).good();
    }
}

/// A call that has returned: what is there from then on.
enum Returned {
    Directory(PathBuf),
    File(PathBuf, Vec<u8>),
    Moved(PathBuf, PathBuf),
    Removed(PathBuf),
}

/// Makes, writes, moves and removes files until something fails; reports each call as it returns.
fn unpack(top: &Path, returned: &Sender<Returned>) -> std::io::Result<()> {
    let tell = |what| drop(returned.send(what));
    for which in 0.. {
        let folder = top.join(format!("d{}", which / 20));
        if which % 20 == 0 {
            fs::create_dir(&folder)?;
            tell(Returned::Directory(folder.clone()));
        }
        let path = folder.join(format!("f{which}"));
        let content = format!("{which} ").repeat(which % 3000).into_bytes();
        let file = fs::File::create_new(&path)?;
        tell(Returned::File(path.clone(), Vec::new()));
        if !content.is_empty() {
            file.write_all_at(&content, 0)?;
            tell(Returned::File(path.clone(), content));
        }
        if which % 3 == 0 {
            let moved = folder.join(format!("m{which}"));
            fs::rename(&path, &moved)?;
            tell(Returned::Moved(path, moved));
        } else if which % 7 == 0 {
            fs::remove_file(&path)?;
            tell(Returned::Removed(path));
        }
    }
    Ok(())
}

/// What all the calls that have returned leave: content by path, none of a directory.
fn left(returned: &Receiver<Returned>) -> std::collections::BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut left = std::collections::BTreeMap::new();
    for call in returned.iter() {
        match call {
            Returned::Directory(path) => drop(left.insert(path, None)),
            Returned::File(path, content) => drop(left.insert(path, Some(content))),
            Returned::Moved(from, to) => {
                let content = left.remove(&from).unwrap();
                left.insert(to, content);
            }
            Returned::Removed(path) => drop(left.remove(&path)),
        }
    }
    left
}

#[test]
fn every_call_that_returned_survives_a_killed_daemon() {
    let Some(place) = Place::new("256M") else { return };
    let mut known = std::collections::BTreeMap::new();
    for round in 0..3 {
        let top = place.mount().join(format!("round{round}"));
        fs::create_dir(&top).unwrap();
        let (sender, receiver) = channel();
        let unpacking = {
            let top = top.clone();
            std::thread::spawn(move || unpack(&top, &sender))
        };
        std::thread::sleep(Duration::from_millis(400 + 150 * round));
        place.kill();
        assert!(unpacking.join().unwrap().is_err(), "it went on until the daemon died");
        let returned = left(&receiver);
        assert!(returned.len() > 40, "{} names", returned.len());
        known.insert(top.clone(), None);
        known.extend(returned);
        place.mount();
        // The call that was running may have happened: it changes one name at most.
        let missed = known.iter().filter(|(path, content)| match content {
            None => !path.is_dir(),
            Some(content) => fs::read(path).ok().as_ref() != Some(content),
        });
        let missed: Vec<_> = missed.map(|(path, _)| path.clone()).collect();
        assert!(missed.len() <= 1, "round {round}: {missed:?}");
        for path in &missed {
            known.remove(path);
        }
        place.run("unmount mnt").good();
    }
}

#[test]
fn a_mount_holds_what_programs_make_and_remounts_keep_it() {
    let Some(place) = Place::new("64M") else { return };
    let top = place.mount();
    fs::create_dir(top.join("d")).unwrap();
    fs::write(top.join("d/file"), "content").unwrap();
    fs::hard_link(top.join("d/file"), top.join("again")).unwrap();
    std::os::unix::fs::symlink("d/file", top.join("link")).unwrap();
    fs::rename(top.join("again"), top.join("d/again")).unwrap();
    let file = fs::OpenOptions::new().write(true).open(top.join("d/file")).unwrap();
    file.set_len(100_000).unwrap();
    file.write_all_at(b"end", 99_997).unwrap();
    drop(file);
    place.run("unmount mnt").good();
    place.run("mount IMAGE mnt -o ro").good();
    assert_eq!(fs::metadata(top.join("d/again")).unwrap().nlink(), 2);
    let content = fs::read(top.join("link")).unwrap();
    assert_eq!(
        (content.len(), &content[..7], &content[99_997..]),
        (100_000, &b"content"[..], &b"end"[..])
    );
    assert!(fs::write(top.join("new"), "").is_err());
    place.run("unmount mnt").good();
}

#[test]
fn what_the_home_has_not_is_refused_by_name() {
    let Some(place) = Place::new("64M") else { return };
    place.mount();
    let status = place.run("status IMAGE").good().out;
    assert!(status.contains("medium:") && status.contains("trees"), "{status}");
    let listed = place.run("list mnt").good().out;
    assert!(listed.lines().count() == 2 && listed.contains("dataset"), "{listed}");
    place.run("list").good();
    place.run("snapshot mnt@s").good();
    for (line, words) in [
        ("snapshot mnt@t --recursive", "has no snapshots of several"),
        ("diff mnt@s", "has no diff"),
        ("fork mnt work", "has no"),
        ("get mnt", "has no properties"),
        ("send mnt@s", "has no streams"),
        ("rename mnt@s other", "has no"),
        ("undo mnt", "has no log of operations"),
    ] {
        let said = place.run(line);
        assert!(said.status != 0 && said.err.contains(words), "{line}: {said:?}");
    }
    let twice = place.run("create --home pmem IMAGE --size 64M");
    assert!(twice.status != 0 && twice.err.contains("is there already"), "{twice:?}");
    let forced = place.run("create --home pmem IMAGE --size 64M --force");
    assert!(forced.status != 0 && forced.err.contains("another process uses it"), "{forced:?}");
    let compressed = place.run("create --home pmem IMAGE2 --size 64M -O compression=lz4");
    assert!(compressed.err.contains("has no properties"), "{compressed:?}");
    place.run("label mnt other").good();
    assert!(place.run("status IMAGE").good().out.contains("other"));
    place.run("unmount mnt").good();
}

#[test]
fn a_create_that_fails_leaves_what_was_there() {
    let Some(place) = Place::new("64M") else { return };
    let label = "l".repeat(65);
    for line in [
        "create --home pmem IMAGE --size 8T --force".to_owned(),
        format!("create --home pmem IMAGE --size 64M --force --label {label}"),
        "create --home pmem IMAGE --size 100 --force".to_owned(),
    ] {
        let said = place.run(&line);
        assert!(said.status != 0, "{said:?}");
        assert!(place.run("status IMAGE").good().out.contains("trees"), "{line}");
    }
    place.run("create --home pmem IMAGE --size 32M --force --label new").good();
    assert!(place.run("status IMAGE").good().out.contains("new"));
}

#[test]
fn after_a_rollback_the_list_of_the_root_is_that_of_then() {
    let Some(place) = Place::new("64M") else { return };
    let top = place.mount();
    place.run("snapshot mnt@s").good();
    fs::write(top.join("new"), "new").unwrap();
    let has_new = || fs::read_dir(&top).unwrap().any(|it| it.unwrap().file_name() == "new");
    assert!(has_new(), "the kernel has the list");
    place.run("rollback mnt@s").good();
    assert!(!has_new(), "and asks anew");
}

#[test]
fn snapshots_clones_and_rollbacks_are_seen_at_once_and_survive_a_killed_daemon() {
    let Some(place) = Place::new("64M") else { return };
    let top = place.mount();
    fs::create_dir(top.join("d")).unwrap();
    fs::write(top.join("d/file"), "before").unwrap();
    place.run("snapshot mnt@s").good();
    let taken = place.run("snapshot mnt@s");
    assert!(taken.status != 0 && taken.err.contains("exists"), "{taken:?}");
    fs::write(top.join("d/file"), "after").unwrap();
    fs::write(top.join("new"), "new").unwrap();
    let kept = |path: &str| fs::read_to_string(top.join(path)).unwrap();
    assert_eq!(kept(".marram/snapshots/s/d/file"), "before");
    assert_eq!(kept("d/.marram/snapshots/s/file"), "before");
    assert!(fs::write(top.join(".marram/snapshots/s/d/file"), "x").is_err());

    // A clone is a dataset of its own, and both change.
    place.run("clone mnt@s again").good();
    for folder in ["clone", "past"] {
        place.bench.make_folder(folder);
    }
    place.run("mount IMAGE clone --dataset again").good();
    place.run("mount IMAGE@s past").good();
    let (clone, past) = (place.bench.path("clone"), place.bench.path("past"));
    assert_eq!(fs::read_to_string(clone.join("d/file")).unwrap(), "before");
    fs::write(clone.join("d/file"), "cloned").unwrap();
    assert_eq!(fs::read_to_string(past.join("d/file")).unwrap(), "before");
    assert!(!past.join("new").exists());

    // A killed daemon takes nothing away.
    place.kill();
    for folder in ["clone", "past"] {
        place.bench.host(&["umount", "-l", folder]).good();
    }
    place.mount();
    place.run("mount IMAGE clone --dataset again").good();
    assert_eq!(fs::read_to_string(clone.join("d/file")).unwrap(), "cloned");
    assert_eq!((kept("d/file"), kept("new")), ("after".to_owned(), "new".to_owned()));

    // Back, under a program that has a file open, and the state before is kept.
    let open = fs::File::open(top.join("d/file")).unwrap();
    let back = place.run("rollback mnt@s").good().out;
    assert!(back.contains("before-rollback-1"), "{back}");
    drop(open);
    assert_eq!(kept("d/file"), "before");
    assert!(!top.join("new").exists());
    fs::write(top.join("d/later"), "later").unwrap();
    assert_eq!(kept(".marram/snapshots/before-rollback-1/new"), "new");

    // What goes gives back what it alone has; what is mounted stays.
    let listed = place.run("list mnt").good().out;
    for name in ["root", "root@s", "again", "root@before-rollback-1"] {
        assert!(listed.contains(name), "{name}: {listed}");
    }
    let held = place.run("destroy dataset mnt again --yes");
    assert!(held.status != 0 && held.err.contains("is mounted"), "{held:?}");
    place.run("unmount clone").good();
    place.run("destroy dataset mnt again --yes").good();
    place.run("destroy snapshot mnt s before-rollback-1 --yes").good();
    assert_eq!(fs::read_dir(top.join(".marram/snapshots")).unwrap().count(), 0);
    let gone = place.run("rollback mnt@s");
    assert!(gone.status != 0 && gone.err.contains("root@s"), "{gone:?}");
    let root = place.run("destroy dataset mnt root --yes");
    assert!(root.status != 0, "{root:?}");
    assert_eq!((kept("d/file"), kept("d/later")), ("before".to_owned(), "later".to_owned()));
    place.run("unmount mnt").good();
    place.run("mount IMAGE mnt -o ro").good();
    assert_eq!(kept("d/later"), "later");
    place.run("unmount mnt").good();
}

#[test]
fn an_ordinary_file_has_checkpoints_and_a_killed_daemon_loses_nothing() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::new();
    bench.make_folder("mnt");
    let made = bench.run("create --home pmem image --size 64M").good().out;
    if made.contains("tmpfs") {
        return;
    }
    assert!(made.contains("ordinary file") && made.contains("last fsync"), "{made}");
    for mode in ["each", "epoch"] {
        let refused = bench.run(&format!("mount image mnt -o durable={mode}"));
        let why = format!("durable={mode} cannot be kept");
        assert!(refused.status != 0 && refused.err.contains(&why), "{refused:?}");
    }
    let mounted = bench.run("mount image mnt -o durable=checkpoint,commit=1").good().out;
    assert!(mounted.contains("ordinary file"), "{mounted}");
    let top = bench.path("mnt");
    let file = fs::File::create_new(top.join("synced")).unwrap();
    file.write_all_at(&[7; 50_000], 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    bench.run("snapshot mnt@s").good();
    fs::write(top.join("late"), "late").unwrap();
    let pid = Pid::from_raw(bench.daemon_pid("mnt")).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let image = fs::File::open(bench.path("image")).unwrap();
    let began = Instant::now();
    while image.try_lock().is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "the daemon does not die");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(image);
    bench.host(&["umount", "-l", "mnt"]).good();
    let clean = bench.run("check image").good().out;
    assert!(clean.contains(": clean"), "{clean}");
    // A copy is another file: it shows the last checkpoint, which the sync has made at the latest.
    fs::copy(bench.path("image"), bench.path("copy")).unwrap();
    for (image, is_late) in [("image", Some(true)), ("copy", None)] {
        bench.run(&format!("mount {image} mnt")).good();
        assert_eq!(fs::read(top.join("synced")).unwrap(), vec![7; 50_000]);
        let late = fs::read(top.join("late")).is_ok_and(|bytes| bytes == b"late");
        assert!(is_late.is_none_or(|expected| expected == late), "{image}");
        assert!(bench.run("status mnt").good().out.contains("ordinary file"));
        bench.run("unmount mnt").good();
        bench.run(&format!("check {image} --data")).good();
    }
}

/// The error number of a call that must fail.
fn failed<T: std::fmt::Debug>(done: std::io::Result<T>) -> i32 {
    done.unwrap_err().raw_os_error().unwrap()
}

/// The status of a mount whose image has failed says so, and why; its daemon lives and unmounts,
/// which says it too.
fn assert_failed_and_alive(bench: &Workbench, pid: i32, why: &str) {
    let status = bench.run("status mnt");
    assert!(status.status == 3 && status.out.contains("read-only"), "{status:?}");
    assert!(status.out.contains(why), "{status:?}");
    assert!(status.out.contains(&format!("process {pid},")), "{status:?}");
    let unmounted = bench.run("unmount mnt");
    assert!(unmounted.status == 1 && unmounted.err.contains("is unmounted, but"), "{unmounted:?}");
    assert!(unmounted.err.contains(why), "{unmounted:?}");
}

#[test]
fn a_file_that_is_cut_ends_in_errors_and_not_in_a_dead_daemon() {
    const EIO: i32 = 5;
    const EROFS: i32 = 30;
    for (left, changes) in [(0, EIO), (1 << 16, EROFS)] {
        let Some(place) = Place::new("64M") else { return };
        let top = place.mount();
        fs::write(top.join("kept"), vec![7; 300_000]).unwrap();
        // What the kernel has read it would show without us.
        place.run("unmount mnt").good();
        place.mount();
        let pid = place.bench.daemon_pid("mnt");
        fs::OpenOptions::new().write(true).open(place.image()).unwrap().set_len(left).unwrap();
        assert_eq!(failed(fs::read(top.join("kept"))), EIO);
        assert_eq!(failed(fs::write(top.join("new"), "new")), changes);
        assert_eq!(failed(fs::create_dir(top.join("folder"))), changes);
        // The root directory is shown, so that the mount can be found.
        assert!(fs::metadata(&top).unwrap().is_dir());
        assert_failed_and_alive(&place.bench, pid, &format!("{left} bytes now"));
        let again = place.run("mount IMAGE mnt");
        assert!(again.status != 0, "{again:?}");
    }
}

#[test]
fn a_full_host_ends_in_errors_and_not_in_a_dead_daemon() {
    if !can_mount() {
        return;
    }
    let bench = Workbench::new();
    bench.make_folder("mnt");
    let host = bench.make_folder("host");
    bench.host(&["mount", "-t", "tmpfs", "-o", "size=3M", "tmpfs", "host"]).good();
    bench.run("create --home pmem host/image --size 2M").good();
    bench.run("mount host/image mnt").good();
    let (top, pid) = (bench.path("mnt"), bench.daemon_pid("mnt"));
    fs::write(top.join("kept"), "kept").unwrap();
    // Somebody takes the image's space away.
    let image = fs::OpenOptions::new().write(true).open(host.join("image")).unwrap();
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&image, hole, 1 << 18, 1 << 20).unwrap();
    let full = fs::write(host.join("other"), vec![1; 3 << 20]);
    assert!(full.is_err(), "the host has space still");
    let big = fs::write(top.join("big"), vec![5; 1 << 20]);
    assert_eq!(failed(big), 5);
    assert_eq!(failed(fs::write(top.join("kept"), "changed")), 30);
    assert_eq!(fs::read(top.join("kept")).unwrap(), b"kept");
    assert_failed_and_alive(&bench, pid, "its host is full");

    // With space again, the image is whole.
    fs::remove_file(host.join("other")).unwrap();
    fallocate(&image, FallocateFlags::KEEP_SIZE, 0, 2 << 20).unwrap();
    drop(image);
    bench.run("mount host/image mnt").good();
    assert_eq!(fs::read(top.join("kept")).unwrap(), b"kept");
    fs::write(top.join("big"), vec![5; 1 << 20]).unwrap();
    bench.run("unmount mnt").good();
    bench.host(&["umount", "host"]).good();
}

#[test]
fn a_check_looks_through_an_image_that_nobody_uses() {
    const PARTIAL: i32 = 3;
    let Some(place) = Place::new("64M") else { return };
    let top = place.mount();
    fs::write(top.join("file"), "content").unwrap();
    place.run("snapshot mnt@s").good();
    let held = place.run("check IMAGE");
    assert!(held.status != 0 && held.err.contains("in use"), "{held:?}");
    place.run("unmount mnt").good();
    let clean = place.run("check IMAGE --data").good().out;
    assert!(clean.contains(": clean") && clean.contains("1 datasets, 1 snapshots"), "{clean}");
    let image = fs::OpenOptions::new().write(true).open(place.image()).unwrap();
    image.write_all_at(&[1], 12_288 + 256 + 5).unwrap();
    let found = place.run("check IMAGE");
    assert!(found.status == PARTIAL && found.out.contains("fatal[slot-malformed]"), "{found:?}");
}

/// A limit of nothing makes a program wait for a fifth of a second at each few pages that it stores
/// to.
#[test]
fn the_kernel_may_hold_back_what_is_stored_through_maps() {
    let Some(place) = Place::new("16M") else { return };
    let device = fs::metadata(place.mount()).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let knobs = ["-fuseblk", ""].map(|it| format!("/sys/class/bdi/{major}:{minor}{it}/max_bytes"));
    // Kernels before 6.2 have none.
    if let Some(limit) = knobs.iter().find_map(|knob| fs::read_to_string(knob).ok()) {
        let bytes: u64 = limit.trim().parse().unwrap();
        assert!(bytes > 1 << 20, "{bytes}");
    }
    place.run("unmount mnt").good();
}
