//! Random histories of snapshots, forks, rollbacks, promotions, destructions and adopted blocks on
//! the engine and on the store in memory: the same answers and the same content everywhere, the
//! verifier finds nothing, and in the end all space is back.

use crate::fixture::{Home, Random, check_all, create_pool, noise, open_pool};
use marram_check::FindingKind;
use marram_device::{Device, MemoryDevice};
use marram_store::memory::MemoryStore;
use marram_store::{Batch, Block, Error, Item, Key, Result, Source, Store, kind};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects that batches of a history touch.
const OBJECTS: u64 = 30;
/// Datasets at the same time.
const DATASETS_MAX: usize = 14;

/// The same store twice.
struct Twins {
    home: Home,
    memory: MemoryStore,
    random: Random,
    names: u64,
}

/// What can be compared of an answer.
fn kind_of<T>(result: &Result<T>) -> &'static str {
    match result {
        Ok(_) => "done",
        Err(Error::InUse { .. }) => "in use",
        Err(Error::DatasetExists(_)) => "exists",
        Err(Error::NoDataset(_)) => "not there",
        Err(Error::Invalid(_)) => "invalid",
        Err(_) => "another error",
    }
}

fn key(object: u64) -> Key {
    Key::new(object, kind::SECTION, 0)
}

/// The content of all items of a dataset.
fn contents(store: &dyn Store, source: &Source) -> BTreeMap<Key, Vec<u8>> {
    let view = store.open(source).unwrap();
    let mut items = Vec::new();
    view.scan(key(0), Key::MAX, &mut |key, item| {
        if key.kind != kind::REFERENCES {
            items.push((key, item.block.clone().unwrap()));
        }
        true
    })
    .unwrap();
    items.into_iter().map(|(key, block)| (key, view.read_block(&block).unwrap().to_vec())).collect()
}

/// What there is, without what the two stores may report differently.
fn listing(store: &dyn Store) -> Vec<(String, Option<String>, u64, String)> {
    let reports = store.list().unwrap().into_iter();
    reports
        .map(|report| {
            let kind = format!("{:?}", report.kind);
            let origin = report.origin.map(|origin| origin.to_string());
            (report.source.to_string(), origin, report.root_object, kind)
        })
        .collect()
}

/// The engine is asked, not the file system: there is none.
fn is_of_the_engine(kind: FindingKind) -> bool {
    !matches!(
        kind,
        FindingKind::CountersMissing
            | FindingKind::RootMissing
            | FindingKind::InodeMissing
            | FindingKind::InodeCount
            | FindingKind::ItemMalformed
    )
}

#[track_caller]
fn assert_engine_clean(device: &dyn Device, what: &str) {
    let findings: Vec<String> = check_all(device)
        .1
        .into_iter()
        .filter(|finding| is_of_the_engine(finding.kind))
        .map(|finding| finding.to_string())
        .collect();
    assert!(findings.is_empty(), "{what}: {}", findings.join("\n"));
}

impl Twins {
    fn new(seed: u64) -> Twins {
        let memory = Arc::new(MemoryDevice::new(96 << 20));
        create_pool(&[memory.clone() as Arc<dyn Device>], &[("compression", "off")]);
        let pool = open_pool(vec![memory.clone() as Arc<dyn Device>]);
        let home = Home { memory, pool };
        Twins { home, memory: MemoryStore::new(), random: Random::new(seed), names: 0 }
    }

    fn stores(&self) -> [&dyn Store; 2] {
        [&*self.home.pool, &self.memory]
    }

    /// Asks both for the same; both say the same.
    fn both<T>(&self, what: &str, ask: impl Fn(&dyn Store) -> Result<T>) {
        let [found, expected] = self.stores().map(ask);
        let error = found.as_ref().err().map(ToString::to_string);
        assert_eq!(kind_of(&found), kind_of(&expected), "{what}: {error:?}");
    }

    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    fn pick(&mut self, wanted: impl Fn(&Source) -> bool) -> Option<Source> {
        let reports = self.memory.list().unwrap();
        let mut sources: Vec<Source> = reports.into_iter().map(|report| report.source).collect();
        sources.retain(wanted);
        let place = self.random.below(sources.len().max(1) as u64);
        sources.into_iter().nth(usize::try_from(place).unwrap())
    }

    fn live(&mut self) -> Source {
        self.pick(|source| source.snapshot.is_none()).unwrap()
    }

    fn snapshot(&mut self) -> Option<Source> {
        self.pick(|source| source.snapshot.is_some())
    }

    fn put_some(&mut self) {
        let source = self.live();
        for _ in 0..=self.random.below(6) {
            let object = self.random.below(OBJECTS) + 1;
            let len = [200, 3_000, 9_000][usize::try_from(self.random.below(3)).unwrap()];
            let content = noise(self.random.next(), len);
            for store in self.stores() {
                let view = store.open(&source).unwrap();
                let mut batch = Batch::new();
                let block = Block::fresh(content.clone());
                batch.put(key(object), Item::with_block(&b"v"[..], block));
                view.apply(batch).unwrap();
            }
        }
    }

    fn remove_or_share(&mut self) {
        let source = self.live();
        let (from, to) = (self.random.below(OBJECTS) + 1, self.random.below(OBJECTS) + 1);
        let shares = self.random.below(2) == 0 && from != to;
        for store in self.stores() {
            let view = store.open(&source).unwrap();
            let item = view.get(key(from)).unwrap();
            let mut batch = Batch::new();
            match item {
                Some(item) if shares => {
                    batch.put(key(from), item.clone()).put(key(to), item);
                }
                _ => {
                    batch.remove(key(from));
                }
            }
            view.apply(batch).unwrap();
        }
    }

    /// Takes over some blocks of a snapshot, some of them twice.
    fn adopt_some(&mut self) {
        let Some(from) = self.snapshot() else { return };
        let to = self.live();
        let (first, count) = (self.random.below(OBJECTS) + 1, self.random.below(8) + 1);
        let twice = self.random.below(3) == 0;
        for store in self.stores() {
            let (kept, view) = (store.open(&from).unwrap(), store.open(&to).unwrap());
            let mut batch = Batch::new();
            for object in first..first + count {
                let Some(item) = kept.get(key(object)).unwrap() else { continue };
                let block = view.adopt(&*kept, &item.block.unwrap()).unwrap();
                batch.put(key(object), Item::with_block(item.value.clone(), block.clone()));
                if twice {
                    batch.put(key(object + 1_000), Item::with_block(item.value, block));
                }
            }
            view.apply(batch).unwrap();
        }
    }

    fn make_one(&mut self) {
        if self.memory.list().unwrap().len() > 4 * DATASETS_MAX {
            return;
        }
        let (source, name) = (self.live(), self.name("d"));
        let dataset = source.dataset;
        match self.random.below(4) {
            0 | 1 => self.both("snapshot", |store| store.snapshot(&dataset, &name)),
            2 => {
                let fork = format!("forks/{name}").parse().unwrap();
                self.both("fork", |store| store.fork(&dataset, &fork, 5));
            }
            _ => {
                let Some(origin) = self.snapshot() else { return };
                let clone = name.parse().unwrap();
                self.both("clone", |store| store.clone_snapshot(&origin, &clone));
            }
        }
    }

    fn change_lines(&mut self) {
        match self.random.below(6) {
            0 | 1 => {
                let Some(to) = self.snapshot() else { return };
                let kept = self.name("k");
                self.both(&format!("rollback to {to}"), |store| store.rollback(&to, &kept));
            }
            2 => {
                let source = self.live();
                let what = format!("promote {source}");
                self.both(&what, |store| store.promote(&source.dataset));
            }
            3 => {
                let to = Source::live(self.name("r").parse().unwrap());
                let from = self.live();
                self.both("rename", |store| store.rename(&from, &to));
            }
            _ => {
                let wanted = self.random.below(3) > 0;
                let gone = self.pick(|source| source.snapshot.is_some() == wanted);
                let Some(gone) = gone else { return };
                self.both(&format!("destroy {gone}"), |store| store.destroy(&gone, false));
            }
        }
    }

    /// Closes or abandons the pool after a sync, and opens it again.
    fn reopen(&mut self) {
        let root = Source::live(marram_store::DatasetName::root());
        match self.random.below(2) {
            0 => self.home.pool.close().unwrap(),
            _ => self.home.pool.open(&root).unwrap().sync().unwrap(),
        }
        assert_engine_clean(&*self.home.memory, "after a sync");
        self.home.pool = open_pool(vec![self.home.memory.clone() as Arc<dyn Device>]);
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=6 => self.put_some(),
            7..=8 => self.remove_or_share(),
            9..=11 => self.adopt_some(),
            12..=14 => self.make_one(),
            15..=16 => self.change_lines(),
            17 => self.home.pool.commit().unwrap(),
            18 => {
                self.home.pool.reclaim_step().unwrap();
            }
            _ => self.reopen(),
        }
    }

    fn compare(&self, what: &str) {
        assert_eq!(listing(&*self.home.pool), listing(&self.memory), "{what}");
        for report in self.memory.list().unwrap() {
            let source = report.source;
            let [found, expected] = self.stores().map(|store| contents(store, &source));
            assert!(found == expected, "{what}: {source}");
        }
    }

    /// Destroys all but the root, empties that, and sees that every byte is back.
    fn destroy_all(&mut self, what: &str) {
        for _ in 0..4 * 4 * DATASETS_MAX {
            let not_root = |source: &Source| source.to_string() != "root";
            let Some(gone) = self.pick(not_root) else { break };
            self.both(&format!("{what}: destroy {gone}"), |store| store.destroy(&gone, false));
        }
        for _ in 0..4 * DATASETS_MAX {
            let Some(gone) = self.pick(|source| source.dataset.as_str() != "root") else { break };
            let gone = Source::live(gone.dataset);
            self.both("promote", |store| store.promote(&gone.dataset));
            self.both("destroy", |store| store.destroy(&gone, false));
        }
        let root = Source::live(marram_store::DatasetName::root());
        for store in self.stores() {
            let view = store.open(&root).unwrap();
            let mut batch = Batch::new();
            contents(store, &root).into_keys().for_each(|key| {
                batch.remove(key);
            });
            view.apply(batch).unwrap();
        }
        while self.home.pool.reclaim_step().unwrap() {}
        self.home.pool.commit().unwrap();
    }
}

fn history(seed: u64, steps: u32) {
    let mut twins = Twins::new(seed);
    twins.home.pool.commit().unwrap();
    let before = twins.home.pool.status().allocated_bytes;
    for step in 0..steps {
        twins.step();
        if step % 25 == 0 {
            twins.compare(&format!("seed {seed} step {step}"));
        }
    }
    twins.compare(&format!("seed {seed} at the end"));
    twins.destroy_all(&format!("seed {seed}"));
    assert_engine_clean(&*twins.home.memory, &format!("seed {seed}, all destroyed"));
    let names = listing(&*twins.home.pool);
    let after = twins.home.pool.status().allocated_bytes;
    if names.len() == 1 {
        // The pool's own tree may have kept a node or two more than it began with.
        assert!(after <= before + (128 << 10), "seed {seed}: {before} bytes, then {after}");
    }
}

#[test]
fn lines_forks_and_owners_agree_with_the_store_in_memory() {
    for seed in 0..8 {
        history(seed, 250);
    }
}
