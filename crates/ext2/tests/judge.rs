//! The stock `e2fsck` as a judge: what it finds in an image, by its own numbers of problems.

use crate::images::program;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A problem that `e2fsck -fn` has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) code: u32,
}

/// What may be found after a crash under soft updates.
const ALLOWED: [(u32, &str); 20] = [
    (0x01_0004, "an inode without names has no time of removal"),
    (0x01_000c, "a size is lower than the last block"),
    (0x01_000d, "a count of blocks"),
    (0x02_0006, "a directory has two names while it is moved"),
    (0x03_0003, "a directory without a name"),
    (0x03_0005, "what that means for its parent"),
    (0x04_0001, "an inode without a name or content"),
    (0x04_0002, "an inode without a name"),
    (0x04_0003, "a count of names"),
    (0x05_0003, "the heading of those that follow"),
    (0x05_0004, "a block is marked, and nothing uses it"),
    (0x05_0014, "blocks are marked, and nothing uses them"),
    (0x05_0006, "the end of those"),
    (0x05_0007, "the heading of those that follow"),
    (0x05_0008, "an inode is marked, and nothing uses it"),
    (0x05_0016, "inodes are marked, and nothing uses them"),
    (0x05_000a, "the end of those"),
    (0x05_000b, "a count of free inodes"),
    (0x05_000c, "a count of directories"),
    (0x05_000e, "a count of free blocks"),
];

/// How `e2fsck -n` ends when it has found something.
const FOUND: i32 = 4;
/// Stands for an image of which `e2fsck` made nothing.
const GAVE_UP: u32 = 0;
/// Counts that are written at a sync, and are found wrong after any crash.
const COUNTS: [u32; 2] = [0x05_000d, 0x05_000f];

/// Blocks that are marked, and nothing uses them.
const FORGOTTEN: [u32; 4] = [0x05_0003, 0x05_0004, 0x05_0014, 0x05_0006];

/// Runs `e2fsck` with these arguments on a file in a folder, and reads its log of problems.
fn problems(folder: &Path, image: &Path) -> (Vec<Problem>, String) {
    let log = folder.join("problems");
    let _none_before = std::fs::remove_file(&log);
    let configuration = folder.join("e2fsck.conf");
    let options = format!("[options]\nproblem_log_filename = {}\n", log.display());
    std::fs::write(&configuration, options).unwrap();
    let run = Command::new(program("e2fsck"))
        .env("E2FSCK_CONFIG", &configuration)
        .arg("-fn")
        .arg(image)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    let code = run.status.code().unwrap_or(-1);
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let lines = log.lines().filter(|line| line.starts_with("<problem "));
    let mut found: Vec<Problem> = lines.map(problem).collect();
    if code != 0 && code != FOUND {
        found.push(Problem { code: GAVE_UP });
    }
    (found, said)
}

fn attribute<'l>(line: &'l str, name: &str) -> Option<&'l str> {
    let start = line.find(&format!(" {name}=\""))? + name.len() + 3;
    line[start..].split('"').next()
}

fn problem(line: &str) -> Problem {
    let code = attribute(line, "code").unwrap().trim_start_matches("0x");
    Problem { code: u32::from_str_radix(code, 16).unwrap() }
}

/// A folder in which images are judged one after the other: in memory, where that can be had.
pub(crate) struct Judge {
    folder: tempfile::TempDir,
}

impl Judge {
    pub(crate) fn new() -> Judge {
        let in_memory = tempfile::tempdir_in("/dev/shm");
        Judge { folder: in_memory.or_else(|_| tempfile::tempdir()).unwrap() }
    }

    /// Puts an image into a file, over the one before: its pages are there already.
    fn put(&self, name: &str, image: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        let file = File::options().create(true).truncate(false).write(true).open(&path).unwrap();
        file.set_len(image.len() as u64).unwrap();
        file.write_all_at(image, 0).unwrap();
        path
    }

    /// What `e2fsck -fn` finds.
    pub(crate) fn problems(&self, image: &[u8]) -> (Vec<Problem>, String) {
        let path = self.put("image", image);
        problems(self.folder.path(), &path)
    }

    /// What `e2fsck -p` makes of an image after a crash: it replays the journal, and ends orphans.
    ///
    /// # Errors
    /// It does not end well.
    pub(crate) fn replayed(&self, image: &[u8]) -> Result<Vec<u8>, String> {
        self.changed("-p", image)
    }

    /// What `e2fsck -fy` makes of an image after a crash.
    ///
    /// # Errors
    /// It does not end well.
    pub(crate) fn mended(&self, image: &[u8]) -> Result<Vec<u8>, String> {
        self.changed("-fy", image)
    }

    fn changed(&self, how: &str, image: &[u8]) -> Result<Vec<u8>, String> {
        let path = self.put("changed", image);
        let run = Command::new(program("e2fsck")).arg(how).arg(&path).output().unwrap();
        match run.status.code() {
            Some(0 | 1) => Ok(std::fs::read(&path).unwrap()),
            code => Err(format!("{code:?}: {}", String::from_utf8_lossy(&run.stdout))),
        }
    }

    /// Nothing may be found but what `e2fsck` forgets itself: when it ends an orphan that has no
    /// content, as a socket, it does not free its block of extended attributes.
    ///
    /// # Errors
    /// What else is found.
    pub(crate) fn clean_after_e2fsck(&self, image: &[u8]) -> Result<(), String> {
        let (found, said) = self.problems(image);
        let is_forgotten = |problem: &Problem| FORGOTTEN.contains(&problem.code);
        if found.iter().all(is_forgotten) { Ok(()) } else { Err(said) }
    }

    /// Nothing may be found.
    ///
    /// # Errors
    /// What is found.
    pub(crate) fn clean(&self, image: &[u8]) -> Result<(), String> {
        match self.problems(image) {
            (found, _) if found.is_empty() => Ok(()),
            (_, said) => Err(said),
        }
    }

    /// Only what a crash under soft updates may leave may be found; whether there is any of it.
    ///
    /// # Errors
    /// What else is found.
    pub(crate) fn soft(&self, image: &[u8]) -> Result<bool, String> {
        let (found, said) = self.problems(image);
        let is_allowed = |problem: &&Problem| {
            let known = ALLOWED.iter().any(|(code, _)| *code == problem.code);
            !known && !COUNTS.contains(&problem.code)
        };
        let bad: Vec<String> =
            found.iter().filter(is_allowed).map(|it| format!("{:#08x}", it.code)).collect();
        if !bad.is_empty() {
            return Err(format!("{}: {said}", bad.join(", ")));
        }
        match low_count(&said) {
            Some(line) => Err(format!("{line}: {said}")),
            None => Ok(!found.is_empty()),
        }
    }
}

/// A line that says that an inode has more names than it counts.
fn low_count(said: &str) -> Option<&str> {
    said.lines().find(|line| {
        let Some((_, rest)) = line.split_once("ref count is ") else { return false };
        let mut numbers = rest.split(|character: char| !character.is_ascii_digit());
        let mut next = || numbers.find(|text| !text.is_empty()).and_then(|text| text.parse().ok());
        let (counted, found): (Option<u64>, Option<u64>) = (next(), next());
        counted < found
    })
}
