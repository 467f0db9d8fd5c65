//! Rust projects, configured and built on the mount: this one, with the source of everything that
//! it depends on; and in the long form a published program made of several hundred crates, with
//! cargo's own home on the mount too.

use super::{GIB, Setting, step};
use marram_lab::failure::{Result, fail};
use marram_lab::process::{command, output, run, text};
use marram_lab::project;
use std::path::{Path, PathBuf};
use std::process::Command;

const LINES_MIN: u64 = 50_000;

/// Nushell, with the lock file that it was published with.
const LARGE: [&str; 2] = ["nu", "0.115.1"];

/// How many crates it must be compiled from.
const CRATES_MIN: usize = 400;

/// Tells cargo to take its dependencies from the folder beside the project.
const VENDORED: &str = "[source.crates-io]\nreplace-with = \"vendored\"\n\
                        [source.vendored]\ndirectory = \"vendor\"\n";

/// This project, and in the long form a large one.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    build_this(setting)?;
    if setting.is_short { Ok(()) } else { build_large(setting) }
}

/// Copies the project, brings its dependencies, builds it, and after a remount runs what was built.
fn build_this(setting: &Setting) -> Result<()> {
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
    if count_compiled(&build(&tree)?) > 0 {
        return fail("cargo builds again what it had built before the remount");
    }
    subject.unmount()?;
    subject.check()
}

/// Everything is written to the mount: what cargo fetches, unpacks and builds. After a remount the
/// program works on its own source, and nothing is built again.
fn build_large(setting: &Setting) -> Result<()> {
    let mut subject = setting.subject(40 * GIB)?;
    let large = Large { root: subject.root().to_owned() };
    large.unpack()?;
    run(large.cargo().args(["fetch", "--locked"]))?;
    let crates = count_compiled(&large.build()?);
    step(&format!("{} {} built from {crates} crates", LARGE[0], LARGE[1]));
    if crates < CRATES_MIN {
        return fail(format!("{crates} crates compiled, wanted {CRATES_MIN}"));
    }
    subject.remount()?;
    step(&format!("after a remount it counts {} files of its own source", large.try_out()?));
    if count_compiled(&large.build()?) > 0 {
        return fail("cargo builds again what it had built before the remount");
    }
    subject.unmount()?;
    subject.check()
}

/// The large project on a mount.
struct Large {
    root: PathBuf,
}

impl Large {
    fn project(&self) -> PathBuf {
        self.root.join("project")
    }

    fn cargo(&self) -> Command {
        let mut cargo = cargo_at(&self.project(), &[]);
        cargo.env("CARGO_HOME", self.root.join("home"));
        cargo
    }

    /// Has cargo unpack the published source, and makes a project of our own of it.
    fn unpack(&self) -> Result<()> {
        let project = self.project();
        std::fs::create_dir(&project)?;
        run(self.cargo().args(["info", "--quiet", &LARGE.join("@")]))?;
        let script = "cp -r \"$1\"/registry/src/*/\"$2\"/. \"$3\" && \
                      printf '\\n[workspace]\\n' >> \"$3/Cargo.toml\"";
        let copy = &mut command(&["sh", "-c", script, "copy"]);
        copy.arg(self.root.join("home")).arg(LARGE.join("-")).arg(&project);
        run(copy)
    }

    /// Builds without debug information, which would take most of the time; what cargo said.
    fn build(&self) -> Result<String> {
        let mut cargo = self.cargo();
        cargo.args(["build", "--locked", "--offline", "--config", "profile.dev.debug=false"]);
        Ok(String::from_utf8_lossy(&output(&mut cargo)?.stderr).into_owned())
    }

    /// Lets the built program list its own source, and compares with what `find` says.
    fn try_out(&self) -> Result<String> {
        let counted = |words: &[&str]| text(command(words).current_dir(self.project()));
        let program = self.project().join("target/debug/nu");
        let own = "glob 'src/**/*.rs' | length";
        let said = counted(&[&program.to_string_lossy(), "--no-config-file", "-c", own])?;
        let found = counted(&["sh", "-c", "find src -name '*.rs' | wc -l"])?;
        if said == found { Ok(said) } else { fail(format!("{said} files, not {found}")) }
    }
}

/// How many crates cargo says that it compiled.
fn count_compiled(said: &str) -> usize {
    said.lines().filter(|line| line.trim_start().starts_with("Compiling ")).count()
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
