//! A folder of its own for each test, and the real program run in it.
//!
//! Whatever a test has mounted below its folder is taken away when it ends, however it ends.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A folder, and the program run in it.
pub(crate) struct Workbench {
    folder: TempDir,
}

/// What a run of the program ended with.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Exit status; -1 for a signal.
    pub(crate) status: i32,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

impl Outcome {
    /// The result in the JSON envelope, which must be in order.
    pub(crate) fn result(&self) -> Value {
        let envelope = self.envelope();
        assert_eq!(self.status, 0, "{self:?}");
        envelope["result"].clone()
    }

    /// The JSON envelope.
    pub(crate) fn envelope(&self) -> Value {
        let envelope: Value = serde_json::from_str(&self.out).expect("one JSON object");
        assert_eq!(envelope["version"], 1);
        assert!(envelope["command"].is_string());
        envelope
    }

    /// Fails the test unless the run was successful.
    #[track_caller]
    pub(crate) fn good(self) -> Outcome {
        assert_eq!(self.status, 0, "{self:?}");
        self
    }

    /// Fails the test unless the run ended with `status` and said `words` on standard error.
    #[track_caller]
    pub(crate) fn refused(self, status: i32, words: &[&str]) -> Outcome {
        assert_eq!(self.status, status, "{self:?}");
        assert!(!self.err.contains("panicked"), "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "{word:?} is missing: {self:?}");
        }
        self
    }
}

/// Copies the program by another process. Were it written here, a process that another thread
/// starts meanwhile would hold it open for writing, and then it cannot be run.
pub(crate) fn copy_program(to: &Path) {
    let copied = outcome(Command::new("cp").arg(env!("CARGO_BIN_EXE_marram")).arg(to));
    assert_eq!(copied.status, 0, "{copied:?}");
}

impl Workbench {
    /// A fresh folder.
    pub(crate) fn new() -> Workbench {
        let folder = tempfile::Builder::new().prefix("marram-test-").tempdir();
        Workbench { folder: folder.expect("a temporary folder") }
    }

    /// A fresh folder with a pool `work.pool` in it.
    pub(crate) fn with_pool() -> Workbench {
        let bench = Workbench::new();
        bench.run("create work.pool --size 128M").good();
        bench
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A new folder in it.
    pub(crate) fn make_folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).expect("a folder");
        path
    }

    /// The program, to be run in the folder with nothing of the user's around.
    pub(crate) fn command(&self) -> Command {
        self.command_as(Path::new(env!("CARGO_BIN_EXE_marram")))
    }

    /// The program under another name.
    pub(crate) fn command_as(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env("XDG_STATE_HOME", self.path("state"))
            .env_remove("XDG_DATA_HOME")
            .env_remove("AWS_ACCESS_KEY_ID")
            .stdin(std::process::Stdio::null());
        command
    }

    /// The program, to be run by other users: a copy of it in the folder, which is opened to them.
    /// Where it was built, in a home that is closed, they need not come.
    pub(crate) fn command_for_others(&self) -> Command {
        let program = self.path("marram-of-all");
        if !program.exists() {
            copy_program(&program);
            let all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(self.folder.path(), all).expect("opened");
        }
        self.command_as(&program)
    }

    /// Runs the program with the words of `line`.
    pub(crate) fn run(&self, line: &str) -> Outcome {
        outcome(self.command().args(line.split_whitespace()))
    }

    /// Runs the program under the name `name` with the words of `line`.
    pub(crate) fn run_as(&self, name: &str, line: &str) -> Outcome {
        let link = self.path(name);
        if !link.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_marram"), &link).expect("a link");
        }
        outcome(self.command_as(&link).args(line.split_whitespace()))
    }

    /// Runs a program of the system in the folder.
    pub(crate) fn host(&self, words: &[&str]) -> Outcome {
        outcome(Command::new(words[0]).args(&words[1..]).current_dir(self.folder.path()))
    }

    /// Lines of `/proc/mounts` about mounts below the folder.
    pub(crate) fn mounts(&self) -> Vec<String> {
        let folder = self.folder.path().to_string_lossy().into_owned();
        let table = std::fs::read_to_string("/proc/mounts").expect("/proc/mounts");
        let below = |line: &&str| line.split(' ').nth(1).is_some_and(|at| at.starts_with(&folder));
        table.lines().filter(below).map(str::to_owned).collect()
    }

    /// What the daemon of the one pool has logged.
    pub(crate) fn log(&self) -> String {
        let files = std::fs::read_dir(self.path("state/marram")).expect("a folder");
        let mut files = files.map(|file| file.expect("a file").path());
        let log = files.find(|path| path.extension().is_some_and(|ending| ending == "log"));
        std::fs::read_to_string(log.expect("a log")).expect("a text")
    }

    /// The process id of the daemon that serves `target`.
    pub(crate) fn daemon_pid(&self, target: &str) -> i32 {
        let status = self.run(&format!("status {target} --json")).result();
        let pid = status[0]["daemon"]["pid"].as_i64().expect("a daemon");
        i32::try_from(pid).expect("a process id")
    }
}

impl Drop for Workbench {
    fn drop(&mut self) {
        for line in self.mounts().iter().rev() {
            if let Some(directory) = line.split(' ').nth(1) {
                let gone = if line.contains("marram rw,") || line.contains("marram ro,") {
                    format!("{:?}", self.run(&format!("unmount --detach {directory}")))
                } else {
                    let flags = rustix::mount::UnmountFlags::DETACH;
                    format!("{:?}", rustix::mount::unmount(directory, flags))
                };
                eprintln!("left over: {line}: {gone}");
            }
        }
    }
}

/// A loop device on a file of a bench, for as long as this is there.
pub(crate) struct Attached<'b> {
    bench: &'b Workbench,
    /// Where it is.
    pub(crate) path: String,
}

impl Attached<'_> {
    /// Attaches one with these words of `losetup`; `None` where there are no loop devices.
    pub(crate) fn to<'b>(bench: &'b Workbench, file: &str, words: &str) -> Option<Attached<'b>> {
        let mut line = vec!["losetup", "--show", "-f"];
        line.extend(words.split_whitespace());
        line.push(file);
        let found = bench.host(&line);
        if found.status != 0 {
            eprintln!("skipped: needs a loop device");
            return None;
        }
        Some(Attached { bench, path: found.out.trim().to_owned() })
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.bench.host(&["losetup", "-d", &self.path]);
    }
}

/// Runs a command to its end, with its standard output led elsewhere.
pub(crate) fn outcome_to(command: &mut Command, to: impl Into<std::process::Stdio>) -> Outcome {
    let child = command.stdout(to).stderr(std::process::Stdio::piped()).spawn();
    let Output { status, stderr, .. } =
        child.and_then(std::process::Child::wait_with_output).expect("the program runs");
    let err = String::from_utf8_lossy(&stderr).into_owned();
    Outcome { status: status.code().unwrap_or(-1), out: String::new(), err }
}

/// Runs a command to its end.
pub(crate) fn outcome(command: &mut Command) -> Outcome {
    let Output { status, stdout, stderr } = command.output().expect("the program runs");
    Outcome {
        status: status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&stdout).into_owned(),
        err: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// A pool that is mounted on `mnt`; `None` where nothing can be mounted.
pub(crate) fn mounted() -> Option<Workbench> {
    if !can_mount() {
        return None;
    }
    let bench = Workbench::with_pool();
    bench.make_folder("mnt");
    bench.run("mount work.pool mnt").good();
    Some(bench)
}

/// Whether this machine lets us mount; says so where it does not.
pub(crate) fn can_mount() -> bool {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let root = rustix::process::geteuid().is_root();
    if root && opened.is_ok() {
        return true;
    }
    eprintln!("skipped: mounting needs root and /dev/fuse");
    false
}
