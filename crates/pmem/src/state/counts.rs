//! How many pages of content files have, as far as that was asked for: to count them, all pointers
//! of a file have to be read.

use crate::layout::{field, pages_of};
use crate::state::{Basics, Node, State};
use foldhash::HashMap;
use marram_vfs::{Kind, Result};

/// Most files of which the count is kept.
const FILES_MAX: usize = 1 << 14;

/// Pages of content by dataset and inode.
#[derive(Debug, Default)]
pub(crate) struct ContentCounts(HashMap<(u64, u64), u64>);

impl ContentCounts {
    /// Keeps a count. When there are too many, all others are dropped.
    fn keep(&mut self, file: (u64, u64), pages: u64) {
        if self.0.len() >= FILES_MAX {
            self.0.clear();
        }
        self.0.insert(file, pages);
    }

    /// A file has got so many pages more.
    pub(crate) fn add(&mut self, file: (u64, u64), pages: u64) {
        if let Some(known) = self.0.get_mut(&file) {
            *known += pages;
        }
    }

    /// The count of a file does not hold any more.
    pub(crate) fn drop(&mut self, file: (u64, u64)) {
        self.0.remove(&file);
    }

    /// No count of a dataset holds any more.
    pub(crate) fn drop_all(&mut self, dataset: u64) {
        self.0.retain(|(of, _), _| *of != dataset);
    }

    /// All that are kept of a dataset.
    pub(crate) fn of(&self, dataset: u64) -> impl Iterator<Item = (u64, u64)> {
        let of_it = self.0.iter().filter(move |((of, _), _)| *of == dataset);
        of_it.map(|((_, ino), pages)| (*ino, *pages))
    }
}

impl State {
    /// The pages of content of a regular file.
    pub(crate) fn content_pages(&mut self, node: Node, basics: &Basics) -> Result<u64> {
        if basics.kind()? != Kind::Regular {
            return Ok(0);
        }
        let file = (self.dataset.number, node.ino);
        if let Some(pages) = self.content_counts.0.get(&file) {
            return Ok(*pages);
        }
        let pages = self.count_pages(node, basics)?;
        self.content_counts.keep(file, pages);
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
