//! Actions on small trees, by path, on any file system.

use marram_vfs::{
    Caller, Error, FileSystem, Ino, Kind, Name, NewNode, RenameMode, SetAttributes, WriteOptions,
    XattrMode,
};
use std::collections::BTreeMap;

const ROOT: Caller = Caller { uid: 0, gid: 0 };
const NAMES: [&str; 3] = ["a", "b", "c"];
const CONTENT_MAX: usize = 64 << 10;

/// A directory by the names that lead to it, and a name in it.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    directory: Vec<&'static str>,
    name: &'static str,
}

/// What a client does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Create(Path),
    MakeDirectory(Path),
    Unlink(Path),
    RemoveDirectory(Path),
    Link(Path, Path),
    Rename(Path, Path, RenameMode),
    Write(Path, u64, Vec<u8>),
    Append(Path, Vec<u8>),
    Truncate(Path, u64),
    Read(Path),
    List(Path),
    Mark(Path, Vec<u8>),
    Look(Path),
}

/// What came of it.
pub(crate) type Outcome = Result<Vec<u8>, i32>;

/// The inodes that an action is about: the directories of its names, and what the first names.
pub(crate) struct Prepared {
    parents: Vec<Ino>,
    subject: Option<Ino>,
}

/// Draws actions.
pub(crate) struct Names(u64);

impl Names {
    pub(crate) fn new(seed: u64) -> Names {
        Names(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    /// Two of so many, which differ.
    pub(crate) fn pair(&mut self, count: usize) -> (usize, usize) {
        let first = usize::try_from(self.below(count as u64)).unwrap();
        let other = usize::try_from(self.below(count as u64 - 1)).unwrap();
        (first, (first + 1 + other) % count)
    }

    fn name(&mut self) -> &'static str {
        NAMES[usize::try_from(self.below(3)).unwrap()]
    }

    fn path(&mut self) -> Path {
        let depth = self.below(6).saturating_sub(3);
        let directory = (0..depth).map(|_| self.name()).collect();
        Path { directory, name: self.name() }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = if self.below(3) == 0 { self.below(9000) } else { self.below(40) };
        let first = self.below(256);
        (0..len).map(|at| (at / 3 + first) as u8).collect()
    }

    pub(crate) fn action(&mut self) -> Action {
        use RenameMode::{Exchange, NoReplace, Replace};
        match self.below(16) {
            0..3 => Action::Create(self.path()),
            3..5 => Action::MakeDirectory(self.path()),
            5 => Action::Unlink(self.path()),
            6 => Action::RemoveDirectory(self.path()),
            7 => Action::Link(self.path(), self.path()),
            8 => Action::Rename(self.path(), self.path(), Replace),
            9 => {
                let mode = if self.below(2) == 0 { NoReplace } else { Exchange };
                Action::Rename(self.path(), self.path(), mode)
            }
            10 => Action::Write(self.path(), self.below(5000), self.bytes()),
            11 => Action::Append(self.path(), self.bytes()),
            12 => Action::Truncate(self.path(), self.below(6000)),
            13 => Action::Read(self.path()),
            14 => match self.below(2) {
                0 => Action::List(self.path()),
                _ => Action::Mark(self.path(), self.bytes()),
            },
            _ => Action::Look(self.path()),
        }
    }
}

fn name(name: &str) -> Name<'_> {
    Name::new(name.as_bytes()).unwrap()
}

fn find(files: &dyn FileSystem, directory: &[&str]) -> Result<Ino, Error> {
    let mut at = Ino::ROOT;
    for step in directory {
        at = files.lookup(at, name(step))?.ino;
    }
    Ok(at)
}

/// Finds what an action is about, as a program does before the one call that counts.
pub(crate) fn prepare(files: &dyn FileSystem, action: &Action) -> Result<Prepared, Error> {
    use Action::{
        Append, Create, Link, List, Look, MakeDirectory, Mark, Read, RemoveDirectory, Rename,
        Truncate, Unlink, Write,
    };
    let (paths, wants_subject) = match action {
        Create(path) | MakeDirectory(path) | Unlink(path) | RemoveDirectory(path) | Look(path) => {
            (vec![path], false)
        }
        Rename(from, to, _) => (vec![from, to], false),
        Link(from, to) => (vec![from, to], true),
        Write(path, ..)
        | Append(path, _)
        | Truncate(path, _)
        | Read(path)
        | List(path)
        | Mark(path, _) => (vec![path], true),
    };
    let parents = paths.iter().map(|path| find(files, &path.directory));
    let parents: Vec<Ino> = parents.collect::<Result<_, _>>()?;
    let subject = || files.lookup(parents[0], name(paths[0].name)).map(|found| found.ino);
    let subject = wants_subject.then(subject).transpose()?;
    Ok(Prepared { parents, subject })
}

/// The one call that counts.
pub(crate) fn perform(
    files: &dyn FileSystem,
    action: &Action,
    prepared: Result<Prepared, Error>,
) -> Outcome {
    let done = prepared.and_then(|prepared| call(files, action, &prepared));
    done.map_err(|error| error.errno())
}

fn call(files: &dyn FileSystem, action: &Action, at: &Prepared) -> Result<Vec<u8>, Error> {
    let file = NewNode::Node { kind: Kind::Regular, permissions: 0o644, device: 0 };
    let directory = NewNode::Directory { permissions: 0o755 };
    let nothing = |_| Vec::new();
    let (parent, subject) = (at.parents[0], at.subject.unwrap_or(Ino::ROOT));
    match action {
        Action::Create(path) => files.create(ROOT, parent, name(path.name), file).map(nothing),
        Action::MakeDirectory(path) => {
            files.create(ROOT, parent, name(path.name), directory).map(nothing)
        }
        Action::Unlink(path) => files.unlink(parent, name(path.name)).map(|()| Vec::new()),
        Action::RemoveDirectory(path) => {
            files.remove_directory(parent, name(path.name)).map(|()| Vec::new())
        }
        Action::Link(_, to) => files.link(subject, at.parents[1], name(to.name)).map(nothing),
        Action::Rename(from, to, mode) => files
            .rename(ROOT, parent, name(from.name), at.parents[1], name(to.name), *mode)
            .map(|()| Vec::new()),
        Action::Write(_, offset, data) => {
            files.write(subject, *offset, data, WriteOptions::default()).map(|()| Vec::new())
        }
        Action::Append(_, data) => {
            files.append(subject, data, WriteOptions::default()).map(|_| Vec::new())
        }
        Action::Truncate(_, size) => {
            let set = SetAttributes { size: Some(*size), ..SetAttributes::default() };
            files.set_attributes(ROOT, subject, &set).map(nothing)
        }
        Action::Read(_) => content(files, subject),
        Action::List(_) => Ok(format!("{:?}", list(files, subject)?).into_bytes()),
        Action::Mark(_, value) => {
            files.set_xattr(subject, b"user.mark", value, XattrMode::Any).map(|()| Vec::new())
        }
        Action::Look(path) => {
            let found = files.lookup(parent, name(path.name))?;
            let size = if found.kind == Kind::Directory { 0 } else { found.size };
            Ok(format!("{:?} {} {size}", found.kind, found.links).into_bytes())
        }
    }
}

fn content(files: &dyn FileSystem, ino: Ino) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    files.read(ino, 0, CONTENT_MAX, &mut out).map(|()| out)
}

fn list(files: &dyn FileSystem, ino: Ino) -> Result<BTreeMap<String, Kind>, Error> {
    let mut found = BTreeMap::new();
    files.read_directory(ino, 0, false, &mut |entry| {
        found.insert(String::from_utf8_lossy(entry.name).into_owned(), entry.kind);
        true
    })?;
    Ok(found)
}

/// All of a tree, by path: kinds, links, contents and marks.
pub(crate) fn tree(files: &dyn FileSystem) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    walk(files, Ino::ROOT, "", &mut found);
    found
}

fn walk(files: &dyn FileSystem, ino: Ino, path: &str, found: &mut BTreeMap<String, String>) {
    for (entry, kind) in list(files, ino).unwrap() {
        let attributes = files.lookup(ino, name(&entry)).unwrap();
        let path = format!("{path}/{entry}");
        let mark = files.xattr(attributes.ino, b"user.mark").ok();
        let data = match kind {
            Kind::Directory => Vec::new(),
            _ => content(files, attributes.ino).unwrap(),
        };
        let text = format!("{kind:?} {} {mark:?} {} {data:?}", attributes.links, data.len());
        found.insert(path.clone(), text);
        if kind == Kind::Directory {
            walk(files, attributes.ino, &path, found);
        }
    }
}
