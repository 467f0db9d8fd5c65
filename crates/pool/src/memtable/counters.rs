//! Counters: additions become items while the lock of the dataset is held, so that what several
//! threads add at the same time adds up, and a limit is kept to the byte.
//!
//! What a counter was may have to be read from the tree. That is done without the lock, and what
//! was read holds only as long as the root is the one that it was read from: a commit in between
//! may have taken a newer value into the tree and dropped the layer that had it.

use crate::memtable::overlay::{Entry, Overlay};
use bytes::Bytes;
use marram_store::{Counter, Damage, Edit, Error, Item, Key, Result};

/// Most counters whose sums are held: those of a few users, groups and projects.
const HELD_MAX: usize = 16;

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

/// What counters become by the additions among `edits`.
pub(crate) enum Settled {
    /// Each by the index of its edit, in ascending order.
    Sums(Vec<(usize, Counter)>),
    /// This counter must be read from the tree first.
    Unread(Key),
}

/// Adds up what the additions among `edits` make of the counters. Nothing is changed yet; on an
/// error nothing must be.
pub(crate) fn settle(
    edits: &[Edit<'_>],
    overlay: &Overlay,
    committed: &CommittedCounters,
) -> Result<Settled> {
    let mut sums: Vec<(usize, Counter)> = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        let Edit::Add { key, by, at_most } = edit else { continue };
        let before = match overlay.held.get(*key) {
            Some(sum) => sum,
            None => match overlay.get(*key) {
                Some(Entry::Item(item)) => decode(*key, Some(&**item))?,
                Some(Entry::Removed) => Counter::default(),
                None => match committed.get(*key) {
                    Some(value) => value,
                    None => return Ok(Settled::Unread(*key)),
                },
            },
        };
        sums.push((index, before.add(*key, *by, *at_most)?));
    }
    Ok(Settled::Sums(sums))
}

/// The edit that makes a counter what it has become.
fn edit_of(key: Key, sum: Counter) -> Edit<'static> {
    match sum.encode() {
        Some(value) => Edit::Put { key, item: Item::plain(value) },
        None => Edit::Remove { key },
    }
}

/// The counters that the batches of the open layer have added to, as they are now.
///
/// Nearly every batch adds to the same few counters, and nearly nobody looks at them. So the first
/// addition after a freeze puts the counter into the layer, where it is counted as a changed key,
/// and those after it change the sum here. **Before anybody sees the layer's item it is brought up
/// to date** ([`Overlay::write_held`]): a reader of that key, a frame of the log, the freeze of a
/// commit.
#[derive(Debug, Default)]
pub(crate) struct HeldCounters {
    sums: Vec<Held>,
}

#[derive(Debug)]
struct Held {
    key: Key,
    sum: Counter,
    /// The layer has an older one.
    is_ahead: bool,
}

impl HeldCounters {
    fn get(&self, key: Key) -> Option<Counter> {
        self.sums.iter().find(|held| held.key == key).map(|held| held.sum)
    }

    /// Whether the layer's item under a key from `from` to `to` is not up to date.
    pub(crate) fn is_ahead(&self, from: Key, to: Key) -> bool {
        self.sums.iter().any(|held| held.is_ahead && (from..=to).contains(&held.key))
    }

    /// Takes over what counters become: `edits` lose what is held from now on, and have puts in
    /// place of the other additions.
    pub(crate) fn take_over(&mut self, edits: &mut Vec<Edit<'_>>, sums: Vec<(usize, Counter)>) {
        for (index, sum) in sums.into_iter().rev() {
            let key = edits[index].key();
            if let Some(held) = self.sums.iter_mut().find(|held| held.key == key) {
                (held.sum, held.is_ahead) = (sum, true);
                edits.swap_remove(index);
                continue;
            }
            edits[index] = edit_of(key, sum);
            if self.sums.len() < HELD_MAX {
                self.sums.push(Held { key, sum, is_ahead: false });
            }
        }
    }

    /// What is put or removed as it is is held no more.
    pub(crate) fn let_go(&mut self, edits: &[Edit<'_>]) {
        if !self.sums.is_empty() {
            self.sums.retain(|held| {
                edits.iter().all(|edit| is_addition(edit) || edit.key() != held.key)
            });
        }
    }

    /// The edits that bring the layer up to date.
    pub(crate) fn take_edits(&mut self) -> Vec<Edit<'static>> {
        let ahead = self.sums.iter_mut().filter(|held| held.is_ahead);
        let edit = |held: &mut Held| {
            held.is_ahead = false;
            edit_of(held.key, held.sum)
        };
        ahead.map(edit).collect()
    }

    /// The layer is frozen: the next addition goes into the next one.
    pub(crate) fn clear(&mut self) {
        debug_assert!(self.sums.iter().all(|held| !held.is_ahead), "the layer is up to date");
        self.sums.clear();
    }
}

fn is_addition(edit: &Edit<'_>) -> bool {
    matches!(edit, Edit::Add { .. })
}
