//! The inputs: each is a folder that changes from version to version, the same for each seed.

use marram_lab::failure::{Result, fail};
use marram_lab::inputs::linux_tree;
use marram_lab::process::{command, run};
use marram_lab::seed::Seed;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Parts of the Linux source that are the source tree.
const TREE: [&str; 3] = ["kernel", "lib", "scripts"];
/// Messages of the first mailbox.
const MESSAGES: usize = 4000;
/// Rows of the first database.
const ROWS: usize = 12_000;
/// Files that are replaced in the image.
const REPLACED: usize = 8;
/// Size of the image, as its maker takes it.
const IMAGE_SIZE: &str = "96M";

/// An input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Tree,
    Mailbox,
    Database,
    Image,
}

impl Input {
    pub(super) const ALL: [Input; 4] = [Input::Tree, Input::Mailbox, Input::Database, Input::Image];

    pub(super) fn name(self) -> &'static str {
        match self {
            Input::Tree => "source tree",
            Input::Mailbox => "mbox",
            Input::Database => "SQLite file",
            Input::Image => "image",
        }
    }

    /// What it is, and what each version changes.
    pub(super) fn described(self) -> [&'static str; 2] {
        match self {
            Input::Tree => [
                "`kernel`, `lib` and `scripts` of Linux 6.1",
                "12 files edited in up to 4 places, 2 new, 1 removed, 1 renamed",
            ],
            Input::Mailbox => [
                "4,000 messages, written anew each time",
                "20 messages more, 5 fewer, 10 with another status",
            ],
            Input::Database => {
                ["12,000 rows and an index, by SQLite", "200 rows changed, 50 new, 50 removed"]
            }
            Input::Image => ["an ext4 image of 96 MiB with files of Linux", "8 files replaced"],
        }
    }

    /// Whether the programs that write it overwrite it in place.
    pub(super) fn is_in_place(self) -> bool {
        matches!(self, Input::Database | Input::Image)
    }

    /// Makes the first version in a new folder.
    pub(super) fn begin(self, folder: &Path) -> Result<Making> {
        fs::create_dir(folder)?;
        let reference = linux_tree(true)?.reference;
        let mut making = Making {
            input: self,
            folder: folder.to_owned(),
            sources: Vec::new(),
            seed: Seed::new(24),
            count: 0,
            messages: Vec::new(),
        };
        for part in TREE {
            files_below(&reference.join(part), &mut making.sources)?;
        }
        making.sources.sort();
        match self {
            Input::Tree => {
                for part in TREE {
                    run(command(&["cp", "-r", "--preserve=timestamps"])
                        .arg(reference.join(part))
                        .arg(folder))?;
                }
            }
            Input::Mailbox => {
                for _ in 0..MESSAGES {
                    let message = making.message()?;
                    making.messages.push(message);
                }
                making.write_mailbox()?;
            }
            Input::Database => making.begin_database()?,
            Input::Image => making.begin_image(&reference)?,
        }
        Ok(making)
    }
}

/// An input whose versions are made one after the other.
pub(super) struct Making {
    input: Input,
    folder: PathBuf,
    /// Files of the Linux source, from which all text comes.
    sources: Vec<PathBuf>,
    seed: Seed,
    /// What was made up to now, for names.
    count: usize,
    messages: Vec<String>,
}

impl Making {
    /// Makes the next version of the first.
    pub(super) fn step(&mut self) -> Result<()> {
        match self.input {
            Input::Tree => self.step_tree(),
            Input::Mailbox => self.step_mailbox(),
            Input::Database => self.step_database(),
            Input::Image => self.step_image(),
        }
    }

    /// Some lines of a file of the Linux source.
    fn lines(&mut self, most: u64) -> Result<String> {
        loop {
            let file = &self.sources[self.seed.index(self.sources.len())];
            let bytes = fs::read(file)?;
            let text = String::from_utf8_lossy(&bytes);
            let lines: Vec<&str> = text.lines().collect();
            if lines.len() < 2 {
                continue;
            }
            let at = self.seed.index(lines.len());
            let count = usize::try_from(self.seed.between(1, most + 1)).unwrap_or(1);
            let some = &lines[at..(at + count).min(lines.len())];
            return Ok(some.join("\n") + "\n");
        }
    }

    fn next_number(&mut self) -> usize {
        self.count += 1;
        self.count
    }

    fn step_tree(&mut self) -> Result<()> {
        let mut files = Vec::new();
        files_below(&self.folder, &mut files)?;
        files.sort();
        for _ in 0..12 {
            let file = files[self.seed.index(files.len())].clone();
            self.edit(&file)?;
        }
        for _ in 0..2 {
            let new = format!("lib/new-{}.c", self.next_number());
            let text = self.lines(400)?;
            fs::write(self.folder.join(new), text)?;
        }
        let removed = files.remove(self.seed.index(files.len()));
        fs::remove_file(removed)?;
        let renamed = &files[self.seed.index(files.len())];
        let to = renamed.with_file_name(format!("moved-{}", self.next_number()));
        Ok(fs::rename(renamed, to)?)
    }

    /// Takes lines out of a file, and puts others in.
    fn edit(&mut self, file: &Path) -> Result<()> {
        let bytes = fs::read(file)?;
        let text = String::from_utf8_lossy(&bytes);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for _ in 0..self.seed.between(1, 5) {
            let at = self.seed.index(lines.len());
            let gone = usize::try_from(self.seed.between(0, 4)).unwrap_or(0);
            let end = (at + gone).min(lines.len());
            let new = self.lines(5)?;
            drop(lines.splice(at..end, new.lines().map(str::to_owned)));
        }
        fs::write(file, lines.join("\n") + "\n")?;
        Ok(())
    }

    fn message(&mut self) -> Result<String> {
        let number = self.next_number();
        let body = self.lines(120)?;
        let mut message = format!(
            "From user{}@example.org Thu Jan  1 00:00:00 1970\n\
             Message-ID: <{number}.{:016x}@example.org>\n\
             Status: O\nSubject: message {number}\n\n",
            number % 97,
            self.seed.draw()
        );
        for line in body.lines() {
            let quoted = if line.starts_with("From ") { ">" } else { "" };
            writeln!(message, "{quoted}{line}").expect("a string takes all");
        }
        message.push('\n');
        Ok(message)
    }

    fn write_mailbox(&self) -> Result<()> {
        Ok(fs::write(self.folder.join("mbox"), self.messages.concat())?)
    }

    fn step_mailbox(&mut self) -> Result<()> {
        for _ in 0..5 {
            let gone = self.seed.index(self.messages.len());
            self.messages.remove(gone);
        }
        for _ in 0..10 {
            let read = self.seed.index(self.messages.len());
            self.messages[read] = self.messages[read].replacen("Status: O\n", "Status: RO\n", 1);
        }
        for _ in 0..20 {
            let message = self.message()?;
            self.messages.push(message);
        }
        self.write_mailbox()
    }

    fn begin_database(&mut self) -> Result<()> {
        let mut script = String::from(
            "PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; \
             CREATE TABLE notes (id INTEGER PRIMARY KEY, title TEXT, body TEXT); \
             CREATE INDEX titles ON notes (title); BEGIN;\n",
        );
        for _ in 0..ROWS {
            script.push_str(&self.inserted()?);
        }
        script.push_str("COMMIT;\n");
        self.sqlite(&script)
    }

    fn inserted(&mut self) -> Result<String> {
        let (number, mark) = (self.next_number(), self.seed.draw());
        let body = self.lines(60)?.replace('\'', "''");
        Ok(format!("INSERT INTO notes VALUES ({number}, 'note {mark:x}', '{body}');\n"))
    }

    fn step_database(&mut self) -> Result<()> {
        let mut script = String::from("PRAGMA synchronous = OFF; BEGIN;\n");
        for _ in 0..200 {
            let id = self.seed.index(self.count) + 1;
            let body = self.lines(60)?.replace('\'', "''");
            writeln!(script, "UPDATE notes SET body = '{body}' WHERE id = {id};")
                .expect("a string takes all");
        }
        for _ in 0..50 {
            let id = self.seed.index(self.count) + 1;
            writeln!(script, "DELETE FROM notes WHERE id = {id};").expect("a string takes all");
            script.push_str(&self.inserted()?);
        }
        script.push_str("COMMIT;\n");
        self.sqlite(&script)
    }

    /// Runs a script. The database has no null characters, and one file between two runs.
    fn sqlite(&self, script: &str) -> Result<()> {
        let file = self.folder.with_extension("sql");
        fs::write(&file, script.replace('\0', " "))?;
        let mut sqlite = command(&["sqlite3", "-bail"]);
        sqlite.arg(self.folder.join("notes.db")).arg(format!(".read {}", file.display()));
        run(&mut sqlite)
    }

    fn begin_image(&mut self, reference: &Path) -> Result<()> {
        let words = ["mke2fs", "-q", "-t", "ext4", "-b", "4096", "-U"];
        let id = "24242424-2424-4242-8242-242424242424";
        let seed = format!("hash_seed={id},lazy_itable_init=0");
        let mut make = command(&words);
        make.args([id, "-E", &seed, "-d"]).arg(reference.join(TREE[0]));
        run(make.arg(self.folder.join("disk.img")).arg(IMAGE_SIZE))
    }

    fn step_image(&mut self) -> Result<()> {
        let mut script = String::new();
        for _ in 0..REPLACED {
            let number = self.next_number();
            let new = self.folder.with_extension(format!("new{}", number % REPLACED));
            let text = self.lines(800)?;
            fs::write(&new, text)?;
            if number > REPLACED {
                let gone = number - REPLACED;
                writeln!(script, "rm new-{gone}").expect("a string takes all");
            }
            writeln!(script, "write {} new-{number}", new.display()).expect("a string takes all");
        }
        let file = self.folder.with_extension("debugfs");
        fs::write(&file, script)?;
        let mut debugfs = command(&["debugfs", "-w", "-f"]);
        run(debugfs.arg(&file).arg(self.folder.join("disk.img")))
    }
}

/// The regular files below a folder.
fn files_below(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            files_below(&entry.path(), found)?;
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    match found.is_empty() {
        true => fail(format!("no files below {}", folder.display())),
        false => Ok(()),
    }
}
