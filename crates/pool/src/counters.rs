//! Counters: additions become items while the lock of the dataset is held, so that what several
//! threads add at the same time adds up, and a limit is kept to the byte.
//!
//! What a counter was may have to be read from the tree. That is done without the lock, and what
//! was read holds only as long as the root is the one that it was read from: a commit in between
//! may have taken a newer value into the tree and dropped the layer that had it.

use crate::overlay::{Entry, Overlay};
use bytes::Bytes;
use marram_store::{Counter, Damage, Edit, Error, Item, Key, Result};

/// Counters as the tree under one root has them.
#[derive(Default)]
pub(crate) struct CommittedCounters {
    root: Option<Bytes>,
    values: Vec<(Key, Counter)>,
}

impl CommittedCounters {
    /// Forgets what was read under another root.
    pub(crate) fn keep_if_under(&mut self, root: Option<&Bytes>) {
        if !self.values.is_empty() && self.root.as_ref() != root {
            self.values.clear();
        }
    }

    /// Takes note of what the tree under `root` has.
    pub(crate) fn add(
        &mut self,
        root: Option<&Bytes>,
        key: Key,
        item: Option<&Item>,
    ) -> Result<()> {
        self.keep_if_under(root);
        self.root = root.cloned();
        self.values.push((key, decode(key, item)?));
        Ok(())
    }

    fn get(&self, key: Key) -> Option<Counter> {
        self.values.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }
}

fn decode(key: Key, item: Option<&Item>) -> Result<Counter> {
    let Some(item) = item else { return Ok(Counter::default()) };
    Counter::decode(&item.value).ok_or_else(|| {
        let reason = "it is not two numbers of 64 bits".to_owned();
        Error::Damaged(Damage { what: "a counter", place: format!("{key:?}"), reason })
    })
}

/// Turns the additions among `edits` into what the counters become. Returns a counter that must
/// be read from the tree first, if there is one; then, and on an error, nothing must be applied.
pub(crate) fn settle(
    edits: &mut [Edit<'_>],
    overlay: &Overlay,
    committed: &CommittedCounters,
) -> Result<Option<Key>> {
    let mut settled: Vec<(usize, Counter)> = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        let Edit::Add { key, by, at_most } = edit else { continue };
        let before = match overlay.get(*key) {
            Some(Entry::Item(item)) => decode(*key, Some(item))?,
            Some(Entry::Removed) => Counter::default(),
            None => match committed.get(*key) {
                Some(value) => value,
                None => return Ok(Some(*key)),
            },
        };
        settled.push((index, before.add(*key, *by, *at_most)?));
    }
    for (index, sum) in settled {
        let key = edits[index].key();
        edits[index] = match sum.encode() {
            Some(value) => Edit::Put { key, item: Item::plain(value) },
            None => Edit::Remove { key },
        };
    }
    Ok(None)
}
