//! Paths of a command line, from the root of what is compared or merged.

use crate::arguments::SelectionArguments;
use crate::control::protocol::SelectionOrder;
use crate::error::{Error, Result};
use crate::names::{PathText, quoted};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// What the command line selects; `roots` are directories that stand for the root.
///
/// # Errors
/// A path that lies outside.
pub(super) fn order(arguments: &SelectionArguments, roots: &[PathBuf]) -> Result<SelectionOrder> {
    let paths = arguments.paths.iter();
    let paths = paths.map(|path| from_root(path, roots).map(|path| PathText::of(&path)));
    Ok(SelectionOrder {
        paths: paths.collect::<Result<_>>()?,
        excludes: arguments.exclude.clone(),
        ignore_files: arguments.gitignore,
    })
}

/// A path from the root: one below one of `roots` loses that, any other begins at the root.
///
/// # Errors
/// It leads out of the root, or stands for a directory that is none of `roots`.
pub(super) fn from_root(path: &Path, roots: &[PathBuf]) -> Result<Vec<u8>> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let places = [in_order(&absolute), beside_links(&absolute)];
    let below = |place: &Option<PathBuf>| {
        let place = place.as_ref()?;
        roots.iter().find_map(|root| place.strip_prefix(root).ok().map(Path::to_owned))
    };
    let below = places.iter().find_map(below).or_else(|| match path.is_absolute() {
        true => in_order(path),
        false => in_order(path).filter(|inside| !inside.as_os_str().is_empty()),
    });
    let Some(below) = below else {
        let path = quoted(path.as_os_str().as_bytes());
        return Err(Error::usage(format!("{path} is outside of what is compared or merged"))
            .hint("paths begin at its root, as in reports, or lie in its directory"));
    };
    let parts = below.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.as_bytes()),
        _ => None,
    });
    let parts: Vec<&[u8]> = parts.collect();
    Ok([b"/".as_slice(), &parts.join(&b'/')].concat())
}

/// A path without `.` and `..`, by its words alone; none if it leads above where it begins.
fn in_order(path: &Path) -> Option<PathBuf> {
    let mut inside = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if inside.file_name().is_none() => return None,
            Component::ParentDir => _ = inside.pop(),
            Component::CurDir => (),
            part => inside.push(part),
        }
    }
    Some(inside)
}

/// A path of which the directory is looked up through symbolic links, if it is there.
fn beside_links(absolute: &Path) -> Option<PathBuf> {
    let directory = absolute.parent()?.canonicalize().ok()?;
    Some(directory.join(absolute.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::from_root;
    use crate::error::Kind;
    use std::path::{Path, PathBuf};

    #[test]
    fn a_path_begins_at_the_root_or_lies_below_it() {
        let roots = [PathBuf::from("/mnt/.marram/forks/work"), PathBuf::from("/mnt/src")];
        for (path, told) in [
            ("/a/b", "/a/b"),
            ("a/b", "/a/b"),
            ("./a//b/", "/a/b"),
            ("a/../b", "/b"),
            ("/mnt/.marram/forks/work/a", "/a"),
            ("/mnt/src/a", "/a"),
            ("/mnt/src/../src/a", "/a"),
            ("/mnt/src", "/"),
            ("/", "/"),
        ] {
            let found = from_root(Path::new(path), &roots).expect("inside");
            assert_eq!(found, told.as_bytes(), "{path}");
        }
        for outside in [".", "..", "../a", "a/../..", "a/.."] {
            let error = from_root(Path::new(outside), &roots).expect_err(outside);
            assert_eq!(error.kind, Kind::Usage, "{outside}");
        }
    }
}
