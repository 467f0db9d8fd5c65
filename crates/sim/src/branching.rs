//! A fork of the model as a branch: what both have, and merges of whole states either way.
//!
//! Each side gives out numbers of its own, so an inode of the one is found in the other by what a
//! user could know of it: when it was born, or else its path in the state that both have. The
//! states are looked through whole.

use crate::execute::read_directory;
use marram_model::{Clash, Model};
use marram_vfs::{FileSystem, Ino, Kind};
use std::collections::{BTreeMap, BTreeSet};

/// The kind of an inode and when it was born.
type Birth = (String, i64, u32);
type Births = BTreeMap<Ino, Birth>;

/// A name that leads to an inode.
struct Place {
    directory: Ino,
    name: Vec<u8>,
    ino: Ino,
}

/// See the module.
pub(crate) struct Branching {
    /// What the fork began as.
    origin: Model,
    /// The newest state that both have.
    base: Model,
    /// The base is a state of the fork, by its numbers; else of the parent.
    is_of_fork: bool,
    has_moved: bool,
}

impl Branching {
    /// A fork that begins as `origin`.
    pub(crate) fn new(origin: &Model) -> Branching {
        let base = origin.snapshot();
        Branching { origin: origin.snapshot(), base, is_of_fork: false, has_moved: false }
    }

    /// What the fork began as.
    pub(crate) fn origin(&self) -> &Model {
        &self.origin
    }

    /// Brings what changed in `source` since the base into the other one. With conflicts, these
    /// are returned, and nothing changes.
    pub(crate) fn bring(
        &mut self,
        (source, is_fork): (&Model, bool),
        into: &Model,
    ) -> BTreeSet<(Clash, Vec<u8>)> {
        let (base, shown) = self.by_numbers_of(into, (source, is_fork));
        let clashes = into.merge(&base, &shown);
        if clashes.is_empty() {
            (self.base, self.is_of_fork, self.has_moved) = (source.snapshot(), is_fork, true);
        }
        clashes
    }

    /// One of the two does not have the base any more.
    pub(crate) fn forget_base(&mut self) {
        *self = Branching::new(&self.origin);
    }

    /// Whether the base is another state than what the fork began as.
    pub(crate) fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// The fork is as it was when it was merged, with other numbers.
    pub(crate) fn fork_is_renumbered(&mut self, fork: &Model) {
        if self.is_of_fork {
            self.base = fork.snapshot();
        }
    }

    /// The base and the source with the numbers of what the changes go into.
    fn by_numbers_of(&self, into: &Model, (source, is_fork): (&Model, bool)) -> (Model, Model) {
        let is_own = self.is_of_fork == is_fork;
        let old = births(&self.origin);
        let (mut own, mut other) = (made(&old, source), made(&old, into));
        let earlier = made(&old, &self.base).into_iter();
        let side = if is_own { &mut own } else { &mut other };
        earlier.for_each(|(ino, birth)| _ = side.entry(ino).or_insert(birth));
        let compared = if is_own { (&self.base, into) } else { (source, &self.base) };
        let pairs = pairs((&own, compared.0), (&other, compared.1));
        let highest =
            [&self.origin, &self.base, source, into].map(|it| it.last_number().0).into_iter().max();
        let mut next = highest.unwrap_or(0);
        let mut numbers = BTreeMap::new();
        for ino in own.keys() {
            next += 1;
            numbers.insert(*ino, pairs.get(ino).copied().unwrap_or(Ino(next)));
        }
        let base = if is_own { &numbers } else { &BTreeMap::new() };
        (self.base.shown_as(base, into.last_number()), source.shown_as(&numbers, Ino(next)))
    }
}

fn places(model: &Model) -> Vec<Place> {
    let (mut places, mut left) = (Vec::new(), vec![Ino::ROOT]);
    while let Some(directory) = left.pop() {
        let entries = read_directory(model, directory, false, usize::MAX);
        for entry in entries.expect("a directory of the model") {
            if entry.kind == Kind::Directory {
                left.push(entry.ino);
            }
            places.push(Place { directory, name: entry.name, ino: entry.ino });
        }
    }
    places
}

fn births(model: &Model) -> Births {
    let birth = |ino: Ino| {
        let found = model.attributes(ino).expect("what has a name is there");
        (format!("{:?}", found.kind), found.created.seconds, found.created.nanoseconds)
    };
    let inos = places(model).into_iter().map(|place| place.ino);
    inos.chain([Ino::ROOT]).map(|ino| (ino, birth(ino))).collect()
}

/// What a state has that the origin has not.
fn made(old: &Births, model: &Model) -> Births {
    let mut all = births(model);
    all.retain(|ino, birth| old.get(ino) != Some(birth));
    all
}

/// Which of the own inodes are which of the other ones.
fn pairs(
    (own, own_state): (&Births, &Model),
    (other, other_state): (&Births, &Model),
) -> BTreeMap<Ino, Ino> {
    // What both have was in the base, which is one of the two states.
    let named = |made: &Births, state: &Model| -> Births {
        let all = births(state);
        let is_there = |(ino, birth): &(&Ino, &Birth)| all.get(ino) == Some(birth);
        made.iter().filter(is_there).map(|(ino, birth)| (*ino, birth.clone())).collect()
    };
    let of = |births: &Births, birth: &Birth| -> Vec<Ino> {
        births.iter().filter(|(_, its)| *its == birth).map(|(ino, _)| *ino).collect()
    };
    let (own_named, other_named) = (named(own, own_state), named(other, other_state));
    let mut pairs: BTreeMap<Ino, Ino> = BTreeMap::new();
    for (ino, birth) in &own_named {
        if let ([_], [number]) = (&of(&own_named, birth)[..], &of(&other_named, birth)[..]) {
            pairs.insert(*ino, *number);
        }
    }
    let (own_places, other_places) = (places(own_state), places(other_state));
    loop {
        let known = pairs.len();
        for place in own_places.iter().filter(|place| own.contains_key(&place.ino)) {
            let directory = match own.contains_key(&place.directory) {
                true => pairs.get(&place.directory).copied(),
                false => Some(place.directory),
            };
            let found = other_places
                .iter()
                .find(|it| Some(it.directory) == directory && it.name == place.name)
                .filter(|it| other.get(&it.ino).is_some_and(|its| its.0 == own[&place.ino].0));
            let is_free = |ino: Ino| !pairs.values().any(|known| *known == ino);
            if let Some(found) = found.filter(|it| is_free(it.ino)) {
                pairs.entry(place.ino).or_insert(found.ino);
            }
        }
        if pairs.len() == known {
            return pairs;
        }
    }
}
