//! Diff, merge and rollback on real mounts, beside programs that have the tree open.

use crate::workbench;
use crate::workbench::Workbench;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::process::Stdio;

fn mounted() -> Option<Workbench> {
    let bench = workbench::mounted()?;
    bench.make_folder("mnt/src/lib");
    for (path, text) in [("src/a", "one\ntwo\nthree\n"), ("src/lib/b", "b\n"), ("other", "o\n")] {
        fs::write(bench.path("mnt").join(path), text).expect("written");
    }
    bench.run("snapshot mnt@s").good();
    Some(bench)
}

fn read(bench: &Workbench, path: &str) -> String {
    fs::read_to_string(bench.path(path)).expect("a text")
}

fn end(bench: &Workbench) {
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn where_the_kernel_says_how_long_files_are_no_other_state_is_put_below_it() {
    let Some(bench) = mounted() else { return };
    bench.run("fork mnt f").good();
    bench.run("unmount mnt").good();
    bench.run("mount work.pool mnt -o writeback").good();
    fs::write(bench.path("mnt/other"), "").unwrap();
    fs::write(bench.path("mnt/.marram/forks/f/new"), "new\n").unwrap();
    for refused in ["rollback mnt@s", "merge mnt/.marram/forks/f"] {
        bench.run(refused).refused(11, &["writeback", "unmount it"]);
    }
    let preview = bench.run("merge mnt/.marram/forks/f --preview");
    for told in ["A /new\n", "would be refused: root is mounted with writeback"] {
        assert!(preview.out.contains(told), "{preview:?}");
    }
    assert_eq!(read(&bench, "mnt/other"), "");
    fs::write(bench.path("mnt/.marram/forks/f/other"), "fork\n").unwrap();
    let refused = bench.run("merge mnt/.marram/forks/f --interactive");
    let refused = refused.refused(11, &["mounted with writeback", "unmount it"]);
    assert!(!refused.err.contains("[o]urs"), "nobody decides for nothing: {refused:?}");
    // A fork has no mount of its own here: the one that shows it is named.
    bench.run("fork mnt/.marram/forks/f g").good();
    fs::write(bench.path("mnt/.marram/forks/g/newer"), "").unwrap();
    let seen = fs::File::open(bench.path("mnt/.marram/forks/f/new")).unwrap();
    let place = format!("f is shown at {}", bench.path("mnt").display());
    bench.run("merge mnt/.marram/forks/g").refused(11, &[&place, "writeback", "unmount it"]);
    drop(seen);
    bench.run("unmount mnt").good();
    bench.run("mount work.pool mnt").good();
    bench.run("rollback mnt@s").good();
    assert_eq!(read(&bench, "mnt/other"), "o\n");
    end(&bench);
}

#[test]
fn a_diff_tells_what_happened_to_each_file() {
    let Some(bench) = mounted() else { return };
    assert_eq!(bench.run("diff mnt@s").good().out, "");
    fs::write(bench.path("mnt/src/a"), "one\nTWO\nthree\n").unwrap();
    fs::rename(bench.path("mnt/src/lib/b"), bench.path("mnt/src/c")).unwrap();
    fs::write(bench.path("mnt/src/new"), "new\n").unwrap();
    fs::remove_file(bench.path("mnt/other")).unwrap();
    let out = bench.run("diff mnt@s").good().out;
    for line in ["M /src/a\n", "R /src/lib/b -> /src/c\n", "A /src/new\n", "D /other\n"] {
        assert!(out.contains(line), "{line:?} is missing: {out}");
    }
    assert_eq!(bench.run("diff mnt@s mnt").good().out, out);
    let below = bench.run("diff mnt/src@s").good().out;
    assert!(below.contains("M /a\n") && !below.contains("other"), "{below}");
    let stat = bench.run("diff mnt@s --stat").good().out;
    assert!(stat.contains("/src/a | 3 bytes differ, 14 -> 14\n"), "{stat}");
    let patch = bench.run("diff mnt@s --patch").good().out;
    assert!(patch.contains("\n-two\n+TWO\n"), "{patch}");
    let json = bench.run("diff mnt@s --json").result();
    let rows = json["differences"].as_array().unwrap();
    let changed = rows.iter().find(|row| row["path"] == "/src/a" && row["change"] == "content");
    assert_eq!(changed.unwrap()["ranges"], serde_json::json!([[4, 7]]));
    let list = bench.run("list mnt -a -H").good().out;
    assert!(!list.contains("diff:"), "what was kept for it is gone: {list}");
    bench.run("diff mnt").refused(2, &["compared with what"]);
    bench.run("diff mnt@none").refused(10, &["none"]);
    end(&bench);
}

/// What a person reads first: few lines, whatever has changed.
#[test]
fn whole_directories_are_one_line_and_the_last_line_sums_up() {
    let Some(bench) = mounted() else { return };
    bench.make_folder("mnt/modules/deep");
    for number in 0..300 {
        fs::write(bench.path(&format!("mnt/modules/deep/f{number}")), "x").unwrap();
    }
    fs::remove_dir_all(bench.path("mnt/src/lib")).unwrap();
    fs::write(bench.path("mnt/saving"), "one\ntwo\nTHREE\n").unwrap();
    fs::rename(bench.path("mnt/saving"), bench.path("mnt/src/a")).unwrap();
    let told = bench.run("diff mnt@s").good().out;
    let wanted = "A /modules/ (300 files)\nM /src/a\nD /src/lib/ (1 file)\n\
                  1 file modified, 300 created, 1 removed; 2 directories created, 1 removed\n";
    assert_eq!(told, wanted);
    let all = bench.run("diff mnt@s --all").good().out;
    assert!(all.contains("A /modules/deep/f299\n") && all.contains("D /src/lib/b\n"), "{all}");
    let json = bench.run("diff mnt@s --json").result();
    assert_eq!(json["differences"].as_array().unwrap().len(), 305);
    assert_eq!(json["totals"]["files_created"], 300);
    let quiet = bench.run("diff mnt@s --quiet");
    assert_eq!((quiet.status, quiet.out.as_str(), quiet.err.as_str()), (4, "", ""));
    let nothing = bench.run("diff mnt mnt --quiet").good();
    assert_eq!(nothing.out, "");
    end(&bench);
}

/// What the clock on the wall says, with the zone; programs get UTC.
#[test]
fn people_read_local_times_and_programs_utc() {
    let Some(bench) = mounted() else { return };
    let east = |line: &str| {
        let mut command = bench.command();
        workbench::outcome(command.args(line.split_whitespace()).env("TZ", "XYZ-5:30")).good().out
    };
    let list = east("list mnt");
    assert!(list.contains(" +0530"), "{list}");
    let seconds = bench.run("list mnt --json").result()[0]["datasets"][0]["created_seconds"]
        .as_i64()
        .expect("seconds");
    assert!(east("list mnt --exact").contains(&seconds.to_string()));
    bench.host(&["touch", "-d", "2001-02-03T04:05:06Z", "mnt/other"]).good();
    let told = east("diff mnt@s");
    assert!(told.contains(" -> 2001-02-03 09:35:06 +0530\n"), "{told}");
    let json = bench.run("diff mnt@s --json").result();
    assert_eq!(json["differences"][0]["values"][0][2], "2001-02-03T04:05:06.000000000Z");
    end(&bench);
}

/// More than the daemon hands on at once.
#[test]
fn thousands_of_differences_are_told_whole_mounted_or_not() {
    let Some(bench) = mounted() else { return };
    let name = |number: u32| format!("src/{number:0200}");
    for number in 0..4_000 {
        fs::write(bench.path("mnt").join(name(number)), "").unwrap();
    }
    bench.run("snapshot mnt@t").good();
    let expected: Vec<String> = (0..4_000).map(|number| format!("A /{}\n", name(number))).collect();
    let out = bench.run("diff mnt@s").good().out;
    assert!(out.starts_with(&expected.concat()), "{} bytes: {:.400}", out.len(), out);
    bench.run("unmount work.pool").good();
    assert_eq!(bench.run("diff work.pool@s work.pool@t").good().out, out);
    bench.run("diff work.pool@s work.pool@none").refused(10, &["none"]);
}

#[test]
fn a_merge_is_seen_at_once_by_who_has_the_tree_open() {
    let Some(bench) = mounted() else { return };
    bench.run("fork mnt/src work").good();
    let mut open = fs::File::open(bench.path("mnt/src/a")).unwrap();
    let mut before = String::new();
    open.read_to_string(&mut before).unwrap();
    assert!(!bench.path("mnt/src/new").exists());
    assert_eq!(fs::read_dir(bench.path("mnt/src/lib")).unwrap().count(), 1);

    let fork = bench.path("mnt/.marram/forks/work");
    fs::write(fork.join("a"), "one\ntwo\nthree\nfour\n").unwrap();
    fs::write(fork.join("new"), "new\n").unwrap();
    fs::remove_file(fork.join("lib/b")).unwrap();
    fs::write(bench.path("mnt/src/beside"), "stays\n").unwrap();
    let told = bench.run("diff mnt/.marram/forks/work").good().out;
    assert!(told.contains("M /a\n") && told.contains("A /new\n"), "{told}");

    bench.run("merge mnt/.marram/forks/work --preview").good();
    assert_eq!(read(&bench, "mnt/src/a"), before);
    let merged = bench.run("merge mnt/.marram/forks/work").good().out;
    let place = bench.path("mnt/src");
    let wanted = "1 file modified, 1 created, 1 removed\n";
    assert!(merged.ends_with(&format!("work went into {}: {wanted}", place.display())), "{merged}");
    let log = bench.run("log mnt --last 1").good().out;
    assert!(log.contains(&format!("merge work into {}", place.display())), "{log}");
    let forks = bench.run("forks mnt -H").good().out;
    assert!(forks.ends_with(&format!("\t{}\n", place.display())), "{forks}");
    let again = bench.run("diff mnt/.marram/forks/work mnt/.marram/forks/work --quiet").good();
    assert_eq!(again.out, "");
    open.seek(SeekFrom::Start(0)).unwrap();
    let mut after = String::new();
    open.read_to_string(&mut after).unwrap();
    assert_eq!(after, "one\ntwo\nthree\nfour\n");
    assert_eq!(read(&bench, "mnt/src/new"), "new\n");
    assert_eq!(read(&bench, "mnt/src/beside"), "stays\n");
    assert_eq!(fs::read_dir(bench.path("mnt/src/lib")).unwrap().count(), 0);
    assert!(!bench.path("mnt/src/lib/b").exists());
    drop(open);
    bench.run("destroy fork mnt work --yes").good();
    assert_eq!(read(&bench, "mnt/src/new"), "new\n", "it is the parent's own now");
    end(&bench);
}

#[test]
fn a_conflict_is_told_and_changes_nothing_until_somebody_decides() {
    let Some(bench) = mounted() else { return };
    bench.run("fork mnt/src work").good();
    let fork = bench.path("mnt/.marram/forks/work");
    fs::write(fork.join("a"), "ONE\ntwo\nthree\n").unwrap();
    fs::write(fork.join("new"), "new\n").unwrap();
    fs::write(bench.path("mnt/src/a"), "one\ntwo\nTHREE\n").unwrap();
    let merge = bench.run("merge mnt/.marram/forks/work");
    assert_eq!(merge.status, 4, "that there are conflicts has a status of its own");
    assert!(merge.out.contains("conflict: content /a"), "{merge:?}");
    assert!(merge.out.contains("1 conflict: nothing was changed"), "{merge:?}");
    let json = bench.run("merge mnt/.marram/forks/work --json");
    assert_eq!((json.status, &json.envelope()["result"]["applied"]), (4, &false.into()));
    assert!(!bench.path("mnt/src/new").exists());
    assert_eq!(read(&bench, "mnt/src/a"), "one\ntwo\nTHREE\n");
    bench.run("merge mnt/.marram/forks/work --text --drop").good();
    assert_eq!(read(&bench, "mnt/src/a"), "ONE\ntwo\nTHREE\n");
    assert_eq!(read(&bench, "mnt/src/new"), "new\n");
    assert!(!fork.exists());
    bench.run("merge mnt --fork work").refused(10, &["work"]);
    bench.run("merge mnt").refused(2, &["no fork"]);
    end(&bench);
}

#[test]
fn somebody_who_is_asked_decides_about_each_conflict() {
    let Some(bench) = mounted() else { return };
    bench.run("fork mnt/src work").good();
    let fork = bench.path("mnt/.marram/forks/work");
    fs::write(fork.join("a"), "ONE\ntwo\nthree\n").unwrap();
    fs::write(fork.join("lib/b"), "fork\n").unwrap();
    fs::write(fork.join("new"), "new\n").unwrap();
    fs::write(bench.path("mnt/src/a"), "1\ntwo\nthree\n").unwrap();
    fs::write(bench.path("mnt/src/lib/b"), "parent\n").unwrap();
    let answer = |answers: &str| {
        let mut command = bench.command();
        command.args(["merge", "mnt/.marram/forks/work", "--interactive"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut asked = command.spawn().unwrap();
        asked.stdin.take().unwrap().write_all(answers.as_bytes()).unwrap();
        asked.wait_with_output().unwrap()
    };
    for stopped in ["l\n", "what?\nours\nabort\n"] {
        let stopped = answer(stopped);
        assert!(!stopped.status.success());
        let told = String::from_utf8(stopped.stderr).unwrap();
        assert!(told.contains("content /a") && told.contains("<<<<<<< parent"), "{told}");
        assert!(told.contains("nothing was changed"), "{told}");
        assert_eq!(read(&bench, "mnt/src/a"), "1\ntwo\nthree\n");
        assert!(!bench.path("mnt/src/new").exists());
    }
    let done = answer("l\nt\n");
    assert!(done.status.success(), "{done:?}");
    let marked = "<<<<<<< parent\n1\n||||||| base\none\n=======\nONE\n>>>>>>> fork\ntwo\nthree\n";
    assert_eq!(read(&bench, "mnt/src/a"), marked);
    assert_eq!(read(&bench, "mnt/src/lib/b"), "fork\n");
    assert_eq!(read(&bench, "mnt/src/new"), "new\n");
    end(&bench);
}

#[test]
fn what_either_side_changes_while_somebody_decides_stops_the_merge() {
    let Some(bench) = mounted() else { return };
    bench.run("fork mnt/src work").good();
    let fork = bench.path("mnt/.marram/forks/work");
    fs::write(fork.join("a"), "fork\n").unwrap();
    fs::write(bench.path("mnt/src/a"), "parent\n").unwrap();
    for changed in [bench.path("mnt/src/beside"), fork.join("beside")] {
        let mut command = bench.command();
        command.args(["merge", "mnt/.marram/forks/work", "--interactive"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut asked = command.spawn().unwrap();
        let mut prompt = asked.stderr.take().unwrap();
        let mut told = Vec::new();
        while !told.ends_with(b"[a]bort? ") {
            let mut byte = [0];
            assert_eq!(prompt.read(&mut byte).unwrap(), 1, "{}", String::from_utf8_lossy(&told));
            told.push(byte[0]);
        }
        fs::write(changed, "meanwhile\n").unwrap();
        asked.stdin.take().unwrap().write_all(b"t\n").unwrap();
        let done = asked.wait_with_output().unwrap();
        let out = String::from_utf8(done.stdout).unwrap();
        assert_eq!(done.status.code(), Some(1), "{out}");
        assert!(out.contains("has changed meanwhile: nothing was changed"), "{out}");
        assert_eq!(read(&bench, "mnt/src/a"), "parent\n");
    }
    end(&bench);
}

#[test]
fn a_rollback_is_seen_at_once_and_can_be_taken_back() {
    let Some(bench) = mounted() else { return };
    let mut open = fs::File::open(bench.path("mnt/src/a")).unwrap();
    fs::write(bench.path("mnt/src/a"), "changed\n").unwrap();
    fs::write(bench.path("mnt/src/new"), "new\n").unwrap();
    let mut lost = fs::File::open(bench.path("mnt/src/new")).unwrap();
    fs::remove_file(bench.path("mnt/other")).unwrap();
    assert_eq!(read(&bench, "mnt/src/a"), "changed\n");
    let done = bench.run("rollback mnt@s --json").result();
    assert_eq!(done["kept"], "root@before-rollback-1");
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one\ntwo\nthree\n");
    assert_eq!(read(&bench, "mnt/other"), "o\n");
    assert!(!bench.path("mnt/src/new").exists());
    assert!(lost.read(&mut [0; 10]).is_err(), "it is no more");
    assert_eq!(read(&bench, "mnt/.marram/snapshots/before-rollback-1/src/new"), "new\n");

    fs::write(bench.path("mnt/src/after"), "after\n").unwrap();
    assert!(lost.read(&mut [0; 10]).is_err(), "a new file has another number");
    bench.run("rollback mnt@before-rollback-1").good();
    assert_eq!(read(&bench, "mnt/src/a"), "changed\n");
    assert_eq!(read(&bench, "mnt/src/new"), "new\n");
    assert!(!bench.path("mnt/src/after").exists() && !bench.path("mnt/other").exists());
    bench.run("rollback mnt@none").refused(10, &["none"]);
    drop((open, lost));
    end(&bench);
    bench.run("rollback work.pool@s --discard").good();
    bench.run("mount work.pool mnt").good();
    assert_eq!(read(&bench, "mnt/other"), "o\n");
    end(&bench);
}

#[test]
fn a_rollback_of_many_names_is_seen_at_once() {
    let Some(bench) = mounted() else { return };
    let file = |number: usize| bench.path("mnt/src").join(format!("many-{number}"));
    for number in 0..400 {
        fs::write(file(number), "").unwrap();
    }
    assert_eq!(fs::read_dir(bench.path("mnt/src")).unwrap().count(), 402);
    bench.run("rollback mnt@s").good();
    assert!((0..400).all(|number| !file(number).exists()));
    assert_eq!(fs::read_dir(bench.path("mnt/src")).unwrap().count(), 2);
    bench.run("rollback mnt@before-rollback-1").good();
    assert!((0..400).all(|number| file(number).exists()));
    end(&bench);
}

#[test]
fn one_directory_goes_back_while_programs_use_it_and_what_is_beside_it() {
    let Some(bench) = mounted() else { return };
    let mut open = fs::File::open(bench.path("mnt/src/a")).unwrap();
    let mut log = fs::OpenOptions::new().append(true).open(bench.path("mnt/other")).unwrap();
    fs::write(bench.path("mnt/src/a"), "changed and longer than before\n").unwrap();
    fs::write(bench.path("mnt/src/new"), "new\n").unwrap();
    fs::remove_file(bench.path("mnt/src/lib/b")).unwrap();
    log.write_all(b"more\n").unwrap();
    assert_eq!(fs::read_dir(bench.path("mnt/src")).unwrap().count(), 3);
    assert_eq!(read(&bench, "mnt/src/a"), "changed and longer than before\n");

    let done = bench.run("rollback mnt/src@s --json").result();
    assert_eq!((&done["kept"], &done["changed"]), (&"root@before-rollback-1".into(), &true.into()));
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one\ntwo\nthree\n", "who has it open sees it at once");
    assert!(!bench.path("mnt/src/new").exists());
    assert_eq!(read(&bench, "mnt/src/lib/b"), "b\n");
    log.write_all(b"still\n").unwrap();
    assert_eq!(read(&bench, "mnt/other"), "o\nmore\nstill\n");
    let left = bench.run("diff mnt/src@s").good().out;
    assert!(!left.contains("/a") && !left.contains("new"), "{left}");
    assert_eq!(read(&bench, "mnt/.marram/snapshots/before-rollback-1/src/new"), "new\n");
    let out = bench.run("rollback mnt/src@s").good().out;
    assert!(out.contains("is as it was in root@s"), "{out}");

    let told = bench.run("log mnt --last 1").good().out;
    let back = format!("rollback of {} to root@s", bench.path("mnt/src").display());
    assert!(told.contains(&back), "{told}");
    fs::write(bench.path("mnt/src/since"), "since\n").unwrap();
    bench.run("undo mnt").good();
    assert_eq!(read(&bench, "mnt/src/a"), "changed and longer than before\n");
    assert!(!bench.path("mnt/src/lib/b").exists());
    assert_eq!(read(&bench, "mnt/src/since"), "since\n", "what was written since stays");
    bench.run("rollback mnt/src@before-rollback-1 --discard").good();
    assert!(!bench.path("mnt/src/since").exists());
    let list = bench.run("list mnt -a -H").good().out;
    assert!(!list.contains("before-rollback-2") && !list.contains("merge:"), "{list}");
    drop((open, log));
    end(&bench);
}

#[test]
fn a_directory_that_was_removed_comes_back_by_its_path() {
    let Some(bench) = mounted() else { return };
    fs::remove_dir_all(bench.path("mnt/src")).unwrap();
    bench.run("rollback mnt/src@s").good();
    assert_eq!(read(&bench, "mnt/src/lib/b"), "b\n");
    bench.run("undo mnt").good();
    assert!(!bench.path("mnt/src").exists());
    bench.make_folder("mnt/src/made");
    fs::write(bench.path("mnt/src/made/new"), "new\n").unwrap();
    fs::write(bench.path("mnt/other"), "beside\n").unwrap();
    bench.run("rollback mnt/src@s").good();
    assert_eq!(read(&bench, "mnt/src/lib/b"), "b\n");
    assert!(!bench.path("mnt/src/made").exists());
    assert_eq!(read(&bench, "mnt/other"), "beside\n");
    bench.run("undo mnt").good();
    assert_eq!(read(&bench, "mnt/src/made/new"), "new\n");
    assert!(!bench.path("mnt/src/lib").exists());
    assert_eq!(read(&bench, "mnt/other"), "beside\n");
    end(&bench);
}

#[test]
fn a_directory_that_came_back_as_a_copy_differs_in_what_was_done_since() {
    let Some(bench) = mounted() else { return };
    fs::rename(bench.path("mnt/src"), bench.path("mnt/moved")).unwrap();
    bench.make_folder("mnt/src");
    let told = bench.run("diff mnt/src@s").good().out;
    assert!(told.contains("D /a\n") && told.contains("D /lib/\n"), "{told}");
    let old = "mnt/.marram/snapshots/s/src";
    assert_eq!(bench.run(&format!("diff {old} mnt/src")).good().out, told);
    let back = bench.run(&format!("diff mnt/src {old}")).good().out;
    assert!(back.contains("A /a\n") && back.contains("A /lib/\n"), "{back}");
    bench.make_folder("mnt/else");
    bench.run(&format!("diff {old} mnt/else")).refused(2, &["different directories"]);
    bench.run("rollback mnt/src@s").good();
    assert_eq!(bench.run("diff mnt/src@s").good().out, "");
    fs::write(bench.path("mnt/src/a"), "one\nTWO\nthree\n").unwrap();
    let patch = bench.run("diff mnt/src@s --patch").good().out;
    assert!(patch.starts_with("M /a\n") && patch.contains("\n-two\n+TWO\n"), "{patch}");
    assert!(!patch.contains("lib"), "{patch}");
    end(&bench);
}

#[test]
fn a_directory_that_cannot_go_back_stays_as_it_is() {
    let Some(bench) = mounted() else { return };
    bench.make_folder("mnt/new");
    fs::write(bench.path("mnt/new/n"), "n\n").unwrap();
    bench.run("rollback mnt/new@s").refused(10, &["was not there in root@s", "made since"]);
    bench.run("rollback mnt/src@none").refused(10, &["none"]);
    let told = bench.run("rollback mnt/other@s").good().out;
    assert!(told.contains("mnt/other is as it was in root@s"), "{told}");
    bench.run("rollback mnt/.marram/snapshots/s/src@s").refused(2, &["in the snapshot"]);
    bench.run("rollback mnt/.marram/snapshots@s").refused(2, &["no directory of a dataset"]);
    assert_eq!(read(&bench, "mnt/new/n"), "n\n");
    end(&bench);
}

#[test]
fn a_directory_of_a_fork_goes_back_in_that_fork() {
    let Some(bench) = mounted() else { return };
    bench.run("fork mnt/src work").good();
    let fork = bench.path("mnt/.marram/forks/work");
    bench.run("snapshot mnt@t --dataset work").good();
    fs::write(fork.join("lib/b"), "changed\n").unwrap();
    fs::rename(fork.join("lib"), fork.join("moved")).unwrap();
    bench.run("rollback mnt/.marram/forks/work/moved@t").good();
    assert_eq!(read(&bench, "mnt/.marram/forks/work/moved/b"), "b\n");
    assert_eq!(read(&bench, "mnt/src/lib/b"), "b\n");
    end(&bench);
}
