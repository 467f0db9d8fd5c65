//! An ext2 and an ext3 image as users have them: made by `mke2fs`, mounted, killed in the middle of
//! work, judged by `e2fsck`, and mounted by the kernel.

use crate::tree::{stop, wait_for};
use crate::workbench::{Outcome, Workbench, can_mount, outcome};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What `e2fsck -fn` says after a killed daemon, and nothing else.
const MAY_BE_SAID: [&str; 12] = [
    "Pass ",
    "has zero dtime",
    "i_size is",
    "i_blocks is",
    "Unconnected directory",
    "'..' in",
    "nattached inode",
    "Unattached zero-length",
    "ref count is",
    "Block bitmap differences:  -",
    "Inode bitmap differences:  -",
    "count wrong",
];
const MAY_BE_SAID_TOO: [&str; 7] = [
    "Fix? no",
    "Connect to /lost+found? no",
    "Clear? no",
    "WARNING",
    "files (",
    "blocks",
    "e2fsck",
];

fn has_tools() -> bool {
    let found = ["mke2fs", "e2fsck"].iter().all(|name| Path::new("/usr/sbin").join(name).exists());
    if !found {
        eprintln!("skipped: e2fsprogs are needed");
    }
    found
}

/// A workbench with an image, if there can be one.
fn bench(kind: &str) -> Option<Workbench> {
    if !can_mount() || !has_tools() {
        return None;
    }
    let bench = Workbench::new();
    bench.make_folder("mnt");
    bench.host(&["/usr/sbin/mke2fs", "-q", "-t", kind, "-L", "trees", "disk.img", "64M"]).good();
    Some(bench)
}

/// A tree as a source archive has it: the same at every call.
/// Fails when the mount above `top` is gone: it makes no folder whose parent is missing.
fn make_tree(top: &Path) -> std::io::Result<()> {
    let make = |folder: &Path| match fs::create_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    make(top)?;
    for which in 0..400_usize {
        let upper = top.join(format!("d{}", which % 7));
        let folder = upper.join(format!("e{}", which % 3));
        make(&upper)?;
        make(&folder)?;
        let content = format!("{which} ").repeat(which * 13 % 4000);
        fs::write(folder.join(format!("f{which}")), content)?;
        if which % 5 == 0 {
            fs::rename(folder.join(format!("f{which}")), folder.join(format!("m{which}")))?;
        }
        if which % 9 == 0 {
            std::os::unix::fs::symlink(format!("f{which}"), folder.join(format!("l{which}")))?;
        }
    }
    Ok(())
}

fn digest(bench: &Workbench, folder: &str) -> String {
    let list = "cd $0 && find . -path ./lost+found -prune -o -print0 | sort -z | \
        xargs -0 stat -c '%n %f %h' | grep -v '^\\. ' && \
        find . -type f -print0 | sort -z | xargs -0 cksum";
    bench.host(&["sh", "-c", list, folder]).good().out
}

fn judge(bench: &Workbench) -> Outcome {
    bench.host(&["/usr/sbin/e2fsck", "-fn", "disk.img"])
}

fn kill(bench: &Workbench) {
    let pid = Pid::from_raw(bench.daemon_pid("mnt")).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let began = Instant::now();
    let image = fs::File::open(bench.path("disk.img")).unwrap();
    while image.try_lock().is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "the daemon does not die");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(image);
    bench.host(&["umount", "-l", "mnt"]).good();
}

#[test]
fn an_unmounted_image_is_clean_and_the_kernel_finds_the_tree() {
    for kind in ["ext2", "ext3"] {
        let Some(bench) = bench(kind) else { return };
        bench.make_folder("plain");
        make_tree(&bench.path("plain")).unwrap();
        bench.run("mount disk.img mnt").good();
        make_tree(&bench.path("mnt")).unwrap();
        let status = bench.run("status mnt").good().out;
        let order = if kind == "ext2" { "soft-updates: 0 commits" } else { "journal: " };
        assert!(status.contains(order) && status.contains(kind), "{status}");
        assert!(status.contains("patches: ") && status.contains(" hard), "), "{status}");
        let told = bench.run("status --json mnt").good().out;
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        let order = &told["result"][0]["write_order"];
        let count = |word: &str| order[word].as_u64().unwrap_or_else(|| panic!("{word}: {order}"));
        let joined = ["joined_hard", "joined_overlapped", "joined_near"].map(count);
        assert_eq!(joined.iter().sum::<u64>(), count("joined"));
        assert!(count("joined_hard") > 0 && (1..count("patches")).contains(&count("hard")));
        assert!(count("kept_bytes") >= count("undo_bytes"));
        assert!(count("written_bytes") >= count("twice_bytes"));
        assert_eq!(count("waiting") == 0, count("graph_bytes") == 0);
        assert_eq!(digest(&bench, "mnt"), digest(&bench, "plain"));
        bench.run("unmount mnt").good();
        judge(&bench).good();
        let seen = bench.host(&["mount", "-o", "loop,ro", "-t", "ext4", "disk.img", "mnt"]);
        if seen.status != 0 {
            eprintln!("skipped: the kernel does not mount {kind} here: {}", seen.err);
            continue;
        }
        let (ours, kernels) = (digest(&bench, "plain"), digest(&bench, "mnt"));
        bench.host(&["umount", "mnt"]).good();
        assert_eq!(ours, kernels);
    }
}

#[test]
fn what_the_kernel_has_made_is_served_and_changed() {
    let Some(bench) = bench("ext3") else { return };
    let seen = bench.host(&["mount", "-o", "loop", "-t", "ext4", "disk.img", "mnt"]);
    if seen.status != 0 {
        eprintln!("skipped: the kernel does not mount ext3 here: {}", seen.err);
        return;
    }
    // Enough names for an index.
    let made = (0..900).try_for_each(|which| fs::write(bench.path(&format!("mnt/{which}")), "k"));
    let tree = make_tree(&bench.path("mnt"));
    let before = digest(&bench, "mnt");
    bench.make_folder("other");
    let beside = bench.run("mount disk.img other");
    bench.host(&["umount", "mnt"]).good();
    assert!(beside.status != 0 && beside.err.contains("in use by the loop device"), "{beside:?}");
    made.and(tree).unwrap();
    // The mount is also seen in namespaces that other tests have made meanwhile.
    let loops = || bench.host(&["losetup", "--associated", "disk.img"]).out;
    wait_for("no loop device has the image", || loops().trim().is_empty());
    bench.run("mount disk.img mnt").good();
    assert_eq!(digest(&bench, "mnt"), before);
    (0..450).for_each(|which| fs::remove_file(bench.path(&format!("mnt/{which}"))).unwrap());
    (0..300).for_each(|which| fs::write(bench.path(&format!("mnt/n{which}")), "n").unwrap());
    let after = digest(&bench, "mnt");
    bench.run("unmount mnt").good();
    judge(&bench).good();
    bench.host(&["mount", "-o", "loop", "-t", "ext4", "disk.img", "mnt"]).good();
    let kernels = digest(&bench, "mnt");
    bench.host(&["umount", "mnt"]).good();
    assert_eq!(kernels, after);
}

#[test]
fn a_killed_daemon_leaves_what_was_synced_and_an_image_that_goes_on() {
    let Some(bench) = bench("ext2") else { return };
    for round in 0..3_u64 {
        bench.run("mount disk.img mnt -o commit=1").good();
        let top = bench.path(&format!("mnt/round{round}"));
        fs::create_dir(&top).unwrap();
        fs::write(top.join("kept"), [7; 9000]).unwrap();
        fs::File::open(top.join("kept")).unwrap().sync_all().unwrap();
        let unpacking = std::thread::spawn(move || {
            (0..).try_for_each(|which| make_tree(&top.join(format!("t{which}"))))
        });
        std::thread::sleep(Duration::from_millis(600 + 500 * round));
        kill(&bench);
        assert!(unpacking.join().unwrap().is_err(), "it went on until the daemon died");
        let said = judge(&bench);
        let is_known = |line: &str| {
            line.is_empty()
                || MAY_BE_SAID.iter().chain(&MAY_BE_SAID_TOO).any(|it| line.contains(it))
        };
        let other: Vec<&str> = said.out.lines().filter(|line| !is_known(line)).collect();
        assert!(other.is_empty() && !said.out.contains(" +"), "{other:?}: {}", said.out);
    }
    bench.run("mount disk.img mnt").good();
    for round in 0..3 {
        let kept = fs::read(bench.path(&format!("mnt/round{round}/kept"))).unwrap();
        assert!(kept == [7; 9000], "round {round}");
    }
    fs::write(bench.path("mnt/after"), "goes on").unwrap();
    // What leaked is given back meanwhile, and then nothing is found.
    let began = Instant::now();
    loop {
        bench.run("unmount mnt").good();
        if judge(&bench).status == 0 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", judge(&bench));
        bench.run("mount disk.img mnt").good();
        std::thread::sleep(Duration::from_secs(5));
    }
}

#[test]
fn a_killed_daemon_leaves_a_journal_that_linux_and_e2fsck_replay() {
    let Some(bench) = bench("ext3") else { return };
    for (round, order) in ["journal", "journal-full", "journal-writeback"].into_iter().enumerate() {
        bench.run(&format!("mount disk.img mnt -o commit=1,consistency={order}")).good();
        let top = bench.path(&format!("mnt/{order}"));
        fs::create_dir(&top).unwrap();
        fs::write(top.join("kept"), [7; 9000]).unwrap();
        fs::File::open(top.join("kept")).unwrap().sync_all().unwrap();
        let unpacking = std::thread::spawn(move || {
            // Older trees go, so that the image does not become full.
            (0_u64..).try_for_each(|which| {
                make_tree(&top.join(format!("t{which}")))?;
                let older = which.checked_sub(1).map(|older| top.join(format!("t{older}")));
                older.map_or(Ok(()), fs::remove_dir_all)
            })
        });
        std::thread::sleep(Duration::from_millis(1200));
        // What a daemon that stands still has written is what a crash leaves.
        let daemon = Pid::from_raw(bench.daemon_pid("mnt")).unwrap();
        stop(daemon);
        let copied = bench.host(&["cp", "disk.img", "copy.img"]);
        kill_process(daemon, Signal::CONT).unwrap();
        copied.good();
        kill(&bench);
        assert!(unpacking.join().unwrap().is_err(), "it went on until the daemon died");
        // A mount that only reads replays the journal in memory.
        let sum = |bench: &Workbench| bench.host(&["cksum", "copy.img"]).good().out;
        let before = sum(&bench);
        bench.run("mount copy.img mnt -o ro").good();
        let kept = fs::read(bench.path(&format!("mnt/{order}/kept")));
        bench.run("unmount mnt").good();
        assert!(kept.unwrap() == [7; 9000], "{order}, read only");
        assert_eq!(sum(&bench), before, "{order}: nothing is written");
        for image in ["copy.img", "disk.img"] {
            let copy = format!("{image}.checked");
            bench.host(&["cp", image, &copy]).good();
            let replayed = bench.host(&["/usr/sbin/e2fsck", "-p", &copy]);
            assert!([0, 1].contains(&replayed.status), "{order}, {image}: {replayed:?}");
            bench.host(&["/usr/sbin/e2fsck", "-fn", &copy]).good();
        }
        let seen = bench.host(&["mount", "-o", "loop", "-t", "ext4", "copy.img", "mnt"]);
        if seen.status == 0 {
            let kept = fs::read(bench.path(&format!("mnt/{order}/kept")));
            bench.host(&["umount", "mnt"]).good();
            assert!(kept.unwrap() == [7; 9000], "{order}, round {round}");
            bench.host(&["/usr/sbin/e2fsck", "-fn", "copy.img"]).good();
        } else {
            eprintln!("skipped: the kernel does not mount ext3 here: {}", seen.err);
        }
    }
    bench.run("mount disk.img mnt").good();
    for order in ["journal", "journal-full", "journal-writeback"] {
        let kept = fs::read(bench.path(&format!("mnt/{order}/kept"))).unwrap();
        assert!(kept == [7; 9000], "{order}");
    }
    bench.run("unmount mnt").good();
    judge(&bench).good();
}

/// What the user does. The test plays one in a mount namespace of its own, where `/dev/fuse` is
/// open to all as on an ordinary system.
const USER: &str = r#"
set -eux
user() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$THEIRS" "$@"; }
cd "$THEIRS"
user mkdir mnt
user /usr/sbin/mke2fs -q -t ext3 -E root_owner=65534:65534 disk.img 64M
user "$THEIRS/marram" mount disk.img mnt
user mkdir mnt/tree
user cp -r /usr/share/doc/base-files mnt/tree/
user chmod 700 mnt/tree
test "$(user stat -c '%u %a' mnt/tree)" = "65534 700"
user "$THEIRS/marram" unmount mnt
/usr/sbin/e2fsck -fn disk.img
/usr/sbin/debugfs -R 'ls -l /tree' disk.img | grep base-files
if user "$THEIRS/marram" mount disk.img mnt -o fakeroot,allow_other; then exit 1; fi
user "$THEIRS/marram" mount disk.img mnt -o fakeroot
user mkdir mnt/etc
user sh -c 'echo secret > mnt/etc/shadow'
user chown 0:42 mnt/etc/shadow
user chmod 600 mnt/etc/shadow
user cat mnt/etc/shadow
user mknod mnt/etc/pipe p
user chown 12:34 mnt/etc/pipe
user "$THEIRS/marram" unmount mnt
/usr/sbin/e2fsck -fn disk.img
/usr/sbin/debugfs -R 'stat /etc/shadow' disk.img | grep -E 'Mode: +0600'
/usr/sbin/debugfs -R 'stat /etc/shadow' disk.img | grep -E 'User: +0 +Group: +42'
/usr/sbin/debugfs -R 'stat /etc/pipe' disk.img | grep -E 'Type: FIFO'
/usr/sbin/debugfs -R 'stat /etc/pipe' disk.img | grep -E 'User: +12 +Group: +34'
"#;

#[test]
fn an_ordinary_user_unpacks_a_tree_into_an_image() {
    let Some(bench) = bench("ext3") else { return };
    let has = |name: &str| Path::new("/usr/bin").join(name).exists();
    if !["unshare", "setpriv", "fusermount3"].into_iter().all(has) {
        eprintln!("skipped: unshare, setpriv and fusermount3 are needed");
        return;
    }
    let theirs = bench.make_folder("theirs");
    fs::copy(env!("CARGO_BIN_EXE_marram"), theirs.join("marram")).unwrap();
    fs::write(theirs.join("script"), USER).unwrap();
    for path in [bench.path("."), theirs.clone()] {
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    std::os::unix::fs::chown(&theirs, Some(65_534), Some(65_534)).unwrap();
    let enter = format!(
        "set -e; mknod {0}/fuse c 10 229; chmod 666 {0}/fuse; mount --bind {0}/fuse /dev/fuse; \
         exec sh {0}/script",
        theirs.display()
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-c", &enter]);
    unshare.env("THEIRS", &theirs).env_remove("XDG_RUNTIME_DIR").env_remove("XDG_STATE_HOME");
    let played = outcome(unshare.env_remove("XDG_DATA_HOME"));
    assert_eq!(played.status, 0, "{}\n{}", played.out, played.err);
}

#[test]
fn names_of_an_image_are_found_without_case() {
    let Some(bench) = bench("ext3") else { return };
    let at = |text: &str| bench.path(&format!("mnt/{text}"));
    let read = |text: &str| fs::read_to_string(at(text)).ok();
    let listed = |folder: &str| {
        let entries = fs::read_dir(bench.path(folder)).unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| name != "lost+found");
        names.sort();
        names
    };
    bench.run("mount disk.img mnt").good();
    for text in ["Makefile", "makefile"] {
        fs::write(at(text), text).unwrap();
    }
    bench.run("unmount mnt").good();
    bench.run("mount disk.img mnt -o casefold").good();
    assert_eq!(listed("mnt"), ["Makefile", "makefile"], "both are shown as they are stored");
    assert_eq!(read("makefile").as_deref(), Some("makefile"));
    assert_eq!(read("MAKEFILE").as_deref(), Some("Makefile"), "the first in the order of bytes");
    fs::create_dir(at("Dir")).unwrap();
    fs::write(at("DIR/Stra\u{df}e"), "one").unwrap();
    assert_eq!(read("dir/STRASSE").as_deref(), Some("one"));
    let again = fs::OpenOptions::new().write(true).create_new(true).open(at("dir/strasse"));
    assert_eq!(again.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    // What the kernel has seen under one spelling says nothing once another has changed.
    for _ in 0..20 {
        let spellings = ["dir/foo", "dir/FOO", "dir/Foo"];
        assert!(spellings.iter().all(|text| read(text).is_none()));
        fs::write(at("dir/fOO"), "1").unwrap();
        assert!(spellings.iter().all(|text| read(text).as_deref() == Some("1")));
        fs::rename(at("dir/FOO"), at("dir/bar")).unwrap();
        assert!(spellings.iter().all(|text| read(text).is_none()));
        fs::write(at("dir/other"), "2").unwrap();
        fs::rename(at("dir/OTHER"), at("dir/Bar")).unwrap();
        assert_eq!(read("dir/BAR").as_deref(), Some("2"));
        assert_eq!(listed("mnt/dir"), ["Bar", "Stra\u{df}e"]);
        fs::remove_file(at("DIR/bAR")).unwrap();
        assert!(read("dir/bar").is_none() && read("dir/other").is_none());
    }
    fs::rename(at("dir/strasse"), at("dir/third")).unwrap();
    fs::rename(at("dir/third"), at("dir/STRASSE")).unwrap();
    bench.make_folder("second");
    let other = bench.run("mount disk.img second");
    assert!(other.status != 0 && other.err.contains("casefold"), "{other:?}");
    bench.run("unmount mnt").good();
    judge(&bench).good();
    bench.run("mount disk.img mnt").good();
    assert_eq!(listed("mnt/Dir"), ["STRASSE"]);
    assert!(read("MAKEFILE").is_none(), "the image itself is as it was");
    bench.run("unmount mnt").good();
}

/// Two partitions, the second one with an image that begins at its sector.
const DISK: &str = "label: dos\nstart=2048, size=40960\nstart=43008, size=131072\n";
const SECOND: u64 = 43_008 * 512;

#[test]
fn a_partition_of_a_disk_is_served_and_the_rest_of_the_disk_stays() {
    let Some(bench) = bench("ext3") else { return };
    if !Path::new("/usr/sbin/sfdisk").exists() {
        eprintln!("skipped: sfdisk is needed");
        return;
    }
    fs::write(bench.path("layout"), DISK).unwrap();
    bench.host(&["truncate", "-s", "100M", "whole.img"]).good();
    bench
        .host(&[
            "sh",
            "-c",
            "/usr/sbin/sfdisk -q --force --no-reread --no-tell-kernel whole.img < layout",
        ])
        .good();
    let offset = format!("offset={SECOND}");
    let none = bench.run(&format!("mount whole.img mnt -o {offset}"));
    assert!(none.status != 0 && none.err.contains("begins at byte 22020096"), "{none:?}");
    assert!(none.err.contains("sfdisk -d"), "{none:?}");
    let outside = bench.run("mount whole.img mnt -o offset=200M");
    assert!(outside.status != 0 && outside.err.contains("no ext2 or ext3 image"), "{outside:?}");
    let seek = format!("seek={}", SECOND >> 20);
    bench.host(&["dd", "if=disk.img", "of=whole.img", "bs=1M", "conv=notrunc", &seek]).good();
    let rest = |bench: &Workbench| {
        let disk = fs::read(bench.path("whole.img")).unwrap();
        let end = SECOND as usize + (64 << 20);
        [&disk[..SECOND as usize], &disk[end..]].concat()
    };
    let before = rest(&bench);
    bench.run(&format!("mount whole.img mnt -o {offset}")).good();
    make_tree(&bench.path("mnt")).unwrap();
    let tree = digest(&bench, "mnt");
    assert!(bench.run("status mnt").good().out.contains("journal"));
    bench.run("unmount mnt").good();
    assert!(rest(&bench) == before, "bytes outside of the partition have changed");
    let skip = format!("skip={}", SECOND >> 20);
    bench.host(&["dd", "if=whole.img", "of=disk.img", "bs=1M", "count=64", &skip]).good();
    judge(&bench).good();
    bench.run("mount disk.img mnt -o ro").good();
    assert_eq!(digest(&bench, "mnt"), tree);
    bench.run("unmount mnt").good();
    remounted_in_its_place(&bench, &offset);
    assert!(rest(&bench) == before, "bytes outside of the partition have changed");
}

/// A mount that is made writable is of the same partition, and the disk names it.
fn remounted_in_its_place(bench: &Workbench, offset: &str) {
    bench.run(&format!("mount whole.img mnt -o ro,{offset}")).good();
    assert!(bench.run("status whole.img").good().out.contains(offset));
    bench.run("mount whole.img mnt -o remount,noexec").good();
    assert!(fs::write(bench.path("mnt/new"), "").is_err(), "nobody said that it can be written");
    bench.run("mount whole.img mnt -o remount,rw").good();
    fs::write(bench.path("mnt/new"), "new").unwrap();
    bench.run("unmount whole.img").good();
}

#[test]
fn an_ext4_image_is_read_and_not_changed() {
    let Some(bench) = bench("ext4") else { return };
    fs::create_dir(bench.path("from")).unwrap();
    make_tree(&bench.path("from")).unwrap();
    let make = ["/usr/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-d", "from", "four.img", "64M"];
    bench.host(&make).good();
    let before = fs::read(bench.path("four.img")).unwrap();
    bench.run("mount four.img mnt -o ro").good();
    fs::remove_dir(bench.path("mnt/lost+found")).unwrap_err();
    assert!(bench.run("status mnt").good().out.contains("an ext4 image"));
    let shown = digest(&bench, "mnt");
    fs::create_dir(bench.path("from/lost+found")).unwrap();
    assert_eq!(shown, digest(&bench, "from"));
    bench.run("unmount mnt").good();
    assert!(fs::read(bench.path("four.img")).unwrap() == before, "nothing is written");
}

#[test]
fn what_is_not_served_is_refused_by_name() {
    let Some(bench) = bench("ext2") else { return };
    for (line, words) in [
        ("mount disk.img mnt -o consistency=journal", "journal needs a journal"),
        ("mount disk.img mnt -o consistency=ordered", "is not one of"),
        ("mount disk.img mnt -o dataset=other", "has no datasets"),
        ("check disk.img", "e2fsck -fn"),
        ("create disk.img --size 64M", "ext2"),
        ("snapshot disk.img@s", "has no snapshots"),
        ("get disk.img", "has no properties"),
        ("undo disk.img", "has no log of operations"),
    ] {
        let said = bench.run(line);
        assert!(said.status != 0 && said.err.contains(words), "{line}: {said:?}");
    }
    bench.host(&["/usr/sbin/mke2fs", "-q", "-F", "-t", "ext4", "four.img", "64M"]).good();
    let said = bench.run("mount four.img mnt");
    assert!(said.status != 0 && said.err.contains("the feature extents"), "{said:?}");
    assert!(said.err.contains("mount it with `ro`"), "{said:?}");
    bench.run("create work.pool --size 128M").good();
    for option in ["consistency=async", "fakeroot", "casefold"] {
        let said = bench.run(&format!("mount work.pool mnt -o {option}"));
        assert!(said.status != 0 && said.err.contains("ext2 and ext3 images only"), "{said:?}");
    }
    for (option, homes) in [
        ("offset=0,durable=each", "pmem homes only"),
        ("cache=64M", "pools and databases only"),
        ("defragment=3600", "pools only"),
        ("ro,norecovery", "pools only"),
    ] {
        let said = bench.run(&format!("mount disk.img mnt -o {option}"));
        assert!(said.status != 0 && said.err.contains(homes), "{said:?}");
    }
    bench.run("mount disk.img mnt -o consistency=async").good();
    let twice = bench.run("mount disk.img mnt -o consistency=soft-updates");
    assert!(twice.status != 0, "{twice:?}");
    assert!(bench.run("list mnt").good().out.contains("root  dataset"));
    bench.run("label mnt other").good();
    assert!(bench.run("status mnt").good().out.contains("other"));
    bench.run("unmount mnt").good();
    judge(&bench).good();
}
