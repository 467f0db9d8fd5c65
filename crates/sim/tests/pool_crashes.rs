//! The pool after a power cut at any moment: every state of the device that a crash could leave
//! leads to the state of one group commit, and never to one older than what was acknowledged.

use crate::small_pool;
use marram_device::{Device, MemoryDevice};
use marram_pool::{OpenOptions, Pool};
use marram_sim::Random;
use marram_sim::device::{CrashState, RecordingDevice};
use marram_store::{Batch, Block, Item, Key, Store, View, kind};
use std::collections::BTreeMap;
use std::sync::Arc;

type Content = BTreeMap<Key, Vec<u8>>;

fn open(device: Arc<dyn Device>) -> Arc<Pool> {
    Pool::open(vec![device], OpenOptions::new(|| 0)).expect("a pool opens after any crash")
}

fn view(pool: &Pool, source: &str) -> Arc<dyn View> {
    pool.open(&source.parse().expect("a name")).expect("the dataset is there")
}

fn read(view: &dyn View) -> Content {
    let mut keys = Vec::new();
    view.scan(Key::MIN, Key::MAX, &mut |key, item| {
        if key.kind != kind::REFERENCES {
            keys.push((key, item.clone()));
        }
        true
    })
    .expect("all items can be read");
    let content = |item: Item| match item.block {
        Some(block) => view.read_block(&block).expect("all content can be read").to_vec(),
        None => item.value.to_vec(),
    };
    keys.into_iter().map(|(key, item)| (key, content(item))).collect()
}

fn change(random: &mut Random, live: &dyn View, now: &mut Content) {
    let mut batch = Batch::new();
    let mut keys = Vec::new();
    for _ in 0..=random.below(4) {
        let key = Key::new(random.below(6), kind::SECTION, random.below(5) * 4096);
        if keys.contains(&key) {
            continue;
        }
        keys.push(key);
        let len = usize::try_from([1, 900, 5000, 70_000][random.below(4) as usize]).expect("small");
        let content: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
        if random.below(4) == 0 {
            batch.remove(key);
            now.remove(&key);
        } else {
            batch.put(key, Item::with_block(&b""[..], Block::fresh(content.clone())));
            now.insert(key, content);
        }
    }
    live.apply(batch).expect("there is space");
}

#[test]
fn every_crash_leads_to_the_state_of_one_commit() {
    for seed in [1] {
        let device = Arc::new(RecordingDevice::in_memory(small_pool::empty("crash")));
        let pool = open(device.clone());
        let live = view(&pool, "root");
        let mut random = Random::new(seed);
        let mut now = Content::new();
        let mut committed = BTreeMap::from([(pool.status().group, now.clone())]);
        for round in 0..12 {
            for _ in 0..=random.below(5) {
                change(&mut random, &*live, &mut now);
            }
            if round % 4 == 1 {
                pool.snapshot(&"root".parse().expect("a name"), &format!("s{round}"))
                    .expect("a snapshot");
            } else if round % 4 == 3 {
                let name = format!("root@s{}", round - 2).parse().expect("a name");
                pool.destroy(&name, false).expect("the snapshot goes");
            } else {
                pool.commit().expect("memory takes a commit");
            }
            committed.insert(pool.status().group, now.clone());
            device.mark(pool.status().group);
        }
        let trace = device.trace();
        let states: Vec<CrashState> =
            trace.prefixes().chain(trace.subsets(3)).chain(trace.seeded(seed, 100)).collect();
        assert!(states.len() > 200, "{} states", states.len());
        for state in states {
            let memory = Arc::new(MemoryDevice::from_bytes(trace.image(state)));
            let pool = open(memory);
            let group = pool.status().group;
            let acknowledged = trace.last_mark(state.cut).unwrap_or(0);
            assert!(group >= acknowledged, "seed {seed} state {state}: group {group} came back");
            let expected = committed.get(&group).unwrap_or_else(|| panic!("no group {group}"));
            assert_eq!(&read(&*view(&pool, "root")), expected, "seed {seed} state {state}");
        }
    }
}
