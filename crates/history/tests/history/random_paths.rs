//! Directories that are removed and made again, moved, and put into what took their place, and then
//! go back, most of them by their paths: compared with a plain map of paths to contents.

use super::directories::{kept, roll_back};
use super::family::{Family, Tree};
use super::random::Random;
use super::random_directories::is_below;
use marram_vfs::{Error, Ino, Kind};
use std::collections::{BTreeMap, BTreeSet};

/// Histories, and directories that go back in each.
const RUNS: u64 = 150;
const ROLLBACKS: usize = 4;
/// Deepest path that is made.
const DEPTH_MAX: usize = 4;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    ino: Ino,
    /// Of a file.
    content: Option<Vec<u8>>,
}

type Plain = BTreeMap<String, Entry>;

/// A tree, what should be there, and what was done to it.
struct Bench<'t> {
    tree: &'t Tree,
    plain: Plain,
    done: Vec<String>,
}

fn read(tree: &Tree) -> Plain {
    let entry = |path: String| {
        let found = tree.find(&path).expect("it was listed");
        let content = (found.kind == Kind::Regular).then(|| tree.read(&path));
        (path, Entry { ino: found.ino, content })
    };
    tree.content().into_keys().map(entry).collect()
}

impl<'t> Bench<'t> {
    fn new(tree: &'t Tree) -> Bench<'t> {
        Bench { tree, plain: Plain::new(), done: Vec::new() }
    }

    fn paths(&self, directories: bool) -> Vec<String> {
        let wanted = self.plain.iter().filter(|(_, entry)| entry.content.is_none() == directories);
        wanted.map(|(path, _)| path.clone()).collect()
    }

    fn one_of(&self, random: &mut Random, directories: bool) -> Option<String> {
        let paths = self.paths(directories);
        (!paths.is_empty()).then(|| random.pick(&paths))
    }

    /// A path where nothing is, in a directory that is there.
    fn free(&self, random: &mut Random) -> Option<String> {
        let mut above = self.paths(true);
        above.push(String::new());
        let path = format!("{}/{}", random.pick(&above), random.pick(&["a", "b", "c"]));
        let fits = path.matches('/').count() <= DEPTH_MAX;
        (fits && !self.plain.contains_key(&path)).then_some(path)
    }

    fn directory(&mut self, path: &str) {
        let ino = self.tree.directory(path);
        self.plain.insert(path.to_owned(), Entry { ino, content: None });
    }

    /// Makes a file, or writes over one under all of its names.
    fn write(&mut self, path: &str, random: &mut Random) {
        let content = vec![random.below(256) as u8; random.pick(&[0, 10, 5000, 140_000])];
        let ino = self.tree.file(path, &content);
        self.plain.insert(path.to_owned(), Entry { ino, content: None });
        for entry in self.plain.values_mut().filter(|entry| entry.ino == ino) {
            entry.content = Some(content.clone());
        }
    }

    fn link(&mut self, old: &str, new: &str) {
        self.tree.link(old, new);
        self.plain.insert(new.to_owned(), self.plain[old].clone());
    }

    fn rename(&mut self, from: &str, to: &str) {
        self.tree.rename(from, to);
        let moved: Vec<String> =
            self.plain.keys().filter(|path| is_below(path, from)).cloned().collect();
        for path in moved {
            let entry = self.plain.remove(&path).expect("it is there");
            self.plain.insert(format!("{to}{}", &path[from.len()..]), entry);
        }
    }

    /// Removes what is at a path, with all that is below it.
    fn remove(&mut self, path: &str) {
        let gone: Vec<String> =
            self.plain.keys().filter(|at| is_below(at, path)).cloned().collect();
        for at in gone.iter().rev() {
            match self.plain.remove(at).expect("it is there").content {
                Some(_) => self.tree.unlink(at),
                None => self.tree.remove_directory(at),
            }
        }
    }

    /// One change, if it can be done.
    fn change(&mut self, random: &mut Random) -> Option<String> {
        let told = match random.below(14) {
            0 | 1 => {
                let path = self.free(random)?;
                self.directory(&path);
                format!("mkdir {path}")
            }
            2..5 => {
                let path = self.free(random)?;
                self.write(&path, random);
                format!("make {path}")
            }
            5 | 6 => {
                let path = self.one_of(random, false)?;
                self.write(&path, random);
                format!("write {path}")
            }
            7 => {
                let (old, new) = (self.one_of(random, false)?, self.free(random)?);
                self.link(&old, &new);
                format!("ln {old} {new}")
            }
            8 | 9 => {
                let is_directory = random.below(2) == 0;
                let (from, to) = (self.one_of(random, is_directory)?, self.free(random)?);
                if is_below(&to, &from) {
                    return None;
                }
                self.rename(&from, &to);
                format!("mv {from} {to}")
            }
            10 => {
                let is_directory = random.below(2) == 0;
                let path = self.one_of(random, is_directory)?;
                self.remove(&path);
                format!("rm -r {path}")
            }
            11 | 12 => {
                let path = self.one_of(random, true)?;
                self.remove(&path);
                self.directory(&path);
                format!("rm -r and mkdir {path}")
            }
            _ => self.displace(random)?,
        };
        Some(told)
    }

    /// A directory is moved away, another one takes its place, and it may come to lie in that.
    fn displace(&mut self, random: &mut Random) -> Option<String> {
        let (path, to) = (self.one_of(random, true)?, self.free(random)?);
        if is_below(&to, &path) {
            return None;
        }
        self.rename(&path, &to);
        self.directory(&path);
        if random.below(2) == 0 {
            return Some(format!("mv {path} {to} and mkdir {path}"));
        }
        let inside = format!("{path}/a");
        self.rename(&to, &inside);
        Some(format!("{inside} is what {path} was"))
    }

    fn changes(&mut self, random: &mut Random, count: u64) {
        for _ in 0..count {
            let told = self.change(random);
            self.done.extend(told);
        }
        assert!(read(self.tree) == self.plain, "before: {:#?}", self.done);
    }

    /// One directory goes back. True if it was found by its path, and was there.
    fn go_back(&mut self, family: &Family, past: &Plain, directory: &str) -> bool {
        let before = self.plain.clone();
        let ino = before[directory].ino;
        let by_number = past.iter().find(|(_, entry)| entry.ino == ino).map(|(path, _)| path);
        let by_path = past.get_key_value(directory).filter(|(_, entry)| entry.content.is_none());
        let counterpart = by_number.or(by_path.map(|(path, _)| path));
        if let Some(was) = counterpart {
            let way = Way { before: &before, past, now: &before, directory, was };
            way.check_told(&told(family, ino), &self.done);
        }
        let went_back = roll_back(family, ino);
        family.check_usage();
        self.plain = read(self.tree);
        self.done.push(format!("{directory} goes back"));
        let Some(was) = counterpart else {
            assert_eq!(went_back, Err(Error::NotFound), "{:#?}", self.done);
            assert!(self.plain == before, "refused, and changed: {:#?}", self.done);
            return false;
        };
        assert!(went_back.is_ok(), "{went_back:?}: {:#?}", self.done);
        let way = Way { before: &before, past, now: &self.plain, directory, was };
        way.check(&self.done);
        let left = told(family, self.plain[directory].ino);
        assert_eq!(left, BTreeSet::new(), "a diff has nothing to tell: {:#?}", self.done);
        let again = roll_back(family, self.plain[directory].ino).expect("it goes back again");
        let after = read(self.tree);
        match way.has_copied_directories() {
            true => assert!(contents(&after) == contents(&self.plain), "again: {:#?}", self.done),
            false => assert!(again.is_none() && after == self.plain, "again: {:#?}", self.done),
        }
        self.plain = after;
        by_number.is_none()
    }
}

/// The paths below a directory of which a diff reports something.
fn told(family: &Family, directory: Ino) -> BTreeSet<String> {
    let all = family.diff_below("root@s", "root", directory).into_iter();
    let paths = all.flat_map(|difference| [Some(difference.path), difference.old_path]);
    paths.flatten().map(|path| String::from_utf8(path).expect("it was made as text")).collect()
}

fn contents(plain: &Plain) -> BTreeMap<&str, Option<&[u8]>> {
    plain.iter().map(|(path, entry)| (path.as_str(), entry.content.as_deref())).collect()
}

/// A directory that went back.
struct Way<'w> {
    before: &'w Plain,
    past: &'w Plain,
    now: &'w Plain,
    directory: &'w str,
    /// Where it was in the past.
    was: &'w str,
}

fn below<'p>(plain: &'p Plain, directory: &str) -> BTreeMap<&'p str, &'p Entry> {
    let wanted = plain.iter().filter(|(path, _)| is_below(path, directory));
    wanted.map(|(path, entry)| (&path[directory.len()..], entry)).collect()
}

fn outside<'p>(plain: &'p Plain, directory: &str) -> BTreeMap<&'p str, &'p Entry> {
    let wanted = plain.iter().filter(|(path, _)| !is_below(path, directory));
    wanted.map(|(path, entry)| (path.as_str(), entry)).collect()
}

fn has(part: &BTreeMap<&str, &Entry>, ino: Ino) -> bool {
    part.values().any(|entry| entry.ino == ino)
}

/// The paths that are names of one file or directory.
fn names(part: &BTreeMap<&str, &Entry>) -> BTreeSet<Vec<String>> {
    let mut by_number: BTreeMap<Ino, Vec<String>> = BTreeMap::new();
    for (path, entry) in part {
        by_number.entry(entry.ino).or_default().push((*path).to_owned());
    }
    by_number.into_values().collect()
}

impl Way<'_> {
    fn check(&self, done: &[String]) {
        let (inside, wanted) = (below(self.now, self.directory), below(self.past, self.was));
        let content = |part: &BTreeMap<&str, &Entry>| -> Vec<(String, Option<Vec<u8>>)> {
            part.iter().map(|(path, entry)| ((*path).to_owned(), entry.content.clone())).collect()
        };
        assert!(content(&inside) == content(&wanted), "below: {done:#?}");
        assert_eq!(names(&inside), names(&wanted), "links: {done:#?}");
        let others = outside(self.now, self.directory);
        assert!(others == outside(self.before, self.directory), "outside: {done:#?}");
        self.check_number(done);
        for (path, entry) in inside.iter().filter(|(_, entry)| has(&others, entry.ino)) {
            assert!(self.may_be_shared(path, entry.ino), "{path} is named outside: {done:#?}");
        }
    }

    /// A diff reports each path at which something came, went or changed, or of one above it. Of a
    /// file with several names it reports one of those below.
    fn check_told(&self, told: &BTreeSet<String>, done: &[String]) {
        let (now, past) = (below(self.now, self.directory), below(self.past, self.was));
        let content = |part: &BTreeMap<&str, &Entry>, path: &str| {
            part.get(path).map(|entry| entry.content.clone())
        };
        let is_told = |path: &str| told.iter().any(|known| is_below(path, known));
        let paths: BTreeSet<&str> = now.keys().chain(past.keys()).copied().collect();
        for path in paths.into_iter().filter(|path| content(&now, path) != content(&past, path)) {
            let ino = now.get(path).map(|entry| entry.ino);
            let mut names = now.iter().filter(|(_, entry)| Some(entry.ino) == ino);
            let is_known = is_told(path) || names.any(|(name, _)| is_told(name));
            assert!(is_known, "{path} is not told in {told:?}: {done:#?}");
        }
    }

    /// It is the inode that it was, unless that lies elsewhere.
    fn check_number(&self, done: &[String]) {
        let (now, was) = (self.now[self.directory].ino, self.past[self.was].ino);
        let is_elsewhere = has(&outside(self.before, self.directory), was);
        assert_eq!(now == was, !is_elsewhere, "number: {done:#?}");
    }

    /// A name below leads to a file that is named outside too: only if it did in the past, or leads
    /// to a copy that an earlier way back made and that stayed as it was.
    fn may_be_shared(&self, path: &str, ino: Ino) -> bool {
        if self.past.values().any(|entry| entry.ino == ino) {
            return has(&outside(self.past, self.was), ino);
        }
        let before = self.before.get(&format!("{}{path}", self.directory));
        before.is_some_and(|entry| entry.ino == ino)
    }

    /// Whether directories of the past that lie outside now were copied: they are each time.
    fn has_copied_directories(&self) -> bool {
        let others = outside(self.before, self.directory);
        let past = below(self.past, self.was);
        past.values().any(|entry| entry.content.is_none() && has(&others, entry.ino))
    }
}

/// One history; returns how many directories went back by their paths.
fn run(seed: u64) -> usize {
    let mut random = Random(seed);
    let mut past = Plain::new();
    let family = kept(|tree| {
        let mut bench = Bench::new(tree);
        ["/a", "/a/b", "/b"].iter().for_each(|path| bench.directory(path));
        bench.changes(&mut random, 25);
        past = bench.plain;
    });
    let mut bench = Bench { plain: past.clone(), ..Bench::new(&family.parent) };
    let mut by_path = 0;
    for _ in 0..ROLLBACKS {
        let count = 1 + random.below(15);
        bench.changes(&mut random, count);
        family.store.commit_some(seed % 4);
        // Those that the past has somewhere go back by their numbers: the others are preferred.
        let known = |path: &String| past.values().any(|entry| entry.ino == bench.plain[path].ino);
        let (old, new): (Vec<_>, Vec<_>) = bench.paths(true).into_iter().partition(known);
        let choices = if new.is_empty() || random.below(4) == 0 { old } else { new };
        if !choices.is_empty() {
            let directory = random.pick(&choices);
            by_path += usize::from(bench.go_back(&family, &past, &directory));
        }
    }
    by_path
}

#[test]
fn directories_that_were_made_again_go_back_by_their_paths() {
    let by_path: usize = (0..RUNS).map(run).sum();
    assert!(by_path > RUNS as usize / 2, "{by_path} went back by their paths");
}
