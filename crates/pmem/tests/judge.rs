//! Judges what an operation stored: after every single store, and after every crash.

use crate::images::recover;
use crate::reader::{Seen, States, read, read_times};
use marram_pmem::memory::recorded::Event;
use marram_sim::Random;
use std::collections::BTreeMap;

const LINE: u64 = 64;
/// Where an image says which pages are spare.
const SPARE: std::ops::Range<u64> = 2048..4096;
/// Longest fill that is judged word by word.
const FILL_BYTES_MAX: usize = 128;

/// Which of the states that crashes could leave are judged.
pub(crate) struct Draw<'d> {
    pub(crate) random: Random,
    /// Most states between two fences; where lines are independent there can be more.
    most: u64,
    /// Gets each image that a crash leaves.
    visit: &'d mut dyn FnMut(&[u8]),
}

impl<'d> Draw<'d> {
    /// Draws by a seed, so many states between two fences.
    pub(crate) fn new(seed: u64, most: u64, visit: &'d mut dyn FnMut(&[u8])) -> Draw<'d> {
        Draw { random: Random::new(seed), most, visit }
    }
}

/// What an operation did to an image.
pub(crate) struct Recording {
    pub(crate) before: Vec<u8>,
    pub(crate) events: Vec<Event>,
}

/// What was seen: which of the states, one bit each. Several are meant where they are alike.
type Side = u8;
/// The state before.
const BEFORE: Side = 1;
/// The state after one operation.
const AFTER: Side = 2;

/// The states of an image before and after operations: all its datasets and snapshots.
struct Sides {
    states: Vec<States>,
    /// The image before: files without a name had times too.
    image: Vec<u8>,
}

fn put(image: &mut [u8], at: u64, bytes: &[u8]) {
    image[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
}

/// Whether two images show the same but for times. Which inode a name leads to counts too.
fn is_alike(one: &States, other: &States) -> bool {
    let timeless = |states: &States| -> Vec<(String, Vec<u8>, Seen)> {
        let seen = states.iter().flat_map(|(name, tree)| {
            let plain = |seen: &Seen| Seen { times: [(0, 0); 4], ..seen.clone() };
            tree.iter().map(move |(path, seen)| (name.clone(), path.clone(), plain(seen)))
        });
        seen.collect()
    };
    one.keys().eq(other.keys()) && timeless(one) == timeless(other)
}

impl Sides {
    fn of(before: &[u8], after: &[u8]) -> Result<Sides, String> {
        let mut sides = Sides { states: vec![read(before)?], image: before.to_vec() };
        sides.add(after)?;
        Ok(sides)
    }

    /// Adds the state after another operation.
    fn add(&mut self, after: &[u8]) -> Result<(), String> {
        let after = read(after)?;
        let last = self.states.last().unwrap();
        for (name, tree) in last.iter().filter(|(name, _)| name.contains('@')) {
            if after.get(name).is_some_and(|after| after != tree) {
                return Err(format!("the snapshot {name} has changed"));
            }
        }
        self.states.push(after);
        Ok(())
    }

    /// Which of the two an image shows; times are old or new each for itself.
    fn side(&self, image: &[u8]) -> Result<Side, String> {
        let shown = read(image)?;
        for (name, seen) in
            shown.iter().flat_map(|(name, tree)| tree.values().map(move |seen| (name, seen)))
        {
            let times = |states: &States| {
                let tree = states.get(name)?;
                tree.values().find(|it| it.ino == seen.ino).map(|seen| seen.times)
            };
            let nameless = || read_times(&self.image, name, seen.ino);
            let first = times(&self.states[0]).or_else(nameless);
            let all: Vec<_> = self.states[1..].iter().filter_map(times).chain(first).collect();
            for (which, time) in seen.times.iter().enumerate() {
                if !all.iter().any(|known| known[which] == *time) {
                    return Err(format!("{name}: time {which} of inode {} is {time:?}", seen.ino));
                }
            }
        }
        let is_shown = |state: &States| Side::from(is_alike(&shown, state));
        let side =
            (0..).zip(&self.states).fold(0, |side, (which, state)| side | is_shown(state) << which);
        if side == 0 { Err("neither the state before nor one after".to_owned()) } else { Ok(side) }
    }
}

impl Recording {
    fn after(&self) -> Vec<u8> {
        let mut image = self.before.clone();
        for event in &self.events {
            if let Event::Store { at, bytes } | Event::Fill { at, bytes } = event {
                put(&mut image, *at, bytes);
            }
        }
        image
    }

    /// Single stores, in the order in which a processor could make them.
    fn stores(&self) -> Vec<(u64, &[u8])> {
        let mut stores = Vec::new();
        for event in &self.events {
            match event {
                Event::Store { at, bytes } => stores.push((*at, &bytes[..])),
                Event::Fill { at, bytes } if bytes.len() <= FILL_BYTES_MAX => {
                    let words = bytes.chunks(8).enumerate();
                    stores.extend(words.map(|(which, word)| (at + which as u64 * 8, word)));
                }
                Event::Fill { at, bytes } => {
                    let (first, second) = bytes.split_at(bytes.len() / 2);
                    stores.push((at + first.len() as u64, second));
                    stores.push((*at, first));
                }
                Event::Flush { .. } | Event::Fence | Event::WriteBack => {}
            }
        }
        stores
    }

    /// After each store the image shows the state before or the one after, and switches once.
    ///
    /// # Errors
    /// The store after which it does not.
    pub(crate) fn every_store(&self) -> Result<u64, String> {
        let sides = Sides::of(&self.before, &self.after())?;
        let mut image = self.before.clone();
        let (mut has_switched, mut checks) = (false, 0);
        for (which, (at, bytes)) in self.stores().into_iter().enumerate() {
            put(&mut image, at, bytes);
            let said = |what: String| format!("after store {which} at {at:#x}: {what}");
            match sides.side(&image).map_err(said)? {
                BEFORE if has_switched => return Err(said("it goes back".to_owned())),
                AFTER => has_switched = true,
                _ => {}
            }
            checks += 1;
        }
        Ok(checks)
    }

    /// Whatever lines a crash keeps, the image shows the state before or the one after, also when
    /// it was recovered; and when the operation has returned, it shows the one after.
    ///
    /// # Errors
    /// What a crash would leave.
    pub(crate) fn every_crash(&self, draw: &mut Draw<'_>) -> Result<u64, String> {
        let sides = Sides::of(&self.before, &self.after())?;
        self.crashes(&self.events, &sides, BEFORE, draw)
    }

    /// The same of this operation and the one that follows, where the last fence of each is left
    /// out: a crash shows the state before, the one after this operation, or the one after both.
    /// When both have returned this one is durable.
    ///
    /// # Errors
    /// What a crash would leave.
    pub(crate) fn every_crash_of_epochs(
        &self,
        next: &Recording,
        draw: &mut Draw<'_>,
    ) -> Result<u64, String> {
        let mut sides = Sides::of(&self.before, &self.after())?;
        sides.add(&next.after())?;
        let events = [&self.events[..], &next.events].concat();
        self.crashes(&events, &sides, BEFORE, draw)
    }

    /// Whether a crash when it has returned can show the state before.
    pub(crate) fn is_lost_by_a_crash(&self) -> bool {
        let sides = Sides::of(&self.before, &self.after()).unwrap();
        let mut cache = Cache::new(self.before.clone());
        self.events.iter().for_each(|event| cache.happen(event));
        sides.side(&cache.durable) == Ok(BEFORE)
    }

    /// Judges the crashes of a row of events; at their end none may show `lost` alone.
    fn crashes(
        &self,
        events: &[Event],
        sides: &Sides,
        lost: Side,
        draw: &mut Draw<'_>,
    ) -> Result<u64, String> {
        let mut cache = Cache::new(self.before.clone());
        let mut states = 0;
        for event in events {
            if *event == Event::Fence {
                states += cache.judge(sides, draw)?;
            }
            cache.happen(event);
        }
        states += cache.judge(sides, draw)?;
        match sides.side(&cache.durable)? == lost {
            true => Err("an operation has returned and is not durable".to_owned()),
            false => Ok(states + 1),
        }
    }
}

/// What a processor holds back of an image.
struct Cache {
    durable: Vec<u8>,
    /// Stores by line, in their order, each inside of its line.
    lines: BTreeMap<u64, Vec<(u64, Vec<u8>)>>,
    /// How many of them have been written back.
    flushed: BTreeMap<u64, usize>,
}

impl Cache {
    fn new(durable: Vec<u8>) -> Cache {
        Cache { durable, lines: BTreeMap::new(), flushed: BTreeMap::new() }
    }

    fn happen(&mut self, event: &Event) {
        match event {
            Event::Store { at, bytes } => self.store(*at, bytes),
            Event::Fill { at, bytes } => {
                for (which, word) in bytes.chunks(8).enumerate() {
                    self.store(at + which as u64 * 8, word);
                }
            }
            Event::Flush { at, bytes } => self.flush(*at, *bytes),
            Event::Fence => self.fence(),
            Event::WriteBack => {}
        }
    }

    fn store(&mut self, at: u64, bytes: &[u8]) {
        let split = bytes.len().min((LINE - at % LINE) as usize);
        let (here, beyond) = bytes.split_at(split);
        self.lines.entry(at / LINE).or_default().push((at, here.to_vec()));
        if !beyond.is_empty() {
            self.store(at + split as u64, beyond);
        }
    }

    fn flush(&mut self, at: u64, bytes: u64) {
        for line in at / LINE..(at + bytes).div_ceil(LINE) {
            if let Some(stores) = self.lines.get(&line) {
                self.flushed.insert(line, stores.len());
            }
        }
    }

    fn fence(&mut self) {
        for (line, count) in std::mem::take(&mut self.flushed) {
            let stores = self.lines.entry(line).or_default();
            for (at, bytes) in stores.drain(..count) {
                put(&mut self.durable, at, &bytes);
            }
            if stores.is_empty() {
                self.lines.remove(&line);
            }
        }
    }

    /// Judges states that a crash at this moment could leave.
    fn judge(&self, sides: &Sides, draw: &mut Draw<'_>) -> Result<u64, String> {
        let counts: Vec<u64> = self.lines.values().map(|stores| stores.len() as u64 + 1).collect();
        let all = counts.iter().try_fold(1_u64, |product, count| product.checked_mul(*count));
        let exhaustive = all.filter(|all| *all <= draw.most);
        let states = exhaustive.unwrap_or(draw.most);
        for state in 0..states {
            let mut image = self.durable.clone();
            let mut rest = state;
            for (stores, count) in self.lines.values().zip(&counts) {
                let kept = match exhaustive {
                    Some(_) => rest % count,
                    None => match draw.random.below(4) {
                        0 => 0,
                        1 => count - 1,
                        _ => draw.random.below(*count),
                    },
                };
                rest /= count;
                for (at, bytes) in &stores[..kept as usize] {
                    put(&mut image, *at, bytes);
                }
            }
            (draw.visit)(&image);
            let side = sides.side(&image)?;
            judge_recovery(sides, side, image, draw)?;
        }
        Ok(states)
    }
}

/// A recovery keeps the side, wherever another crash stops it.
fn judge_recovery(
    sides: &Sides,
    side: Side,
    mut image: Vec<u8>,
    draw: &mut Draw<'_>,
) -> Result<(), String> {
    let mut has_stored = false;
    for event in recover(&image)? {
        if let Event::Store { at, bytes } | Event::Fill { at, bytes } = event {
            put(&mut image, at, &bytes);
            has_stored = true;
            // Which pages are spare is no part of a state.
            if SPARE.contains(&at) {
                continue;
            }
            (draw.visit)(&image);
            let again = sides.side(&image)?;
            if side != again {
                return Err(format!("{side:?} is recovered as {again:?}"));
            }
        }
    }
    if has_stored { recover(&image).map(drop) } else { Ok(()) }
}
