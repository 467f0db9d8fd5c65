//! Paths of a command line, from the root of what is compared or merged.

use crate::arguments::SelectionArguments;
use crate::control::protocol::SelectionOrder;
use crate::names::PathText;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// What the command line selects; `roots` are directories that stand for the root.
pub(super) fn order(arguments: &SelectionArguments, roots: &[PathBuf]) -> SelectionOrder {
    let paths = arguments.paths.iter();
    SelectionOrder {
        paths: paths.map(|path| PathText::of(&from_root(path, roots))).collect(),
        excludes: arguments.exclude.clone(),
        ignore_files: arguments.gitignore,
    }
}

/// A path from the root: one below one of `roots` loses that, any other begins at the root.
pub(super) fn from_root(path: &Path, roots: &[PathBuf]) -> Vec<u8> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let below = roots.iter().find_map(|root| absolute.strip_prefix(root).ok());
    let parts = below.unwrap_or(path).components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.as_bytes()),
        _ => None,
    });
    let parts: Vec<&[u8]> = parts.collect();
    [b"/".as_slice(), &parts.join(&b'/')].concat()
}

#[cfg(test)]
mod tests {
    use super::from_root;
    use std::path::{Path, PathBuf};

    #[test]
    fn a_path_is_told_from_the_root_or_lies_below_it() {
        let roots = [PathBuf::from("/mnt/.marram/forks/work"), PathBuf::from("/mnt/src")];
        for (path, told) in [
            ("/a/b", "/a/b"),
            ("a/b", "/a/b"),
            ("./a//b/", "/a/b"),
            ("/mnt/.marram/forks/work/a", "/a"),
            ("/mnt/src/a", "/a"),
            ("/mnt/src", "/"),
            ("/", "/"),
        ] {
            assert_eq!(from_root(Path::new(path), &roots), told.as_bytes(), "{path}");
        }
    }
}
