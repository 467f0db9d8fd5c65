//! Judges what an operation stored: after every single store, and after every crash.

use crate::images::recover;
use crate::reader::{Seen, States, read, read_times};
use marram_pmem::memory::recorded::Event;
use marram_sim::Random;
use std::collections::BTreeMap;

const LINE: u64 = 64;
/// Most states that are gone through where lines are independent; more are drawn.
const STATES_MAX: u64 = 24;
/// Longest fill that is judged word by word.
const FILL_BYTES_MAX: usize = 128;

/// What an operation did to an image.
pub(crate) struct Recording {
    pub(crate) before: Vec<u8>,
    pub(crate) events: Vec<Event>,
}

/// What was seen: the state before, the one after, or either where they are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Before,
    After,
    Either,
}

/// Two states of an image: all its datasets and snapshots.
struct Sides {
    before: States,
    after: States,
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
        let sides = Sides { before: read(before)?, after: read(after)?, image: before.to_vec() };
        for (name, tree) in sides.before.iter().filter(|(name, _)| name.contains('@')) {
            if sides.after.get(name).is_some_and(|after| after != tree) {
                return Err(format!("the snapshot {name} has changed"));
            }
        }
        Ok(sides)
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
            let new = times(&self.after);
            let old = times(&self.before).or_else(|| read_times(&self.image, name, seen.ino));
            for (which, time) in seen.times.iter().enumerate() {
                let is = |it: &Option<[(i64, u64); 4]>| it.is_some_and(|it| it[which] == *time);
                if !is(&old) && !is(&new) {
                    return Err(format!("{name}: time {which} of inode {} is {time:?}", seen.ino));
                }
            }
        }
        match (is_alike(&shown, &self.before), is_alike(&shown, &self.after)) {
            (true, true) => Ok(Side::Either),
            (true, false) => Ok(Side::Before),
            (false, true) => Ok(Side::After),
            (false, false) => Err("neither the state before nor the one after".to_owned()),
        }
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
                Side::Before if has_switched => return Err(said("it goes back".to_owned())),
                Side::After => has_switched = true,
                Side::Before | Side::Either => {}
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
    pub(crate) fn every_crash(&self, random: &mut Random) -> Result<u64, String> {
        let sides = Sides::of(&self.before, &self.after())?;
        let mut cache = Cache::new(self.before.clone());
        let mut states = 0;
        for event in &self.events {
            match event {
                Event::Store { at, bytes } => cache.store(*at, bytes),
                Event::Fill { at, bytes } => {
                    for (which, word) in bytes.chunks(8).enumerate() {
                        cache.store(at + which as u64 * 8, word);
                    }
                }
                Event::Flush { at, bytes } => cache.flush(*at, *bytes),
                Event::WriteBack => {}
                Event::Fence => {
                    states += cache.judge(&sides, random)?;
                    cache.fence();
                }
            }
        }
        states += cache.judge(&sides, random)?;
        match sides.side(&cache.durable)? {
            Side::Before => Err("the operation has returned and is not durable".to_owned()),
            Side::After | Side::Either => Ok(states + 1),
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
    fn judge(&self, sides: &Sides, random: &mut Random) -> Result<u64, String> {
        let counts: Vec<u64> = self.lines.values().map(|stores| stores.len() as u64 + 1).collect();
        let all = counts.iter().try_fold(1_u64, |product, count| product.checked_mul(*count));
        let exhaustive = all.filter(|all| *all <= STATES_MAX);
        let states = exhaustive.unwrap_or(STATES_MAX);
        for state in 0..states {
            let mut image = self.durable.clone();
            let mut rest = state;
            for (stores, count) in self.lines.values().zip(&counts) {
                let kept = match exhaustive {
                    Some(_) => rest % count,
                    None => match random.below(4) {
                        0 => 0,
                        1 => count - 1,
                        _ => random.below(*count),
                    },
                };
                rest /= count;
                for (at, bytes) in &stores[..kept as usize] {
                    put(&mut image, *at, bytes);
                }
            }
            let side = sides.side(&image)?;
            judge_recovery(sides, side, image)?;
        }
        Ok(states)
    }
}

/// A recovery keeps the side, wherever another crash stops it.
fn judge_recovery(sides: &Sides, side: Side, mut image: Vec<u8>) -> Result<(), String> {
    for event in recover(&image)? {
        if let Event::Store { at, bytes } | Event::Fill { at, bytes } = event {
            put(&mut image, at, &bytes);
            let again = sides.side(&image)?;
            if side != again {
                return Err(format!("{side:?} is recovered as {again:?}"));
            }
        }
    }
    recover(&image).map(drop)
}
