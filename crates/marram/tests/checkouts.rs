//! Forks of a git checkout: what happens when both sides commit, and the way out that the report
//! names.

use crate::tree::shell;
use crate::workbench;
use crate::workbench::Workbench;
use std::fs;
use std::process::Command;

const GIT: &str = "git -c user.name=me -c user.email=me@localhost -c init.defaultBranch=main";

/// A checkout with a commit, and a fork of it.
fn forked() -> Option<Workbench> {
    let bench = workbench::mounted()?;
    if Command::new("git").arg("--version").output().is_err() {
        eprintln!("skipped: there is no git");
        return None;
    }
    let made = format!(
        "mkdir mnt/tree && cd mnt/tree && {GIT} init -q && echo one >a && echo one >b && \
         echo target >.gitignore && {GIT} add . && {GIT} commit -q -m first"
    );
    shell(&bench, &made).good();
    bench.run("fork mnt/tree work").good();
    Some(bench)
}

fn commit(bench: &Workbench, place: &str, file: &str, text: &str) {
    let line = format!("cd {place} && echo {text} >{file} && {GIT} commit -q -a -m {text}");
    shell(bench, &line).good();
}

fn end(bench: &Workbench) {
    bench.run("unmount work.pool").good();
    bench.run("check work.pool --data").good();
}

#[test]
fn where_both_have_committed_a_pull_brings_them_together() {
    let Some(bench) = forked() else { return };
    commit(&bench, "mnt/.marram/forks/work", "a", "in-fork");
    commit(&bench, "mnt/tree", "b", "in-parent");
    fs::create_dir(bench.path("mnt/.marram/forks/work/target")).unwrap();
    fs::write(bench.path("mnt/.marram/forks/work/target/built"), "built\n").unwrap();

    let refused = bench.run("merge mnt --fork work");
    assert_eq!(refused.status, 4, "{refused:?}");
    assert!(refused.out.contains("conflict: git /: both have used git, "), "{refused:?}");
    let conflicts = refused.out.matches("conflict: ").count();
    assert_eq!(conflicts, 1, "not each of git's own files: {refused:?}");
    let json = bench.run("merge mnt --fork work --json").envelope();
    let checkout = &json["result"]["checkouts"][0];
    assert_eq!(checkout["directory"]["path"], "/");
    let commands = checkout["commands"].as_array().unwrap();
    assert_eq!(commands.len(), 2, "{checkout}");

    // The commands of the report, word by word.
    for command in commands {
        let command = command.as_str().unwrap();
        assert!(refused.out.contains(&format!("\n  {command}\n")), "{command}: {refused:?}");
        let marram = env!("CARGO_BIN_EXE_marram");
        let line = command.replacen("marram ", &format!("{marram} "), 1).replacen(
            "git ",
            &format!("{GIT} -c core.editor=true "),
            1,
        );
        shell(&bench, &line).good();
    }
    let log = shell(&bench, &format!("{GIT} -C mnt/tree log --format=%s")).good().out;
    for subject in ["in-fork", "in-parent", "first"] {
        assert!(log.contains(subject), "{log}");
    }
    let status = shell(&bench, &format!("{GIT} -C mnt/tree status --porcelain")).good().out;
    assert_eq!(status, "");
    shell(&bench, &format!("{GIT} -C mnt/tree fsck --no-progress")).good();
    for (file, text) in [("a", "in-fork\n"), ("b", "in-parent\n"), ("target/built", "built\n")] {
        assert_eq!(fs::read_to_string(bench.path("mnt/tree").join(file)).unwrap(), text);
    }
    end(&bench);
}

#[test]
fn where_git_only_looked_the_rest_is_merged_without_it() {
    let Some(bench) = forked() else { return };
    for place in ["mnt/tree", "mnt/.marram/forks/work"] {
        let name = if place == "mnt/tree" { "ours" } else { "theirs" };
        fs::write(bench.path(place).join(name), "new\n").unwrap();
        shell(&bench, &format!("cd {place} && {GIT} add --intent-to-add {name}")).good();
    }
    let refused = bench.run("merge mnt --fork work");
    assert_eq!(refused.status, 4, "{refused:?}");
    assert!(refused.out.contains("git remembers other files on both sides"), "{refused:?}");
    assert!(!refused.out.contains("pull"), "{refused:?}");
    bench.run("merge mnt --fork work --exclude .git").good();
    assert!(bench.path("mnt/tree/theirs").exists() && bench.path("mnt/tree/ours").exists());
    let status = shell(&bench, &format!("{GIT} -C mnt/tree status --porcelain")).good().out;
    assert_eq!(status, " A ours\n?? theirs\n", "git sees a new file, and nothing is broken");
    end(&bench);
}
