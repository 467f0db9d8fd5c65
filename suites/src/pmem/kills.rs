//! The daemon of a pmem home killed at random moments, under calls that nobody syncs: each call
//! that had returned is there afterwards, and the one that was running wholly or not at all.
//!
//! The kernel makes several requests of a write that begins or ends inside of a page: then each of
//! them is one, and they happen in their order.
//!
//! Each worker has a folder of its own, and knows what that shows after each of its calls. All that
//! is random comes from the seed, but for the moment of the kill. Rounds go on with what the one
//! before has left, on tmpfs and on an ordinary file in turns. Each image is checked as it lies.

use super::Trees;
use crate::{Setting, step};
use marram_lab::failure::{Context, Result, fail};
use marram_lab::process::run;
use marram_lab::seed::Seed;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Bytes of an image: small, so that it is full at times.
const IMAGE_BYTES: u64 = 24 << 20;
/// Folders, each with a thread that works in it.
const WORKERS: usize = 3;
/// Bytes of a page of the kernel's.
const PAGE_BYTES: u64 = 4096;
/// Rounds in the short form.
const SHORT_ROUNDS: u32 = 10;
/// Names in a folder.
const NAMES: u64 = 40;
/// A call stores at most so many bytes, at most so far into a file.
const CALL_BYTES_MAX: u64 = 60_000;
const OFFSET_MAX: u64 = 300_000;
/// The kill comes so long after the start.
const DELAY_MS: (u64, u64) = (30, 400);

/// A call.
#[derive(Clone, Debug)]
enum Call {
    Create(u64),
    Write { name: u64, offset: u64, bytes: u64, value: u8 },
    Cut { name: u64, size: u64 },
    Rename { from: u64, to: u64 },
    Link { from: u64, to: u64 },
    Remove(u64),
}

impl Call {
    /// What can have happened of a call that was running: nothing, all, or its first requests.
    fn parts(&self) -> Vec<Option<Call>> {
        let Call::Write { name, offset, bytes, value } = *self else {
            return vec![None, Some(self.clone())];
        };
        let pages = (offset / PAGE_BYTES + 1..).map(|page| page * PAGE_BYTES - offset);
        let cuts = pages.take_while(|cut| *cut < bytes).chain([bytes]);
        let parts = cuts.map(|bytes| Some(Call::Write { name, offset, bytes, value }));
        [None].into_iter().chain(parts).collect()
    }

    /// What is left of a write of which so many bytes have been written.
    fn rest(&self, written: u64) -> Option<Call> {
        match *self {
            Call::Write { name, offset, bytes, value } if written < bytes => {
                let (offset, bytes) = (offset + written, bytes - written);
                Some(Call::Write { name, offset, bytes, value })
            }
            _ => None,
        }
    }

    /// The part that has happened of a write that leaves a rest.
    fn first(&self, written: u64) -> Call {
        match *self {
            Call::Write { name, offset, value, .. } => {
                Call::Write { name, offset, bytes: written, value }
            }
            _ => self.clone(),
        }
    }
}

/// What a folder shows: the file of each name, and the content of each file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shown {
    names: BTreeMap<u64, usize>,
    files: BTreeMap<usize, Vec<u8>>,
}

impl Shown {
    /// What it shows after a call that has succeeded.
    fn after(mut self, call: &Call) -> Shown {
        match *call {
            Call::Create(name) => {
                let file = self.files.last_key_value().map_or(0, |(file, _)| file + 1);
                self.names.insert(name, file);
                self.files.insert(file, Vec::new());
            }
            Call::Write { name, offset, bytes, value } => {
                if let Some(content) = self.content(name) {
                    let (start, end) = (offset as usize, (offset + bytes) as usize);
                    content.resize(content.len().max(end), 0);
                    content[start..end].fill(value);
                }
            }
            Call::Cut { name, size } => {
                if let Some(content) = self.content(name) {
                    content.resize(size as usize, 0);
                }
            }
            Call::Rename { from, to } => {
                if self.names.get(&from) != self.names.get(&to)
                    && let Some(file) = self.names.remove(&from)
                {
                    self.names.insert(to, file);
                }
            }
            Call::Link { from, to } => {
                if let Some(file) = self.names.get(&from) {
                    self.names.insert(to, *file);
                }
            }
            Call::Remove(name) => drop(self.names.remove(&name)),
        }
        self.files.retain(|file, _| self.names.values().any(|named| named == file));
        self
    }

    fn content(&mut self, name: u64) -> Option<&mut Vec<u8>> {
        self.files.get_mut(self.names.get(&name)?)
    }

    /// Fails unless a folder shows just this.
    fn compare(&self, folder: &Path) -> Result<()> {
        let mut found: BTreeMap<u64, PathBuf> = BTreeMap::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let text = entry.file_name().to_string_lossy().into_owned();
            let name = text.parse::<u64>().context(|| format!("a name {text}"))?;
            found.insert(name, entry.path());
        }
        if !found.keys().eq(self.names.keys()) {
            let (found, known) = (found.keys(), self.names.keys());
            return fail(format!("the names are {found:?}, and not {known:?}"));
        }
        let mut inodes = BTreeMap::new();
        for (name, file) in &self.names {
            let (path, content) = (&found[name], &self.files[file]);
            let links = self.names.values().filter(|named| *named == file).count() as u64;
            let status = fs::metadata(path)?;
            let inode = *inodes.entry(*file).or_insert(status.ino());
            if status.nlink() != links || status.ino() != inode {
                return fail(format!("{name}: {} links, and not {links}", status.nlink()));
            }
            if fs::read(path)? != *content {
                return fail(format!("{name}: another content"));
            }
        }
        Ok(())
    }
}

/// Draws the next call.
fn draw(seed: &mut Seed) -> Call {
    let (name, to) = (seed.between(0, NAMES), seed.between(0, NAMES));
    match seed.between(0, 10) {
        0 | 1 => Call::Create(name),
        2 => Call::Rename { from: name, to },
        3 => Call::Link { from: name, to },
        4 => Call::Remove(name),
        5 => Call::Cut { name, size: seed.between(0, OFFSET_MAX) },
        _ => {
            let few = if seed.between(0, 2) == 0 { 100 } else { CALL_BYTES_MAX };
            let (offset, bytes) = (seed.between(0, OFFSET_MAX), seed.between(1, few));
            Call::Write { name, offset, bytes, value: seed.between(1, 256) as u8 }
        }
    }
}

/// Makes a call, and nothing that would change something beside it. Of a write it says how many
/// bytes have been written.
fn call(folder: &Path, call: &Call) -> std::io::Result<u64> {
    let path = |name: u64| folder.join(name.to_string());
    let open = |name: u64| OpenOptions::new().write(true).open(path(name));
    let done = match *call {
        Call::Create(name) => File::create_new(path(name)).map(drop),
        Call::Write { name, offset, bytes, value } => {
            let data = vec![value; bytes as usize];
            return Ok(open(name)?.write_at(&data, offset)? as u64);
        }
        Call::Cut { name, size } => open(name)?.set_len(size),
        Call::Rename { from, to } => fs::rename(path(from), path(to)),
        Call::Link { from, to } => fs::hard_link(path(from), path(to)),
        Call::Remove(name) => fs::remove_file(path(name)),
    };
    done.map(|()| 0)
}

/// Errors that say that a call was refused, and nothing else.
fn is_refusal(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{AlreadyExists, NotFound, StorageFull};
    matches!(error.kind(), AlreadyExists | NotFound | StorageFull)
}

/// A folder on the mount, and what it shows.
struct Worker {
    folder: PathBuf,
    seed: Seed,
    shown: Shown,
    /// The call that was running when the daemon died.
    running: Option<Call>,
    calls: u64,
}

impl Worker {
    /// Works until the mount is gone.
    fn work(&mut self, is_over: &AtomicBool) -> Result<()> {
        let mut rest = None;
        loop {
            let next = rest.take().unwrap_or_else(|| draw(&mut self.seed));
            match call(&self.folder, &next) {
                Ok(written) => {
                    let done = next.first(written);
                    self.shown = std::mem::take(&mut self.shown).after(&done);
                    rest = next.rest(written);
                }
                Err(error) if is_refusal(&error) => {}
                Err(error) if is_over.load(Ordering::SeqCst) => {
                    self.running = Some(next);
                    return ended(&error);
                }
                Err(error) => return fail(format!("{next:?} before the kill: {error}")),
            }
            self.calls += 1;
        }
    }

    /// Compares the folder with what it has to show, and goes on from that.
    fn judge(&mut self) -> Result<()> {
        let Some(running) = self.running.take() else { return self.shown.compare(&self.folder) };
        let mut said = Vec::new();
        for part in running.parts() {
            let shown = self.shown.clone();
            let shown = part.iter().fold(shown, |shown, part| shown.after(part));
            match shown.compare(&self.folder) {
                Ok(()) => {
                    self.shown = shown;
                    return Ok(());
                }
                Err(failure) => said.push(failure.to_string()),
            }
        }
        fail(format!("{running:?} was running, and nothing fits: {}", said.join("; ")))
    }
}

/// The daemon died: other errors than these say that something else is wrong.
fn ended(error: &std::io::Error) -> Result<()> {
    use rustix::io::Errno;
    let died = [Errno::NOTCONN, Errno::CONNABORTED, Errno::IO].map(|errno| errno.raw_os_error());
    match error.raw_os_error().is_some_and(|errno| died.contains(&errno)) {
        true => Ok(()),
        false => fail(format!("after the kill: {error}")),
    }
}

/// A home with its workers.
struct Home {
    trees: Trees,
    workers: Vec<Worker>,
}

impl Home {
    fn make(setting: &Setting, place: &Path, name: &str, seed: &mut Seed) -> Result<Home> {
        let folder = setting.folder.join(name);
        fs::create_dir(&folder)?;
        let trees = Trees::make_at(&folder, place, IMAGE_BYTES)?;
        let mut workers = Vec::new();
        for number in 0..WORKERS {
            let folder = trees.root.join(number.to_string());
            fs::create_dir(&folder)?;
            let (seed, shown) = (Seed::new(seed.draw()), Shown::default());
            workers.push(Worker { folder, seed, shown, running: None, calls: 0 });
        }
        Ok(Home { trees, workers })
    }

    /// Works, kills, checks, mounts, and compares.
    fn round(&mut self, delay: Duration) -> Result<()> {
        let (is_over, trees) = (AtomicBool::new(false), &self.trees);
        let daemon = trees.daemon()?;
        std::thread::scope(|threads| {
            let workers: Vec<_> = self
                .workers
                .iter_mut()
                .map(|worker| threads.spawn(|| worker.work(&is_over)))
                .collect();
            std::thread::sleep(delay);
            is_over.store(true, Ordering::SeqCst);
            trees.kill(daemon)?;
            for worker in workers {
                worker.join().unwrap_or_else(|_| fail("a worker panicked"))?;
            }
            Ok::<(), marram_lab::failure::Failure>(())
        })?;
        trees.unmount_dead()?;
        run(trees.marram(&["check"]).arg(trees.image())).context(|| "as it was left")?;
        trees.mount().context(|| "after the kill")?;
        for worker in &mut self.workers {
            worker.judge().context(|| worker.folder.display())?;
        }
        Ok(())
    }
}

/// All rounds.
pub(crate) fn run_all(setting: &Setting) -> Result<()> {
    setting.marram_only()?;
    let rounds = if setting.is_short { SHORT_ROUNDS.min(setting.rounds) } else { setting.rounds };
    let mut seed = Seed::new(setting.seed);
    let memory = Home::make(setting, Path::new(super::MEMORY), "memory", &mut seed)?;
    let mut homes = [memory, Home::make(setting, &setting.folder, "file", &mut seed)?];
    for number in 0..rounds {
        let delay = Duration::from_millis(seed.between(DELAY_MS.0, DELAY_MS.1));
        let home = &mut homes[number as usize % 2];
        home.round(delay).context(|| format!("seed {} round {number}", setting.seed))?;
    }
    let mut calls = 0;
    for home in &homes {
        calls += home.workers.iter().map(|worker| worker.calls).sum::<u64>();
        home.trees.unmount(&home.trees.root)?;
        run(home.trees.marram(&["check"]).arg(home.trees.image()))?;
    }
    step(&format!("{rounds} kills, {calls} calls: none that had returned was lost"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_shows_what_its_calls_have_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut seed, mut shown, mut refused) = (Seed::new(7), Shown::default(), 0);
        for _ in 0..400 {
            let next = draw(&mut seed);
            match call(folder.path(), &next) {
                Ok(written) => shown = shown.after(&next.first(written)),
                Err(error) => {
                    assert!(is_refusal(&error), "{next:?}: {error}");
                    refused += 1;
                }
            }
        }
        shown.compare(folder.path()).expect("it is the same");
        assert!((1..300).contains(&refused), "{refused}");
        let name = *shown.names.keys().next().expect("a name");
        call(folder.path(), &Call::Remove(name)).expect("it goes");
        assert!(shown.compare(folder.path()).is_err());
    }

    #[test]
    fn a_call_that_was_running_has_happened_or_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let (made, running) =
            (Call::Create(3), Call::Write { name: 3, offset: 5, bytes: 9, value: 4 });
        call(folder.path(), &made).expect("it is made");
        let mut worker = Worker {
            folder: folder.path().to_owned(),
            seed: Seed::new(1),
            shown: Shown::default().after(&made),
            running: Some(running.clone()),
            calls: 0,
        };
        worker.judge().expect("it has not happened");
        call(folder.path(), &running).expect("it is written");
        worker.running = Some(running);
        worker.judge().expect("it has happened");
        fs::write(folder.path().join("3"), [4; 14]).expect("it is torn");
        worker.running = Some(Call::Cut { name: 3, size: 2 });
        assert!(worker.judge().is_err());
    }
}
