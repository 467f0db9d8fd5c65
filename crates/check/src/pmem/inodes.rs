//! The inodes of a state, and the trees that they have.

use super::memory::{Problem, number};
use super::tree::{Leaf, Tree, span, split};
use super::{Check, NUMBER_MAX, PAGE, ROOT};
use crate::finding::FindingKind as Kind;
use std::collections::BTreeMap;

/// Inodes in a page.
const INODES: u64 = 32;
/// Bytes of an inode.
const INODE: u64 = 128;
/// Most links of an inode.
const LINKS_MAX: u64 = 65_000;
/// Largest file.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Longest target that lies in the inode.
const INLINE_MAX: u64 = 32;
/// Longest target.
const TARGET_MAX: u64 = 4095;
/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;
/// The inode has extended attributes.
const HAS_XATTRS: u64 = 1;
/// The target of a symbolic link lies in the inode.
const IS_INLINE: u64 = 2;

/// The kind of a directory, as the high bits of `st_mode` have it.
pub(super) const DIRECTORY: u64 = 4;
/// That of a regular file.
pub(super) const REGULAR: u64 = 8;
/// That of a symbolic link.
const SYMLINK: u64 = 10;
/// All kinds that there are.
const KINDS: [u64; 7] = [1, 2, DIRECTORY, 6, REGULAR, SYMLINK, 12];

/// An inode that makes sense.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) kind: u64,
    pub(super) links: u64,
    /// The directory that a directory says it is in.
    pub(super) parent: u64,
    /// The pages of a directory.
    pub(super) pages: Vec<Leaf>,
    /// Names that lead to it, counted when they are looked at.
    pub(super) names: u64,
    /// Directories in it.
    pub(super) subdirectories: u64,
    /// Names in it.
    pub(super) entries: u64,
}

/// The inodes of a state, by their numbers.
pub(super) type Inodes = BTreeMap<u64, Inode>;

/// The bytes of an inode.
#[derive(Clone, Copy)]
pub(super) struct Raw<'b> {
    pub(super) ino: u64,
    pub(super) at: u64,
    pub(super) bytes: &'b [u8],
}

impl Raw<'_> {
    pub(super) fn word(&self, field: usize) -> u64 {
        number(self.bytes, field, 8)
    }

    fn kind(&self) -> u64 {
        number(self.bytes, 0, 2) >> 12
    }

    fn flags(&self) -> u64 {
        number(self.bytes, 2, 2)
    }

    fn size(&self) -> u64 {
        self.word(16)
    }

    fn problem(&self, kind: Kind, detail: impl Into<String>) -> Problem {
        Problem::new(kind, self.at, detail)
    }

    /// What of its fields makes no sense by itself.
    fn nonsense(&self) -> Option<String> {
        let (kind, flags, size) = (self.kind(), self.flags(), self.size());
        let links = number(self.bytes, 4, 4);
        let is_inline = flags & IS_INLINE != 0;
        if !KINDS.contains(&kind) {
            return Some(format!("mode {:o}", number(self.bytes, 0, 2)));
        }
        if flags & !(HAS_XATTRS | IS_INLINE) != 0 || is_inline && kind != SYMLINK {
            return Some(format!("flags {flags:#x}"));
        }
        if kind == REGULAR && size > FILE_BYTES_MAX {
            return Some(format!("a size of {size} bytes"));
        }
        if kind == DIRECTORY && !(ROOT..=NUMBER_MAX).contains(&size) {
            return Some(format!("the parent {size}"));
        }
        if links > LINKS_MAX {
            return Some(format!("{links} links"));
        }
        (0..4).map(|which| self.word(32 + which * 8)).find_map(|time| {
            let nanoseconds = (time >> 16 & 0xffff) << 14 | time >> 32 & 0x3fff;
            (nanoseconds >= SECOND).then(|| format!("a time with {nanoseconds} nanoseconds"))
        })
    }
}

impl Check<'_, '_> {
    /// The inodes of a state, and all that they have.
    pub(super) fn read_inodes(&mut self, root_at: u64, root: u64) -> Inodes {
        let table = Tree { root_at, root, valid: u64::MAX, has_inodes: true };
        let mut inodes = Inodes::new();
        for leaf in self.meet_tree(None, table) {
            let bytes = match self.image.page(leaf.at) {
                Ok(bytes) => bytes,
                Err(problem) => {
                    self.tell(problem);
                    continue;
                }
            };
            for which in 0..INODES {
                let start = (which * INODE) as usize;
                let bytes = &bytes[start..start + INODE as usize];
                let (ino, at) = (leaf.place * INODES + which, leaf.at + which * INODE);
                if number(bytes, 0, 2) != 0
                    && let Some(inode) = self.read_inode(Raw { ino, at, bytes })
                {
                    inodes.insert(ino, inode);
                }
            }
        }
        inodes
    }

    fn read_inode(&mut self, raw: Raw<'_>) -> Option<Inode> {
        if let Some(what) = raw.nonsense() {
            self.tell_of(raw.ino, raw.problem(Kind::InodeMalformed, what));
            return None;
        }
        if raw.ino == 0 || raw.ino >= self.number_limit {
            let detail = format!("the bound of numbers is {}", self.number_limit);
            self.tell_of(raw.ino, raw.problem(Kind::InodeNumber, detail));
        }
        let pages = match raw.kind() {
            DIRECTORY => self.meet_tree(Some(raw.ino), content(raw, u64::MAX)),
            REGULAR => {
                self.check_content(raw);
                Vec::new()
            }
            SYMLINK => {
                self.check_target(raw);
                Vec::new()
            }
            _ => Vec::new(),
        };
        if raw.flags() & HAS_XATTRS != 0 {
            self.check_xattrs(raw);
        }
        let (links, parent) = (number(raw.bytes, 4, 4), raw.size());
        let (kind, names, subdirectories, entries) = (raw.kind(), 0, 0, 0);
        Some(Inode { kind, links, parent, pages, names, subdirectories, entries })
    }

    fn check_content(&mut self, raw: Raw<'_>) {
        let valid = raw.size().div_ceil(PAGE);
        let tree = content(raw, valid);
        if valid == 0 {
            return;
        }
        if let Ok((at, height)) = split(tree.root_at, tree.root)
            && at != 0
            && span(height) < valid
        {
            let detail = format!("a tree of height {height} for {valid} pages");
            self.tell_of(raw.ino, Problem::new(Kind::RootPointer, tree.root_at, detail));
            return;
        }
        let leaves = self.meet_tree(Some(raw.ino), tree);
        if self.options.read_data {
            self.read_content(raw.ino, &leaves);
        }
    }

    fn read_content(&mut self, ino: u64, leaves: &[Leaf]) {
        for leaf in leaves {
            match self.image.page(leaf.at) {
                Ok(_) => self.summary.verified_bytes += PAGE,
                Err(problem) => self.tell_of(ino, problem),
            }
        }
    }

    fn check_target(&mut self, raw: Raw<'_>) {
        let size = raw.size();
        let longest = if raw.flags() & IS_INLINE != 0 { INLINE_MAX } else { TARGET_MAX };
        let wrong = |what: String| raw.problem(Kind::SymlinkTarget, what);
        if !(1..=longest).contains(&size) {
            self.tell_of(raw.ino, wrong(format!("{size} bytes")));
            return;
        }
        let target = if raw.flags() & IS_INLINE != 0 {
            raw.bytes[96..96 + size as usize].to_vec()
        } else {
            let leaves = self.meet_tree(Some(raw.ino), content(raw, 1));
            let Some(leaf) = leaves.first() else {
                self.tell_of(raw.ino, wrong("it has no page".to_owned()));
                return;
            };
            match self.image.page(leaf.at) {
                Ok(bytes) => bytes[..size as usize].to_vec(),
                Err(problem) => {
                    self.tell_of(raw.ino, problem);
                    return;
                }
            }
        };
        if target.contains(&0) {
            self.tell_of(raw.ino, wrong("it holds a NUL".to_owned()));
        }
    }
}

/// The tree of an inode's content, entries or target.
fn content(raw: Raw<'_>, valid: u64) -> Tree {
    Tree { root_at: raw.at + 24, root: raw.word(24), valid, has_inodes: false }
}
