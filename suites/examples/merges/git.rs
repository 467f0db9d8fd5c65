//! Git as the other opinion: a repository of our own that may borrow another's objects, so that
//! nothing is written to that.

use crate::{Result, words};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;

/// Content of a file.
pub(crate) type Blob = Arc<[u8]>;
/// A tree: what is at each path.
pub(crate) type Files = BTreeMap<Vec<u8>, (Mode, Blob)>;

/// A tree as git lists it: mode, kind and number of what is at each path.
pub(crate) type Listing = BTreeMap<Vec<u8>, String>;

/// What git knows of the kind and permissions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Plain,
    Executable,
    Symlink,
}

/// What git says of a merge.
#[derive(Debug)]
pub(crate) struct Merged {
    /// Paths in conflict.
    pub(crate) conflicts: BTreeSet<Vec<u8>>,
    /// The tree; where there is a conflict, something of both.
    pub(crate) listing: Listing,
}

/// One line of a comparison of trees.
#[derive(Clone, Debug)]
pub(crate) struct Delta {
    /// `A`, `D`, `M`, `T` or `R`.
    pub(crate) status: u8,
    pub(crate) path: Vec<u8>,
    /// Of a rename.
    pub(crate) new_path: Option<Vec<u8>>,
}

/// See the module.
pub(crate) struct Git {
    folder: TempDir,
    batch: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    blobs: HashMap<String, Blob>,
}

/// Settings that merges depend on, whatever the user's are. A directory is never taken for renamed
/// because most of its files were: here the names that were moved are known.
const SETTINGS: [&str; 8] = [
    "-c",
    "merge.directoryRenames=false",
    "-c",
    "merge.renameLimit=100000",
    "-c",
    "diff.renameLimit=100000",
    "-c",
    "core.quotePath=false",
];

impl Git {
    /// A new repository that knows the objects of `lender`, if there is one.
    pub(crate) fn new(lender: Option<&Path>) -> Result<Git> {
        let folder = tempfile::tempdir().map_err(words)?;
        let at = folder.path();
        output(Command::new("git").args(["init", "--quiet", "--bare"]).arg(at))?;
        if let Some(lender) = lender {
            let found = Command::new("git")
                .arg("-C")
                .arg(lender)
                .args(["rev-parse", "--path-format=absolute", "--git-path", "objects"])
                .output()
                .map_err(words)?;
            std::fs::write(at.join("objects/info/alternates"), found.stdout).map_err(words)?;
        }
        let mut batch = Command::new("git")
            .args(["-C"])
            .arg(at)
            .args(["cat-file", "--batch"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(words)?;
        let (questions, answers) = (batch.stdin.take(), batch.stdout.take());
        let (questions, answers) = (questions.expect("a pipe"), answers.expect("a pipe"));
        let answers = BufReader::new(answers);
        Ok(Git { folder, batch, questions, answers, blobs: HashMap::new() })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.arg("-C").arg(self.folder.path()).args(SETTINGS).args(arguments);
        command
    }

    /// Makes an index of a commit and all that it follows, so that bases are found sooner.
    pub(crate) fn index_commits(&self, newest: &str) -> Result<()> {
        let mut command = self.command(&["commit-graph", "write", "--stdin-commits"]);
        let mut index = command.stdin(Stdio::piped()).spawn().map_err(words)?;
        let mut input = index.stdin.take().expect("a pipe");
        writeln!(input, "{newest}").map_err(words)?;
        drop(input);
        let status = index.wait().map_err(words)?;
        if status.success() { Ok(()) } else { Err("git commit-graph failed".to_owned()) }
    }

    /// What a command of git prints.
    pub(crate) fn ask(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        output(&mut self.command(arguments))
    }

    /// Commits trees: the base, and two that follow it.
    pub(crate) fn commit(&self, base: &Files, sides: [&Files; 2]) -> Result<()> {
        let mut script = Vec::new();
        for (name, files) in [("base", base), ("ours", sides[0]), ("theirs", sides[1])] {
            let parents = if name == "base" { "" } else { "from refs/heads/base\n" };
            add_commit(&mut script, (name, parents), files);
        }
        self.import(&script)
    }

    /// The newest commit of a branch.
    pub(crate) fn newest(&self, branch: &str) -> Result<String> {
        let told = self.ask(&["rev-parse", branch])?;
        Ok(String::from_utf8_lossy(&told).trim().to_owned())
    }

    /// Commits a tree to a branch, which follows one commit, and another one if that was merged.
    pub(crate) fn advance(
        &self,
        branch: &str,
        (from, merged): (&str, Option<&str>),
        files: &Files,
    ) -> Result<()> {
        let merged = merged.map(|other| format!("merge {other}\n")).unwrap_or_default();
        let parents = format!("from {from}\n{merged}");
        let mut script = Vec::new();
        add_commit(&mut script, (branch, &parents), files);
        self.import(&script)
    }

    fn import(&self, script: &[u8]) -> Result<()> {
        let mut import = self
            .command(&["fast-import", "--quiet", "--force"])
            .stdin(Stdio::piped())
            .spawn()
            .map_err(words)?;
        import.stdin.take().expect("a pipe").write_all(script).map_err(words)?;
        let status = import.wait().map_err(words)?;
        if status.success() { Ok(()) } else { Err("git fast-import failed".to_owned()) }
    }

    /// Merges two commits.
    pub(crate) fn merge(&mut self, ours: &str, theirs: &str) -> Result<Merged> {
        let arguments =
            ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs];
        let done = self.command(&arguments).output().map_err(words)?;
        if !matches!(done.status.code(), Some(0 | 1)) {
            return Err(String::from_utf8_lossy(&done.stderr).into_owned());
        }
        let mut parts = done.stdout.split(|byte| *byte == 0);
        let tree = parts.next().unwrap_or_default();
        let tree = String::from_utf8_lossy(tree).trim().to_owned();
        let parts = parts.filter(|part| !part.is_empty());
        let conflicts = parts.map(<[u8]>::to_vec).collect();
        Ok(Merged { conflicts, listing: self.listing(&tree)? })
    }

    /// What is in a commit or tree.
    pub(crate) fn listing(&self, tree: &str) -> Result<Listing> {
        let listed = self.ask(&["ls-tree", "-r", "-z", tree])?;
        let mut listing = Listing::new();
        for line in listed.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
            let cut = line.iter().position(|byte| *byte == b'\t').ok_or("no path in ls-tree")?;
            let entry = String::from_utf8_lossy(&line[..cut]).into_owned();
            listing.insert(line[cut + 1..].to_vec(), entry);
        }
        Ok(listing)
    }

    /// The files of a listing at some paths. A submodule is a file that holds its number, and a
    /// byte 0, so that nobody merges its lines.
    pub(crate) fn files(&mut self, listing: &Listing, paths: &BTreeSet<Vec<u8>>) -> Result<Files> {
        let mut files = Files::new();
        for (path, entry) in listing.iter().filter(|(path, _)| paths.contains(*path)) {
            let mut words = entry.split(' ');
            let (mode, kind, number) = (words.next(), words.next(), words.next());
            let number = number.ok_or("no number in ls-tree")?;
            let mode = match mode {
                Some("120000") => Mode::Symlink,
                Some("100755") => Mode::Executable,
                _ => Mode::Plain,
            };
            let blob = match kind {
                Some("commit") => format!("{number}\0").into_bytes().into(),
                _ => self.blob(number)?,
            };
            files.insert(path.clone(), (mode, blob));
        }
        Ok(files)
    }

    /// Forgets what files hold.
    pub(crate) fn forget(&mut self) {
        self.blobs.clear();
    }

    fn blob(&mut self, number: &str) -> Result<Blob> {
        if let Some(blob) = self.blobs.get(number) {
            return Ok(Arc::clone(blob));
        }
        writeln!(self.questions, "{number}").map_err(words)?;
        self.questions.flush().map_err(words)?;
        let mut header = String::new();
        self.answers.read_line(&mut header).map_err(words)?;
        let len = header.trim().rsplit(' ').next().and_then(|len| len.parse::<usize>().ok());
        let len = len.ok_or_else(|| format!("git cat-file says {header:?}"))?;
        let mut content = vec![0; len + 1];
        self.answers.read_exact(&mut content).map_err(words)?;
        content.pop();
        let blob: Blob = content.into();
        self.blobs.insert(number.to_owned(), Arc::clone(&blob));
        Ok(blob)
    }

    /// What differs between two commits, renames as git guesses them.
    pub(crate) fn deltas(&self, before: &str, after: &str) -> Result<Vec<Delta>> {
        let listed = self.ask(&["diff-tree", "-r", "-z", "-M", "--name-status", before, after])?;
        let mut parts = listed.split(|byte| *byte == 0).filter(|part| !part.is_empty());
        let mut deltas = Vec::new();
        while let Some(status) = parts.next() {
            let path = parts.next().ok_or("no path in diff-tree")?.to_vec();
            let status = status[0];
            let new_path = match status {
                b'R' => Some(parts.next().ok_or("no new path in diff-tree")?.to_vec()),
                _ => None,
            };
            deltas.push(Delta { status, path, new_path });
        }
        Ok(deltas)
    }
}

impl Drop for Git {
    fn drop(&mut self) {
        // It ends when nobody asks any more; if it does not, nobody waits for it.
        let _ended = self.batch.kill();
        let _waited = self.batch.wait();
    }
}

impl Mode {
    fn octal(self) -> &'static str {
        match self {
            Mode::Plain => "100644",
            Mode::Executable => "100755",
            Mode::Symlink => "120000",
        }
    }
}

/// Adds a commit of all these files to what git is to import.
fn add_commit(script: &mut Vec<u8>, (branch, parents): (&str, &str), files: &Files) {
    let committer = "committer t <t> 1700000000 +0000\ndata 0\n";
    script.extend(format!("commit refs/heads/{branch}\n{committer}{parents}deleteall\n").bytes());
    for (path, (mode, content)) in files {
        script.extend(format!("M {} inline ", mode.octal()).bytes());
        script.extend(path);
        script.extend(format!("\ndata {}\n", content.len()).bytes());
        script.extend(&content[..]);
        script.push(b'\n');
    }
}

/// What a command prints, if it succeeds.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let done = command.output().map_err(words)?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    let told = String::from_utf8_lossy(&done.stderr);
    Err(format!("{command:?}: {told}"))
}
