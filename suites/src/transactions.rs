//! `marram tx run` with real programs: dpkg, useradd, make, pip, git. What ends well is there as a
//! whole; what fails, is killed or finds the pool full has never been there.
//!
//! Beside all of it a reader looks at two files of the package, as a transaction of its own: both
//! are always of one version.

use super::{GIB, Setting, step};
use marram_lab::failure::{Result, fail};
use marram_lab::process::{OwnedChild, command, ended, require, run, tail, text};
use marram_lab::seed::Seed;
use marram_lab::subject::{Making, Marram, Subject};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Files of the package.
const FILES: usize = 200;
/// Bytes of its large file, which is of random bytes.
const LARGE_BYTES: u64 = 12 << 20;
/// No commit takes so long.
const COMMIT_MAX: Duration = Duration::from_secs(5);
/// Exit status of a transaction whose commit was refused.
const REFUSED: i32 = 123;
/// How long the last transaction of the reader beside may take.
const LAST_ROUND: Duration = Duration::from_secs(60);

/// All of it.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    require(&[("dpkg-deb", "dpkg"), ("useradd", "passwd"), ("git", "git"), ("make", "make")])?;
    let marram = Marram::make(&setting.folder.join("subject"), &Making::sized(GIB))?;
    let packages = [1, 2].map(|version| setting.folder.join(format!("tiny-{version}.deb")));
    for (version, package) in (1..).zip(&packages) {
        build_package(&setting.folder.join(format!("tree-{version}")), version, package)?;
    }
    let mut system = System::make(marram, packages)?;
    let enough = setting.folder.join("enough");
    let mut reader = system.read_beside(&setting.folder.join("read"), &enough)?;
    system.upgrade_that_fails()?;
    system.other_programs()?;
    system.refused()?;
    std::fs::write(enough, "")?;
    reader.wait(LAST_ROUND)?;
    system.judge_reader(&setting.folder.join("read"))?;
    system.full()?;
    system.kills(setting.scaled(60, 6), setting.seed)?;
    system.undo()?;
    system.marram.unmount()?;
    system.marram.check()
}

/// A package of that version, whose installation fails where a file `fail` is in its way.
fn build_package(tree: &Path, version: u32, package: &Path) -> Result<()> {
    let (control, files) = (tree.join("DEBIAN"), tree.join("usr/share/tiny"));
    std::fs::create_dir_all(&control)?;
    std::fs::create_dir_all(&files)?;
    for number in 0..FILES {
        std::fs::write(files.join(format!("part-{number}")), format!("{version}\n"))?;
    }
    std::fs::write(files.join(format!("only-in-{version}")), "here\n")?;
    let large = format!("head -c {LARGE_BYTES} /dev/urandom > large");
    run(command(&["sh", "-c", &large]).current_dir(&files))?;
    let about = format!(
        "Package: tiny\nVersion: {version}\nArchitecture: all\nMaintainer: nobody <n@localhost>\n\
         Description: a trial\n"
    );
    std::fs::write(control.join("control"), about)?;
    let script = control.join("postinst");
    std::fs::write(&script, "#!/bin/sh\ntest ! -e \"$DPKG_ROOT/fail\"\n")?;
    run(command(&["chmod", "755"]).arg(&script))?;
    run(command(&["dpkg-deb", "--build", "--root-owner-group", "-Znone"]).arg(tree).arg(package))
}

/// The root of a little system on a pool.
struct System {
    marram: Marram,
    packages: [PathBuf; 2],
    /// How long an installation has taken.
    installation: Duration,
}

impl System {
    fn make(marram: Marram, packages: [PathBuf; 2]) -> Result<System> {
        let root = marram.root().canonicalize()?;
        for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc", "home"] {
            std::fs::create_dir_all(root.join(folder))?;
        }
        for (file, content) in [
            ("var/lib/dpkg/status", ""),
            ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
            ("etc/group", "root:x:0:\n"),
            ("etc/shadow", "root:*:19000:0:99999:7:::\n"),
            ("etc/gshadow", "root:*::\n"),
        ] {
            std::fs::write(root.join(file), content)?;
        }
        let mut system = System { marram, packages, installation: Duration::ZERO };
        let began = Instant::now();
        run(&mut system.transaction(&system.dpkg(0)))?;
        system.installation = began.elapsed();
        system.expect_version(1)?;
        step("dpkg -i is one transaction");
        Ok(system)
    }

    fn root(&self) -> &Path {
        self.marram.root()
    }

    /// A line of the shell in the root of the system, as one transaction.
    fn transaction(&self, line: &str) -> Command {
        let mut run = self.marram.command(&["tx", "run", "--", "sh", "-euc", line]);
        // Its own root counts, and no setting of the machine. With this no default holds.
        let force = "downgrade,script-chrootless,not-root,bad-path";
        run.current_dir(self.root()).env("DPKG_FORCE", force);
        run
    }

    fn dpkg(&self, package: usize) -> String {
        let package = self.packages[package].display();
        format!("dpkg --root=\"$PWD\" --log=/dev/null -i {package} >&2")
    }

    /// Names, modes, owners and bytes of all of it, in a few digits.
    fn state(&self) -> Result<String> {
        let line = "tar --sort=name --mtime=@0 --numeric-owner -cf - . | sha256sum";
        text(command(&["sh", "-c", line]).current_dir(self.root()))
    }

    fn version(&self) -> Result<u32> {
        let line = "cat usr/share/tiny/part-* | sort | uniq -c | tr -s ' ' ' '";
        let told = text(command(&["sh", "-c", line]).current_dir(self.root()))?;
        let Some((count, version)) = told.trim().split_once(' ') else {
            return fail(format!("the package has {told:?}"));
        };
        let status = std::fs::read_to_string(self.root().join("var/lib/dpkg/status"))?;
        let only = self.root().join(format!("usr/share/tiny/only-in-{version}")).exists();
        let is_known = status.contains(&format!("Version: {version}\n"))
            && status.contains("Status: install ok installed");
        match (count == FILES.to_string() && only && is_known, version.parse()) {
            (true, Ok(version)) => Ok(version),
            _ => fail(format!("a part of a version is there: {told:?}, and dpkg has\n{status}")),
        }
    }

    /// Waits for a commit of which the starter was killed: a plain reader may see some of both
    /// states meanwhile.
    fn await_end_of_all(&self) -> Result<()> {
        let began = Instant::now();
        loop {
            let listed = text(self.marram.command(&["tx", "list", "-H"]).arg(self.root()))?;
            match listed.trim() {
                "" => return Ok(()),
                _ if began.elapsed() < COMMIT_MAX => std::thread::sleep(COMMIT_MAX / 100),
                listed => return fail(format!("after {COMMIT_MAX:?} it goes on: {listed}")),
            }
        }
    }

    fn expect_version(&self, expected: u32) -> Result<()> {
        match self.version()? {
            found if found == expected => Ok(()),
            found => fail(format!("version {found} is there, not {expected}")),
        }
    }

    /// Ends as a line in a transaction should, and changes nothing.
    fn fails(&self, line: &str) -> Result<Output> {
        let before = self.state()?;
        let end = ended(&mut self.transaction(line))?;
        if end.status.success() {
            return fail(format!("`{line}` ended well"));
        }
        match self.state()? == before {
            true => Ok(end),
            false => fail(format!("`{line}` failed, and left something: {}", tail(&end))),
        }
    }

    /// Looks at two files as transactions, until there is a file `enough`.
    fn read_beside(&self, told: &Path, enough: &Path) -> Result<OwnedChild> {
        let out = std::fs::File::create(told)?;
        let marram = self.marram.command(&[]);
        let line = "until test -e \"$1\"; do
            \"$0\" tx run --retry 9 -- sh -c 'read a < usr/share/tiny/part-0
            read b < usr/share/tiny/part-199; echo $a $b'; sleep 0.02; done";
        let mut reader = command(&["sh", "-c", line]);
        reader.arg(marram.get_program()).arg(enough).current_dir(self.root());
        OwnedChild::start(reader.stdout(out).stderr(Stdio::null()))
    }

    fn judge_reader(&self, told: &Path) -> Result<()> {
        let told = std::fs::read_to_string(told)?;
        let mixed = told.lines().find(|line| !matches!(*line, "1 1" | "2 2"));
        match (mixed, told.lines().count()) {
            (Some(mixed), _) => fail(format!("a reader saw the versions {mixed}")),
            (None, 0) => fail("a reader beside was never served"),
            (None, count) => {
                step(&format!("a reader saw {count} states, each of one version"));
                Ok(())
            }
        }
    }

    fn upgrade_that_fails(&self) -> Result<()> {
        let end = self.fails(&format!("touch fail; {}", self.dpkg(1)))?;
        if !tail(&end).contains("postinst") && !tail(&end).contains("post-installation") {
            return fail(format!("dpkg failed for another reason: {}", tail(&end)));
        }
        self.expect_version(1)?;
        step("an upgrade that fails in its last script: nothing happened");
        Ok(())
    }

    fn other_programs(&self) -> Result<()> {
        for (name, line, seen) in [
            ("useradd", "useradd --prefix \"$PWD\" --create-home ann", "home/ann"),
            (
                "make install",
                "mkdir -p src && printf 'install:\\n\\tinstall -D -m 755 Makefile \
                 $(DESTDIR)/usr/bin/tool\\n' > src/Makefile && \
                 make -C src install DESTDIR=\"$PWD\" >&2",
                "usr/bin/tool",
            ),
            (
                "git rebase",
                "git init --quiet repository && cd repository
                 git() { command git -c user.name=n -c user.email=n@localhost \"$@\"; }
                 for n in 1 2; do echo $n > f$n; git add .; git commit --quiet -m $n; done
                 git checkout --quiet -b side HEAD~1; echo s > s; git add .; git commit --quiet -m s
                 git rebase --quiet - && git fsck --strict --no-progress",
                "repository/s",
            ),
            (
                "pip install",
                "python3 -m venv venv && venv/bin/pip --version > pip-version",
                "pip-version",
            ),
        ] {
            self.fails(&format!("({line}); exit 3"))?;
            run(&mut self.transaction(line))?;
            if !self.root().join(seen).exists() {
                return fail(format!("{name} was committed, and {seen} is not there"));
            }
            step(&format!("{name}: whole, or never"));
        }
        Ok(())
    }

    /// What others have changed that was read refuses the commit.
    fn refused(&self) -> Result<()> {
        let (note, gate) = (self.root().join("note"), self.root().with_file_name("gate"));
        std::fs::write(&note, "one\n")?;
        let line = format!(
            "cat note >&2; echo mine > mine; touch {0}; while [ -e {0} ]; do sleep 0.01; done",
            gate.display()
        );
        let mut writer = self.transaction(&line);
        let writer = writer.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        while !gate.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::fs::write(&note, "two\n")?;
        std::fs::remove_file(&gate)?;
        let end = writer.wait_with_output()?;
        if end.status.code() != Some(REFUSED) || !tail(&end).contains("/note") {
            return fail(format!(
                "a commit over a change ends with {}: {}",
                end.status,
                tail(&end)
            ));
        }
        if self.root().join("mine").exists() {
            return fail("a refused commit has left a file");
        }
        step("others have changed what was read: refused, by path");
        Ok(())
    }

    fn full(&self) -> Result<()> {
        let filler = self.root().join("filler");
        let line =
            "cat /dev/urandom > filler 2>/dev/null || true; truncate -s -4M filler; sync filler";
        run(command(&["sh", "-c", line]).current_dir(self.root()))?;
        self.fails(&self.dpkg(1))?;
        self.expect_version(1)?;
        std::fs::remove_file(filler)?;
        // Else a daemon that is killed soon leaves the moment before.
        self.marram.sync()?;
        step("a pool that gets full in the middle: nothing happened");
        Ok(())
    }

    /// The command, the run, or the daemon is killed at some moment of an upgrade, again and again.
    fn kills(&mut self, rounds: u64, seed: u64) -> Result<()> {
        let mut random = Seed::new(seed);
        let mut counts = [0; 2];
        for round in 0..rounds {
            let before = self.version()?;
            let line = self.dpkg(if before == 1 { 1 } else { 0 });
            let mut upgrade = self.transaction(&line);
            std::os::unix::process::CommandExt::process_group(&mut upgrade, 0);
            let mut upgrade =
                OwnedChild::start(upgrade.stdout(Stdio::null()).stderr(Stdio::null()))?;
            // Up to twice as long as an installation takes.
            let hundredths = u32::try_from(random.between(0, 200)).unwrap_or(0);
            std::thread::sleep(self.installation * hundredths / 100);
            let group = format!("-{}", upgrade.id());
            match round % 3 {
                0 => upgrade.kill()?,
                1 => {
                    let _has_ended = command(&["kill", "-KILL", "--", &group]).status()?;
                }
                _ => {
                    self.marram.kill()?;
                    self.marram.mount()?;
                }
            }
            let acknowledged = upgrade.wait(Duration::from_secs(60))?.success();
            let _has_ended =
                command(&["kill", "-KILL", "--", &group]).stderr(Stdio::null()).status()?;
            self.await_end_of_all()?;
            let after = self.version()?;
            if acknowledged && after == before {
                return fail("an upgrade that was acknowledged is not there");
            }
            counts[usize::from(after != before)] += 1;
        }
        step(&format!(
            "{rounds} kills: {} upgrades there as a whole, {} not at all",
            counts[1], counts[0]
        ));
        Ok(())
    }

    fn undo(&self) -> Result<()> {
        if self.version()? == 2 {
            run(&mut self.transaction(&self.dpkg(0)))?;
        }
        let before = self.state()?;
        run(&mut self.transaction(&self.dpkg(1)))?;
        self.expect_version(2)?;
        run(self.marram.command(&["undo", "--yes"]).arg(self.root()))?;
        if self.state()? != before {
            return fail("an undo has not brought back what was there");
        }
        step("an upgrade taken back by one undo");
        Ok(())
    }
}
