//! What makes no sense of snapshots, forks and merges: each is refused with a reason, and nothing
//! has changed.

use crate::tree::shell;
use crate::workbench;
use crate::workbench::Workbench;
use std::fs;
use std::io::Write;

fn mounted() -> Option<Workbench> {
    let bench = workbench::mounted()?;
    bench.make_folder("mnt/src/lib");
    fs::write(bench.path("mnt/src/a"), "one\n").expect("written");
    fs::write(bench.path("mnt/src/lib/b"), "b\n").expect("written");
    bench.run("snapshot mnt@s").good();
    bench.run("snapshot mnt@t").good();
    bench.run("clone mnt@s copy").good();
    bench.run("fork mnt/src work").good();
    Some(bench)
}

fn end(bench: &Workbench) {
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}

/// All that there is: datasets with what holds them, the log, and each file of the tree and of the
/// forks.
fn all(bench: &Workbench) -> String {
    let lists = bench.run("list mnt --all --json").result();
    let rows = lists[0]["datasets"].as_array().expect("a list");
    let names: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {} {}", row["name"], row["origin"], row["holds"]))
        .collect();
    let log = bench.run("log mnt --json").result();
    let files = "find mnt mnt/.marram/forks -type f -exec cksum {} + | sort";
    let files = shell(bench, files).good().out;
    format!("{names:#?}\n{log:#}\n{files}")
}

/// Each line is refused with this status and these words, and changes nothing.
fn refuse(bench: &Workbench, lines: &[(&str, i32, &str)]) {
    let before = all(bench);
    for (line, status, words) in lines {
        bench.run(line).refused(*status, &[words]);
        assert_eq!(all(bench), before, "{line}");
    }
}

#[test]
fn names_that_exist_are_not_taken_again() {
    let Some(bench) = mounted() else { return };
    refuse(
        &bench,
        &[
            ("snapshot mnt@s", 1, "root@s exists"),
            ("clone mnt@s copy", 1, "copy exists"),
            ("clone mnt@s work", 1, "work exists"),
            ("clone mnt@s root", 1, "root exists"),
            ("create mnt --dataset copy", 1, "copy exists"),
            ("fork mnt/src work", 1, "work exists"),
            ("fork mnt/src copy", 1, "copy exists"),
            ("rename mnt@s t", 1, "root@t exists"),
            ("rename mnt copy --dataset work", 1, "copy exists"),
            ("snapshot mnt@fork:work", 2, "fork:"),
            ("create mnt --dataset undo:1", 2, "own"),
        ],
    );
    // A clone cannot take a snapshot over that would have the name of one of its own.
    bench.run("snapshot mnt@s --dataset copy").good();
    refuse(&bench, &[("promote mnt copy", 1, "copy@s exists")]);
    end(&bench);
}

#[test]
fn merges_of_what_is_no_fork_or_has_no_common_past_are_refused() {
    let Some(bench) = mounted() else { return };
    bench.run("create mnt --dataset strange").good();
    bench.make_folder("strange");
    bench.run("mount work.pool strange --dataset strange").good();
    refuse(
        &bench,
        &[
            ("merge mnt --fork copy", 2, "copy is no fork"),
            ("merge mnt --fork root", 2, "root is no fork"),
            ("merge strange", 2, "strange is no fork"),
            ("merge mnt --fork strange", 2, "strange is no fork"),
            ("merge mnt --fork none", 10, "none"),
            ("merge mnt/.marram/snapshots/s", 2, "in the snapshot root@s"),
            ("merge work.pool", 2, "--fork"),
            ("diff mnt strange", 1, "no common past"),
            ("promote mnt root", 2, "no clone"),
            ("promote mnt strange", 2, "no clone"),
        ],
    );
    // One that was promoted is the parent of what was its own.
    bench.run("promote mnt work").good();
    refuse(&bench, &[("merge mnt --fork work", 2, "work is no fork")]);
    end(&bench);
}

#[test]
fn nothing_goes_on_from_a_fork_that_was_destroyed() {
    let Some(bench) = mounted() else { return };
    bench.make_folder("at");
    // Kept for an undo, or gone for good: for a command that names it there is no difference.
    for how in ["--yes", "--yes --now"] {
        bench.run(&format!("destroy fork mnt work {how}")).good();
        refuse(
            &bench,
            &[
                ("fork mnt/.marram/forks/work inner", 10, "work"),
                ("fork mnt inner --dataset work", 10, "work"),
                ("snapshot mnt@x --dataset work", 10, "work"),
                ("merge mnt --fork work", 10, "work"),
                ("diff mnt/.marram/forks/work", 10, "work"),
                ("rollback mnt --to work", 10, "work"),
                ("mount work.pool at --fork work", 10, "work"),
                ("promote mnt work", 10, "work"),
                ("destroy fork mnt work --yes", 10, "work"),
            ],
        );
        bench.run("fork mnt/src work").good();
    }
    bench.run("fork mnt/.marram/forks/work/lib inner").good();
    refuse(&bench, &[("destroy fork mnt work --yes", 11, "inner began as it")]);
    end(&bench);
}

#[test]
fn a_merge_that_would_put_directories_into_each_other_changes_nothing() {
    let Some(bench) = mounted() else { return };
    bench.make_folder("mnt/two/a");
    bench.make_folder("mnt/two/b");
    bench.run("fork mnt/two loop").good();
    let fork = bench.path("mnt/.marram/forks/loop");
    fs::rename(fork.join("a"), fork.join("b/a")).unwrap();
    fs::write(fork.join("new"), "new\n").unwrap();
    fs::rename(bench.path("mnt/two/b"), bench.path("mnt/two/a/b")).unwrap();
    let before = all(&bench);
    for choice in ["", "--theirs"] {
        let told = bench.run(&format!("merge mnt --fork loop {choice}"));
        assert_eq!(told.status, 4, "{told:?}");
        assert!(told.out.contains("conflict: loop "), "{told:?}");
        assert_eq!(all(&bench), before, "{choice}");
    }
    bench.run("merge mnt --fork loop --ours").good();
    assert!(bench.path("mnt/two/a/b").exists() && bench.path("mnt/two/new").exists());
    end(&bench);
}

/// Writes what does not compress, until nothing more fits.
fn fill(bench: &Workbench) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for (name, len) in [("mnt/filler", 1 << 20), ("mnt/more", 4096)] {
        let mut file = fs::File::create(bench.path(name)).unwrap();
        loop {
            let word = |_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
                (state >> 33) as u8
            };
            let content: Vec<u8> = (0..len).map(word).collect();
            if file.write_all(&content).and_then(|()| file.sync_data()).is_err() {
                break;
            }
        }
    }
}

#[test]
fn a_merge_into_a_full_pool_says_so_and_changes_nothing() {
    let Some(bench) = mounted() else { return };
    // What is kept for an undo would make room.
    bench.run("set mnt undo=off").good();
    let fork = bench.path("mnt/.marram/forks/work");
    for number in 0..100 {
        fs::write(fork.join(format!("file-{number}")), format!("{number}\n").repeat(200)).unwrap();
    }
    fs::write(fork.join("a"), "changed\n").unwrap();
    bench.run("merge mnt --fork work --preview").good();
    fill(&bench);
    let before = all(&bench);
    let preview = bench.run("merge mnt --fork work --preview");
    assert!(preview.status == 1 && preview.out.contains("no space left"), "{preview:?}");
    bench.run("merge mnt --fork work").refused(1, &["no space left", "marram grow"]);
    assert_eq!(all(&bench), before);
    fs::remove_file(bench.path("mnt/filler")).unwrap();
    bench.run("merge mnt --fork work").good();
    assert_eq!(fs::read_to_string(bench.path("mnt/src/a")).unwrap(), "changed\n");
    assert!((0..100).all(|number| bench.path("mnt/src").join(format!("file-{number}")).exists()));
    end(&bench);
}

#[test]
fn a_path_in_a_snapshot_stands_for_nothing_that_changes() {
    let Some(bench) = workbench::mounted() else { return };
    fs::write(bench.path("mnt/a"), "one").unwrap();
    bench.run("snapshot mnt@s").good();
    fs::write(bench.path("mnt/a"), "two").unwrap();
    bench.make_folder("old");
    bench.run("mount work.pool@s old").good();
    for place in ["mnt/.marram/snapshots/s", "old"] {
        bench.run(&format!("rollback {place}@s")).refused(2, &["in the snapshot root@s"]);
        bench.run(&format!("merge {place}")).refused(2, &["in the snapshot root@s"]);
    }
    assert_eq!(fs::read(bench.path("mnt/a")).unwrap(), b"two");
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}
