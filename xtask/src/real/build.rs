//! A project of more than 50,000 lines, configured and built on the mount: this one, with the
//! source of everything that it depends on.

use super::{GIB, Setting, step};
use crate::failure::{Result, fail};
use crate::process::{command, output, run, text};
use crate::project;
use std::path::Path;
use std::process::Command;

const LINES_MIN: u64 = 50_000;

/// Tells cargo to take its dependencies from the folder beside the project.
const VENDORED: &str = "[source.crates-io]\nreplace-with = \"vendored\"\n\
                        [source.vendored]\ndirectory = \"vendor\"\n";

/// Copies the project, brings its dependencies, builds it, and after a remount runs what was built.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    let mut subject = setting.subject(6 * GIB)?;
    let tree = subject.root().join("project");
    copy_project(&tree)?;
    run(&mut cargo_at(&tree, &["vendor", "--quiet", "--locked", "vendor"]))?;
    std::fs::write(tree.join(".cargo/config.toml"), VENDORED)?;
    let lines = count_lines(&tree)?;
    step(&format!("{lines} lines of Rust and C on the mount"));
    if lines < LINES_MIN {
        return fail(format!("{lines} lines, wanted {LINES_MIN}"));
    }
    build(&tree)?;
    step("built");
    subject.remount()?;
    let version = text(Command::new(tree.join("target/debug/marram")).arg("--version"))?;
    step(&format!("after a remount the built binary says: {version}"));
    if build(&tree)?.contains("Compiling") {
        return fail("cargo builds again what it had built before the remount");
    }
    subject.unmount()?;
    subject.check()
}

fn copy_project(tree: &Path) -> Result<()> {
    std::fs::create_dir(tree)?;
    let script = "tar -C \"$1\" --exclude=./target --exclude=./fuzz/target --exclude=./.git \
                  -cf - . | tar -C \"$2\" -xf -";
    run(command(&["bash", "-o", "pipefail", "-c", script, "copy"]).arg(project::root()).arg(tree))
}

fn cargo_at(tree: &Path, words: &[&str]) -> Command {
    let mut cargo = command(&["cargo"]);
    cargo.args(words).current_dir(tree).env("CARGO_TARGET_DIR", tree.join("target"));
    cargo
}

/// Builds the binary without optimising anybody's code; what cargo said.
fn build(tree: &Path) -> Result<String> {
    let quick = ["profile.dev.package.\"*\".opt-level=0", "profile.dev.opt-level=0"];
    let mut cargo = cargo_at(tree, &["build", "--offline", "--package", "marram"]);
    for setting in quick {
        cargo.args(["--config", setting]);
    }
    Ok(String::from_utf8_lossy(&output(&mut cargo)?.stderr).into_owned())
}

fn count_lines(tree: &Path) -> Result<u64> {
    let script = "find . -name '*.rs' -o -name '*.c' -o -name '*.h' | xargs -d '\\n' cat | wc -l";
    let count = text(command(&["sh", "-c", script]).current_dir(tree))?;
    Ok(count.parse().unwrap_or(0))
}
