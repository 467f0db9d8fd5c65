//! What stands under keys that are about to change, so that each key is asked for once.

use crate::catalogue::Link;
use crate::chain;
use crate::follow::{self, Heads};
use crate::format::StoredItem;
use crate::rows::Rows;
use marram_store::{Key, Result};
use std::collections::{BTreeMap, BTreeSet};

/// Answers of the database about keys, as they are after one entry of the log.
#[derive(Default)]
pub(crate) struct Known {
    /// The entry.
    after: u64,
    asked: BTreeSet<(u64, Key)>,
    heads: Heads,
    inherited: BTreeMap<(u64, Key), Option<StoredItem>>,
}

impl Known {
    /// Forgets what was asked before another entry.
    pub(crate) fn begin(&mut self, after: u64) {
        if self.after != after {
            *self = Known { after, ..Known::default() };
        }
    }

    /// The heads of those keys that were asked for.
    pub(crate) fn heads(&self) -> &Heads {
        &self.heads
    }

    /// Asks for the heads under some keys of a line.
    pub(crate) fn ask_heads<'k>(
        &mut self,
        rows: &Rows,
        line: u64,
        keys: impl Iterator<Item = &'k Key>,
    ) -> Result<()> {
        let new: Vec<Key> =
            keys.filter(|key| !self.asked.contains(&(line, **key))).copied().collect();
        self.heads.extend(follow::heads_under(rows, line, &new)?);
        self.asked.extend(new.into_iter().map(|key| (line, key)));
        Ok(())
    }

    /// Asks for what the first of some lines inherits from the others, where it has no head.
    pub(crate) fn ask_inherited<'k>(
        &mut self,
        rows: &Rows,
        links: &[Link],
        keys: impl Iterator<Item = &'k Key>,
    ) -> Result<()> {
        let Some((own, others)) = links.split_first() else { return Ok(()) };
        // A line without others has all that there is.
        if others.is_empty() {
            return Ok(());
        }
        let at = |key: &Key| (own.line, *key);
        let is_new = |key: &&Key| {
            !self.heads.contains_key(&at(key)) && !self.inherited.contains_key(&at(key))
        };
        let new: Vec<Key> = keys.filter(is_new).copied().collect();
        let found = chain::get_all(rows, others, &new)?;
        self.inherited.extend(new.iter().map(at).zip(found));
        Ok(())
    }

    /// The item under a key that was asked for.
    pub(crate) fn item(&self, line: u64, key: Key) -> Option<&StoredItem> {
        match self.heads.get(&(line, key)) {
            Some(head) => head.item.as_ref(),
            None => self.inherited.get(&(line, key))?.as_ref(),
        }
    }
}
