//! Which inodes of a dataset and of its fork are the same, after they parted.
//!
//! What the origin has keeps its number in both. After a rollback a number can be given out again;
//! then what the other dataset still has there from the origin is of that dataset alone. So it is
//! where a dataset has lost what it had from the origin, and has made an inode of the same birth:
//! a merge has brought that, after the other dataset lost it too and a directory went back there.
//!
//! What a merge or update has brought from one into the other has another number there, and is
//! known by its birth, which it keeps: the kind and the nanosecond. Where that does not tell, and
//! for what both made and a merge has made one, the paths do: all names of the one lead to one new
//! inode of the other. What is known by neither is taken for two different inodes: then a change of
//! it is a conflict, and nothing is lost.

use crate::changes::{Changes, Place};
use crate::subtree::{Places, Subtree};
use marram_format::record::{Inode, InodeKind};
use marram_records::failure::from_store;
use marram_records::inode::decode_inode;
use marram_records::renumbering::{Counterpart, Renumbering};
use marram_records::state::{State, decode_entry, same_inode};
use marram_store::{ItemChange, Key, Source, Store, kind};
use marram_vfs::Result;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// A state and what it is read from.
pub(crate) type Kept<'a> = (&'a Source, &'a State);

/// Inodes that a dataset has made since it parted from the origin, by its own numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewInodes {
    made: BTreeMap<u64, Inode>,
    /// What the origin has under those of the numbers that it had given out already.
    replaced: BTreeMap<u64, Inode>,
    /// What the origin has and the dataset has not, the replaced ones too.
    lost: BTreeMap<u64, Inode>,
    /// Names that the origin does not have, by the number that they lead to.
    names: Places,
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
        new.names.retain(|ino, _| new.made.contains_key(ino));
        failure.map_or(Ok(new), Err)
    }

    fn add(&mut self, change: &ItemChange) -> Result<()> {
        let ItemChange { key, after, .. } = change;
        match (key.kind, after) {
            _ if key.object == 0 => Ok(()),
            (kind::INODE, _) => self.add_inode(change),
            (kind::ENTRY, Some(item)) => {
                let entry = decode_entry(*key, item)?;
                let places = self.names.entry(entry.ino).or_default();
                places.push(Place { directory: key.object, entry });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn add_inode(&mut self, ItemChange { key, before, after }: &ItemChange) -> Result<()> {
        // What had no name in the origin is gone from the fork, and may have one in the parent.
        let named = |item: &Option<_>| -> Result<Option<Inode>> {
            let inode = item.as_ref().map(|item| decode_inode(key.object, item)).transpose()?;
            Ok(inode.filter(|inode| inode.links > 0))
        };
        match (named(before)?, named(after)?) {
            (Some(before), Some(after)) if same_inode(&before, &after) => (),
            (before, after) => {
                let replaced = before.clone().filter(|_| after.is_some());
                self.replaced.extend(replaced.map(|before| (key.object, before)));
                self.lost.extend(before.map(|before| (key.object, before)));
                self.made.extend(after.map(|after| (key.object, after)));
            }
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

    /// These, and what the origin has under numbers that the other dataset has given out again, or
    /// has lost while it has made an inode of the same birth.
    fn beside(&self, other: &NewInodes) -> NewInodes {
        let mut all = self.clone();
        let births: HashSet<Birth> = other.made.values().map(birth).collect();
        let is_again = |inode: &Inode| births.contains(&birth(inode));
        let again = other.lost.iter().filter(|(_, inode)| is_again(inode));
        for (ino, inode) in other.replaced.iter().chain(again) {
            all.made.entry(*ino).or_insert_with(|| inode.clone());
        }
        all
    }

    /// These, and of an earlier state of the same dataset, to which the other dataset is compared,
    /// those that are gone.
    pub(crate) fn and(mut self, earlier: NewInodes) -> NewInodes {
        // What the dataset still had in the earlier state is the same in the other dataset.
        self.replaced.retain(|ino, _| earlier.replaced.contains_key(ino));
        self.lost.retain(|ino, _| earlier.lost.contains_key(ino));
        for (ino, inode) in earlier.made {
            self.made.entry(ino).or_insert(inode);
        }
        self.names = earlier.names;
        self
    }

    /// The names of some of these in the state to which the other dataset is compared.
    fn places(&self, wanted: &BTreeSet<u64>, state: &State) -> Result<Places> {
        let (mut places, mut searched) = (Places::new(), BTreeSet::new());
        for ino in wanted {
            let made = &self.made[ino];
            let inode = state.named_inode(*ino)?.filter(|found| same_inode(found, made));
            let Some(inode) = inode else { continue };
            match self.all_names(*ino, &inode) {
                Some(names) => _ = places.insert(*ino, names.to_vec()),
                None => _ = searched.insert(*ino),
            }
        }
        places.extend(Subtree::new(state, state.root).all_places(&searched)?);
        Ok(places)
    }

    /// The names that one of these has in the state to which the other dataset is compared, if all
    /// of them are known.
    fn all_names(&self, ino: u64, inode: &Inode) -> Option<&[Place]> {
        let names = self.names.get(&ino).filter(|_| !self.lost.contains_key(&ino))?;
        let links = if inode.kind == InodeKind::Directory { 1 } else { inode.links as usize };
        (names.len() == links).then_some(names)
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
        let (of_own, of_other) = (own, other);
        let (own, other) = (&own.beside(other), &other.beside(own));
        let mut pairs = same_births(&own.named_in(own_state)?, &other.named_in(other_state)?);
        let mut taken: BTreeSet<u64> = pairs.values().copied().collect();
        let mut left: BTreeSet<u64> =
            own.made.keys().copied().filter(|ino| !pairs.contains_key(ino)).collect();
        let places = own.places(&left, own_state)?;
        let sides = Sides { of_own, own, of_other, other, other_state };
        // A directory is known before what is in it can be.
        loop {
            let mut found = Vec::new();
            for ino in &left {
                let number = match places.get(ino) {
                    Some(places) => sides.by_paths(*ino, places, &pairs)?,
                    None => None,
                };
                if let Some(number) = number.filter(|it| !taken.contains(it)) {
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

    /// Of states that have the same numbers, but for those that were given out again after a
    /// rollback: what the second state has under these is not what the first one has. None if there
    /// are none.
    pub(crate) fn of_reused(changes: &Changes) -> Option<Parted> {
        let (mut own, mut other) = (NewInodes::default(), NewInodes::default());
        for (ino, change) in changes.by_inode.iter().filter(|(_, change)| change.is_other()) {
            own.made.extend(change.after.clone().map(|inode| (*ino, inode)));
            other.made.extend(change.before.clone().map(|inode| (*ino, inode)));
        }
        (!own.made.is_empty()).then(|| Parted::new(&own, &other, BTreeMap::new()))
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

/// The kind of an inode, its generation, and when it was born.
type Birth = (u8, u64, i64, u32);

fn birth(inode: &Inode) -> Birth {
    let Inode { kind, generation, created, .. } = inode;
    (*kind as u8, *generation, created.seconds, created.nanoseconds)
}

/// Inodes of one birth, where each side has one.
fn same_births(own: &BTreeMap<u64, Inode>, other: &BTreeMap<u64, Inode>) -> BTreeMap<u64, u64> {
    let mut born = HashMap::<Birth, (Vec<u64>, Vec<u64>)>::new();
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

/// Two datasets: what each has made, alone and with what is only there from the origin.
struct Sides<'a> {
    of_own: &'a NewInodes,
    own: &'a NewInodes,
    of_other: &'a NewInodes,
    other: &'a NewInodes,
    other_state: &'a State,
}

impl Sides<'_> {
    /// The new inode of the other dataset to which all names of an own inode lead.
    fn by_paths(
        &self,
        ino: u64,
        places: &[Place],
        pairs: &BTreeMap<u64, u64>,
    ) -> Result<Option<u64>> {
        let mut found = BTreeSet::new();
        for Place { directory, entry } in places {
            let directory = match self.own.made.contains_key(directory) {
                true => pairs.get(directory).copied(),
                false => Some(*directory),
            };
            let Some(directory) = directory else { return Ok(None) };
            let entry = self.other_state.entry(directory, &entry.name)?;
            let Some(entry) = entry.filter(|it| self.can_be_one(ino, it.ino)) else {
                return Ok(None);
            };
            found.insert(entry.ino);
        }
        Ok(found.pop_first().filter(|_| found.is_empty()))
    }

    /// Whether these can be one inode: both datasets made it, each for itself, or it has one birth.
    fn can_be_one(&self, ino: u64, number: u64) -> bool {
        let (Some(own), Some(other)) = (self.own.made.get(&ino), self.other.made.get(&number))
        else {
            return false;
        };
        let are_made =
            self.of_own.made.contains_key(&ino) && self.of_other.made.contains_key(&number);
        if are_made { own.kind == other.kind } else { birth(own) == birth(other) }
    }
}
