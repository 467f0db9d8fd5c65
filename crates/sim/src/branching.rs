//! A fork of the model as a branch: what both have, and merges of whole states either way.
//!
//! Each side gives out numbers of its own, so an inode of the one is found in the other by what a
//! user could know of it: when it was born, or else its paths in the state that both have. The
//! states are looked through whole.

use crate::execute::read_directory;
use marram_model::{Clash, Decisions, Model};
use marram_vfs::{FileSystem, Ino, Kind};
use std::collections::{BTreeMap, BTreeSet};

/// The kind of an inode and when it was born.
type Birth = (String, i64, u32);
type Births = BTreeMap<Ino, Birth>;
/// Numbers of the other side, by the own ones.
pub(crate) type Numbers = BTreeMap<Ino, Ino>;

/// A name that leads to an inode.
struct Place {
    directory: Ino,
    name: Vec<u8>,
    ino: Ino,
}

/// The side whose changes are brought into the other one, at a moment.
pub(crate) struct Bringing<'a> {
    pub(crate) source: &'a Model,
    pub(crate) is_fork: bool,
    pub(crate) at: u64,
}

/// See the module.
pub(crate) struct Branching {
    /// What the fork began as.
    origin: Model,
    /// The newest state that both have.
    base: Model,
    /// The base is a state of the fork, by its numbers; else of the parent.
    is_of_fork: bool,
    /// When the base came to be, in the order of whatever moments there are.
    based_at: u64,
    /// The base is what the fork began as.
    is_origin: bool,
}

impl Branching {
    /// A fork that begins as `origin`, at a moment.
    pub(crate) fn new(origin: &Model, at: u64) -> Branching {
        let (origin, base) = (origin.snapshot(), origin.snapshot());
        Branching { origin, base, is_of_fork: false, based_at: at, is_origin: true }
    }

    /// What the fork began as.
    pub(crate) fn origin(&self) -> &Model {
        &self.origin
    }

    /// Brings what changed in the source since the base into the other one. With conflicts that are
    /// not decided, these are returned, and nothing changes. A source without changes moves no
    /// base.
    pub(crate) fn bring(
        &mut self,
        Bringing { source, is_fork, at }: Bringing<'_>,
        into: &Model,
        decisions: &Decisions,
    ) -> BTreeSet<(Clash, Vec<u8>)> {
        let (base, shown) = self.by_numbers_of(into, (source, is_fork));
        let has_changes = !base.diff(&shown).is_empty();
        let clashes = into.merge(&base, &shown, decisions);
        if clashes.is_empty() && has_changes {
            (self.base, self.is_of_fork) = (source.snapshot(), is_fork);
            (self.based_at, self.is_origin) = (at, false);
        }
        clashes
    }

    /// One of the two goes back to what it was at a moment, and may not have the base any more.
    pub(crate) fn goes_back(&mut self, to: u64) {
        if to < self.based_at {
            *self = Branching::new(&self.origin, self.based_at);
        }
    }

    /// The fork with these numbers for what the origin does not have, or else numbers above all of
    /// them; the base too, if it is a state of the fork.
    pub(crate) fn renumber(&mut self, fork: &Model, numbers: &Numbers) -> Model {
        let own = if self.is_of_fork { &self.base } else { fork };
        let (old, mut last) = (births(&self.origin), fork.last_number().0);
        last = numbers.values().map(|number| number.0).fold(last, u64::max);
        let all = births(fork).into_keys().chain(births(own).into_keys());
        let all: BTreeSet<Ino> = all.filter(|ino| !old.contains_key(ino)).collect();
        let mut number = |ino: Ino| {
            last += 1;
            (ino, numbers.get(&ino).copied().unwrap_or(Ino(last)))
        };
        let all: Numbers = all.into_iter().map(&mut number).collect();
        if self.is_of_fork {
            self.base = self.base.shown_as(&all, Ino(last));
        }
        fork.shown_as(&all, Ino(last))
    }

    /// The fork with these numbers, and so what it began as and the base. What had one of them
    /// moves above all numbers.
    pub(crate) fn renumber_all(&mut self, fork: &Model, mut numbers: Numbers) -> Model {
        numbers.retain(|own, number| own != number);
        let states = [&self.origin, &self.base, fork].map(|it| it.last_number().0);
        let taken: Vec<Ino> = numbers.values().copied().collect();
        let mut last = states.into_iter().chain(taken.iter().map(|it| it.0)).max().unwrap_or(0);
        for number in taken {
            last += 1;
            numbers.entry(number).or_insert(Ino(last));
        }
        let show = |state: &Model| state.shown_as(&numbers, Ino(last));
        (self.origin, self.base) = (show(&self.origin), show(&self.base));
        show(fork)
    }

    /// The base and the source with the numbers of what the changes go into.
    fn by_numbers_of(&self, into: &Model, (source, is_fork): (&Model, bool)) -> (Model, Model) {
        let is_own = self.is_of_fork == is_fork;
        let old = births(&self.origin);
        let (mut own, mut other) = (made(&old, source), made(&old, into));
        let (mut own_lost, mut other_lost) = (lost(&old, source), lost(&old, into));
        let (side, side_lost) =
            if is_own { (&mut own, &mut own_lost) } else { (&mut other, &mut other_lost) };
        let earlier = made(&old, &self.base).into_iter();
        earlier.for_each(|(ino, birth)| _ = side.entry(ino).or_insert(birth));
        let lost_earlier = lost(&old, &self.base);
        side_lost.retain(|ino, _| lost_earlier.contains_key(ino));
        let compared = if is_own { (&self.base, into) } else { (source, &self.base) };
        // What the other side has lost is something new there, if it comes again.
        let apart: BTreeSet<Ino> = own.keys().chain(other_lost.keys()).copied().collect();
        if self.is_origin {
            // Neither has anything from the other one.
            (own_lost, other_lost) = Default::default();
        }
        let own = Side { again: again(other_lost, &other), made: own };
        let other = Side { again: again(own_lost, &own.made), made: other };
        let pairs = pairs((&own, compared.0), (&other, compared.1));
        let highest =
            [&self.origin, &self.base, source, into].map(|it| it.last_number().0).into_iter().max();
        let mut next = highest.unwrap_or(0);
        let mut numbers = Numbers::new();
        for ino in &apart {
            next += 1;
            numbers.insert(*ino, pairs.get(ino).copied().unwrap_or(Ino(next)));
        }
        let base = if is_own { &numbers } else { &Numbers::new() };
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

/// The regular files of a state: paths, numbers and when they were born.
pub(crate) fn files(model: &Model) -> BTreeSet<(Vec<u8>, Ino, (i64, u32))> {
    let (mut files, mut left) = (BTreeSet::new(), vec![(Ino::ROOT, Vec::new())]);
    while let Some((directory, above)) = left.pop() {
        let entries = read_directory(model, directory, false, usize::MAX);
        for entry in entries.expect("a directory of the model") {
            let path = [above.as_slice(), b"/", &entry.name].concat();
            let found = model.attributes(entry.ino).expect("what has a name is there");
            let born = (found.created.seconds, found.created.nanoseconds);
            match entry.kind {
                Kind::Directory => left.push((entry.ino, path)),
                Kind::Regular => _ = files.insert((path, entry.ino, born)),
                _ => (),
            }
        }
    }
    files
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

/// What the origin has and a state has not.
fn lost(old: &Births, model: &Model) -> Births {
    let now = births(model);
    let is_lost = |(ino, birth): &(&Ino, &Birth)| now.get(ino) != Some(birth);
    old.iter().filter(is_lost).map(|(ino, birth)| (*ino, birth.clone())).collect()
}

/// What one side has lost, and has made again: it has something of the same birth.
fn again(mut lost: Births, made: &Births) -> Births {
    lost.retain(|_, birth| made.values().any(|its| its == birth));
    lost
}

/// What is of one side alone.
struct Side {
    made: Births,
    /// What it may have from the origin, and the other side has lost and made again.
    again: Births,
}

impl Side {
    fn all(&self) -> Births {
        let again = self.again.clone().into_iter();
        again.chain(self.made.clone()).collect()
    }
}

/// Which of the own inodes are which of the other ones.
fn pairs((own, own_state): (&Side, &Model), (other, other_state): (&Side, &Model)) -> Numbers {
    // What both have was in the base, which is one of the two states.
    let named = |side: &Side, state: &Model| -> Births {
        let all = births(state);
        let mut named = side.all();
        named.retain(|ino, birth| all.get(ino) == Some(birth));
        named
    };
    let of = |births: &Births, birth: &Birth| -> Vec<Ino> {
        births.iter().filter(|(_, its)| *its == birth).map(|(ino, _)| *ino).collect()
    };
    let (own_named, other_named) = (named(own, own_state), named(other, other_state));
    let mut pairs = Numbers::new();
    for (ino, birth) in &own_named {
        if let ([_], [number]) = (&of(&own_named, birth)[..], &of(&other_named, birth)[..]) {
            pairs.insert(*ino, *number);
        }
    }
    let paths = Paths {
        places: [places(own_state), places(other_state)],
        sides: [own, other],
        all: [own.all(), other.all()],
    };
    loop {
        let known = pairs.len();
        for ino in own_named.keys() {
            let is_free = |number: &Ino| !pairs.values().any(|known| known == number);
            if let Some(number) = paths.lead_to(*ino, &pairs).filter(is_free) {
                pairs.entry(*ino).or_insert(number);
            }
        }
        if pairs.len() == known {
            return pairs;
        }
    }
}

/// All paths of two sides.
struct Paths<'a> {
    places: [Vec<Place>; 2],
    sides: [&'a Side; 2],
    all: [Births; 2],
}

impl Paths<'_> {
    /// To what all paths of an own inode lead on the other side, if that is new there too.
    fn lead_to(&self, ino: Ino, pairs: &Numbers) -> Option<Ino> {
        let mut found = BTreeSet::new();
        for place in self.places[0].iter().filter(|place| place.ino == ino) {
            let directory = match self.all[0].contains_key(&place.directory) {
                true => *pairs.get(&place.directory)?,
                false => place.directory,
            };
            let is_it = |it: &&Place| it.directory == directory && it.name == place.name;
            let there = self.places[1].iter().find(is_it)?;
            self.can_be_one(ino, there.ino).then(|| found.insert(there.ino))?;
        }
        found.pop_first().filter(|_| found.is_empty())
    }

    fn can_be_one(&self, own: Ino, other: Ino) -> bool {
        let births = (self.all[0].get(&own), self.all[1].get(&other));
        let (Some(a), Some(b)) = births else { return false };
        let are_made =
            self.sides[0].made.contains_key(&own) && self.sides[1].made.contains_key(&other);
        if are_made { a.0 == b.0 } else { a == b }
    }
}
