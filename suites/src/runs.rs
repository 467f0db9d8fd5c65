//! `marram run` with real programs: git, make, a compiler, cargo, pip, npm, python with a database,
//! bwrap.

use super::{GIB, Setting, step};
use marram_lab::failure::{Result, fail};
use marram_lab::process::{command, ended, is_installed, output, require, run, tail, text};
use marram_lab::subject::{Making, Marram, Subject};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// Commands at the same time.
const AT_ONCE: usize = 5;
/// How often a command that does nothing is timed.
const ROUNDS: usize = 31;
/// What a run may take longer than its command on a quiet machine, and on one that is busy.
const MORE_MAX: Duration = Duration::from_millis(25);
const MORE_WHEN_BUSY_MAX: Duration = Duration::from_millis(250);

const MAKEFILE: &str = "all: hello where\n\
    hello: hello.c\n\tcc -g -o $@ $<\n\
    where:\n\techo $(CURDIR) > $@\n\
    clean:\n\trm -f hello where\n";
/// A crate with a workspace of its own: the pool may lie in the folder of another one.
const MANIFEST: &str = "[workspace]\n[package]\nname = \"tiny\"\nedition = \"2021\"\n";
const PROGRAM: &str = "#include <stdio.h>\nint main(void) { puts(__FILE__); return 0; }\n";
const DATABASE: &str = "
import concurrent.futures, os, sqlite3
base = sqlite3.connect('data.db')
base.execute('pragma journal_mode=wal')
base.execute('create table if not exists t (n)')
with concurrent.futures.ProcessPoolExecutor(2) as pool:
    base.executemany('insert into t values (?)', [(n,) for n in pool.map(abs, range(100))])
base.commit()
assert base.execute('pragma integrity_check').fetchone() == ('ok',)
base.close()
";

/// A package of Python with a program, made without anything from the network.
const WHEEL: &str = r"
import zipfile
with zipfile.ZipFile('tiny-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('tiny.py', 'def main(): print(__file__)\n')
    info = 'tiny-1.0.dist-info/'
    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    wheel.writestr(info + 'entry_points.txt', '[console_scripts]\ntiny = tiny:main\n')
    wheel.writestr(info + 'RECORD', '')
";

/// Everything in a git checkout on a pool of its own.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    require(&[("git", "git"), ("make", "make"), ("cc", "gcc"), ("python3", "python3")])?;
    require(&[("bwrap", "bubblewrap"), ("npm", "npm"), ("node", "nodejs")])?;
    let mut marram = Marram::make(&setting.folder.join("subject"), &Making::sized(4 * GIB))?;
    let project = Project::make(&marram)?;
    project.commit()?;
    project.build()?;
    project.database()?;
    project.cargo()?;
    project.pip()?;
    project.npm()?;
    project.at_once()?;
    project.sandbox()?;
    project.times()?;
    if !text(marram.command(&["forks", "-H"]).arg(marram.root()))?.is_empty() {
        return fail("forks are left");
    }
    marram.unmount()?;
    marram.check()
}

/// A git checkout with programs in it.
struct Project<'a> {
    marram: &'a Marram,
    folder: PathBuf,
}

impl Project<'_> {
    fn make(marram: &Marram) -> Result<Project<'_>> {
        let folder = marram.root().canonicalize()?.join("project");
        std::fs::create_dir(&folder)?;
        let project = Project { marram, folder };
        for (name, content) in [("Makefile", MAKEFILE), ("hello.c", PROGRAM), ("note", "one\n")] {
            std::fs::write(project.folder.join(name), content)?;
        }
        run(&mut project.git(&["init", "--quiet"]))?;
        run(&mut project.git(&["add", "--all"]))?;
        run(&mut project.git(&["commit", "--quiet", "-m", "start"]))?;
        Ok(project)
    }

    fn git(&self, words: &[&str]) -> Command {
        let mut git = command(&GIT);
        git.args(words).current_dir(&self.folder);
        git
    }

    /// A command in a fork of the checkout.
    fn run(&self, options: &[&str], words: &[&str]) -> Command {
        let mut run = self.marram.command(&["run"]);
        run.args(options).arg(&self.folder).arg("--").args(words).current_dir(&self.folder);
        run
    }

    fn expect(&self, file: &str, expected: &str) -> Result<()> {
        let found = std::fs::read_to_string(self.folder.join(file))?;
        match found == expected {
            true => Ok(()),
            false => fail(format!("{file} has {found:?}, not {expected:?}")),
        }
    }

    /// A commit that starts git's own upkeep in the background, merged whole.
    fn commit(&self) -> Result<()> {
        let line =
            format!("echo two >> note && {} -c gc.auto=1 commit --quiet -am second", GIT.join(" "));
        run(&mut self.run(&["--merge", "--wait"], &["sh", "-c", &line]))?;
        self.expect("note", "one\ntwo\n")?;
        run(&mut self.git(&["fsck", "--full", "--strict", "--no-progress"]))?;
        let status = text(self.git(&["status", "--porcelain"]).env("GIT_OPTIONAL_LOCKS", "0"))?;
        if !status.is_empty() {
            return fail(format!("git sees changes after a merged commit:\n{status}"));
        }
        step("git: a commit in a fork is merged whole");
        Ok(())
    }

    /// What is built in a fork has the paths of the directory, and is not built again there.
    fn build(&self) -> Result<()> {
        run(&mut self.run(&["--merge"], &["make", "--silent"]))?;
        self.expect("where", &format!("{}\n", self.folder.display()))?;
        let again = text(command(&["make", "-C"]).arg(&self.folder))?;
        if !again.contains("Nothing to be done") {
            return fail(format!("make builds again after the merge:\n{again}"));
        }
        let failed = ended(&mut self.run(&["--drop"], &["make", "--silent", "clean", "none"]))?;
        if failed.status.code() != Some(2) {
            return fail(format!("make fails with {}: {}", failed.status, tail(&failed)));
        }
        run(&mut Command::new(self.folder.join("hello")))?;
        step("make: built at the path that it knows, merged, not built again");
        Ok(())
    }

    fn database(&self) -> Result<()> {
        run(&mut self.run(&["--merge"], &["python3", "-c", DATABASE]))?;
        run(&mut self.run(&["--drop"], &["python3", "-c", DATABASE]))?;
        let count = "import sqlite3; print(sqlite3.connect('data.db').execute('select count(*) \
                     from t').fetchone()[0])";
        let rows = text(command(&["python3", "-c", count]).current_dir(&self.folder))?;
        if rows != "100" {
            return fail(format!("the database has {rows} rows"));
        }
        step("python: a database and processes of its own");
        Ok(())
    }

    fn cargo(&self) -> Result<()> {
        if !is_installed("cargo") {
            step("cargo is not installed");
            return Ok(());
        }
        let home = self.marram.root().join("crate");
        std::fs::create_dir_all(home.join("src"))?;
        std::fs::write(home.join("Cargo.toml"), MANIFEST)?;
        std::fs::write(home.join("src/main.rs"), "fn main() {}\n")?;
        let mut build = self.marram.command(&["run", "--merge"]);
        build.arg(&home).args(["--", "cargo", "build", "--offline"]).current_dir(&home);
        // Where the rest of the project builds is no place for it.
        run(build.env_remove("CARGO_TARGET_DIR"))?;
        let mut again = command(&["cargo", "build", "--offline", "--verbose"]);
        let again = output(again.current_dir(&home).env_remove("CARGO_TARGET_DIR"))?;
        if !String::from_utf8_lossy(&again.stderr).contains("Fresh tiny") {
            return fail(format!("cargo builds again after the merge: {}", tail(&again)));
        }
        step("cargo: built in a fork, merged, fresh");
        Ok(())
    }

    /// A virtual environment has its own path in it, which is that of the directory.
    fn pip(&self) -> Result<()> {
        let install = "python3 -c \"$WHEEL\" && python3 -m venv venv && venv/bin/pip install \
                       --quiet --no-index --disable-pip-version-check ./tiny-1.0-py3-none-any.whl";
        run(self.run(&["--merge"], &["sh", "-euc", install]).env("WHEEL", WHEEL))?;
        let told = text(&mut Command::new(self.folder.join("venv/bin/tiny")))?;
        if !told.starts_with(&format!("{}/venv/", self.folder.display())) {
            return fail(format!("a program that pip has installed in a fork lies in {told}"));
        }
        step("pip: an environment made in a fork, merged, runs");
        Ok(())
    }

    /// A package that lies beside, linked and installed; then an installation that fails.
    fn npm(&self) -> Result<()> {
        let install = "mkdir -p dependency && cd dependency && npm init -y >&2 && \
                       echo 'module.exports = 7' > index.js && cd .. && npm init -y >&2 && \
                       npm install --offline --no-audit --no-fund ./dependency >&2";
        run(&mut self.run(&["--merge"], &["sh", "-euc", install]))?;
        let told =
            text(command(&["node", "-p", "require('dependency')"]).current_dir(&self.folder))?;
        if told != "7" {
            return fail(format!("node says {told:?} of what was installed in a fork"));
        }
        let absent = "npm install --offline --no-audit --no-fund no-such-package-anywhere >&2";
        let failed = ended(&mut self.run(&["--merge"], &["sh", "-c", absent]))?;
        if failed.status.success() {
            return fail("an installation of nothing has ended well");
        }
        run(command(&["npm", "ls", "--silent"]).current_dir(&self.folder))?;
        let left = text(self.marram.command(&["forks", "-H"]).arg(self.marram.root()))?;
        let kept = left.split_whitespace().next().unwrap_or_default().to_owned();
        run(&mut self.marram.command(&["enter", "--drop", &kept, "--", "true"]))?;
        step("npm: installed in a fork, merged; what failed is kept, and changed nothing");
        Ok(())
    }

    /// Several builds at once, each kept; two of them merged, the others dropped.
    fn at_once(&self) -> Result<()> {
        let mut children = Vec::new();
        for number in 0..AT_ONCE {
            let line = format!("make --silent clean all && echo {number} > own-{number}");
            let name = format!("at-once-{number}");
            let mut run = self.run(&["--keep", "--name", &name], &["sh", "-c", &line]);
            children.push(run.stderr(std::process::Stdio::null()).spawn()?);
        }
        for mut child in children {
            if !child.wait()?.success() {
                return fail("a build beside others failed");
            }
        }
        for number in 0..AT_ONCE {
            let name = format!("at-once-{number}");
            let mut end = match number {
                // Both have built: what differs in the same files is taken from the fork.
                0 | 1 => self.marram.command(&["merge", "--theirs", "--drop", "--fork", &name]),
                _ => self.marram.command(&["enter", "--drop", &name, "--", "true"]),
            };
            if number < 2 {
                end.arg(&self.folder);
            }
            run(&mut end)?;
        }
        for number in 0..AT_ONCE {
            if self.folder.join(format!("own-{number}")).exists() != (number < 2) {
                return fail(format!("own-{number} is not as it should be"));
            }
        }
        step(&format!("{AT_ONCE} builds at once, two merged, the rest dropped"));
        Ok(())
    }

    /// A sandbox around a run and inside of it.
    fn sandbox(&self) -> Result<()> {
        let inside = ["bwrap", "--dev-bind", "/", "/", "sh", "-c", "echo in > sandboxed"];
        run(&mut self.run(&["--merge"], &inside))?;
        self.expect("sandboxed", "in\n")?;
        let marram = self.marram.command(&[]);
        let mut around = command(&["bwrap", "--dev-bind", "/", "/", "--cap-add", "ALL"]);
        around.arg(marram.get_program()).args(["run", "--merge"]).arg(&self.folder);
        around.args(["--", "sh", "-c", "echo around > sandboxed"]).current_dir(&self.folder);
        run(&mut around)?;
        self.expect("sandboxed", "around\n")?;
        step("bwrap: inside of a run and around one");
        Ok(())
    }

    /// What a run takes beside its command.
    fn times(&self) -> Result<()> {
        let plain = median(|| run(command(&["true"]).current_dir(&self.folder)))?;
        let forked = median(|| run(&mut self.run(&["--drop"], &["true"])))?;
        let more = forked.saturating_sub(plain);
        let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
        step(&format!(
            "a run takes {:.1} ms more than its command (at most {:.0} ms are wanted)",
            milliseconds(more),
            milliseconds(MORE_MAX)
        ));
        match more < MORE_WHEN_BUSY_MAX {
            true => Ok(()),
            false => fail("that is too long, however busy the machine is"),
        }
    }
}

const GIT: [&str; 7] = [
    "git",
    "-c",
    "user.name=Marram",
    "-c",
    "user.email=marram@localhost",
    "-c",
    "safe.directory=*",
];

/// The middle of some rounds.
fn median(work: impl Fn() -> Result<()>) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        work()?;
        times.push(began.elapsed());
    }
    times.sort();
    Ok(times[ROUNDS / 2])
}
