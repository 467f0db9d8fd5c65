//! Conflicts of a merge, decided one at a time: by paths, and by a file of decisions.

use crate::workbench;
use crate::workbench::Workbench;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const BASE: &str = "one\ntwo\nthree\n";

/// A fork `work` of `mnt/src`: both sides have changed `a`, `lib/b` and `lib/c`, each in its way.
fn conflicting() -> Option<Workbench> {
    let bench = workbench::mounted()?;
    bench.make_folder("mnt/src/lib");
    let write = |folder: &str, of: &str| {
        for name in ["a", "lib/b", "lib/c"] {
            let text = if of == "base" { BASE.to_owned() } else { BASE.replace("two", of) };
            fs::write(bench.path(folder).join(name), text).expect("written");
        }
    };
    write("mnt/src", "base");
    bench.run("fork mnt/src work").good();
    write("mnt/src", "parent");
    write("mnt/.marram/forks/work", "fork");
    fs::write(bench.path("mnt/.marram/forks/work/new"), "new\n").expect("written");
    Some(bench)
}

/// What the parent has in the line that both have changed.
fn middle(bench: &Workbench, name: &str) -> String {
    let text = fs::read_to_string(bench.path("mnt/src").join(name)).expect("a text");
    text.lines().nth(1).expect("a second line").to_owned()
}

fn all(bench: &Workbench) -> [String; 3] {
    ["a", "lib/b", "lib/c"].map(|name| middle(bench, name))
}

fn end(bench: &Workbench) {
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn each_path_is_decided_by_the_longest_that_is_named() {
    let Some(bench) = conflicting() else { return };
    let left = bench.run("merge mnt --fork work --theirs /lib --ours lib/c");
    assert_eq!(left.status, 4, "{left:?}");
    assert!(left.out.contains("conflict: content /a: "), "{left:?}");
    assert!(!left.out.contains("conflict: content /lib"), "{left:?}");
    assert_eq!(all(&bench), ["parent"; 3], "what is left is a conflict: nothing was changed");
    assert!(!bench.path("mnt/src/new").exists());
    // A path in the fork, or in the directory that it goes into, is as good.
    let done = bench.run(
        "merge mnt --fork work --theirs mnt/.marram/forks/work/lib --ours mnt/src/lib/c --ours a",
    );
    let told = done.good().out;
    assert!(told.contains("decided: content /lib/b: "), "{told}");
    assert_eq!(all(&bench), ["parent", "fork", "parent"]);
    assert!(bench.path("mnt/src/new").exists());
    end(&bench);
}

#[test]
fn a_path_without_a_conflict_is_refused() {
    let Some(bench) = conflicting() else { return };
    for (line, words) in [
        ("--ours /lb", ["no conflict at /lb", "/a, /lib/b, /lib/c"]),
        ("--theirs / --ours /new", ["no conflict at /new", "/a, /lib/b, /lib/c"]),
        ("--theirs /li", ["no conflict at /li", "/a, /lib/b, /lib/c"]),
        ("--theirs a --ours /a", ["/a is named by --ours and by --theirs", "one side"]),
    ] {
        bench.run(&format!("merge mnt --fork work {line}")).refused(2, &words);
        assert_eq!(all(&bench), ["parent"; 3], "{line}");
    }
    bench.run("merge mnt --fork work --theirs --ours /a").good();
    assert_eq!(all(&bench), ["parent", "fork", "fork"]);
    end(&bench);
}

/// What `merge --json` prints, with choices filled in.
fn filled(bench: &Workbench, choices: &[(&str, Value)]) -> Value {
    let printed = bench.run("merge mnt --fork work --json");
    assert_eq!(printed.status, 4, "{printed:?}");
    let mut printed = printed.envelope();
    for row in printed["result"]["conflicts"].as_array_mut().unwrap() {
        assert!(row["choice"].is_null(), "there is a place for it: {row}");
        let path = row["path"].as_str().unwrap().to_owned();
        for (_, fields) in choices.iter().filter(|(of, _)| *of == path) {
            for (name, value) in fields.as_object().unwrap() {
                row[name] = value.clone();
            }
        }
    }
    printed
}

fn write(path: &Path, printed: &Value) {
    fs::write(path, printed.to_string()).expect("written");
}

#[test]
fn a_file_decides_as_it_was_filled_in() {
    let Some(bench) = conflicting() else { return };
    let file = bench.path("decisions.json");
    let text = "one\nboth\nthree\n";
    let choices =
        [("/a", json!({"choice": "theirs"})), ("/lib/b", json!({"choice": "text", "text": text}))];
    write(&file, &filled(&bench, &choices));
    let left = bench.run("merge mnt --fork work --decisions decisions.json");
    assert_eq!(left.status, 4, "{left:?}");
    assert!(left.out.contains("conflict: content /lib/c: "), "{left:?}");
    assert_eq!(all(&bench), ["parent"; 3]);
    let done = bench.run("merge mnt --fork work --decisions decisions.json --ours /lib/c --json");
    let done = done.result();
    assert_eq!(done["decided"][1]["choice"], "text", "{done}");
    assert_eq!(all(&bench), ["fork", "both", "parent"]);
    end(&bench);
}

#[test]
fn a_file_decides_only_what_was_seen_when_it_was_printed() {
    let Some(bench) = conflicting() else { return };
    let file = bench.path("decisions.json");
    let theirs = ["/a", "/lib/b", "/lib/c"].map(|path| (path, json!({"choice": "theirs"})));
    write(&file, &filled(&bench, &theirs));
    fs::write(bench.path("mnt/src/a"), "one\nnewer\nthree\n").unwrap();
    let late = bench.run("merge mnt --fork work --decisions decisions.json");
    assert_eq!(late.status, 1, "{late:?}");
    assert!(late.out.contains("has changed meanwhile: nothing was changed"), "{late:?}");
    assert_eq!(all(&bench), ["newer", "parent", "parent"]);
    let wrong = [
        ("{}", "missing field"),
        ("[1", "has no decisions"),
        (r#"{"fork": "other", "conflicts": []}"#, "about the fork other"),
        (
            r#"{"fork": "work", "conflicts": [{"path": "/a", "kind": "content",
                "detail": "changed by both", "choice": "text"}]}"#,
            "content /a: changed by both has no \"text\"",
        ),
        (
            r#"{"fork": "work", "conflicts": [{"path": "/a", "kind": "content",
                "detail": "changed by both", "choice": "mine"}]}"#,
            "unknown variant",
        ),
        (r#"{"fork": "work", "update": true, "conflicts": []}"#, "is about an update"),
        (
            r#"{"fork": "work", "conflicts": [{"path": "/b", "kind": "content",
                "detail": "changed by both", "choice": "ours"}]}"#,
            "there is no conflict content /b",
        ),
        (
            r#"{"fork": "work", "conflicts": [
                {"path": "/a", "kind": "content", "detail": "changed by both", "choice": "ours"},
                {"path": "/a", "kind": "content", "detail": "changed by both"}]}"#,
            "content /a: changed by both is there twice",
        ),
        (
            r#"{"fork": "work", "conflicts": [{"path": "/a", "kind": "name",
                "detail": "x", "choice": "text", "text": "t"}]}"#,
            "is about no content",
        ),
    ];
    for (text, words) in wrong {
        fs::write(&file, text).unwrap();
        bench.run("merge mnt --fork work --decisions decisions.json").refused(2, &[words]);
    }
    bench.run("merge mnt --fork work --decisions none.json").refused(10, &["none.json"]);
    assert_eq!(all(&bench), ["newer", "parent", "parent"]);
    end(&bench);
}

#[test]
fn a_program_puts_texts_together() {
    let Some(bench) = conflicting() else { return };
    let tool = |command: &str, rest: &[&str]| {
        let mut line = bench.command();
        line.args(["merge", "mnt", "--fork", "work", "--tool", command]).args(rest);
        workbench::outcome(&mut line)
    };
    tool("exit 3", &[]).refused(1, &["/a: exit 3: ", "nothing was changed"]);
    tool("true", &[]).refused(1, &["left the text as it was"]);
    tool("rm $MERGED", &[]).refused(1, &["left no text"]);
    assert_eq!(all(&bench), ["parent"; 3]);
    // What the program gets are the three texts, and the lines of both with marks.
    let script = "grep -q '^two$' $BASE && grep -q '^parent$' $LOCAL && grep -q '^fork$' $REMOTE \
                  && grep -q '^|||||||' $MERGED && echo told \
                  && sed s/two/both/ $BASE >$MERGED";
    let done = tool(script, &["--ours", "/lib/c", "--json"]);
    assert_eq!(done.result()["applied"], true, "its own output does not get into the JSON");
    assert_eq!(all(&bench), ["both", "both", "parent"]);
    end(&bench);
}

#[test]
fn a_program_is_not_started_for_what_is_no_text() {
    let Some(bench) = conflicting() else { return };
    fs::write(bench.path("mnt/src/new"), [0, 1, 2]).unwrap();
    let mut line = bench.command();
    line.args(["merge", "mnt", "--fork", "work", "--tool", "touch started"]);
    workbench::outcome(&mut line).refused(2, &["1 conflict is in no text", "/new", "--ours PATH"]);
    assert!(!bench.path("started").exists());
    end(&bench);
}

#[test]
fn marks_are_not_for_what_is_no_text() {
    let Some(bench) = conflicting() else { return };
    let fork = bench.path("mnt/.marram/forks/work");
    fs::write(bench.path("mnt/src/a"), [0, 1, 2]).unwrap();
    fs::write(fork.join("a"), [0, 1, 3]).unwrap();
    let left = bench.run("merge mnt --fork work --markers");
    assert_eq!(left.status, 4, "{left:?}");
    assert!(left.out.contains("conflict: content /a: "), "{left:?}");
    assert!(left.out.contains("1 conflict: nothing was changed"), "{left:?}");
    let of_fork = fs::read_to_string(fork.join("lib/b")).unwrap();
    assert_eq!(of_fork, BASE.replace("two", "fork"), "the texts have no marks either");
    assert_eq!(middle(&bench, "lib/b"), "parent");
    let marked = bench.run("merge mnt --fork work --markers --theirs /a");
    assert_eq!(marked.status, 4, "{marked:?}");
    assert_eq!(fs::read(fork.join("a")).unwrap(), [0, 1, 3], "the fork's side, as for a merge");
    assert!(fs::read_to_string(fork.join("lib/b")).unwrap().contains("|||||||"));
    end(&bench);
}

#[test]
fn marks_are_left_in_the_fork_to_be_edited_and_then_merged() {
    let Some(bench) = conflicting() else { return };
    fs::write(bench.path("mnt/src/of-parent"), "parent\n").unwrap();
    let marked = bench.run("merge mnt --fork work --markers --ours /lib/c");
    assert_eq!(marked.status, 4, "there are conflicts: {marked:?}");
    assert!(marked.out.contains("marked: content /a: "), "{marked:?}");
    let last = "marks are in 2 files of work: edit them there, then merge it\n";
    assert!(marked.out.ends_with(last), "{marked:?}");
    assert_eq!(all(&bench), ["parent"; 3], "the parent stays as it is");
    assert!(!bench.path("mnt/src/new").exists());
    let fork = bench.path("mnt/.marram/forks/work");
    let with_marks = "one\n<<<<<<< fork\nfork\n||||||| base\ntwo\n=======\nparent\n\
                      >>>>>>> parent\nthree\n";
    for name in ["a", "lib/b"] {
        assert_eq!(fs::read_to_string(fork.join(name)).unwrap(), with_marks);
        fs::write(fork.join(name), "one\nboth\nthree\n").unwrap();
    }
    assert!(fork.join("of-parent").exists());
    let merged = bench.run("merge mnt --fork work --markers").good().out;
    assert!(!merged.contains("of-parent"), "only what the parent has not: {merged}");
    assert_eq!(all(&bench), ["both", "both", "parent"]);
    assert!(bench.path("mnt/src/new").exists());
    end(&bench);
}
