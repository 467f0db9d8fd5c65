//! How many pages of content files have, as far as that was asked for: to count them, all pointers
//! of a file have to be read.

use crate::layout::{field, pages_of};
use crate::state::{Basics, Node, State};
use marram_vfs::{Kind, Result};
use std::collections::HashMap;

/// Most files of which the count is kept.
const FILES_MAX: usize = 1 << 14;

/// Pages of content by inode.
#[derive(Debug, Default)]
pub(crate) struct ContentCounts(HashMap<u64, u64>);

impl ContentCounts {
    /// Keeps a count. When there are too many, all others are dropped.
    fn keep(&mut self, ino: u64, pages: u64) {
        if self.0.len() >= FILES_MAX {
            self.0.clear();
        }
        self.0.insert(ino, pages);
    }

    /// A file has got so many pages more.
    pub(crate) fn add(&mut self, ino: u64, pages: u64) {
        if let Some(known) = self.0.get_mut(&ino) {
            *known += pages;
        }
    }

    /// The count of a file does not hold any more.
    pub(crate) fn drop(&mut self, ino: u64) {
        self.0.remove(&ino);
    }

    /// All that are kept.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(ino, pages)| (*ino, *pages))
    }
}

impl State {
    /// The pages of content of a regular file.
    pub(crate) fn content_pages(&mut self, node: Node, basics: &Basics) -> Result<u64> {
        if basics.kind()? != Kind::Regular {
            return Ok(0);
        }
        if let Some(pages) = self.content_counts.0.get(&node.ino) {
            return Ok(*pages);
        }
        let pages = self.count_pages(node, basics)?;
        self.content_counts.keep(node.ino, pages);
        Ok(pages)
    }

    /// Counts the pages of content of a file.
    pub(crate) fn count_pages(&self, node: Node, basics: &Basics) -> Result<u64> {
        let root = self.memory.word(node.field(field::ROOT))?;
        let mut pages = 0;
        self.walk(root, (0, pages_of(basics.size)), &mut |met| {
            pages += u64::from(met.height == 0);
            Ok(())
        })?;
        Ok(pages)
    }
}
