//! Snapshots and forks as a mount shows them below `.marram`, and forks mounted alone.

use crate::workbench;
use crate::workbench::Workbench;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

/// A mounted pool with `src/lib/a` and `src/b`, and a snapshot `s` of that.
fn mounted() -> Option<Workbench> {
    let bench = workbench::mounted()?;
    bench.make_folder("mnt/src/lib");
    fs::write(bench.path("mnt/src/lib/a"), "one\n").expect("written");
    fs::write(bench.path("mnt/src/b"), "two\n").expect("written");
    bench.run("snapshot mnt@s").good();
    Some(bench)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a listing");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

/// Unmounts, and has the pool verified.
fn end(bench: &Workbench) {
    bench.run("unmount work.pool").good();
    assert!(bench.mounts().is_empty());
    bench.run("check work.pool --data").good();
}

#[test]
fn snapshots_are_seen_below_the_hidden_directory() {
    let Some(bench) = mounted() else { return };
    let read = |path: &str| fs::read_to_string(bench.path(path)).unwrap();
    fs::write(bench.path("mnt/src/b"), "changed\n").unwrap();
    assert_eq!(names(&bench.path("mnt")), ["src"]);
    assert_eq!(names(&bench.path("mnt/.marram")), ["forks", "snapshots", "users"]);
    assert_eq!(names(&bench.path("mnt/.marram/snapshots")), ["s"]);
    assert_eq!(read("mnt/.marram/snapshots/s/src/b"), "two\n");
    assert_eq!(read("mnt/src/b"), "changed\n");
    let write = fs::write(bench.path("mnt/.marram/snapshots/s/src/b"), "x").unwrap_err();
    assert_eq!(write.raw_os_error(), Some(30), "read-only");
    assert!(!bench.path("mnt/.marram/snapshots/t").exists());
    bench.run("snapshot mnt@t").good();
    assert_eq!(names(&bench.path("mnt/.marram/snapshots")), ["s", "t"]);
    assert_eq!(read("mnt/.marram/snapshots/t/src/b"), "changed\n");

    let ino = |path: &str| fs::metadata(bench.path(path)).unwrap().ino();
    assert_ne!(ino("mnt/src/b"), ino("mnt/.marram/snapshots/s/src/b"));
    assert_ne!(ino("mnt/.marram/snapshots/t/src/b"), ino("mnt/.marram/snapshots/s/src/b"));
    let device = |path: &str| fs::metadata(bench.path(path)).unwrap().dev();
    assert_eq!(device("mnt"), device("mnt/.marram/snapshots/s"));
    assert!(fs::create_dir(bench.path("mnt/.marram/snapshots/u")).is_err());
    assert!(fs::create_dir(bench.path("mnt/.marram")).is_err());

    let mut open = fs::File::open(bench.path("mnt/.marram/snapshots/s/src/b")).unwrap();
    bench.run("destroy snapshot mnt@s --yes").good();
    assert!(!bench.path("mnt/.marram/snapshots/s").exists());
    assert_eq!(names(&bench.path("mnt/.marram/snapshots")), ["t"]);
    let mut text = String::new();
    assert_ne!(open.read_to_string(&mut text).ok(), Some(0), "gone or from the cache, never empty");
    drop(open);
    end(&bench);
}

#[test]
fn programs_that_walk_a_tree_are_not_confused_by_members() {
    let Some(bench) = mounted() else { return };
    bench.run("fork mnt/src work").good();
    let run = |line: &str| {
        let mut words = line.split(' ');
        let mut command = Command::new(words.next().unwrap());
        let output = command.args(words).current_dir(bench.path("mnt")).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run("find . -xdev -type f").lines().count(), 2, "nothing hidden is listed");
    assert_eq!(run("find .marram -xdev -type f").lines().count(), 4);
    run("cp -a .marram/snapshots/s/src copy");
    assert_eq!(run("diff -r copy src"), "");
    let blocks = |path: &str| run(&format!("du -s {path}"));
    assert_eq!(blocks(".marram/forks/work").split('\t').next(), blocks("src").split('\t').next());
    end(&bench);
}

#[test]
fn a_fork_of_a_directory_is_changed_beside_it() {
    let Some(bench) = mounted() else { return };
    let made = bench.run("fork mnt/src work --json").result();
    assert!(made["engine_nanoseconds"].as_u64().unwrap() > 0);
    let fork = bench.path("mnt/.marram/forks/work");
    assert_eq!(made["path"].as_str().unwrap(), fork.canonicalize().unwrap().to_str().unwrap());
    assert_eq!(names(&fork), ["b", "lib"]);
    fs::write(fork.join("b"), "in the fork\n").unwrap();
    fs::write(fork.join("lib/new"), "new\n").unwrap();
    fs::remove_file(fork.join("lib/a")).unwrap();
    assert_eq!(fs::read_to_string(bench.path("mnt/src/b")).unwrap(), "two\n");
    assert_eq!(names(&bench.path("mnt/src/lib")), ["a"]);
    let crossed = fs::rename(fork.join("b"), bench.path("mnt/b")).unwrap_err();
    assert_eq!(crossed.raw_os_error(), Some(18), "between file systems");
    assert!(fs::hard_link(bench.path("mnt/src/b"), fork.join("c")).is_err());

    bench.run("fork mnt/.marram/forks/work/lib inner").good();
    assert_eq!(names(&bench.path("mnt/.marram/forks")), ["inner", "work"]);
    assert_eq!(names(&bench.path("mnt/.marram/forks/inner")), ["new"]);
    let graph = bench.run("forks mnt --graph").good().out;
    assert!(
        graph.starts_with("root\n`-- work (") && graph.contains("\n    `-- inner ("),
        "{graph}"
    );
    bench.run("fork mnt/src work").refused(1, &["work", "exists"]);
    bench.run("fork mnt/src/b file").refused(2, &["no directory"]);
    bench.run("fork mnt/src a/b").refused(2, &["/"]);
    bench.run("fork mnt/.marram/snapshots/s/src other").refused(2, &["snapshot", "clone"]);
    bench.run("snapshot mnt@fork:x").refused(2, &["fork:"]);

    bench.run("destroy fork mnt work --yes").refused(11, &["inner"]);
    assert_eq!(fs::read_to_string(fork.join("b")).unwrap(), "in the fork\n", "it stays whole");
    bench.run("destroy fork mnt inner --yes --now").good();
    bench.run("destroy fork mnt work --yes --now").good();
    bench.run("destroy fork mnt work --yes").refused(10, &["work"]);
    assert!(names(&bench.path("mnt/.marram/forks")).is_empty());
    let list = bench.run("list mnt -a -H").good().out;
    assert!(!list.contains("fork"), "the bases go with their forks: {list}");
    end(&bench);
}

#[test]
fn a_fork_is_seen_through_one_mount_at_a_time() {
    let Some(bench) = mounted() else { return };
    bench.run("fork mnt/src work").good();
    bench.make_folder("alone");
    let below = bench.path("mnt/.marram/forks/work");
    let mut open = fs::File::create(below.join("open")).unwrap();
    bench.run("mount work.pool alone --fork work").refused(11, &["work", ".marram/forks"]);
    open.write_all(b"still here\n").unwrap();
    drop(open);
    bench.run("mount work.pool alone --fork work").good();
    assert_eq!(fs::metadata(bench.path("alone")).unwrap().ino(), 1);
    assert_eq!(names(&bench.path("alone")), ["b", "lib", "open"]);
    assert_eq!(fs::read_to_string(bench.path("alone/open")).unwrap(), "still here\n");
    let busy = fs::read_dir(&below).unwrap_err();
    assert_eq!(busy.raw_os_error(), Some(16), "busy");
    bench.run("fork alone inner").good();
    assert_eq!(names(&bench.path("alone/.marram/forks")), ["inner"]);
    assert_eq!(names(&bench.path("alone/.marram/forks/inner")), ["b", "lib", "open"]);
    bench.run("destroy fork mnt work --yes").refused(11, &["inner began as it"]);
    bench.run("destroy fork alone inner --yes --now").good();
    bench.run("destroy fork mnt work --yes").refused(11, &["alone"]);
    bench.run("unmount alone").good();
    assert_eq!(names(&below), ["b", "lib", "open"]);
    end(&bench);
}

#[test]
fn a_snapshot_that_is_held_stays() {
    let Some(bench) = mounted() else { return };
    bench.run("hold mnt@s backup").good();
    assert!(bench.run("list mnt -H").good().out.contains("\tbackup\t"));
    bench.run("destroy snapshot mnt@s --yes").refused(11, &["backup", "release"]);
    bench.run("hold mnt@none backup").refused(10, &["none"]);
    bench.run("release mnt@s other").refused(2, &["other"]);
    bench.run("release mnt@s backup").good();
    bench.run("destroy snapshot mnt@s --yes").good();
    end(&bench);
}

#[test]
fn only_who_may_fork_can_look_into_forks() {
    let Some(bench) = mounted() else { return };
    bench.run("fork mnt/src work").good();
    let shelf = fs::metadata(bench.path("mnt/.marram/forks")).unwrap();
    assert_eq!(shelf.mode() & 0o7777, 0o700);
    assert_eq!(fs::metadata(bench.path("mnt/.marram/snapshots")).unwrap().mode() & 0o777, 0o555);
    end(&bench);
}

/// Content that does not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
        bytes.extend((state ^ (state >> 29)).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The addresses of the blocks that a file's content is in.
fn addresses(bench: &Workbench, path: &str) -> Vec<u64> {
    let rows = bench.run(&format!("--json extents {path}")).result();
    let rows = rows.as_array().expect("rows").iter();
    rows.filter_map(|row| row["block"]["address"].as_u64()).collect()
}

#[test]
fn copies_between_forks_and_snapshots_share_blocks() {
    let Some(bench) = mounted() else { return };
    let content = noise(3 << 20);
    fs::write(bench.path("mnt/large"), &content).unwrap();
    // What is in a snapshot has been written to its blocks.
    bench.run("snapshot mnt@t").good();
    bench.run("fork mnt/src try").good();
    let (kept, forked) = ("mnt/.marram/snapshots/t/large", "mnt/.marram/forks/try/large");
    fs::copy(bench.path("mnt/large"), bench.path(forked)).unwrap();
    fs::copy(bench.path(forked), bench.path("mnt/back")).unwrap();
    fs::copy(bench.path(kept), bench.path("mnt/old")).unwrap();
    bench.run("sync mnt").good();
    bench.run("snapshot mnt@committed").good();
    let blocks = addresses(&bench, "mnt/large");
    assert!(blocks.len() >= 3 << 3, "{blocks:?}");
    for copy in [forked, "mnt/back", "mnt/old"] {
        assert_eq!(addresses(&bench, copy), blocks, "{copy}");
    }
    // Never a copy, also of what waits in memory.
    fs::write(bench.path("mnt/new"), &content[..1 << 20]).unwrap();
    let fork = "mnt/.marram/forks/try";
    for (from, name) in [("mnt/new", "new"), (kept, "old")] {
        let to = &format!("{fork}/{name}");
        bench.run(&format!("reflink {from} {to}")).good();
        bench.run("snapshot mnt@shared").good();
        assert_eq!(addresses(&bench, from), addresses(&bench, to), "{from}");
        bench.run("destroy snapshot mnt@shared --yes").good();
    }
    // Each owner gives them back for itself.
    for gone in ["mnt/large", "mnt/old", "mnt/back"] {
        fs::remove_file(bench.path(gone)).unwrap();
    }
    for snapshot in ["t", "s", "committed"] {
        bench.run(&format!("destroy snapshot mnt@{snapshot} --yes")).good();
    }
    fs::write(bench.path("mnt/other"), noise(20 << 20)).unwrap();
    end(&bench);
    bench.run("mount work.pool mnt").good();
    assert!(fs::read(bench.path(forked)).unwrap() == content, "what the fork copied is whole");
    let new = fs::read(bench.path("mnt/.marram/forks/try/new")).unwrap();
    assert!(new == content[..1 << 20], "what the fork shares is whole");
    end(&bench);
}
