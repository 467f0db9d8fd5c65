//! All that a file system holds, read through its trait without a mount.

use crate::pool::{Result, words};
use marram_sim::read_directory;
use marram_vfs::{FileSystem, Ino, Kind};
use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// Most bytes of a file that are read at once.
const READ_BYTES_MAX: u64 = 1 << 20;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// A directory.
    Directory,
    /// A file: whether it may be run, and what it holds.
    File(bool, Vec<u8>),
    /// A symbolic link, and where it leads.
    Link(String),
}

/// Everything by its path from the root, such as `mail/new/3`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree(pub(crate) BTreeMap<String, Node>);

impl Tree {
    /// Reads all of it. Times and owners are no matter to the programs here.
    pub(crate) fn read(files: &dyn FileSystem) -> Result<Tree> {
        let mut tree = Tree::default();
        let mut left = vec![(Ino::ROOT, String::new())];
        let mut seen = HashSet::new();
        while let Some((directory, path)) = left.pop() {
            if !seen.insert(directory) {
                return Err(format!("{path}/ is a directory for the second time"));
            }
            let entries = read_directory(files, directory, false, usize::MAX)
                .map_err(|error| format!("{path}/: {error:?}"))?;
            for entry in entries {
                let name = String::from_utf8(entry.name).map_err(words)?;
                let below = if path.is_empty() { name } else { format!("{path}/{name}") };
                let node = node(files, entry.ino, entry.kind)
                    .map_err(|error| format!("{below}: {error:?}"))?;
                if node == Node::Directory {
                    left.push((entry.ino, below.clone()));
                }
                tree.0.insert(below, node);
            }
        }
        Ok(tree)
    }

    /// A number that is the same for the same tree and for no other one.
    pub(crate) fn digest(&self) -> u128 {
        let mut hash = Xxh3::new();
        let mut add = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        for (path, node) in &self.0 {
            add(path.as_bytes());
            match node {
                Node::Directory => add(b"directory"),
                Node::File(is_program, bytes) => {
                    add(if *is_program { b"program" } else { b"file" });
                    add(bytes);
                }
                Node::Link(target) => {
                    add(b"link");
                    add(target.as_bytes());
                }
            }
        }
        hash.digest128()
    }

    /// Copies it into a folder, which is made.
    pub(crate) fn write(&self, folder: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(folder)?;
        for (path, node) in &self.0 {
            let place = folder.join(path);
            match node {
                Node::Directory => std::fs::create_dir(&place)?,
                Node::File(is_program, bytes) => {
                    std::fs::write(&place, bytes)?;
                    if *is_program {
                        std::fs::set_permissions(&place, PermissionsExt::from_mode(0o755))?;
                    }
                }
                Node::Link(target) => std::os::unix::fs::symlink(target, &place)?,
            }
        }
        Ok(())
    }

    /// What the file at `path` holds.
    pub(crate) fn file(&self, path: &str) -> Option<&[u8]> {
        match self.0.get(path) {
            Some(Node::File(_, bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// The paths below the directory at `path`, as seen from there.
    pub(crate) fn below(&self, path: &str) -> impl Iterator<Item = &str> {
        let prefix = format!("{path}/");
        self.0.range(prefix.clone()..).map_while(move |(path, _)| path.strip_prefix(&prefix))
    }
}

fn node(files: &dyn FileSystem, ino: Ino, kind: Kind) -> marram_vfs::Result<Node> {
    let attributes = files.attributes(ino)?;
    match kind {
        Kind::Directory => Ok(Node::Directory),
        Kind::Symlink => {
            let target = files.read_link(ino)?;
            Ok(Node::Link(String::from_utf8_lossy(&target).into_owned()))
        }
        _ => {
            let mut bytes = Vec::new();
            while (bytes.len() as u64) < attributes.size {
                let (offset, before) = (bytes.len() as u64, bytes.len());
                let len = (attributes.size - offset).min(READ_BYTES_MAX);
                files.read(ino, offset, len as usize, &mut bytes)?;
                if bytes.len() == before {
                    let reason = format!("no bytes at {offset} of {}", attributes.size);
                    return Err(marram_vfs::Error::Io(reason));
                }
            }
            Ok(Node::File(attributes.permissions & 0o100 != 0, bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Node, Tree};

    #[test]
    fn every_difference_that_matters_changes_the_digest() {
        let tree = |list: &[(&str, Node)]| {
            let named = list.iter().map(|(path, node)| ((*path).to_owned(), node.clone()));
            Tree(named.collect())
        };
        let file = |text: &str| Node::File(false, text.into());
        let trees = [
            tree(&[]),
            tree(&[("a", Node::Directory)]),
            tree(&[("a", file(""))]),
            tree(&[("a", Node::File(true, Vec::new()))]),
            tree(&[("a", file("b"))]),
            tree(&[("ab", file(""))]),
            tree(&[("a", Node::Link("b".into()))]),
            tree(&[("a", file("")), ("b", file(""))]),
        ];
        let mut digests: Vec<u128> = trees.iter().map(Tree::digest).collect();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), trees.len());
    }

    #[test]
    fn what_is_written_to_a_folder_is_the_tree() {
        let folder = tempfile::tempdir().expect("a folder");
        let list = [
            ("a", Node::Directory),
            ("a/b", Node::File(true, b"text".to_vec())),
            ("a-b", Node::Link("a/b".to_owned())),
        ];
        let tree = Tree(list.map(|(path, node)| (path.to_owned(), node)).into());
        tree.write(&folder.path().join("copy")).expect("written");
        let found = std::fs::read(folder.path().join("copy/a-b")).expect("through the link");
        assert_eq!(found, b"text");
        assert_eq!(tree.below("a").collect::<Vec<_>>(), ["b"]);
        assert_eq!(tree.file("a/b"), Some(&b"text"[..]));
    }
}
