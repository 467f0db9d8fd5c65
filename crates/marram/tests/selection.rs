//! Parts of a comparison and of a merge: paths, patterns, and ignore files of git.

use crate::workbench;
use crate::workbench::Workbench;
use std::fs;

/// A fork in which a source was edited, a program was built and notes were written.
fn worked_in() -> Option<Workbench> {
    let bench = workbench::mounted()?;
    bench.make_folder("mnt/tree/src");
    for (path, text) in [
        (".gitignore", "/target/\n*.log\n"),
        ("src/.gitignore", "!kept.log\n"),
        ("src/main.c", "int main;\n"),
        ("old.log", "old\n"),
    ] {
        fs::write(bench.path("mnt/tree").join(path), text).unwrap();
    }
    bench.run("fork mnt/tree work").good();
    let fork = bench.path("mnt/.marram/forks/work");
    fs::write(fork.join("src/main.c"), "int main() {}\n").unwrap();
    for name in ["a.log", "src/b.log", "src/kept.log", "notes"] {
        fs::write(fork.join(name), "new\n").unwrap();
    }
    for folder in ["target/debug", ".git/objects"] {
        fs::create_dir_all(fork.join(folder)).unwrap();
        fs::write(fork.join(folder).join("x"), "x").unwrap();
    }
    Some(bench)
}

fn end(bench: &Workbench) {
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}

/// The paths that a diff tells.
fn told(bench: &Workbench, options: &str) -> Vec<String> {
    let json = bench.run(&format!("diff mnt/.marram/forks/work --json {options}")).result();
    let rows = json["differences"].as_array().unwrap();
    let file = |row: &&serde_json::Value| row["kind"] == "file";
    rows.iter().filter(file).map(|row| row["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_diff_tells_the_part_that_is_meant() {
    let Some(bench) = worked_in() else { return };
    assert_eq!(told(&bench, "-- src"), ["/src/b.log", "/src/kept.log", "/src/main.c"]);
    assert_eq!(told(&bench, "-- /notes src/main.c"), ["/notes", "/src/main.c"]);
    let inside = told(&bench, "-- mnt/.marram/forks/work/src/main.c");
    assert_eq!(inside, ["/src/main.c"]);
    let sources = ["/notes", "/src/kept.log", "/src/main.c"];
    assert_eq!(told(&bench, "--gitignore"), sources, "as git would");
    assert_eq!(told(&bench, "--gitignore --exclude notes"), sources[1..]);
    let without = told(&bench, "--exclude *.log --exclude target/ --exclude /.git");
    assert_eq!(without, ["/notes", "/src/main.c"]);
    let text = bench.run("diff mnt/.marram/forks/work --gitignore -- src").good().out;
    assert!(text.ends_with("1 file modified, 1 created\n"), "{text}");
    bench.run("diff mnt/.marram/forks/work --exclude {a").refused(2, &["no pattern", "*.o"]);
    let all = bench.run("diff mnt/.marram/forks/work").good().out;
    assert_eq!(bench.run("diff mnt/tree --fork work").good().out, all, "by its name");
    let part = bench.run("diff mnt/tree --fork work --json -- mnt/.marram/forks/work/src/main.c");
    let rows = part.result()["differences"].as_array().unwrap().clone();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["path"], "/src/main.c");
    bench.run("diff mnt --fork ../work").refused(2, &["no name of a fork"]);
    bench.run("diff mnt --fork other").refused(10, &["shows no fork other", "marram forks"]);
    bench.run("diff mnt mnt --fork work").refused(2, &["--fork"]);
    end(&bench);
}

#[test]
fn a_merge_brings_the_part_that_is_meant_and_leaves_the_rest_in_the_fork() {
    let Some(bench) = worked_in() else { return };
    fs::write(bench.path("mnt/tree/a.log"), "of the parent\n").unwrap();
    assert_eq!(bench.run("merge mnt --fork work").status, 4, "the log is another one");
    let preview = bench.run("merge mnt --fork work --gitignore --preview").good().out;
    assert!(preview.contains("other changes stay in work"), "{preview}");
    let merged = bench.run("merge mnt --fork work --gitignore -- src").good().out;
    assert!(merged.starts_with("A /src/kept.log\nM /src/main.c\n"), "{merged}");
    let tree = bench.path("mnt/tree");
    assert_eq!(fs::read_to_string(tree.join("src/main.c")).unwrap(), "int main() {}\n");
    for absent in ["src/b.log", "notes", "target", ".git"] {
        assert!(!tree.join(absent).exists(), "{absent}");
    }
    assert_eq!(fs::read_to_string(tree.join("a.log")).unwrap(), "of the parent\n");
    bench.run("merge mnt --fork work --exclude {a").refused(2, &["no pattern"]);
    bench
        .run("merge mnt --fork work -- src nothing")
        .refused(10, &["neither work nor root has /nothing"]);
    bench.run("merge mnt --fork work -- ../tree").refused(2, &["../tree is outside"]);
    bench.run("merge mnt --fork work --drop -- src").refused(2, &["--drop"]);
    bench.run("merge mnt --fork work --markers --gitignore").refused(2, &["--markers"]);
    let warned = bench.run("merge mnt --fork work --preview --exclude *.log --exclude x/").good();
    assert!(warned.err.contains("--exclude \"x/\" matches nothing"), "{warned:?}");
    assert!(!warned.err.contains("*.log"), "{warned:?}");
    assert!(!tree.join("notes").exists(), "nothing was changed");
    bench.run("merge mnt --fork work --exclude a.log").good();
    assert!(tree.join("target/debug/x").exists() && tree.join("notes").exists());
    assert_eq!(fs::read_to_string(tree.join("a.log")).unwrap(), "of the parent\n");
    bench.run("undo mnt").good();
    assert!(!tree.join("notes").exists());
    end(&bench);
}
