//! Help as a person meets it: the overview, words of other systems, wrong usage, manual pages,
//! completion in bash, and what `install` puts in its place.

use crate::workbench::{Outcome, Workbench, mounted, outcome};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The verbs of every day, as the overview has them.
const EVERY_DAY: [&str; 11] = [
    "mount", "status", "list", "snapshot", "run", "fork", "diff", "merge", "rollback", "undo",
    "unmount",
];

#[test]
fn the_verbs_of_every_day_come_first_each_with_an_example() {
    let bench = Workbench::new();
    let help = bench.run("help").good().out;
    assert_eq!(bench.run("--help").good().out, help);
    let alone = bench.run("");
    assert_eq!((alone.status, alone.err.trim()), (2, help.trim()));
    let first = help.split("To begin:").next().unwrap();
    for verb in EVERY_DAY {
        assert!(first.contains(&format!("\n  {verb} ")), "{verb}: {first}");
        assert!(first.contains(&format!("$ marram {verb}")), "{verb}: {first}");
    }
    assert!(help.contains("quickstart") && help.contains("defragment"), "{help}");

    let of_one = bench.run("help snapshot").good().out;
    assert!(of_one.contains("Examples:\n  marram snapshot ~/work@before"), "{of_one}");
    let of_kind = bench.run("destroy snapshot --help").good().out;
    assert!(of_kind.contains("monday..friday"), "{of_kind}");
}

#[test]
fn words_of_other_systems_lead_to_the_right_verb_and_destroy_nothing() {
    let bench = Workbench::with_pool();
    bench.run("snapshot work.pool@before").good();
    let leads = [
        ("history", "`marram log TARGET`"),
        ("restore", "`marram rollback PATH@NAME`"),
        ("scrub", "`marram check POOL --data`"),
        ("snap", "`marram snapshot TARGET@NAME`"),
        ("resize", "`marram grow TARGET`"),
        ("branch", "`marram fork DIRECTORY NAME`"),
        ("rm", "--dry-run`"),
        ("delete", "--dry-run`"),
    ];
    for (word, command) in leads {
        let answer = bench.run(&format!("{word} work.pool@before --yes"));
        answer.refused(2, &[&format!("there is no command {word}"), "did you mean", command]);
    }
    bench
        .run("statsu")
        .refused(2, &["there is no command statsu", "did you mean `marram status`?"]);
    bench.run("xyzzy").refused(2, &["`marram --help`"]);
    bench.run("destroy work.pool@before --yes").refused(2, &["snapshot, fork and dataset"]);
    assert!(bench.run("list work.pool").good().out.contains("root@before"));
}

#[test]
fn wrong_usage_is_json_where_json_was_asked_for() {
    let bench = Workbench::with_pool();
    let cases = [
        ("status --nope --json", "status", "--nope"),
        ("--json create", "create", "<PATH>"),
        ("rm work.pool --json", "marram", "there is no command rm"),
        ("--json", "marram", "missing"),
        ("bench --rounds 0 --json", "bench", "from 1 to 100"),
    ];
    for (line, command, words) in cases {
        let answer = bench.run(line);
        assert_eq!(answer.status, 2, "{answer:?}");
        let envelope = answer.envelope();
        let error = &envelope["error"];
        assert_eq!((&envelope["command"], &error["kind"]), (&command.into(), &"usage".into()));
        assert!(error["message"].as_str().unwrap().contains(words), "{envelope}");
        assert!(error["hint"].is_string() && answer.err.contains(words), "{answer:?}");
    }
    // Behind `--` a word is a name.
    let named = bench.run("status -- --json");
    assert!(named.out.is_empty() && named.status == 10, "{named:?}");
}

#[test]
fn every_command_has_a_manual_page_with_examples_that_groff_reads() {
    let bench = Workbench::new();
    let result = bench.run("manual man --json").result();
    let pages: Vec<&str> =
        result["pages"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(pages.contains(&"man/marram.7") && pages.contains(&"man/marram-destroy-fork.1"));
    for page in &pages {
        let text = fs::read_to_string(bench.path(page)).unwrap();
        let examples = text.contains(".SH EXAMPLES\n.PP\n.nf\n.RS\n$ \\fBmarram ");
        assert!(examples || *page == "man/marram.7", "{page}: {text}");
        if Command::new("groff").arg("--version").output().is_err() {
            eprintln!("skipped: there is no groff");
            continue;
        }
        let read = bench.host(&["groff", "-man", "-Tutf8", "-ww", page]);
        let is_layout = |line: &str| line.ends_with("cannot adjust line");
        assert!(read.status == 0 && read.err.lines().all(is_layout), "{page}: {}", read.err);
    }
    let overview = fs::read_to_string(bench.path("man/marram.7")).unwrap();
    assert!(overview.contains("A FIRST DAY") && overview.contains("marram fork"), "{overview}");
}

#[test]
fn help_lists_all_properties() {
    let bench = Workbench::with_pool();
    let rows = bench.run("get work.pool --json").result();
    let lists = ["set --help", "create --help"].map(|line| bench.run(line).good().out);
    let names: Vec<&str> =
        rows.as_array().unwrap().iter().filter_map(|row| row["property"].as_str()).collect();
    assert!(names.len() >= 10, "{rows}");
    for name in names {
        for list in &lists {
            assert!(list.contains(&format!("  {name}=")), "{name}: {list}");
        }
    }
}

/// All files and links below a folder.
fn below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(below(&entry.path())),
            false => found.push(entry.path().display().to_string()),
        }
    }
    found
}

#[test]
fn uninstall_takes_away_what_install_has_put_there_and_nothing_else() {
    let bench = Workbench::new();
    let installed = bench.run("install --root root --json").result();
    let files = installed["files"].as_array().unwrap().len();
    let sbin = bench.path("root/usr/sbin");
    assert_eq!(below(&bench.path("root")).len(), files);
    for page in ["man1/marram-mount.1", "man7/marram.7"] {
        assert!(bench.path("root/usr/local/share/man").join(page).exists(), "{page}");
    }
    fs::write(sbin.join("mount.other"), "").unwrap();
    fs::remove_file(sbin.join("mount.marram")).unwrap();
    std::os::unix::fs::symlink("/opt/marram", sbin.join("mount.marram")).unwrap();

    bench.run("uninstall --root root --prefix /usr").refused(10, &["nothing", "--prefix"]);
    let removed = bench.run("uninstall --root root --json").result();
    assert_eq!(removed["files"].as_array().unwrap().len(), files - 1);
    let left = below(&bench.path("root"));
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.iter().all(|path| path.contains("/usr/sbin/mount.")), "{left:?}");
}

/// What bash offers behind `line`, as it cuts words: at blanks, and before each `@`.
fn offered(bench: &Workbench, line: &str) -> Vec<String> {
    let script = bench.path("completion");
    fs::write(&script, bench.run("completions bash").good().out).unwrap();
    let words: Vec<String> = line.replace('@', " @").split(' ').map(str::to_owned).collect();
    let typed = words.last().unwrap().clone();
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let call = format!(
        "source ./completion; COMP_LINE='{line}' COMP_POINT={} COMP_CWORD={} \
         COMP_WORDS=({}); _marram marram '{typed}' ''; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        line.len(),
        words.len() - 1,
        quoted.join(" ")
    );
    let program = Path::new(env!("CARGO_BIN_EXE_marram")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &call]).current_dir(bench.path(".")).env("PATH", path);
    let Outcome { out, err, .. } = outcome(bash.env("HOME", bench.path(".")));
    assert!(err.is_empty(), "{line}: {err}");
    out.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_the_names_that_there_are() {
    let bench = Workbench::with_pool();
    for name in ["before", "begun", "later"] {
        bench.run(&format!("snapshot work.pool@{name}")).good();
    }
    bench.run("create work.pool --dataset photos").good();
    bench.run("clone work.pool@before again").good();
    bench.run("fork work.pool try").good();
    bench.run("hold work.pool@begun audit").good();
    let cases: [(&str, &[&str]); 14] = [
        ("marram snaps", &["snapshot"]),
        ("marram destroy fo", &["fork"]),
        ("marram destroy fork work.pool ", &["try"]),
        ("marram destroy dataset work.pool ph", &["photos"]),
        ("marram destroy snapshot work.pool be", &["before", "begun"]),
        ("marram destroy snapshot work.pool before..l", &["before..later"]),
        ("marram rollback work.pool@be", &["@before", "@begun"]),
        ("marram rollback work.pool@", &["@before", "@begun", "@later"]),
        ("marram rollback ~/work.pool@l", &["@later"]),
        ("marram promote work.pool ", &["again", "try"]),
        ("marram mount work.pool mnt --dataset ph", &["photos"]),
        ("marram release work.pool@begun ", &["audit"]),
        ("marram set work.pool compr", &["compression="]),
        ("marram get work.pool record", &["recordsize"]),
    ];
    for (line, names) in cases {
        let mut found = offered(&bench, line);
        found.retain(|name| !name.starts_with('-'));
        assert_eq!(found, names, "{line}");
    }
    assert!(offered(&bench, "marram status wo").contains(&"work.pool".to_owned()));
    assert!(offered(&bench, "marram list nowhere@").is_empty());
}

#[test]
fn bash_completes_mounts_and_what_they_show() {
    let Some(bench) = mounted() else { return };
    bench.run("snapshot mnt@before").good();
    bench.make_folder("mnt/src");
    bench.run("fork mnt/src try").good();
    assert_eq!(offered(&bench, "marram diff mnt@b"), ["@before"]);
    assert_eq!(offered(&bench, "marram diff mnt/src@b"), ["@before"]);
    assert_eq!(offered(&bench, "marram merge mnt --fork t"), ["try"]);
    let place = bench.path("mnt").canonicalize().unwrap().display().to_string();
    let begun = &place[..place.len() - 1];
    assert!(offered(&bench, &format!("marram unmount {begun}")).contains(&place));
    bench.run("unmount mnt").good();
}

#[test]
fn destroy_takes_each_kind_in_one_shape_and_ranges_of_snapshots() {
    let bench = Workbench::with_pool();
    for name in ["a", "b", "c", "d", "e"] {
        bench.run(&format!("snapshot work.pool@{name}")).good();
    }
    for name in ["one", "two"] {
        bench.run(&format!("create work.pool --dataset {name}")).good();
        bench.run(&format!("fork work.pool fork-{name}")).good();
    }
    let names = || -> Vec<String> {
        let lists = bench.run("list work.pool --json").result();
        let rows = lists[0]["datasets"].as_array().unwrap().clone();
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    let all = names();
    let would = bench.run("destroy snapshot work.pool b..d e --dry-run --json").result();
    let sources = ["root@b", "root@c", "root@d", "root@e"];
    assert_eq!(would["sources"], Value::from(sources.to_vec()));
    // All of it or nothing.
    bench.run("hold work.pool@c audit").good();
    bench.run("destroy snapshot work.pool b..d --yes").refused(11, &["root@c", "audit"]);
    bench.run("destroy snapshot work.pool a nope --yes").refused(10, &["nope"]);
    bench.run("destroy snapshot work.pool a..nope --yes").refused(10, &["nope"]);
    bench.run("destroy fork work.pool fork-one one --yes").refused(2, &["one is a dataset"]);
    bench.run("destroy dataset work.pool fork-one --yes").refused(2, &["destroy fork"]);
    bench.run("destroy dataset work.pool root@a --yes").refused(2, &["destroy snapshot"]);
    bench.run("destroy fork work.pool --yes").refused(2, &["marram destroy fork TARGET NAME"]);
    bench.run("destroy snapshot work.pool b..d").refused(2, &["--yes", "--dry-run"]);
    assert_eq!(names(), all);

    bench.run("release work.pool@c audit").good();
    bench.run("destroy snapshot work.pool b..d --yes").good();
    assert!(!names().iter().any(|name| ["root@b", "root@c", "root@d"].contains(&name.as_str())));
    bench.run("undo work.pool").good();
    assert_eq!(names(), all, "one step, taken back as one");
    bench.run("destroy snapshot work.pool a..e --yes --now").good();
    bench.run("destroy fork work.pool fork-one fork-two --yes").good();
    bench.run("destroy dataset work.pool one two --yes").good();
    assert_eq!(names(), ["root"]);
}

#[test]
fn what_takes_longer_is_seen_at_a_terminal_and_leaves_nothing_behind() {
    let bench = Workbench::new();
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("skipped: there is no script(1)");
        return;
    }
    bench.run("create work.pool --size 128M").good();
    bench.run("snapshot work.pool@a").good();
    bench.run("send work.pool@a --to-file a.stream").good();
    // A stream that comes slowly.
    let program = env!("CARGO_BIN_EXE_marram");
    let slow = format!("(sleep 2; cat a.stream) | {program} receive work.pool copy");
    let seen = bench.host(&["script", "-qec", &slow, "/dev/null"]);
    assert!(seen.status == 0 && seen.out.contains("receiving"), "{seen:?}");
    let fast = format!("{program} check work.pool --data");
    let seen = bench.host(&["script", "-qec", &fast, "/dev/null"]);
    assert!(seen.status == 0 && !seen.out.contains("checking"), "{seen:?}");
}
