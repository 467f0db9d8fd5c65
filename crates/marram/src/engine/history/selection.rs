//! Which paths a comparison or a merge is about: paths that were named, without what patterns leave
//! out, and without what ignore files of git leave out.
//!
//! Patterns and ignore files mean what they mean to git (the library `ignore` reads them). An
//! ignore file is read where it lies in the second of two states, or else in the first. A deeper
//! one decides before those above it, and below a directory that is left out nothing comes back.

use crate::control::protocol::SelectionOrder;
use crate::error::{Error, Result};
use crate::names::PathText;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use marram_posix::Posix;
use marram_vfs::{FileSystem, Ino, Kind, Name};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Ignore files that are longer are not read, in bytes.
const IGNORE_FILE_BYTES_MAX: u64 = 1 << 20;
/// The ignore file of a directory.
const IGNORE_FILE: &[u8] = b".gitignore";
/// What git keeps for itself.
const GIT: &[u8] = b".git";
/// The ignore file of a checkout that is not part of it, below what git keeps.
const EXCLUDE_FILE: [&[u8]; 2] = [b"info", b"exclude"];

/// See the module.
pub(super) struct Selection {
    paths: Vec<Vec<u8>>,
    excludes: Gitignore,
    /// Each pattern on its own, until it has matched something.
    unmatched: Vec<(String, Gitignore)>,
    ignored: Option<Ignored>,
}

/// What ignore files say.
struct Ignored {
    /// The states in which they are, each with the directory that is its root.
    states: Vec<(Posix, Ino)>,
    /// Directories that have been asked for, by their paths.
    known: HashMap<Vec<u8>, Directory>,
}

/// A directory.
#[derive(Clone)]
struct Directory {
    /// It is left out, with all that is in it.
    is_left_out: bool,
    /// Its number in each state that has it.
    inos: Vec<Option<Ino>>,
    /// What its ignore file says.
    own: Gitignore,
}

impl Selection {
    /// What was asked for; `states` opens the states in which ignore files are, if they count.
    ///
    /// # Errors
    /// A pattern that makes no sense; states that cannot be opened.
    pub(super) fn new(
        order: &SelectionOrder,
        states: impl FnOnce() -> Result<Vec<(Posix, Ino)>>,
    ) -> Result<Selection> {
        let ignored = match order.ignore_files {
            true => Some(Ignored { states: states()?, known: HashMap::new() }),
            false => None,
        };
        let paths = order.paths.iter().map(PathText::bytes).collect();
        let alone = |line: &String| Ok((line.clone(), patterns(std::slice::from_ref(line))?));
        let unmatched = order.excludes.iter().map(alone).collect::<Result<_>>()?;
        Ok(Selection { paths, excludes: patterns(&order.excludes)?, unmatched, ignored })
    }

    /// Whether what is at a path, from the root, is meant.
    ///
    /// # Errors
    /// An ignore file that cannot be read.
    pub(super) fn has(&mut self, path: &[u8], is_directory: bool) -> Result<bool> {
        self.unmatched.retain(|(_, alone)| {
            let matches = |at: &[u8], is_directory| !matched(alone, at, is_directory).is_none();
            !matches(path, is_directory) && !directories_above(path).any(|at| matches(at, true))
        });
        let is_named = |named: &Vec<u8>| is_at_or_below(path, named);
        if !self.paths.is_empty() && !self.paths.iter().any(is_named) {
            return Ok(false);
        }
        let is_left_out = |at: &[u8], is_directory| {
            matches!(matched(&self.excludes, at, is_directory), Match::Ignore(_))
        };
        if directories_above(path).any(|above| is_left_out(above, true))
            || is_left_out(path, is_directory)
        {
            return Ok(false);
        }
        match &mut self.ignored {
            Some(ignored) => Ok(!ignored.has(path, is_directory)?),
            None => Ok(true),
        }
    }
}

impl Selection {
    /// The patterns that nothing has matched of what was asked for.
    pub(super) fn unmatched(self) -> Vec<String> {
        self.unmatched.into_iter().map(|(line, _)| line).collect()
    }
}

/// Whether something is at a path of a state.
pub(super) fn is_there((files, root): &(Posix, Ino), path: &[u8]) -> bool {
    let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let found = names.try_fold(*root, |directory, name| {
        let found = files.lookup(directory, Name::new(name).ok()?).ok()?;
        files.forget(found.ino, 1);
        Some(found.ino)
    });
    found.is_some()
}

impl Ignored {
    /// Whether ignore files leave out what is at a path.
    fn has(&mut self, path: &[u8], is_directory: bool) -> Result<bool> {
        let mut above = vec![self.root()?];
        for directory in directories_above(path) {
            let found = self.directory(directory, &above)?;
            if found.is_left_out {
                return Ok(true);
            }
            above.push(found);
        }
        Ok(is_left_out(path, is_directory, &above))
    }

    /// The root, whose ignore file comes after what the checkout itself leaves out.
    fn root(&mut self) -> Result<Directory> {
        if let Some(known) = self.known.get(b"/".as_slice()) {
            return Ok(known.clone());
        }
        let inos: Vec<Option<Ino>> = self.states.iter().map(|(_, root)| Some(*root)).collect();
        let mut git = self.inside(&inos, GIT);
        git = self.inside(&git, EXCLUDE_FILE[0]);
        let mut lines = self.lines(&git, EXCLUDE_FILE[1])?;
        lines.extend(self.lines(&inos, IGNORE_FILE)?);
        let root = Directory { is_left_out: false, inos, own: tolerant(&lines) };
        self.known.insert(b"/".to_vec(), root.clone());
        Ok(root)
    }

    /// A directory, below those that are `above` it.
    fn directory(&mut self, path: &[u8], above: &[Directory]) -> Result<Directory> {
        if let Some(known) = self.known.get(path) {
            return Ok(known.clone());
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let inos = above.last().map_or_else(Vec::new, |above| self.inside(&above.inos, name));
        let is_left_out = is_left_out(path, true, above);
        let lines = if is_left_out { Vec::new() } else { self.lines(&inos, IGNORE_FILE)? };
        let directory = Directory { is_left_out, inos, own: tolerant(&lines) };
        self.known.insert(path.to_vec(), directory.clone());
        Ok(directory)
    }

    /// What a name leads to in directories of the states.
    fn inside(&self, directories: &[Option<Ino>], name: &[u8]) -> Vec<Option<Ino>> {
        let states = self.states.iter().zip(directories);
        let find = |(state, directory): (&(Posix, Ino), &Option<Ino>)| {
            let found = state.0.lookup((*directory)?, Name::new(name).ok()?).ok()?;
            state.0.forget(found.ino, 1);
            Some(found.ino)
        };
        states.map(find).collect()
    }

    /// The lines of an ignore file, in the first of the states that has it.
    fn lines(&self, directories: &[Option<Ino>], name: &[u8]) -> Result<Vec<String>> {
        let found = self.inside(directories, name);
        let found = self.states.iter().zip(found).find_map(|(state, ino)| Some((state, ino?)));
        let Some(((files, _), ino)) = found else { return Ok(Vec::new()) };
        let attributes = files.attributes(ino)?;
        if attributes.kind != Kind::Regular || attributes.size > IGNORE_FILE_BYTES_MAX {
            return Ok(Vec::new());
        }
        let mut content = Vec::new();
        files.read(ino, 0, usize::try_from(attributes.size).unwrap_or(0), &mut content)?;
        let text = String::from_utf8_lossy(&content);
        Ok(text.trim_start_matches('\u{feff}').lines().map(str::to_owned).collect())
    }
}

/// Whether the nearest directory that says anything of a path leaves it out.
fn is_left_out(path: &[u8], is_directory: bool, above: &[Directory]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if name == GIT {
        return true;
    }
    let depth = above.len();
    let ends = std::iter::once(0).chain(directories_above(path).map(<[u8]>::len));
    let inner: Vec<&[u8]> = ends.take(depth).map(|end| &path[end..]).collect();
    let deepest_first = above.iter().zip(inner).rev();
    for (directory, inner) in deepest_first {
        match matched(&directory.own, inner, is_directory) {
            Match::Ignore(_) => return true,
            Match::Whitelist(_) => return false,
            Match::None => {}
        }
    }
    false
}

/// What patterns say of a path, which begins at their directory.
fn matched<'p>(
    patterns: &'p Gitignore,
    path: &[u8],
    is_directory: bool,
) -> Match<&'p ignore::gitignore::Glob> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    patterns.matched(Path::new(OsStr::from_bytes(path)), is_directory)
}

/// Patterns of a command line.
fn patterns(lines: &[String]) -> Result<Gitignore> {
    let mut builder = GitignoreBuilder::new("");
    for line in lines {
        builder.add_line(None, line).map_err(|error| {
            Error::usage(format!("--exclude {line:?} is no pattern: {error}"))
                .hint("patterns are those of .gitignore: target/, *.o, /build, !build/keep")
        })?;
    }
    builder.build().map_err(|error| Error::usage(format!("too many patterns: {error}")))
}

/// Patterns of an ignore file: as to git, one that makes no sense matches nothing.
fn tolerant(lines: &[String]) -> Gitignore {
    let mut builder = GitignoreBuilder::new("");
    for line in lines {
        let _as_git_does = builder.add_line(None, line);
    }
    builder.build().unwrap_or_else(|_| Gitignore::empty())
}

/// Whether a path is another one, or lies below it.
fn is_at_or_below(path: &[u8], above: &[u8]) -> bool {
    above == b"/" || path.strip_prefix(above).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
}

/// The paths of the directories above, from the outermost on, without the root.
fn directories_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
    ends.map(|(end, _)| &path[..end])
}

#[cfg(test)]
mod tests {
    use super::Selection;
    use crate::control::protocol::SelectionOrder;
    use crate::error::Kind;
    use crate::names::PathText;

    fn selection(paths: &[&str], excludes: &[&str]) -> crate::error::Result<Selection> {
        let order = SelectionOrder {
            paths: paths.iter().map(|path| PathText::of(path.as_bytes())).collect(),
            excludes: excludes.iter().map(|&pattern| pattern.to_owned()).collect(),
            ignore_files: false,
        };
        Selection::new(&order, || Ok(Vec::new()))
    }

    #[test]
    fn a_path_stands_for_itself_and_all_below_it() {
        let mut some = selection(&["/src", "/a"], &[]).expect("no patterns");
        for (path, is_meant) in
            [("/src", true), ("/src/x", true), ("/srcs", false), ("/a", true), ("/", false)]
        {
            assert_eq!(
                some.has(path.as_bytes(), false).expect("nothing is read"),
                is_meant,
                "{path}"
            );
        }
        assert!(selection(&[], &[]).unwrap().has(b"/any", false).unwrap());
    }

    #[test]
    fn patterns_are_those_of_git() {
        let excludes = ["target/", "*.o", "!keep.o", "/build", "doc/*.html"];
        let mut some = selection(&[], &excludes).expect("patterns");
        for (path, is_directory, is_meant) in [
            ("/target", true, false),
            ("/target", false, true),
            ("/in/target/x/y", false, false),
            ("/in/x.o", false, false),
            ("/in/keep.o", false, true),
            ("/build/x", false, false),
            ("/in/build", false, true),
            ("/doc/x.html", false, false),
            ("/doc/in/x.html", false, true),
        ] {
            let has = some.has(path.as_bytes(), is_directory).expect("nothing is read");
            assert_eq!(has, is_meant, "{path}");
        }
        let wrong = selection(&[], &["{a"]).err().expect("no pattern");
        assert_eq!(wrong.kind, Kind::Usage);
        assert!(wrong.message.contains("--exclude"), "{wrong}");
    }
}
