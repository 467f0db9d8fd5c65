//! What holds the space: reported exactly, whatever has happened, and given back as promised.

use crate::support;
use crate::support::{content, new_pool, noise, put, remove, root, section, view};
use marram_device::{Device, MemoryDevice};
use marram_pool::{OpenOptions, Pool};
use marram_store::{
    Admission, Batch, DatasetKind, DatasetName, Destruction, Error, FrozenViews, Item, Lineage,
    Source, SpaceUsage, Store, Usage,
};
use std::sync::Arc;

/// Objects that a dataset of these tests may have.
const OBJECTS: u64 = 40;
/// Steps of one history.
const STEPS: usize = 150;
/// Datasets and forks that a history may have at a time.
const LIVE_MAX: usize = 8;

/// xorshift64*: one seed is one history.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }

    fn choose<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        (!from.is_empty()).then(|| from[self.below(from.len())].clone())
    }
}

struct World {
    pool: Arc<Pool>,
    /// Whether all that was destroyed is given back before anything else is done.
    settles: bool,
    dice: Dice,
    names: usize,
    chances: Chances,
}

/// What a history may do beside what all do.
#[derive(Clone, Copy)]
struct Chances {
    /// Bring blocks from one dataset into another.
    adopts: bool,
    /// Hand snapshots over to clones.
    promotes: bool,
}

impl World {
    fn live(&self) -> Vec<DatasetName> {
        let all = self.pool.list().unwrap().into_iter();
        let live = all.filter(|report| report.kind != DatasetKind::Snapshot);
        live.map(|report| report.source.dataset).collect()
    }

    fn snapshots(&self) -> Vec<Source> {
        let all = self.pool.list().unwrap().into_iter();
        let kept = all.filter(|report| report.kind == DatasetKind::Snapshot);
        kept.map(|report| report.source).collect()
    }

    fn new_name(&mut self) -> DatasetName {
        self.names += 1;
        format!("d{}", self.names).parse().unwrap()
    }

    fn write(&mut self) {
        let dataset = self.dice.choose(&self.live()).unwrap();
        let view = view(&self.pool, dataset.as_str());
        for _ in 0..=self.dice.below(6) {
            let key = section(self.dice.below(OBJECTS as usize) as u64 + 1, 0);
            match self.dice.below(4) {
                0 => remove(&*view, key).unwrap(),
                _ => {
                    let (seed, len) = (self.dice.below(1 << 30), self.dice.below(60_000) + 1);
                    put(&*view, key, noise(seed as u64, len)).unwrap();
                }
            }
        }
    }

    /// A section of one dataset becomes one of another too, or of the same once more.
    fn share(&mut self) {
        let (from, to) = (self.dice.choose(&self.snapshots()), self.dice.choose(&self.live()));
        let (Some(from), Some(to)) = (from, to) else { return };
        let (from, to) = (self.pool.open(&from).unwrap(), view(&self.pool, to.as_str()));
        for _ in 0..4 {
            let key = section(self.dice.below(OBJECTS as usize) as u64 + 1, 0);
            let Some(Item { value, block: Some(block) }) = from.get(key).unwrap() else { continue };
            let block = to.adopt(&*from, &block).unwrap();
            let mut batch = Batch { admission: Admission::Ordinary, ..Batch::new() };
            let key = section(self.dice.below(OBJECTS as usize) as u64 + 1, 0);
            batch.put(key, Item { value, block: Some(block) });
            to.apply(batch).unwrap();
        }
    }

    fn keep(&mut self) {
        let name = self.new_name();
        let live = self.live();
        match self.dice.below(3) {
            0 => self.pool.snapshot_together(&live, name.as_str()).unwrap(),
            _ => {
                let dataset = self.dice.choose(&live).unwrap();
                self.pool.snapshot(&dataset, name.as_str()).unwrap();
            }
        }
    }

    fn begin(&mut self) {
        let live = self.live();
        if live.len() >= LIVE_MAX {
            return;
        }
        let name = self.new_name();
        match (self.dice.below(2), self.dice.choose(&self.snapshots())) {
            (0, Some(origin)) => self.pool.clone_snapshot(&origin, &name).unwrap(),
            _ => self.pool.fork(&self.dice.choose(&live).unwrap(), &name, 1).unwrap(),
        }
    }

    fn go_back(&mut self) {
        let Some(to) = self.dice.choose(&self.snapshots()) else { return };
        let keep = self.new_name();
        match self.dice.below(3) {
            0 if self.chances.promotes => {
                drop(self.pool.promote(&self.dice.choose(&self.live()).unwrap()))
            }
            _ => self.pool.rollback(&to, keep.as_str()).unwrap(),
        }
    }

    /// Some that are destroyed together.
    fn some(&mut self) -> Vec<Source> {
        let (snapshots, live) = (self.snapshots(), self.live());
        let mut chosen = Vec::new();
        for _ in 0..=self.dice.below(5) {
            match self.dice.below(4) {
                0 => chosen.extend(self.dice.choose(&live).map(Source::live)),
                _ => chosen.extend(self.dice.choose(&snapshots)),
            }
        }
        chosen.retain(|source| source.to_string() != "root");
        chosen
    }

    fn step(&mut self) {
        match self.dice.below(16) {
            0..=6 => self.write(),
            7 | 8 if self.chances.adopts => self.share(),
            7..=10 => self.keep(),
            11 => self.begin(),
            12 => self.go_back(),
            _ => {
                let chosen = self.some();
                match self.settles {
                    true => promise_is_kept(&self.pool, &chosen),
                    false => drop(self.pool.destroy_together(&chosen, false)),
                }
            }
        }
    }
}

fn settled(pool: &Pool) -> Usage {
    pool.commit().unwrap();
    while pool.reclaim_step().unwrap() {}
    let usage = pool.usage(true).unwrap();
    let added: u64 = usage.holders.iter().map(|holder| holder.added_bytes).sum();
    assert_eq!(usage.leaving_bytes, 0, "nothing is left of what was destroyed");
    assert_eq!(added + usage.own_bytes, usage.allocated_bytes + usage.shared_bytes);
    let status = pool.status();
    assert_eq!(usage.allocated_bytes, status.allocated_bytes);
    usage
}

/// Bytes in use, without what the pool has for itself.
fn held(usage: &Usage) -> u64 {
    usage.allocated_bytes - usage.own_bytes
}

/// Destroys what can be, and compares what came back with what was promised. Of one alone that is
/// what is unique to it.
fn promise_is_kept(pool: &Pool, sources: &[Source]) {
    let before = settled(pool);
    let promised: Destruction = match pool.destroy_together(sources, true) {
        Ok(promised) => promised,
        Err(Error::InUse { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    assert!(sources.iter().all(|source| promised.sources.contains(source)));
    let unique =
        before.holders.iter().find(|holder| promised.sources == [holder.report.source.clone()]);
    if let Some(holder) = unique {
        assert_eq!(holder.unique_bytes, promised.freed_bytes, "{}", holder.report.source);
    }
    assert_eq!(pool.destroy_together(sources, false).unwrap(), promised);
    let leaving = pool.usage(true).unwrap();
    let added: u64 = leaving.holders.iter().map(|holder| holder.added_bytes).sum();
    assert_eq!(
        added + leaving.own_bytes + leaving.leaving_bytes,
        leaving.allocated_bytes + leaving.shared_bytes
    );
    let after = settled(pool);
    assert_eq!(held(&before) - held(&after), promised.freed_bytes, "{:?}", promised.sources);
}

fn history(seed: u64, chances: Chances) {
    let (_, pool) = new_pool(256, &[]);
    let mut world = World { pool, settles: true, dice: Dice(seed), names: 0, chances };
    for _ in 0..STEPS {
        world.step();
        settled(&world.pool);
    }
    let pool = world.pool;
    if chances.promotes {
        return;
    }
    let all = pool.list().unwrap().into_iter().map(|report| report.source);
    let all: Vec<Source> = all.filter(|source| source.to_string() != "root").collect();
    promise_is_kept(&pool, &all);
    let usage = settled(&pool);
    let [only] = &usage.holders[..] else { panic!("the root dataset is left: {usage:?}") };
    assert!(chances.adopts || usage.shared_bytes == 0);
    assert_eq!(only.added_bytes, only.report.referenced_bytes);
}

#[test]
fn what_destroying_promises_comes_back() {
    for seed in 1..=8 {
        history(seed, Chances { adopts: false, promotes: seed % 2 == 0 });
    }
}

#[test]
fn what_destroying_promises_comes_back_where_blocks_have_several_owners() {
    for seed in 101..=108 {
        history(seed, Chances { adopts: true, promotes: seed % 2 == 0 });
    }
}

/// A history in which what was destroyed is given back in the smallest steps, now and then one;
/// returns how many of them had others after them.
fn history_beside_steps(seed: u64, chances: Chances) -> usize {
    let (memory, pool) = new_pool(256, &[]);
    drop(pool);
    let options = OpenOptions { reclaim_pointers_max: 1, ..OpenOptions::new(|| 0) };
    let pool = Pool::open(vec![memory.clone() as Arc<dyn Device>], options).unwrap();
    let mut world = World { pool, settles: false, dice: Dice(seed), names: 0, chances };
    let mut waited = 0;
    for step in 0..STEPS {
        world.step();
        world.pool.commit().unwrap();
        if world.dice.below(4) == 0 {
            waited += usize::from(world.pool.reclaim_step().unwrap());
        }
        if step % 15 == 14 {
            told_as_if_all_had_come_back(&memory, &world.pool, chances);
        }
    }
    settled(&world.pool);
    waited
}

/// What is reported while something waits to be given back is what is reported when nothing does.
fn told_as_if_all_had_come_back(memory: &MemoryDevice, pool: &Pool, chances: Chances) {
    pool.commit().unwrap();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(memory.snapshot()));
    let other = support::open(&device);
    let (now, after) = (pool.usage(true).unwrap(), settled(&other));
    let told = |usage: &Usage| -> u64 { usage.holders.iter().map(|it| it.added_bytes).sum() };
    assert_eq!(told(&now), told(&after));
    assert_eq!(
        told(&now) + now.own_bytes + now.leaving_bytes,
        now.allocated_bytes + now.shared_bytes
    );
    // What waits still owns blocks.
    if chances.adopts {
        return;
    }
    assert_eq!(now.holders, after.holders);
    let names: Vec<Source> = now.holders.into_iter().map(|holder| holder.report.source).collect();
    for some in names.windows(3) {
        let (now, after) = (pool.destroy_together(some, true), other.destroy_together(some, true));
        assert_eq!(now.ok(), after.ok(), "{some:?}");
    }
}

#[test]
fn what_is_told_is_right_beside_what_waits_to_be_given_back() {
    let history =
        |seed| history_beside_steps(seed, Chances { adopts: false, promotes: seed % 2 == 0 });
    let waited: usize = (201..=208).map(history).sum();
    assert!(waited > 40, "{waited} steps had others after them");
}

#[test]
fn what_is_told_is_right_beside_what_waits_where_blocks_have_several_owners() {
    let history =
        |seed| history_beside_steps(seed, Chances { adopts: true, promotes: seed % 2 == 0 });
    let waited: usize = (301..=304).map(history).sum();
    assert!(waited > 20, "{waited} steps had others after them");
}

#[test]
fn what_several_snapshots_hold_comes_back_when_all_of_them_go() {
    let (_, pool) = new_pool(64, &[]);
    let live = DatasetName::root();
    pool.snapshot(&live, "before").unwrap();
    put(&*root(&pool), section(1, 0), noise(1, 400_000)).unwrap();
    for name in ["a", "b", "c"] {
        pool.snapshot(&live, name).unwrap();
    }
    remove(&*root(&pool), section(1, 0)).unwrap();
    put(&*root(&pool), section(2, 0), noise(2, 9_000)).unwrap();
    pool.commit().unwrap();
    let unique = |name: &str| {
        let usage = pool.usage(true).unwrap();
        let found = usage.holders.iter().find(|holder| holder.report.source.to_string() == name);
        found.unwrap().unique_bytes
    };
    assert!(["root@a", "root@b", "root@c"].iter().all(|name| unique(name) < 100_000));
    let all: Vec<Source> =
        ["root@a", "root@b", "root@c"].iter().map(|name| name.parse().unwrap()).collect();
    let two = pool.destroy_together(&all[..2], true).unwrap().freed_bytes;
    let three = pool.destroy_together(&all, true).unwrap().freed_bytes;
    assert!(two < 100_000 && three >= 400_000, "{two} and {three}");
    promise_is_kept(&pool, &all);
    assert_eq!(content(&*root(&pool), section(2, 0)), Some(noise(2, 9_000)));
    assert_eq!(content(&*view(&pool, "root@before"), section(1, 0)), None);
}

#[test]
fn a_frozen_dataset_stays_as_it_was_while_others_write_and_destroy() {
    let (_, pool) = new_pool(64, &[]);
    let live = DatasetName::root();
    for object in 1..=8 {
        put(&*root(&pool), section(object, 0), noise(object, 200_000)).unwrap();
    }
    pool.commit().unwrap();
    let frozen = pool.frozen(&Source::live(live.clone())).unwrap();
    let held = |object: u64| {
        let block = frozen.get(section(object, 0)).unwrap().unwrap().block.unwrap();
        frozen.holding(&block).unwrap().unwrap()
    };
    let before = held(1);
    assert!(before.comes_back && before.references == 1 && before.owners == 1, "{before:?}");
    for round in 0..30 {
        pool.snapshot(&live, &format!("s{round}")).unwrap();
        for object in 1..=8 {
            let content = noise(round * 100 + object, 100_000);
            put(&*root(&pool), section(object, 0), content).unwrap();
        }
        pool.commit().unwrap();
        pool.destroy(&format!("root@s{round}").parse().unwrap(), false).unwrap();
    }
    for object in 1..=8 {
        assert_eq!(content(&*frozen, section(object, 0)), Some(noise(object, 200_000)));
    }
    assert_eq!(held(1), before);
    drop(frozen);
    settled(&pool);
}

#[test]
fn who_looks_at_a_moment_never_makes_a_writer_run_out_of_space() {
    let (_, pool) = new_pool(64, &[]);
    let live = root(&pool);
    let fill = |seed: u64| {
        for object in 1..=90 {
            put(&*live, section(object, 0), noise(seed + object, 400_000)).unwrap();
        }
        pool.commit().unwrap();
    };
    fill(0);
    let frozen = pool.frozen(&Source::live(DatasetName::root())).unwrap();
    let free = pool.status().free_bytes;
    for object in 1..=90 {
        remove(&*live, section(object, 0)).unwrap();
    }
    pool.commit().unwrap();
    assert!(pool.status().free_bytes > free + 30_000_000, "what is held back is told as free");
    fill(1000);
    let lost = (1..=90).map(|object| {
        let item = frozen.get(section(object, 0))?;
        frozen.read_block(&item.unwrap().block.unwrap())
    });
    let lost: Vec<Error> = lost.filter_map(Result::err).collect();
    assert!(!lost.is_empty());
    assert!(lost.iter().all(|error| matches!(error, Error::InUse { .. })), "{lost:?}");
    drop(frozen);
    settled(&pool);
    assert_eq!(content(&*live, section(7, 0)), Some(noise(1007, 400_000)));
}

#[test]
fn the_space_is_told_of_one_moment_while_others_write() {
    let (_, pool) = new_pool(256, &[]);
    for round in 0..40 {
        put(&*root(&pool), section(round % 8 + 1, 0), noise(round, 60_000)).unwrap();
        pool.snapshot(&DatasetName::root(), &format!("s{round}")).unwrap();
    }
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..60 {
                put(&*root(&pool), section(round % 8 + 1, 0), noise(round, 50_000)).unwrap();
                pool.commit().unwrap();
                if round % 2 == 0 {
                    let gone = format!("root@s{}", round / 2).parse().unwrap();
                    pool.destroy(&gone, false).unwrap();
                }
            }
        });
        while !writer.is_finished() {
            let usage = pool.usage(true).unwrap();
            let added: u64 = usage.holders.iter().map(|holder| holder.added_bytes).sum();
            let told = added + usage.own_bytes + usage.leaving_bytes;
            assert_eq!(told, usage.allocated_bytes + usage.shared_bytes);
        }
    });
    settled(&pool);
}
