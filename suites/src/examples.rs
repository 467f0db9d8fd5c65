//! The scripts of `examples`, as a reader of the README runs them.

use super::{GIB, Setting, linux_tree};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::{command, require, text};
use marram_lab::project;
use marram_lab::subject::{Making, Marram, Subject};
use std::path::Path;
use std::process::Command;

/// Forks of the example.
const FORKS: usize = 20;

/// Files that are edited in each fork.
const EDITED: usize = 30;

/// Runs it, and checks what it has shown.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    let told = tell(&setting.folder, setting.is_short)?;
    println!("{told}");
    let changes: Vec<usize> = told.lines().filter_map(|line| line.parse().ok()).collect();
    // While forks are worked in, when one was merged, and when that was taken back.
    if !matches!(changes[..], [0, merged, 0] if merged > EDITED) {
        return fail(format!("git status counted {changes:?} changes"));
    }
    let dropped = format!("destroy try-{FORKS}");
    for expected in ["try-07 went into /mnt/day/linux: ", "both changed the same", &dropped] {
        if !told.contains(expected) {
            return fail(format!("the example does not say {expected:?}"));
        }
    }
    Ok(())
}

/// Runs `examples/let-it-loose`, and checks what it has shown.
pub(super) fn let_loose(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    let told = tell_loose(&setting.folder)?;
    println!("{told}");
    for expected in ["D /src/", "M src/part-1.c", "+int reply_1", "tidy went into", "took back"] {
        if !told.contains(expected) {
            return fail(format!("the example does not say {expected:?}"));
        }
    }
    Ok(())
}

/// Runs `examples/all-or-nothing`, and checks what it has shown.
pub(super) fn all_or_nothing(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    let told = tell_nothing(&setting.folder)?;
    println!("{told}");
    let states: Vec<String> = told
        .lines()
        .filter(|line| line.starts_with("ii ") || line.starts_with("iF "))
        .map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
        .collect();
    let [one, failed, two] = ["ii mailer 1.0", "iF mailer 2.0", "ii mailer 2.1"];
    if states != [one, failed, one, two, one] {
        return fail(format!("the example shows the states {states:?}"));
    }
    Ok(())
}

/// What that example prints on a pool of its own in `folder`, which is shown as `/mnt`.
pub(crate) fn tell_nothing(folder: &Path) -> Result<String> {
    require(&[("dpkg-deb", "dpkg")])?;
    tell_example(folder, "all-or-nothing", &[])
}

/// What that example prints on a pool of its own in `folder`, which is shown as `/mnt`.
pub(crate) fn tell_loose(folder: &Path) -> Result<String> {
    require(&[("git", "git"), ("make", "make")])?;
    tell_example(folder, "let-it-loose", &[])
}

/// What the example of a day prints on a pool of its own in `folder`, which is shown as `/mnt`.
pub(crate) fn tell(folder: &Path, is_short: bool) -> Result<String> {
    require(&[("git", "git"), ("cc", "gcc")])?;
    let linux = linux_tree(is_short)?;
    tell_example(folder, "day-in-the-life", &[&linux.archive])
}

/// Runs `examples/twenty-clones`, and checks what it has shown.
pub(super) fn twenty_clones(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    let told = tell_clones(&setting.folder)?;
    println!("{told}");
    for expected in [" in 20 clones; 0 of them are missing", "/dev/shm/trees: clean"] {
        if !told.contains(expected) {
            return fail(format!("the example does not say {expected:?}"));
        }
    }
    Ok(())
}

/// What that example prints; its home lies in memory, so it leaves `folder` alone.
pub(crate) fn tell_clones(_folder: &Path) -> Result<String> {
    text(&mut example("twenty-clones")?)
}

fn tell_example(folder: &Path, example: &str, arguments: &[&Path]) -> Result<String> {
    let mut marram = Marram::make(&folder.join("subject"), &Making::sized(8 * GIB))?;
    let mut shell = self::example(example)?;
    shell.arg(marram.root()).args(arguments);
    let told = text(&mut shell)?.replace(&*marram.root().to_string_lossy(), "/mnt");
    marram.unmount()?;
    marram.check()?;
    Ok(told)
}

/// The script of that name in `examples`, with the release binary found as where it is installed.
fn example(name: &str) -> Result<Command> {
    let mut shell = command(&["bash"]);
    shell.arg(project::root().join("examples").join(name));
    let binary = project::release_binary()?;
    let others = std::env::var_os("PATH").unwrap_or_default();
    let folders = binary.parent().map(Path::to_owned).into_iter();
    let path = std::env::join_paths(folders.chain(std::env::split_paths(&others)))
        .context(|| "the folders that programs are looked for in")?;
    shell.env("PATH", path).env_remove("MARRAM");
    Ok(shell)
}
