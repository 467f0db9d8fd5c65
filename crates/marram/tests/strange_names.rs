//! Names that no report may be deceived by: line ends, escapes, spaces, bytes that are no UTF-8.

use crate::workbench::{Outcome, Workbench, mounted, outcome};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A path in the bench's folder whose name is any bytes.
fn place(bench: &Workbench, folder: &str, name: &[u8]) -> PathBuf {
    bench.path(folder).join(OsStr::from_bytes(name))
}

/// Runs the program with the words of `line` and one more of any bytes.
fn run_with(bench: &Workbench, line: &str, word: &[u8]) -> Outcome {
    let words = line.split_whitespace().map(OsString::from);
    outcome(bench.command().args(words).arg(OsStr::from_bytes(word)))
}

fn end(bench: &Workbench) {
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn no_name_makes_a_line_of_its_own() {
    let Some(bench) = mounted() else { return };
    bench.run("snapshot mnt@s").good();
    fs::write(place(&bench, "mnt", b"a\nD b\x1b[2K"), "1").unwrap();
    fs::write(place(&bench, "mnt", b"\xfe"), "1").unwrap();
    fs::write(place(&bench, "mnt", b"\xff"), "1").unwrap();
    let told = bench.run("diff mnt@s").good().out;
    assert!(told.contains("A \"/a\\nD b\\033[2K\"\n"), "{told}");
    assert!(told.contains("A \"/\\376\"\nA \"/\\377\"\n"), "{told}");
    assert!(!told.contains("\nD "), "{told}");
    let rows = bench.run("diff mnt@s --json").result()["differences"].clone();
    let bytes: Vec<&str> =
        rows.as_array().unwrap().iter().filter_map(|row| row["path_bytes"].as_str()).collect();
    assert_eq!(bytes, ["2ffe", "2fff"], "{rows}");
    let files = bench.run("space mnt --files").good().out;
    assert!(files.contains("/\\377\"\n") && files.contains("/a\\nD b\\033[2K\"\n"), "{files}");
    end(&bench);
}

#[test]
fn no_name_makes_an_error_of_its_own() {
    let Some(bench) = mounted() else { return };
    let forged = b"mnt/x\nmarram diff: \x1b[2Kall is well";
    for line in ["diff", "space", "fork", "rollback", "versions"] {
        let words = run_with(&bench, line, &[&forged[..], b"@s"].concat());
        assert_ne!(words.status, 0, "{words:?}");
        assert!(!words.err.contains("\nmarram diff:") && !words.err.contains('\x1b'), "{words:?}");
    }
    fs::write(bench.path("mnt/a b; c"), "one\n").unwrap();
    bench.run("snapshot mnt@s").good();
    fs::remove_file(bench.path("mnt/a b; c")).unwrap();
    run_with(&bench, "rollback", b"mnt/a\x1b; c@s").refused(10, &["a\\033; c"]);
    let told = run_with(&bench, "versions", b"mnt/a b; c").good();
    assert!(told.out.contains("marram rollback 'mnt/a b; c'@s\n"), "{told:?}");
    end(&bench);
}

#[test]
fn a_directory_may_have_any_name() {
    let Some(bench) = mounted() else { return };
    let directory = place(&bench, "mnt", b"d\xff@x");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("file"), "one\n").unwrap();
    bench.run("snapshot mnt@s").good();
    let fork = [OsStr::new("fork"), directory.as_os_str(), OsStr::new("work")];
    outcome(bench.command().args(fork)).good();
    fs::write(bench.path("mnt/.marram/forks/work/file"), "two\n").unwrap();
    bench.run("merge mnt --fork work --drop").good();
    assert_eq!(fs::read_to_string(directory.join("file")).unwrap(), "two\n");
    let told = run_with(&bench, "diff --patch", b"mnt/d\xff@x@s").good().out;
    assert!(told.contains("-one\n+two\n"), "{told}");
    run_with(&bench, "space --files", b"mnt/d\xff@x").good();
    run_with(&bench, "dedup", b"mnt/d\xff@x").good();
    let back = run_with(&bench, "rollback --json", b"mnt/d\xff@x@s").result();
    assert_eq!(back["changed"], true, "{back}");
    assert_eq!(fs::read_to_string(directory.join("file")).unwrap(), "one\n");
    end(&bench);
}

#[test]
fn a_stream_may_lie_in_a_file_of_any_name() {
    let bench = Workbench::with_pool();
    bench.run("snapshot work.pool@s").good();
    run_with(&bench, "send work.pool@s --json --to-file", b"\xff.stream").good();
    run_with(&bench, "check --json", b"\xff.stream").good();
    run_with(&bench, "receive work.pool copy --from-file", b"\xff.stream").good();
    run_with(&bench, "create --json --size 64M", b"\xff.pool").refused(2, &["UTF-8"]);
    assert!(!place(&bench, ".", b"\xff.pool").exists());
    bench.run("check work.pool --data").good();
}

/// Merges with answers to what is asked.
fn answer(bench: &Workbench, answers: &str) -> Outcome {
    let words = ["merge", "mnt", "--fork", "work", "--interactive"];
    let mut command = bench.command();
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program runs");
    let mut asked = child.stdin.take().expect("a pipe");
    asked.write_all(answers.as_bytes()).expect("it reads what it has asked for");
    drop(asked);
    let ended = child.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&ended.stdout), text(&ended.stderr));
    Outcome { status: ended.status.code().unwrap_or(-1), out, err }
}

#[test]
fn each_conflict_is_asked_about_by_all_bytes_of_its_name() {
    let Some(bench) = mounted() else { return };
    let names = [b"\xfd", b"\xfe"];
    let write = |folder: &str, content: &str| {
        names.iter().for_each(|name| fs::write(place(&bench, folder, *name), content).unwrap());
    };
    write("mnt", "base");
    bench.run("fork mnt work").good();
    write("mnt", "ours");
    write("mnt/.marram/forks/work", "fork");
    let merged = answer(&bench, "o\nt\n").good();
    assert!(!merged.err.contains("decide otherwise"), "{merged:?}");
    assert!(merged.err.contains("\"/\\375\": ") && merged.err.contains("\"/\\376\": "));
    let read = |name: &[u8]| fs::read_to_string(place(&bench, "mnt", name)).unwrap();
    assert_eq!((read(b"\xfd"), read(b"\xfe")), ("ours".to_owned(), "fork".to_owned()));
    end(&bench);
}

#[test]
fn many_conflicts_can_be_decided_one_by_one() {
    const FILES: usize = 400;
    let Some(bench) = mounted() else { return };
    let write = |folder: &str, content: &str| {
        for number in 0..FILES {
            fs::write(bench.path(folder).join(format!("{number:0>200}")), content).unwrap();
        }
    };
    write("mnt", "base");
    bench.run("fork mnt work").good();
    write("mnt", "ours");
    write("mnt/.marram/forks/work", "fork");
    answer(&bench, &"t\n".repeat(FILES)).good();
    let merged = fs::read_to_string(bench.path("mnt").join(format!("{:0>200}", 7))).unwrap();
    assert_eq!(merged, "fork");
    end(&bench);
}

/// Has `program` apply the patch to a copy of the snapshot: it is as the mount then.
fn applies(bench: &Workbench, program: &str, call: &str) {
    if Command::new(program).arg("--version").output().is_err() {
        eprintln!("skipped: there is no {program}");
        return;
    }
    let told = outcome(bench.command().args(["diff", "mnt@s", "--patch"])).good().out;
    fs::write(bench.path("told"), &told).expect("written");
    let copy = "rm -rf copy && cp -r mnt/.marram/snapshots/s copy";
    let line = format!("{copy} && (cd copy && {call}) && diff -r copy mnt");
    let applied = bench.host(&["sh", "-c", &line]);
    assert_eq!(applied.status, 0, "{program}: {told}\n{applied:?}");
}

#[test]
fn patches_name_files_as_patch_reads_them() {
    let Some(bench) = mounted() else { return };
    let names: [&[u8]; 6] = [b"a b", b"tab\tin", b"\xc3\xa9\"q", b"\xff", b"back\\slash", b" edge"];
    for name in names {
        fs::write(place(&bench, "mnt", name), "1\n2\n3\n").unwrap();
    }
    let moved: [(&[u8], &[u8]); 4] =
        [(b"moved", b"elsewhere"), (b"x 1", b"y 1"), (b" x", b" y"), (b"x\xff", b"y \"\n")];
    for (old, _) in moved {
        fs::write(place(&bench, "mnt", old), [old, b"\n2\n3\n4\n"].concat()).unwrap();
    }
    fs::write(bench.path("mnt/moved and changed"), "1\n2\n3\n4\n").unwrap();
    bench.run("snapshot mnt@s").good();
    for name in names {
        fs::write(place(&bench, "mnt", name), "1\n3\n").unwrap();
        fs::write(place(&bench, "mnt", &[name, b" new"].concat()), "new\n").unwrap();
    }
    for (old, new) in moved {
        fs::rename(place(&bench, "mnt", old), place(&bench, "mnt", new)).unwrap();
    }
    let changed = bench.path("mnt/else where");
    fs::rename(bench.path("mnt/moved and changed"), &changed).unwrap();
    fs::write(&changed, "1\n2\nthree\n4\n").unwrap();
    applies(&bench, "patch", "patch -s -f -p1 <../told");
    applies(&bench, "git", "GIT_CEILING_DIRECTORIES=\"${PWD%/*}\" git apply ../told");
    end(&bench);
}
