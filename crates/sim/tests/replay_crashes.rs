//! Power cuts one after the other: a pool is opened, changed, synced a little, and cut off again,
//! before, during and after the commit that takes in what was replayed. Each time it holds the
//! state of a sync, and never of one older than the last that was acknowledged.
//!
//! Opening does not commit, so the frames of an earlier run stay what a replay needs until the
//! first commit of a later one is durable. If the log were used again before, a crash in between
//! would lose what was acknowledged runs ago: a chain of crashes finds that, and one does not.

use crate::small_pool;
use bytes::Bytes;
use marram_device::{Device, MemoryDevice};
use marram_pool::{OpenOptions, Pool};
use marram_sim::Random;
use marram_sim::device::{CrashState, RecordingDevice};
use marram_store::{Batch, Block, Item, Key, Store, View, kind};
use std::collections::BTreeMap;
use std::sync::Arc;

type Content = BTreeMap<Key, Vec<u8>>;

const CHAINS: u64 = 4;
/// Crashes of one chain.
const CRASHES: usize = 12;
/// States of each run that are looked at, besides the one that the chain goes on from.
const LOOKS: usize = 4;

fn open(device: Arc<dyn Device>) -> (Arc<Pool>, Arc<dyn View>) {
    let pool = Pool::open(vec![device], OpenOptions::new(|| 0)).expect("it opens after any crash");
    let live = pool.open(&"root".parse().expect("a name")).expect("the dataset is there");
    (pool, live)
}

fn read(live: &dyn View) -> Content {
    let mut items = Vec::new();
    live.scan(Key::MIN, Key::MAX, &mut |key, item| {
        if key.kind == kind::SECTION {
            items.push((key, item.clone()));
        }
        true
    })
    .expect("all items can be read");
    let content = |item: Item| live.read_block(&item.block.expect("it was put with a block"));
    items
        .into_iter()
        .map(|(key, item)| (key, content(item).expect("all content can be read").to_vec()))
        .collect()
}

fn noise(random: &mut Random, len: u64) -> Vec<u8> {
    (0..len).map(|_| random.below(256) as u8).collect()
}

/// A put, a removal, or an append to a block that is fresh or stored.
fn change(random: &mut Random, live: &dyn View, now: &mut Content) {
    let key = Key::new(random.below(4), kind::SECTION, 0);
    let mut batch = Batch::new();
    let len = [1, 900, 5000][random.below(3) as usize];
    let data = noise(random, len);
    match (now.get(&key).cloned(), random.below(4)) {
        (Some(_), 0) => {
            batch.remove(key);
            now.remove(&key);
        }
        (Some(mut old), 1) => {
            let at = old.len();
            let mut patch = Batch::new();
            patch.patch(key, Bytes::new(), at, &data);
            old.extend_from_slice(&data);
            if live.apply(patch).is_err() {
                batch.put(key, Item::with_block(&b""[..], Block::fresh(old.clone())));
            }
            now.insert(key, old);
        }
        _ => {
            batch.put(key, Item::with_block(&b""[..], Block::fresh(data.clone())));
            now.insert(key, data);
        }
    }
    live.apply(batch).expect("there is space");
}

/// What a run leaves: the content at each sync, in order, the first as it was found.
struct Run {
    moments: Vec<Content>,
    device: Arc<RecordingDevice>,
    replayed: bool,
}

fn run(image: Vec<u8>, random: &mut Random) -> Run {
    let device = Arc::new(RecordingDevice::in_memory(image));
    let (pool, live) = open(device.clone());
    let mut now = read(&*live);
    let mut moments = vec![now.clone()];
    device.mark(0);
    for _ in 0..random.below(5) {
        for _ in 0..=random.below(3) {
            change(random, &*live, &mut now);
        }
        moments.push(now.clone());
        match random.below(6) {
            0 => pool.commit(),
            _ => live.sync(),
        }
        .expect("memory takes it");
        device.mark(moments.len() as u64 - 1);
    }
    // Never synced, so it must never be seen.
    change(random, &*live, &mut now);
    Run { moments, device, replayed: pool.status().replayed_frames > 0 }
}

impl Run {
    /// Opens what a crash leaves, and finds the content of an allowed moment.
    fn look(&self, state: CrashState, chain: &str) -> Arc<MemoryDevice> {
        let trace = self.device.trace();
        let memory = Arc::new(MemoryDevice::from_bytes(trace.image(state)));
        let (_pool, live) = open(memory.clone());
        let found = read(&*live);
        let acknowledged = trace.last_mark(state.cut).unwrap_or(0) as usize;
        let is_allowed = self.moments[acknowledged..].contains(&found);
        assert!(is_allowed, "{chain}, state {state}: not a state after sync {acknowledged}");
        memory
    }
}

#[test]
fn chains_of_crashes_lose_nothing_that_was_acknowledged() {
    let mut replays = 0;
    for seed in 0..CHAINS {
        let mut random = Random::new(seed);
        let mut image = small_pool::empty("chain");
        for crash in 0..CRASHES {
            let run = run(image, &mut random);
            replays += u64::from(run.replayed);
            let chain = format!("chain {seed}, crash {crash}");
            let trace = run.device.trace();
            let prefixes: Vec<CrashState> = trace.prefixes().collect();
            for _ in 0..LOOKS {
                run.look(prefixes[random.below(prefixes.len() as u64) as usize], &chain);
            }
            let torn = trace.seeded(random.below(u64::MAX), LOOKS).last();
            let next = torn.unwrap_or_else(|| *prefixes.last().expect("the whole run"));
            image = run.look(next, &chain).snapshot();
        }
    }
    assert!(replays > CHAINS, "only {replays} runs began with a replay");
}
