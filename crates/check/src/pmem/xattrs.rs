//! Extended attributes: eight bytes that say how many follow, and the attributes one after another.

use super::Check;
use super::inodes::Raw;
use super::memory::{Checked, Problem, number};
use super::tree::{Leaf, Tree, split};
use super::{FIRST_PAGE, PAGE};
use crate::finding::FindingKind as Kind;
use std::collections::HashSet;

/// Bytes before the attributes.
const HEAD: usize = 8;
/// Most bytes of all of an inode.
const BYTES_MAX: u64 = 8 << 20;
/// Longest name.
const NAME_MAX: usize = 255;
/// Longest value.
const VALUE_MAX: usize = 65_536;
/// Where an inode has their root pointer.
const ROOT_FIELD: usize = 64;

impl Check<'_, '_> {
    /// Looks at the extended attributes of an inode that says that it has some.
    pub(super) fn check_xattrs(&mut self, raw: Raw<'_>) {
        let root_at = raw.at + ROOT_FIELD as u64;
        let bad = |what: String| Problem::new(Kind::XattrMalformed, root_at, what);
        let root = raw.word(ROOT_FIELD);
        let len = match self.xattr_bytes(root_at, root) {
            Ok(Some(len)) if len <= BYTES_MAX => len as usize,
            Ok(len) => {
                let what = len.map_or("no page".to_owned(), |len| format!("{len} bytes"));
                self.tell_of(raw.ino, bad(what));
                return;
            }
            Err(problem) => {
                self.tell_of(raw.ino, problem);
                return;
            }
        };
        let valid = ((HEAD + len) as u64).div_ceil(PAGE);
        let tree = Tree { root_at, root, valid, has_inodes: false };
        let leaves = self.meet_tree(Some(raw.ino), tree);
        let bytes = match self.gather(&leaves) {
            Ok(bytes) => bytes,
            Err(problem) => {
                self.tell_of(raw.ino, problem);
                return;
            }
        };
        let found = bytes.get(HEAD..HEAD + len).ok_or("pages are missing");
        if let Err(what) = found.and_then(parse) {
            self.tell_of(raw.ino, bad(what.to_owned()));
        }
    }

    /// How many bytes the attributes are, by their first page; none if there is no such page.
    fn xattr_bytes(&self, root_at: u64, root: u64) -> Checked<Option<u64>> {
        let (mut at, mut height) = split(root_at, root)?;
        while at != 0 {
            // The page is met with the tree.
            if at < FIRST_PAGE * PAGE || !at.is_multiple_of(PAGE) {
                let detail = format!("a pointer to {at:#x}");
                return Err(Problem::new(Kind::PointerRange, root_at, detail));
            }
            let word = self.image.word(at)?;
            if height == 0 {
                return Ok(Some(word));
            }
            (at, height) = (word, height - 1);
        }
        Ok(None)
    }

    fn gather(&self, leaves: &[Leaf]) -> Checked<Vec<u8>> {
        let mut bytes = Vec::new();
        for leaf in leaves {
            bytes.extend(&self.image.page(leaf.at)?[..]);
        }
        Ok(bytes)
    }
}

/// Goes through attributes.
fn parse(mut rest: &[u8]) -> Result<(), &'static str> {
    let mut names = HashSet::new();
    while !rest.is_empty() {
        let (lengths, following) = rest.split_at_checked(8).ok_or("a part of an attribute")?;
        let (name_len, value_len) =
            (number(lengths, 0, 4) as usize, number(lengths, 4, 4) as usize);
        if !(1..=NAME_MAX).contains(&name_len) || value_len > VALUE_MAX {
            return Err("a name or value that is too long");
        }
        let name = following.get(..name_len).ok_or("a name behind the end")?;
        rest = following.get(name_len + value_len..).ok_or("a value behind the end")?;
        if name.contains(&0) {
            return Err("a name with a NUL");
        }
        if !names.insert(name) {
            return Err("a name twice");
        }
    }
    Ok(())
}
