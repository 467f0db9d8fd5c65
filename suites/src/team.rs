//! A pool from `fstab` and two ordinary users. One lets five programs loose in forks of a git
//! checkout, looks at each, merges two, works on in one and merges it again, takes the parent's
//! news into another, resolves a conflict, drops the rest and undoes. The other meddles all the
//! while: nothing of it is seen or harmed.

use super::mount_tools::Links;
use super::{Setting, linux_tree, step};
use marram_lab::failure::{Result, fail};
use marram_lab::process::{OwnedChild, command, ended, require, run, tail, text};
use marram_lab::project;
use marram_lab::subject::MountPoint;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const POOL_BYTES: u64 = 2 << 30;
/// Two users that the system need not know.
const ANN: u32 = 4001;
const BOB: u32 = 4002;
/// Exit status of a merge that meets conflicts.
const CONFLICTS: i32 = 4;
/// The file that ends the other user's attempts after a round. The shell alone must not be killed:
/// what it has started would go on at home, and the mount would be in use.
const ENOUGH: &str = "enough";
/// How long the last round may take.
const LAST_ROUND: Duration = Duration::from_secs(60);

/// What each of five programs does in the checkout; the first of each line is the fork's name.
const PROGRAMS: [(&str, &str); 5] = [
    (
        "parser",
        "echo 'int parse(void);' >> src/one.c && mkdir -p src/parser && cp src/one.c src/parser",
    ),
    ("printer", "sed -i 's/two/2/' src/two.c && echo note > printer.md"),
    ("title", "sed -i '1s/.*/# A title of the program/' README.md"),
    ("cleaner", "rm -rf node_modules src"),
    ("builder", "cc -c -o src/two.o src/two.c && echo built > built.log"),
];

/// All of it.
pub(super) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    require(&[("setpriv", "util-linux"), ("git", "git"), ("cc", "gcc")])?;
    if !rustix::process::geteuid().is_root() {
        return fail("run it as root: it becomes other users");
    }
    // The project's folder may be one that other users cannot reach.
    let reachable = Permissions::from_mode(0o755);
    let folder = tempfile::Builder::new().prefix("team").permissions(reachable).tempdir()?;
    let _links = Links::make(&project::release_binary()?.canonicalize()?)?;
    let team = Team::mount(folder.path())?;
    team.make_checkout()?;
    let mut meddler = team.meddle()?;
    team.let_loose()?;
    team.look()?;
    team.merge_and_work_on()?;
    team.take_in_news()?;
    team.resolve()?;
    team.drop_the_rest()?;
    team.undo()?;
    if let Some(status) = meddler.ended()? {
        return fail(format!("the other user's attempts ended early ({status})"));
    }
    std::fs::write(team.home(BOB).join(ENOUGH), "")?;
    meddler.wait(LAST_ROUND)?;
    team.judge_meddling()?;
    team.unmount()
}

/// A mounted pool with both users.
struct Team {
    folder: PathBuf,
    point: MountPoint,
    marram: PathBuf,
}

impl Team {
    fn mount(folder: &Path) -> Result<Team> {
        let (pool, marram) = (folder.join("work.pool"), folder.join("marram"));
        std::fs::copy(project::release_binary()?, &marram)?;
        run(Command::new(&marram)
            .arg("create")
            .arg(&pool)
            .args(["--size", &POOL_BYTES.to_string()]))?;
        let point = MountPoint::make(folder.join("srv"))?;
        let (table, place) = (folder.join("fstab"), point.path().display());
        let line = format!("{} {place} fuse.marram defaults,nofail 0 0\n", pool.display());
        std::fs::write(&table, line)?;
        run(command(&["mount", "--fstab"]).arg(&table).arg(point.path()))?;
        for (user, name) in [(ANN, "ann"), (BOB, "bob")] {
            let home = point.path().join(name);
            std::fs::create_dir(&home)?;
            chown(&home, Some(user), Some(user))?;
        }
        step("mounted from a line of fstab");
        Ok(Team { folder: folder.to_owned(), point, marram })
    }

    fn home(&self, user: u32) -> PathBuf {
        self.point.path().join(if user == ANN { "ann" } else { "bob" })
    }

    fn project(&self) -> PathBuf {
        self.home(ANN).join("project")
    }

    /// A line of the shell as a user runs it at home, with `marram` on the path.
    fn shell(&self, user: u32, line: &str) -> Command {
        let id = user.to_string();
        let mut shell = command(&["setpriv", "--clear-groups", "--reuid", &id, "--regid", &id]);
        let path = format!("PATH={}:/usr/local/bin:/usr/bin:/bin", self.folder.display());
        let home = format!("HOME={}", self.home(user).display());
        shell.args(["--reset-env", "env", &path, &home, "sh", "-euc", line]);
        shell.current_dir(self.home(user));
        shell
    }

    /// What a line says to Ann.
    fn ann(&self, line: &str) -> Result<String> {
        text(&mut self.shell(ANN, line))
    }

    /// How a line ends for Ann.
    fn ann_ends(&self, line: &str) -> Result<Output> {
        ended(&mut self.shell(ANN, line))
    }

    fn expect(&self, file: &str, expected: &str) -> Result<()> {
        let found = std::fs::read_to_string(self.project().join(file))?;
        match found == expected {
            true => Ok(()),
            false => fail(format!("{file} has {found:?}, not {expected:?}")),
        }
    }

    /// A repository of which `node_modules` is no part.
    fn make_checkout(&self) -> Result<()> {
        let modules = linux_tree(true)?.reference.join("include/linux");
        self.ann(
            "git config --global user.name Ann && git config --global user.email ann@localhost
             git init --quiet project && cd project && mkdir src node_modules
             printf '# Title\\n\\nText.\\n' > README.md
             printf 'node_modules/\\n*.o\\n' > .gitignore
             echo 'int one(void) { return 1; }' > src/one.c
             echo 'int two(void) { return 2; } /* two */' > src/two.c
             git add --all && git commit --quiet -m start",
        )?;
        let target = self.project().join("node_modules");
        run(command(&["cp", "-r"]).arg(&modules).arg(&target))?;
        run(command(&["chown", "-R", &format!("{ANN}:{ANN}")]).arg(&target))?;
        let count = self.ann("find project | wc -l")?;
        step(&format!("a checkout of {count} files"));
        Ok(())
    }

    /// The other user tries what there is to try, again and again; what works goes into a file.
    fn meddle(&self) -> Result<OwnedChild> {
        let (srv, forks) =
            (self.point.path(), format!("{}/.marram/users/{ANN}", self.point.path().display()));
        let names = PROGRAMS.map(|(name, _)| name).join(" ");
        let line = format!(
            "cd {home}
             works() {{ if \"$@\" >out 2>&1; then echo \"$@\" >> worked; fi; }}
             until test -e {ENOUGH}; do
                 works ls {forks}
                 works touch {project}/mine
                 works marram undo {srv} --yes
                 for name in {names}; do
                     works cat {forks}/$name/README.md
                     works marram diff {forks}/$name
                     works marram merge {srv} --fork $name
                     works marram update {srv} --fork $name
                     works marram destroy fork {srv} $name --yes
                     works marram enter $name -- true
                     works marram rename {srv} mine --dataset $name
                 done
                 works marram fork {project} stolen
                 works marram snapshot {srv}@mine
                 marram forks {srv} -H >> seen
                 marram log {srv} --json >> seen
                 echo round >> rounds
             done",
            home = self.home(BOB).display(),
            project = self.project().display(),
            srv = srv.display(),
        );
        let mut meddler = self.shell(BOB, &line);
        meddler.stdout(Stdio::null()).stderr(Stdio::null());
        OwnedChild::start(&mut meddler)
    }

    fn let_loose(&self) -> Result<()> {
        let mut children = Vec::new();
        for (name, line) in PROGRAMS {
            let line =
                format!("cd project && marram run --keep --name {name} . -- sh -euc \"{line}\"");
            let mut run = self.shell(ANN, &line);
            run.stdout(Stdio::null()).stderr(Stdio::piped());
            children.push((name, run.spawn()?));
        }
        for (name, child) in children {
            let ended = child.wait_with_output()?;
            if !ended.status.success() {
                return fail(format!("{name} ended with {}: {}", ended.status, tail(&ended)));
            }
        }
        let changes = self.ann("cd project && git status --porcelain")?;
        if !changes.is_empty() {
            return fail(format!("programs in forks have changed the directory:\n{changes}"));
        }
        step("five programs at once, each in a fork at the path that it knows");
        Ok(())
    }

    fn look(&self) -> Result<()> {
        let expected = [
            ("parser", "M /src/one.c"),
            ("printer", "A /printer.md"),
            ("title", "M /README.md"),
            ("cleaner", "D /node_modules/"),
            ("builder", "A /built.log"),
        ];
        for (name, change) in expected {
            let told = self.ann(&format!("marram diff {}/{name}", self.forks()))?;
            if !told.contains(change) {
                return fail(format!("the diff of {name} has no {change:?}:\n{told}"));
            }
        }
        step("each fork shows what its program did");
        Ok(())
    }

    fn forks(&self) -> String {
        format!("{}/.marram/users/{ANN}", self.point.path().display())
    }

    /// A second merge brings only what is new.
    fn merge_and_work_on(&self) -> Result<()> {
        self.ann("cd project && marram merge . --fork parser && marram merge . --fork printer")?;
        self.expect("printer.md", "note\n")?;
        self.ann("marram enter parser -- sh -c 'echo more > src/parser/more.c'")?;
        let told = self.ann("cd project && marram merge . --fork parser")?;
        if !told.contains("more.c") && !told.contains("1 created") || told.contains("one.c") {
            return fail(format!("the second merge brings more than what is new:\n{told}"));
        }
        self.expect("src/parser/more.c", "more\n")?;
        step("two merged; worked on in one, and merged again");
        Ok(())
    }

    fn take_in_news(&self) -> Result<()> {
        self.ann("cd project && echo news > news.md && marram update . --fork builder")?;
        let line = "marram enter builder -- sh -c 'cat news.md printer.md built.log'";
        let told = self.ann(line)?;
        match told.lines().collect::<Vec<_>>()[..] {
            ["news", "note", "built", ..] => step("a fork has taken in what its parent got since"),
            _ => return fail(format!("the updated fork has:\n{told}")),
        }
        Ok(())
    }

    fn resolve(&self) -> Result<()> {
        self.ann("cd project && sed -i '1s/.*/# Another title/' README.md")?;
        let merge = "cd project && marram merge . --fork title";
        let met = self.ann_ends(merge)?;
        let told = tail(&met);
        if met.status.code() != Some(CONFLICTS) || !told.contains("README.md") {
            return fail(format!("a merge with a conflict ends with {}:\n{told}", met.status));
        }
        self.expect("README.md", "# Another title\n\nText.\n")?;
        self.ann(&format!("{merge} --theirs README.md"))?;
        self.expect("README.md", "# A title of the program\n\nText.\n")?;
        step("a conflict is named, decided for its file, and merged");
        Ok(())
    }

    fn drop_the_rest(&self) -> Result<()> {
        let all = PROGRAMS.map(|(name, _)| name).join(" ");
        self.ann(&format!("cd project && marram destroy fork . {all} --yes"))?;
        let left = self.ann("cd project && marram forks . -H")?;
        if !left.is_empty() {
            return fail(format!("forks are left:\n{left}"));
        }
        step("the rest is dropped");
        Ok(())
    }

    /// The forks come back with the first undo, the title with the second.
    fn undo(&self) -> Result<()> {
        self.ann("cd project && marram undo . --yes")?;
        let back = self.ann("cd project && marram forks . -H | wc -l")?;
        if back != PROGRAMS.len().to_string() {
            return fail(format!("{back} forks are back"));
        }
        let merge = self.ann("cd project && marram log . --json")?;
        let log: serde_json::Value = serde_json::from_str(&merge)?;
        let rows = log["result"].as_array().cloned().unwrap_or_default();
        let newest = rows.iter().rev().find(|row| row["operation"] == "merge");
        let Some(number) = newest.and_then(|row| row["number"].as_u64()) else {
            return fail(format!("the log has no merge:\n{merge}"));
        };
        self.ann(&format!("cd project && marram undo . {number} --yes"))?;
        self.expect("README.md", "# Another title\n\nText.\n")?;
        self.expect("src/parser/more.c", "more\n")?;
        run(&mut self.shell(ANN, "cd project && git fsck --full --strict --no-progress"))?;
        step("undone: the forks are back, and the title before the last merge");
        Ok(())
    }

    /// Nothing worked that the other user has tried, and nothing was seen.
    fn judge_meddling(&self) -> Result<()> {
        let home = self.home(BOB);
        let worked = std::fs::read_to_string(home.join("worked")).unwrap_or_default();
        let seen = std::fs::read_to_string(home.join("seen")).unwrap_or_default();
        let told = PROGRAMS.iter().find(|(name, _)| seen.contains(name));
        if !worked.is_empty() || told.is_some() {
            return fail(format!("another user could do {worked:?} and saw {told:?}"));
        }
        let rounds = std::fs::read_to_string(home.join("rounds")).unwrap_or_default();
        let rounds = rounds.lines().count();
        if rounds == 0 {
            return fail("the other user has had no chance to meddle");
        }
        step(&format!("another user, who tried it all {rounds} times, did and saw nothing of it"));
        Ok(())
    }

    fn unmount(&self) -> Result<()> {
        run(Command::new(&self.marram).arg("unmount").arg(self.point.path()))?;
        run(Command::new(&self.marram)
            .arg("check")
            .arg(self.folder.join("work.pool"))
            .arg("--data"))
    }
}
