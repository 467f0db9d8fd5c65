//! Which inodes of a dataset and of its fork are the same, after they parted.
//!
//! What the origin has keeps its number in both. After a rollback a number can be given out again;
//! then what the other dataset still has there from the origin is of that dataset alone. What a
//! merge or update has brought from one into the other has another number there, and is known by
//! its birth, which it keeps: the kind and the nanosecond. Where that does not tell, and for what
//! both made and a merge has made one, the path does. What is known by neither is taken for two
//! different inodes: then a change of it is a conflict, and nothing is lost.

use marram_format::record::Inode;
use marram_records::failure::from_store;
use marram_records::inode::decode_inode;
use marram_records::renumbering::{Counterpart, Renumbering};
use marram_records::state::{State, same_inode};
use marram_store::{ItemChange, Key, Source, Store, kind};
use marram_vfs::Result;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// A state and what it is read from.
pub(crate) type Kept<'a> = (&'a Source, &'a State);

/// Inodes that a dataset has made since it parted from the origin, by its own numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewInodes {
    made: BTreeMap<u64, Inode>,
    /// What the origin has under those of the numbers that it had given out already.
    replaced: BTreeMap<u64, Inode>,
}

impl NewInodes {
    /// Those of a state. Costs what has changed since the origin.
    pub(crate) fn of(store: &dyn Store, origin: &Source, of: &Source) -> Result<NewInodes> {
        let (mut new, mut failure) = (NewInodes::default(), None);
        let mut visit = |change: ItemChange| {
            failure = new.add(&change).err();
            failure.is_none()
        };
        store.changes(origin, of, Key::MIN, &mut visit).map_err(from_store)?;
        failure.map_or(Ok(new), Err)
    }

    fn add(&mut self, ItemChange { key, before, after }: &ItemChange) -> Result<()> {
        if key.kind != kind::INODE || key.object == 0 {
            return Ok(());
        }
        let read =
            |item: &Option<_>| item.as_ref().map(|item| decode_inode(key.object, item)).transpose();
        let (before, Some(after)) = (read(before)?, read(after)?) else { return Ok(()) };
        // What had no name in the origin is gone from the fork, and may have one in the parent.
        let before = before.filter(|it| it.links > 0);
        if after.links > 0 && !before.as_ref().is_some_and(|it| same_inode(it, &after)) {
            self.replaced.extend(before.map(|before| (key.object, before)));
            self.made.insert(key.object, after);
        }
        Ok(())
    }

    /// Those that have a name in a state.
    fn named_in(&self, state: &State) -> Result<BTreeMap<u64, Inode>> {
        let mut named = BTreeMap::new();
        for (ino, inode) in &self.made {
            if state.named_inode(*ino)?.is_some_and(|found| same_inode(&found, inode)) {
                named.insert(*ino, inode.clone());
            }
        }
        Ok(named)
    }

    /// These, and what the origin has under numbers that the other dataset has given out again.
    fn beside(&self, other: &NewInodes) -> NewInodes {
        let mut all = self.clone();
        for (ino, inode) in &other.replaced {
            all.made.entry(*ino).or_insert_with(|| inode.clone());
        }
        all
    }

    /// These, and of an earlier state of the same dataset those that are gone.
    pub(crate) fn and(mut self, earlier: NewInodes) -> NewInodes {
        // What the dataset still had in the earlier state is the same in the other dataset.
        let is_earlier = |ino: &u64| earlier.replaced.contains_key(ino);
        self.replaced.retain(|ino, _| is_earlier(ino));
        for (ino, inode) in earlier.made {
            self.made.entry(ino).or_insert(inode);
        }
        self
    }
}

/// The numbers of two datasets that parted.
#[derive(Debug)]
pub(crate) struct Parted {
    /// By which states of the one are read, so that they have the numbers of the other.
    pub(crate) numbers: Arc<Renumbering>,
    /// Numbers of inodes that either has made.
    apart: BTreeSet<u64>,
    /// Those of them that are inodes of both, and different ones.
    collisions: BTreeSet<u64>,
    /// All these inodes, as they are shown.
    shown: BTreeSet<u64>,
}

impl Parted {
    /// Finds out which of the `own` inodes are which of the `other` ones. Of the two states one is
    /// the base: what both have was there, and what was made after it is of one side alone.
    pub(crate) fn find(
        (own, own_state): (&NewInodes, &State),
        (other, other_state): (&NewInodes, &State),
    ) -> Result<Parted> {
        let (own, other) = (&own.beside(other), &other.beside(own));
        let mut pairs = same_births(&own.named_in(own_state)?, &other.named_in(other_state)?);
        let mut taken: BTreeSet<u64> = pairs.values().copied().collect();
        let mut left: BTreeSet<u64> =
            own.made.keys().copied().filter(|ino| !pairs.contains_key(ino)).collect();
        let sides = Sides { own, own_state, other, other_state };
        // A directory is known before what is in it can be.
        loop {
            let mut found = Vec::new();
            for ino in &left {
                if let Some(number) = sides.by_path(*ino, &pairs)?.filter(|it| !taken.contains(it))
                {
                    pairs.insert(*ino, number);
                    taken.insert(number);
                    found.push(*ino);
                }
            }
            if found.is_empty() {
                break;
            }
            left.retain(|ino| !found.contains(ino));
        }
        Ok(Parted::new(own, other, pairs))
    }

    fn new(own: &NewInodes, other: &NewInodes, pairs: BTreeMap<u64, u64>) -> Parted {
        let counterpart = |(own, number): (u64, u64)| {
            let Inode { generation, created, .. } = other.made[&number];
            (own, Counterpart { number, generation, created })
        };
        let counterparts = pairs.into_iter().map(counterpart).collect();
        let (own, other) = (own.made.keys().copied(), other.made.keys().copied());
        let numbers = Renumbering::new(counterparts, own.clone(), other.clone());
        let theirs: BTreeSet<u64> = other.clone().collect();
        let collides = |ino: &u64| theirs.contains(ino) && numbers.shown(*ino) != *ino;
        Parted {
            apart: own.clone().chain(other.clone()).collect(),
            collisions: own.clone().filter(collides).collect(),
            shown: own.map(|ino| numbers.shown(ino)).chain(other).collect(),
            numbers: Arc::new(numbers),
        }
    }

    /// A state of the dataset that is renumbered.
    pub(crate) fn show(&self, state: &State) -> State {
        state.renumbered(Arc::clone(&self.numbers))
    }

    /// Whether the items under a number may be of different inodes.
    pub(crate) fn is_apart(&self, number: u64) -> bool {
        self.apart.contains(&number)
    }

    pub(crate) fn shown(&self) -> impl Iterator<Item = u64> {
        self.shown.iter().copied()
    }

    /// Numbers under which each has another inode, so that equal entries lead to different ones.
    pub(crate) fn collisions(&self) -> &BTreeSet<u64> {
        &self.collisions
    }
}

/// Inodes of one birth, where each side has one.
fn same_births(own: &BTreeMap<u64, Inode>, other: &BTreeMap<u64, Inode>) -> BTreeMap<u64, u64> {
    type Born = HashMap<(u8, u64, i64, u32), (Vec<u64>, Vec<u64>)>;
    let mut born = Born::new();
    let birth = |inode: &Inode| {
        let Inode { kind, generation, created, .. } = inode;
        (*kind as u8, *generation, created.seconds, created.nanoseconds)
    };
    for (ino, inode) in own {
        born.entry(birth(inode)).or_default().0.push(*ino);
    }
    for (ino, inode) in other {
        born.entry(birth(inode)).or_default().1.push(*ino);
    }
    let pair = |(own, other): &(Vec<u64>, Vec<u64>)| match (&own[..], &other[..]) {
        ([own], [other]) => Some((*own, *other)),
        _ => None,
    };
    born.values().filter_map(pair).collect()
}

struct Sides<'a> {
    own: &'a NewInodes,
    own_state: &'a State,
    other: &'a NewInodes,
    other_state: &'a State,
}

impl Sides<'_> {
    /// What the other dataset has made under the path of an own inode.
    fn by_path(&self, ino: u64, pairs: &BTreeMap<u64, u64>) -> Result<Option<u64>> {
        let Some(inode) = self.own_state.named_inode(ino)? else { return Ok(None) };
        let directory = match self.own.made.contains_key(&inode.parent) {
            true => pairs.get(&inode.parent).copied(),
            false => Some(inode.parent),
        };
        let entry = self.own_state.entry_at(inode.parent, inode.name_place)?;
        let Some((directory, entry)) = directory.zip(entry.filter(|entry| entry.ino == ino)) else {
            return Ok(None);
        };
        let found = self.other_state.entry(directory, &entry.name)?;
        let is_new = |ino: u64| self.other.made.contains_key(&ino);
        let found = found.filter(|found| found.kind == inode.kind && is_new(found.ino));
        Ok(found.map(|found| found.ino))
    }
}
